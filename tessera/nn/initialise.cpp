// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/initialise.h"

#include <algorithm>
#include <cmath>

namespace tessera::init {

namespace {

Array draw_uniform(const Shape& shape, std::uint64_t seed, double bound) {
  return random_uniform(shape, seed, -bound, bound);
}
// Normal values are always drawn on the CPU, because log, sin and cos round differently on different devices.
Array draw_normal(const Shape& shape, std::uint64_t seed, double mean, double deviation) {
  return random_normal(shape, seed, mean, deviation, Device{}).to(current_device());
}

double fan(const Shape& shape, FanMode mode) {
  const Fans f = fans(shape);
  return static_cast<double>(std::max<std::int64_t>(1, mode == FanMode::fan_in ? f.in : f.out));
}
double both(const Shape& shape) {
  const Fans f = fans(shape);
  return static_cast<double>(std::max<std::int64_t>(1, f.in + f.out));
}

}  // namespace

Initialiser constant(double value) {
  return [=](const Shape& shape, std::uint64_t) { return Array::full(shape, value); };
}
Initialiser zeros() { return constant(0); }
Initialiser ones() { return constant(1); }
Initialiser uniform(double low, double high) {
  return [=](const Shape& shape, std::uint64_t seed) { return random_uniform(shape, seed, low, high); };
}
Initialiser normal(double mean, double deviation) {
  return [=](const Shape& shape, std::uint64_t seed) { return draw_normal(shape, seed, mean, deviation); };
}

Fans fans(const Shape& shape) {
  if (shape.size() < 2)
    fail<ShapeError>({.operation = "initialise",
                      .with = {{"shape", to_string(shape)}},
                      .wrong = "a parameter with fewer than two dimensions has no fan_in and fan_out",
                      .remedy = "Use init::uniform or init::normal"});
  std::int64_t field = 1;
  for (std::size_t i = 2; i < shape.size(); ++i) field *= shape[i];
  return {shape[1] * field, shape[0] * field};
}

Initialiser xavier_uniform(const XavierOptions& options) {
  return [=](const Shape& shape, std::uint64_t seed) {
    return draw_uniform(shape, seed, options.gain * std::sqrt(6 / both(shape)));
  };
}
Initialiser xavier_normal(const XavierOptions& options) {
  return [=](const Shape& shape, std::uint64_t seed) {
    return draw_normal(shape, seed, 0, options.gain * std::sqrt(2 / both(shape)));
  };
}

double gain(Nonlinearity nonlinearity, double a) {
  switch (nonlinearity) {
    case Nonlinearity::tanh: return 5.0 / 3;
    case Nonlinearity::relu: return std::sqrt(2.0);
    case Nonlinearity::leaky_relu: return std::sqrt(2 / (1 + a * a));
    case Nonlinearity::selu: return 0.75;
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid: break;
  }
  return 1;
}

Initialiser kaiming_uniform(const KaimingOptions& o) {
  return [=](const Shape& shape, std::uint64_t seed) {
    return draw_uniform(shape, seed, gain(o.nonlinearity, o.a) * std::sqrt(3 / fan(shape, o.mode)));
  };
}
Initialiser kaiming_normal(const KaimingOptions& o) {
  return [=](const Shape& shape, std::uint64_t seed) {
    return draw_normal(shape, seed, 0, gain(o.nonlinearity, o.a) / std::sqrt(fan(shape, o.mode)));
  };
}

}  // namespace tessera::init
