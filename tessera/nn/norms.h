// SPDX-License-Identifier: Apache-2.0
// Normalisation layers. Names, arguments and defaults are PyTorch's. 16-bit floats are normalised in f32.
#pragma once

#include "tessera/nn/setup.h"

namespace tessera {

/// (x - mean) / sqrt(variance + epsilon) * weight + bias for each channel of x (batch, channels, ...) (Ioffe and
/// Szegedy 2015). Training uses the batch's mean and variance, and moves the running ones, which inference uses, by
/// `momentum` towards the batch's (with the unbiased variance); the update is registered in the Training scope and
/// written by mode.apply(model). Throws ShapeError for another number of channels, or in training for one value per
/// channel.
struct BatchNorm {
  std::int64_t channels = 0;                            ///< 0: inferred
  double epsilon = 1e-5;                                ///< Added to the variance.
  double momentum = 0.1;                                ///< The weight of a new batch in the running mean and variance.
  bool affine = true;                                   ///< has weight and bias
  Parameter weight = {}, bias = {};                     ///< Scale and offset of each channel.
  StateArray running_mean = {}, running_variance = {};  ///< Updated in training, used in inference.
  /// Unless 0, compile has folded the norm into the previous layer, whose results have this number of dimensions; it
  /// returns x.
  int folded = 0;

  Array operator()(const Array& x) const;  ///< Normalises each channel over the batch; the same shape.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

/// (x - mean) / sqrt(variance + epsilon) * weight + bias over the last axes, which have extents `shape` (Ba, Kiros,
/// Hinton 2016).
struct LayerNorm {
  Shape shape = {};                  ///< empty: the input's last axis
  double epsilon = 1e-5;             ///< Added to the variance.
  bool affine = true;                ///< has weight
  bool with_bias = true;             ///< has bias
  Parameter weight = {}, bias = {};  ///< Scale and offset of each element.

  Array operator()(const Array& x) const;  ///< Normalises over the last axes; the same shape.
  void set_up(const LayerSetup& at);       ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

/// x / sqrt(mean(x^2) + epsilon) * weight over the last axis (Zhang and Sennrich 2019).
struct RmsNorm {
  std::int64_t size = 0;  ///< 0: inferred
  double epsilon = 1e-6;  ///< Added to the mean square.
  Parameter weight = {};  ///< Scale of each element.

  /// Divides by the root of the mean square over the last axis; the same shape.
  Array operator()(const Array& x) const;
  void set_up(const LayerSetup& at);  ///< Declares the parameters; called by setup().
  /// The shape of one sample's result.
  Shape output_shape(const Shape& input) const { return input; }
};

}  // namespace tessera
