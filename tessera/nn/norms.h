// SPDX-License-Identifier: Apache-2.0
// Layers that normalise. Names, arguments and defaults are PyTorch's. 16-bit floats are normalised as f32.
#pragma once

#include "tessera/nn/setup.h"

namespace tessera {

/// (x - mean) / sqrt(variance + epsilon) * weight + bias for each channel of x (batch, channels, ...) (Ioffe and
/// Szegedy 2015). In training mean and variance are the batch's, and the running ones, which inference uses, go
/// `momentum` of the way to the batch's (with the unbiased variance): noted in the Training scope, written by
/// mode.apply(model). ShapeError: another number of channels; one value for a channel in training.
struct BatchNorm {
  std::int64_t channels = 0;                            ///< 0: as many as come
  double epsilon = 1e-5;                                ///< Added to the variance.
  double momentum = 0.1;                                ///< The weight of a new batch in the running mean and variance.
  bool affine = true;                                   ///< with weight and bias
  Parameter weight = {}, bias = {};                     ///< Factor and summand of each channel.
  StateArray running_mean = {}, running_variance = {};  ///< Updated in training, used in inference.
  /// Unless 0, compile has put it into the layer before, which gives arrays of so many dimensions: it gives x.
  int folded = 0;

  Array operator()(const Array& x) const;  ///< Normalises each channel over the batch; the same shape.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

/// (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axes, those of `shape` (Ba, Kiros, Hinton 2016).
struct LayerNorm {
  Shape shape = {};                  ///< empty: the last axis of what comes
  double epsilon = 1e-5;             ///< Added to the variance.
  bool affine = true;                ///< with weight
  bool with_bias = true;             ///< and bias
  Parameter weight = {}, bias = {};  ///< Factor and summand of each element.

  Array operator()(const Array& x) const;  ///< Normalises over the last axes; the same shape.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

/// x / sqrt(mean(x^2) + epsilon) * weight over the last axis (Zhang and Sennrich 2019).
struct RmsNorm {
  std::int64_t size = 0;  ///< 0: as much as comes
  double epsilon = 1e-6;  ///< Added to the mean square.
  Parameter weight = {};  ///< Factor of each element.

  /// Divides by the root of the mean square over the last axis; the same shape.
  Array operator()(const Array& x) const;
  void set_up(const LayerSetup& at);  ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

}  // namespace tessera
