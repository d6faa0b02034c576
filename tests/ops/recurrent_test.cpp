// SPDX-License-Identifier: Apache-2.0
// Layers with a state of fixed size: compared with plain C++ in double precision, and bit for bit between steps of
// different lengths.
#include "tessera/ops/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tessera/array/functions.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using ops::causal_convolution, ops::gated_delta_rule;
using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

/// Tokens [from, until) of one of two sequences.
struct Piece {
  std::int64_t sequence, from, until;
};
/// The sequences have these lengths. Each is read at once, and together with the other one in parts.
constexpr std::int64_t lengths[] = {23, 9};
const std::vector<std::vector<Piece>> at_once = {{{0, 0, 23}}, {{1, 0, 9}}};
const std::vector<std::vector<Piece>> in_parts = {
    {{0, 0, 1}, {1, 0, 5}}, {{1, 5, 6}, {0, 1, 2}}, {{0, 2, 20}, {1, 6, 9}}, {{0, 20, 23}}};

/// Runs `step` on the tokens of each step, and returns the results of each sequence. Sequence s has slots 2 s and 2 s +
/// 1, whose contents are not zero at first. Each step is repeated, which must not change anything.
template <class Step>
std::vector<std::vector<float>> run(const std::vector<std::vector<Piece>>& steps, Device device, const Step& step) {
  std::vector<std::vector<float>> out(2);
  std::int32_t slots[] = {-1, -1};
  for (const std::vector<Piece>& pieces : steps) {
    std::vector<std::int32_t> ranges;
    std::int32_t first = 0;
    for (const Piece& p : pieces) {
      const auto own = static_cast<std::int32_t>(2 * p.sequence), count = static_cast<std::int32_t>(p.until - p.from);
      std::int32_t& slot = slots[p.sequence];
      const std::int32_t next = slot == own ? own + 1 : own;
      ranges.insert(ranges.end(), {first, count, slot, next});
      slot = next, first += count;
    }
    const Array rows = Array::from(std::span<const std::int32_t>(ranges), Shape{std::ssize(pieces), 4}, device);
    step(pieces, rows).eval();
    const std::vector<float> values = step(pieces, rows).template to_vector<float>();
    const std::int64_t width = std::ssize(values) / first;
    auto at = values.begin();
    for (const Piece& p : pieces) {
      auto& to = out[static_cast<std::size_t>(p.sequence)];
      to.insert(to.end(), at, at + (p.until - p.from) * width);
      at += (p.until - p.from) * width;
    }
  }
  return out;
}

Array rows_of(const std::vector<Array>& sequences, const std::vector<Piece>& pieces) {
  std::vector<Array> parts;
  for (const Piece& p : pieces)
    parts.push_back(sequences[static_cast<std::size_t>(p.sequence)].slice(0, p.from, p.until));
  return concatenate(parts, 0);
}

TEST_P(OnEveryDevice, CausalConvolutionMatchesItsDefinition) {
  constexpr std::int64_t channels = 37;
  for (const std::int64_t n : {2, 3, 4}) {
    std::vector<std::vector<float>> x;
    std::vector<Array> sequences;
    for (const std::int64_t length : lengths) {
      x.push_back(numbers(length * channels));
      sequences.push_back(Array::from(x.back(), Shape{length, channels}));
    }
    const std::vector<float> w = numbers(channels * n);
    const Array taps = Array::from(w, Shape{channels, n});
    Array states = Array::from(numbers(4 * (n - 1) * channels), Shape{4, n - 1, channels});
    const auto step = [&](const std::vector<Piece>& pieces, const Array& ranges) {
      return causal_convolution(rows_of(sequences, pieces), taps, states, ranges);
    };
    const auto got = run(at_once, GetParam(), step);
    EXPECT_EQ(run(in_parts, GetParam(), step), got);
    for (std::size_t s = 0; s < 2; ++s)
      for (std::int64_t t = 0; t < lengths[s]; ++t)
        for (std::int64_t c = 0; c < channels; ++c) {
          double sum = 0;
          for (std::int64_t i = 0; i < n; ++i)
            if (const std::int64_t from = t - n + 1 + i; from >= 0)
              sum += static_cast<double>(x[s][static_cast<std::size_t>(from * channels + c)]) *
                     static_cast<double>(w[static_cast<std::size_t>(c * n + i)]);
          ASSERT_NEAR(got[s][static_cast<std::size_t>(t * channels + c)], sum, 1e-5) << s << " " << t << " " << c;
        }
  }
}

