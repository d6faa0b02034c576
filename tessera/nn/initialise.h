// SPDX-License-Identifier: Apache-2.0
// Initial values of parameters, with the names, arguments and defaults of PyTorch (torch.nn.init). Random values are
// drawn with Philox from each parameter's seed. All devices of a machine produce bit-identical values.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera::init {

Initialiser zeros();                                        ///< All elements are 0.
Initialiser ones();                                         ///< All elements are 1.
Initialiser constant(double value);                         ///< All elements are `value`.
Initialiser uniform(double low = 0, double high = 1);       ///< Uniformly distributed in [low, high).
Initialiser normal(double mean = 0, double deviation = 1);  ///< Normally distributed.

/// Fan-in and fan-out of a weight (out, in, ...). Fan-in is `in` times the product of the extents after it; fan-out is
/// `out` times that product. fans() throws ShapeError for fewer than two dimensions.
struct Fans {
  std::int64_t in = 0, out = 0;  ///< Number of inputs that affect one output, and of outputs that one input affects.
};
Fans fans(const Shape& shape);  ///< Computes the fans of a weight of this shape.

/// Options of xavier_uniform and xavier_normal.
struct XavierOptions {
  double gain = 1;  ///< Factor of the standard deviation; see gain().
};
/// Xavier initialisation (Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
/// networks", 2010). Values are uniform in [-b, b] with b = gain * sqrt(6 / (in + out)). The standard deviation is gain
/// * sqrt(2 / (in + out)).
Initialiser xavier_uniform(const XavierOptions& options = {});
Initialiser xavier_normal(const XavierOptions& options = {});  ///< Like xavier_uniform, but normally distributed.

/// Whether the standard deviation is computed from fan-in or fan-out.
enum class FanMode : std::uint8_t { fan_in, fan_out };
/// The activation that follows a weight; the argument of gain().
enum class Nonlinearity : std::uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };
/// Returns the same values as PyTorch's calculate_gain: 1 for linear and sigmoid, 5/3 for tanh, sqrt(2) for relu,
/// sqrt(2 / (1 + a^2)) for leaky_relu, and 3/4 for selu. `a` is the slope of leaky_relu below 0.
double gain(Nonlinearity nonlinearity, double a = 0);

/// Options of kaiming_uniform and kaiming_normal.
struct KaimingOptions {
  double a = 0;  ///< The slope of leaky_relu below 0.
  /// Whether the standard deviation is computed from fan-in or fan-out.
  FanMode mode = FanMode::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;  ///< The activation that follows the weight.
};
/// Kaiming initialisation (He, Zhang, Ren, Sun, "Delving deep into rectifiers", 2015). The standard deviation is gain /
/// sqrt(fan). Values are uniform in [-b, b] with b = sqrt(3) gain / sqrt(fan).
Initialiser kaiming_uniform(const KaimingOptions& options = {});
Initialiser kaiming_normal(const KaimingOptions& options = {});  ///< Like kaiming_uniform, but normally distributed.

}  // namespace tessera::init
