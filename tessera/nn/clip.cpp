// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/clip.h"

#include <cmath>

namespace tessera::detail {

namespace {

void set(ModelArray& part, Array values) { static_cast<Array&>(part) = std::move(values); }

}  // namespace

ClipFactor clip_factor(std::span<const Array> gradient, double max_norm, double norm_type) {
  if (!(max_norm >= 0) || !(norm_type > 0))
    fail<ArgumentError>({.operation = "clip_gradient_norm",
                         .with = {{"max_norm", std::to_string(max_norm)}, {"norm_type", std::to_string(norm_type)}},
                         .wrong = "max_norm must be at least 0, and norm_type above 0"});
  const bool greatest = std::isinf(norm_type);
  std::optional<Array> total;
  for (const Array& part : gradient) {
    if (part.size() == 0) continue;
    const Array g = part.dtype() == DType::f64 ? part : part.astype(DType::f32);
    Array one = greatest ? max(abs(g)) : norm_type == 2 ? sum(g * g) : sum(pow(abs(g), norm_type));
    if (total) one = one.to(total->device());
    total = !total ? one : greatest ? maximum(*total, one) : *total + one;
  }
  if (!total) return {Array::zeros({}), Array::ones({})};
  const Array norm = (greatest ? *total : norm_type == 2 ? sqrt(*total) : pow(*total, 1 / norm_type)).eval();
  return {norm, minimum(max_norm / (norm + 1e-6), 1.0).eval()};
}

Array clip_norm(const Parts& gradient, double max_norm, double norm_type) {
  std::vector<Array> arrays;
  for (const auto& [path, part] : gradient) arrays.push_back(*part);
  const auto [norm, factor] = clip_factor(arrays, max_norm, norm_type);
  arrays.clear();
  for (const auto& [path, part] : gradient)
    if (!part->empty()) set(*part, (*part * factor.to(part->device())).astype(part->dtype()));
  return norm;
}

void clip_value(const Parts& gradient, double value) {
  if (!(value >= 0))
    fail<ArgumentError>({.operation = "clip_gradient_value",
                         .with = {{"value", std::to_string(value)}},
                         .wrong = "the largest absolute value must be at least 0"});
  for (const auto& [path, part] : gradient)
    if (!part->empty()) set(*part, minimum(maximum(*part, -value), value));
}

}  // namespace tessera::detail
