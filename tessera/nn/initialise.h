// SPDX-License-Identifier: Apache-2.0
// First values of parameters, with PyTorch's names, arguments and defaults (torch.nn.init). Drawn by Philox from the
// seed of each parameter: the same bits on every device of a machine.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera::init {

Initialiser zeros();                                        ///< All elements are 0.
Initialiser ones();                                         ///< All elements are 1.
Initialiser constant(double value);                         ///< All elements are `value`.
Initialiser uniform(double low = 0, double high = 1);       ///< Evenly distributed in [low, high).
Initialiser normal(double mean = 0, double deviation = 1);  ///< Normally distributed.

/// Of a weight (out, in, ...): inputs and outputs of one element of the result, which is in times, or out times, the
/// product of what follows. ShapeError of fewer than two dimensions.
struct Fans {
  std::int64_t in = 0, out = 0;  ///< Elements that one output depends on, and that one input acts on.
};
Fans fans(const Shape& shape);  ///< The fans of a weight of this shape.

/// Options of xavier_uniform and xavier_normal.
struct XavierOptions {
  double gain = 1;  ///< A factor of the deviation; see gain().
};
/// Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010): between
/// -b and b, b = gain * sqrt(6 / (in + out)); or of deviation gain * sqrt(2 / (in + out)).
Initialiser xavier_uniform(const XavierOptions& options = {});
Initialiser xavier_normal(const XavierOptions& options = {});  ///< As xavier_uniform, but normally distributed.

/// Which of the fans decides the deviation.
enum class FanMode : std::uint8_t { fan_in, fan_out };
/// The activation behind a weight, for gain().
enum class Nonlinearity : std::uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// PyTorch's calculate_gain: 1, 1, 5/3, sqrt(2), sqrt(2 / (1 + a^2)), 3/4; `a` is leaky_relu's slope below 0.
double gain(Nonlinearity nonlinearity, double a = 0);

/// Options of kaiming_uniform and kaiming_normal.
struct KaimingOptions {
  double a = 0;                                          ///< The slope of leaky_relu below 0.
  FanMode mode = FanMode::fan_in;                        ///< Which of the fans decides the deviation.
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;  ///< The activation behind the weight.
};
/// He, Zhang, Ren, Sun, "Delving deep into rectifiers" (2015): of deviation gain / sqrt(fan), uniform (between -b and
/// b, b = sqrt(3) times that) or normal.
Initialiser kaiming_uniform(const KaimingOptions& options = {});
Initialiser kaiming_normal(const KaimingOptions& options = {});  ///< As kaiming_uniform, but normally distributed.

}  // namespace tessera::init