TEST_P(OnEveryDevice, GatedDeltaRuleMatchesItsDefinition) {
  constexpr std::int64_t key_heads = 2, heads = 6, keys = 5, values = 7;
  struct Text {
    std::vector<float> q, k, v, decay, beta;
  };
  std::vector<Text> texts;
  std::vector<Array> q, k, v, decay, beta;
  for (const std::int64_t n : lengths) {
    texts.push_back({numbers(n * key_heads * keys, -0.5f, 0.5f), numbers(n * key_heads * keys, -0.5f, 0.5f),
                     numbers(n * heads * values), numbers(n * heads, 0.5f, 1), numbers(n * heads, 0, 1)});
    const Text& t = texts.back();
    q.push_back(Array::from(t.q, Shape{n, key_heads, keys})), k.push_back(Array::from(t.k, Shape{n, key_heads, keys}));
    v.push_back(Array::from(t.v, Shape{n, heads, values}));
    decay.push_back(Array::from(t.decay, Shape{n, heads})), beta.push_back(Array::from(t.beta, Shape{n, heads}));
  }
  Array states = Array::from(numbers(4 * heads * keys * values), Shape{4, heads, keys, values});
  const auto step = [&](const std::vector<Piece>& p, const Array& ranges) {
    return gated_delta_rule(rows_of(q, p), rows_of(k, p), rows_of(v, p), rows_of(decay, p), rows_of(beta, p), states,
                            ranges);
  };
  const auto got = run(at_once, GetParam(), step);
  EXPECT_EQ(run(in_parts, GetParam(), step), got);
  for (std::size_t s = 0; s < 2; ++s)
    for (std::int64_t h = 0; h < heads; ++h) {
      double state[keys][values] = {};
      for (std::int64_t t = 0; t < lengths[s]; ++t) {
        const Text& x = texts[s];
        const auto at = [](const std::vector<float>& from, std::int64_t i) {
          return static_cast<double>(from[static_cast<std::size_t>(i)]);
        };
        const std::int64_t key = (t * key_heads + h % key_heads) * keys, head = t * heads + h;
        for (std::int64_t j = 0; j < values; ++j) {
          double seen = 0, result = 0;
          for (std::int64_t i = 0; i < keys; ++i)
            state[i][j] *= at(x.decay, head), seen += state[i][j] * at(x.k, key + i);
          const double change = at(x.beta, head) * (at(x.v, head * values + j) - seen);
          for (std::int64_t i = 0; i < keys; ++i) {
            state[i][j] += at(x.k, key + i) * change;
            result += state[i][j] * at(x.q, key + i);
          }
          ASSERT_NEAR(got[s][static_cast<std::size_t>(head * values + j)], result, 1e-5) << s << " " << t << " " << h;
        }
      }
    }
}

TEST_P(OnEveryDevice, OperandsThatDoNotMatchAreRejected) {
  const auto zeros = [&](Shape shape, DType dtype = DType::f32) { return Array::zeros(std::move(shape), dtype); };
  const Array ranges = zeros({1, 4}, DType::i32);
  Array states = zeros({2, 3, 8}), fewer = zeros({2, 2, 8}), halves = zeros({2, 3, 8}, DType::f16);
  expect_throw<ShapeError>(
      [&] {
        causal_convolution(zeros({5, 8}), zeros({8, 4}), fewer, ranges);
      },
      {"causal_convolution", "(2, 2, 8)"});
  expect_throw<ShapeError>(
      [&] {
        causal_convolution(zeros({5, 8}), zeros({8, 4}), states, zeros({4}, DType::i32));
      },
      {"ranges (4,)"});
  expect_throw<DtypeError>(
      [&] {
        causal_convolution(zeros({5, 8}), zeros({8, 4}), halves, ranges);
      },
      {"states", "f16"});
  expect_throw<DtypeError>(
      [&] {
        causal_convolution(zeros({5, 8}), zeros({8, 4}), states, zeros({1, 4}));
      },
      {"ranges", "i32"});
  Array matrices = zeros({2, 4, 3, 3});
  expect_throw<ShapeError>(
      [&] {
        gated_delta_rule(zeros({5, 3, 3}), zeros({5, 3, 3}), zeros({5, 4, 3}), zeros({5, 4}), zeros({5, 4}), matrices,
                         ranges);
      },
      {"gated_delta_rule", "(5, 3, 3)"});
}

}  // namespace
}  // namespace tessera
