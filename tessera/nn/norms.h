// SPDX-License-Identifier: Apache-2.0
// Normalisation layers. Names, arguments and defaults match PyTorch. 16-bit floats are normalised in f32.
#pragma once

#include "tessera/nn/setup.h"

namespace tessera {

/// Batch normalisation (Ioffe and Szegedy 2015): (x - mean) / sqrt(variance + epsilon) * weight + bias for each channel
/// of x (batch, channels, ...). In training, it uses the mean and variance of the batch. It also computes new running
/// statistics, which move by `momentum` towards those of the batch (with the unbiased variance). The Training scope
/// stores this update, and mode.apply(model) writes it. In inference, the layer uses the running statistics. Throws
/// ShapeError if the number of channels of x differs from that of the layer, or if a channel has only one value in
/// training.
struct BatchNorm {
  std::int64_t channels = 0;                            ///< Number of channels; 0: inferred.
  double epsilon = 1e-5;                                ///< Added to the variance.
  double momentum = 0.1;                                ///< Weight of a new batch in the running mean and variance.
  bool affine = true;                                   ///< use `weight` and `bias`
  Parameter weight = {}, bias = {};                     ///< Scale and offset of each channel.
  StateArray running_mean = {}, running_variance = {};  ///< Updated in training, used in inference.
  /// If not 0, compile() has folded the norm into the previous layer, and operator() returns x. The value is the number
  /// of dimensions of that layer's result.
  int folded = 0;

  Array operator()(const Array& x) const;  ///< Normalises each channel over the batch; the shape is unchanged.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

/// Layer normalisation (Ba, Kiros, Hinton 2016): (x - mean) / sqrt(variance + epsilon) * weight + bias over the last
/// axes. Their extents are `shape`.
struct LayerNorm {
  Shape shape = {};                  ///< extents of the normalised axes; empty: only the last axis
  double epsilon = 1e-5;             ///< Added to the variance.
  bool affine = true;                ///< use `weight`
  bool with_bias = true;             ///< use `bias`
  Parameter weight = {}, bias = {};  ///< Scale and offset of each element.

  Array operator()(const Array& x) const;  ///< Normalises over the last axes; the shape is unchanged.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

/// RMS normalisation (Zhang and Sennrich 2019): x / sqrt(mean(x^2) + epsilon) * weight over the last axis.
struct RmsNorm {
  std::int64_t size = 0;  ///< Extent of the last axis; 0: inferred.
  double epsilon = 1e-6;  ///< Added to the mean square.
  Parameter weight = {};  ///< Scale of each element.

  /// Divides x by its root mean square over the last axis. The shape is unchanged.
  Array operator()(const Array& x) const;
  void set_up(const LayerSetup& at);  ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

}  // namespace tessera
