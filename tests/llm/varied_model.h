// SPDX-License-Identifier: Apache-2.0
// Creates random models and inputs for tests of proofs.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>

#include "tessera/nn/verify/prove.h"

namespace tessera::test {

/// Replaces the values of all arrays by random numbers, so that norms and biases have an effect.
template <class Model>
Model varied(Model model, std::mt19937_64& random, float size = 1) {
  detail::for_each_part(model, [&](ModelArray& part, const Path& at) {
    std::normal_distribution<float> d;
    auto v = part.to_vector<float>();
    const float scale =
        part.rank() > 1 ? 1.5f * size / std::sqrt(static_cast<float>(part.size() / part.shape(0))) : 0.5f;
    for (float& x : v) {
      x = scale * d(random);
      if (at.text().ends_with("variance")) x = 0.5f + std::abs(x);
    }
    static_cast<Array&>(part) = Array::from(v, part.shape(), part.device());
  });
  return model;
}

/// Returns random inputs from the box. About a third of the numbers are on a face of the box.
inline Array inputs_of(const InputBox& box, std::int64_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<float> part(-0.25f, 1.25f);
  std::vector<float> x(static_cast<std::size_t>(count) * box.low.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float lo = box.low[i % box.low.size()], hi = box.high[i % box.low.size()];
    x[i] = std::clamp(lo + (hi - lo) * part(random), lo, hi);
  }
  Shape shape = box.shape;
  shape.insert(shape.begin(), count);
  return Array::from(x, shape);
}

}  // namespace tessera::test
