// SPDX-License-Identifier: Apache-2.0
// A small network with state, random numbers and several layers, and training data for it.
#pragma once

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "tessera/nn/losses.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/sequential.h"
#include "tessera/nn/trainer.h"

namespace tessera::test {

using Batch = std::tuple<Array, Array>;
using Values = std::vector<std::vector<float>>;

/// Returns the values of all arrays of a model, converted to f32.
template <class M>
Values values(const M& model) {
  Values out;
  for_each_array(model, [&](const Array& a) {
    if (a.size() > 0) out.push_back(a.astype(DType::f32).template to_vector<float>());
  });
  return out;
}
inline void expect_near(const Values& a, const Values& b, double bound) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) EXPECT_NEAR(a[i][j], b[i][j], bound) << i << " " << j;
}

inline auto network() {
  return setup(sequential(dense<6, 12>, BatchNorm{}, relu, Dropout{.p = 0.2}, dense<12, 3>), {.seed = 3, .input = {6}});
}
using Network = decltype(network());
inline Array loss_of(const Network& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); }
inline Batch data(std::int64_t n) {
  const Array x = random_uniform({n, 6}, 5, -1, 1).eval();
  return {x, argmax(x.slice(1, 0, 3), 1).astype(DType::i32).eval()};
}

inline Trainer<Network> trainer_of(const Network& model, const AnyOptimiser& optimiser, TrainerOptions options) {
  return {model, optimiser, loss_of, options};
}

}  // namespace tessera::test
