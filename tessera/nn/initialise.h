// SPDX-License-Identifier: Apache-2.0
// Initial values of parameters, with PyTorch's names, arguments and defaults (torch.nn.init). Drawn by Philox from each
// parameter's seed: the same bits on every device of a machine.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera::init {

Initialiser zeros();                                        ///< All elements are 0.
Initialiser ones();                                         ///< All elements are 1.
Initialiser constant(double value);                         ///< All elements are `value`.
Initialiser uniform(double low = 0, double high = 1);       ///< Uniformly distributed in [low, high).
Initialiser normal(double mean = 0, double deviation = 1);  ///< Normally distributed.

/// Fan-in and fan-out of a weight (out, in, ...): `in` or `out` times the product of the other extents. Throws
/// ShapeError for fewer than two dimensions.
struct Fans {
  std::int64_t in = 0, out = 0;  ///< Elements that one output depends on, and that one input affects.
};
Fans fans(const Shape& shape);  ///< The fans of a weight of this shape.

/// Options of xavier_uniform and xavier_normal.
struct XavierOptions {
  double gain = 1;  ///< Factor of the standard deviation; see gain().
};
/// Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010): uniform in
/// [-b, b] with b = gain * sqrt(6 / (in + out)), or normal with standard deviation gain * sqrt(2 / (in + out)).
Initialiser xavier_uniform(const XavierOptions& options = {});
Initialiser xavier_normal(const XavierOptions& options = {});  ///< As xavier_uniform, but normally distributed.

/// Whether fan-in or fan-out determines the standard deviation.
enum class FanMode : std::uint8_t { fan_in, fan_out };
/// The activation after a weight, for gain().
enum class Nonlinearity : std::uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// PyTorch's calculate_gain: 1, 1, 5/3, sqrt(2), sqrt(2 / (1 + a^2)), 3/4; `a` is leaky_relu's slope below 0.
double gain(Nonlinearity nonlinearity, double a = 0);

/// Options of kaiming_uniform and kaiming_normal.
struct KaimingOptions {
  double a = 0;  ///< The slope of leaky_relu below 0.
  /// Whether fan-in or fan-out determines the standard deviation.
  FanMode mode = FanMode::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;  ///< The activation after the weight.
};
/// He, Zhang, Ren, Sun, "Delving deep into rectifiers" (2015): standard deviation gain / sqrt(fan), uniform (in [-b, b]
/// with b = sqrt(3) times that) or normal.
Initialiser kaiming_uniform(const KaimingOptions& options = {});
Initialiser kaiming_normal(const KaimingOptions& options = {});  ///< As kaiming_uniform, but normally distributed.

}  // namespace tessera::init
