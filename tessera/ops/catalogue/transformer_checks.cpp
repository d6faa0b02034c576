// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "tessera/ops/catalogue/check.h"

namespace tessera::ops {

namespace {

std::int64_t product(const Shape& s, std::size_t first, std::size_t last) {
  std::int64_t n = 1;
  for (std::size_t i = first; i < last; ++i) n *= s[i];
  return n;
}

// If `strided`, the array contains every second element of the last axis of an array twice as wide.
Array view_of(const std::vector<double>& values, const Shape& shape, DType t, bool strided, Device device) {
  if (!strided) return array_of(values, shape, t, device);
  std::vector<double> wide;
  for (double v : values) wide.push_back(v), wide.push_back(1e4);
  Shape twice = shape;
  twice.back() *= 2;
  return array_of(wide, twice, t, device).slice(-1, 0, twice.back(), 2);
}

double check_rms_norm(const Shape& shape, DType t, bool strided, Device device, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t n = shape.back();
  const auto x = rounded(random.numbers(element_count(shape), -3, 3), t),
             w = rounded(random.numbers(n, 0.5, 1.5), DType::f32);
  const double epsilon = static_cast<double>(1e-5f);
  std::vector<double> wanted;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double sum = 0;
    const std::size_t row = i / static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
    for (std::size_t c = 0; c < static_cast<std::size_t>(n); ++c) sum += x[row + c] * x[row + c];
    wanted.push_back(x[i] / std::sqrt(sum / static_cast<double>(n) + epsilon) * w[i - row]);
  }
  const Array input = view_of(x, shape, t, strided, device), weight = array_of(w, {n}, DType::f32, device);
  return worst(poisoned(device, x.size() * dtype_size(t), [&] { return rms_norm(input, weight, 1e-5f); }), wanted,
               2e-6 + unit(t) * 1.01, 1e-9 + half_step(t));
}

double check_softmax(const Shape& shape, int axis, DType t, bool strided, Device device, std::uint64_t seed) {
  Random random(seed);
  auto x = rounded(random.numbers(element_count(shape), -8, 8), t);
  const auto d = static_cast<std::size_t>(axis);
  const std::int64_t inner = product(shape, d + 1, shape.size()), outer = product(shape, 0, d), count = shape[d];
  std::vector<double> wanted(x.size());
  auto at = [&](std::int64_t o, std::int64_t i, std::int64_t c) {
    return static_cast<std::size_t>((o * count + c) * inner + i);
  };
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      // Some rows contain only -inf. Some contain a single -inf or NaN.
      const std::int64_t row = o * inner + i;
      if (row % 7 == 3)
        for (std::int64_t c = 0; c < count; ++c) x[at(o, i, c)] = -std::numeric_limits<double>::infinity();
      if (row % 7 == 4 && count > 1) x[at(o, i, count - 1)] = -std::numeric_limits<double>::infinity();
      if (row % 7 == 5) x[at(o, i, 0)] = std::numeric_limits<double>::quiet_NaN();
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t c = 0; c < count; ++c) top = std::max(top, x[at(o, i, c)]);
      for (std::int64_t c = 0; c < count; ++c) sum += std::exp(x[at(o, i, c)] - top);
      for (std::int64_t c = 0; c < count; ++c) {
        wanted[at(o, i, c)] = row % 7 == 3   ? 0
                              : row % 7 == 5 ? std::numeric_limits<double>::quiet_NaN()
                                             : std::exp(x[at(o, i, c)] - top) / sum;
      }
    }
  const Array input = view_of(x, shape, t, strided, device);
  return worst(poisoned(device, x.size() * dtype_size(t), [&] { return softmax(input, axis); }), wanted,
               4e-6 + unit(t) * 1.01, 1e-12 + 2 * half_step(t));
}

double check_silu_gate(const Shape& shape, Device device, std::uint64_t seed) {
  Random random(seed);
  const auto g = rounded(random.numbers(element_count(shape), -8, 8), DType::f32),
             u = rounded(random.numbers(element_count(shape), -2, 2), DType::f32);
  std::vector<double> wanted;
  for (std::size_t i = 0; i < g.size(); ++i) wanted.push_back(g[i] / (1 + std::exp(-g[i])) * u[i]);
  const Array gate = array_of(g, shape, DType::f32, device), up = array_of(u, shape, DType::f32, device);
  return worst(poisoned(device, g.size() * 4, [&] { return silu_gate(gate, up); }), wanted, 4e-6, 1e-9);
}

struct RotaryCase {
  std::int64_t tokens, heads, head_size, first;
  RotaryPairs pairs;
  std::int64_t dimensions = 0;
  DType dtype = DType::f32;
  bool factors = false;
  float scale = 1;
  bool sliced = false;  // heads are a slice of a wider row
  float magnitude = 1;
};

double check_rotary(const RotaryCase& c, Device device, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t wide = c.sliced ? 2 * c.heads : c.heads;
  const auto x = rounded(random.numbers(c.tokens * wide * c.head_size), c.dtype);
  const std::int64_t d = c.dimensions ? c.dimensions : c.head_size, pairs = d / 2;
  auto f = random.numbers(pairs, 1, 8);
  for (std::size_t i = 0; i < f.size(); i += 2) f[i] = 1;
  f = rounded(f, DType::f32);
  std::vector<double> wanted, allowed;
  for (std::int64_t t = 0; t < c.tokens; ++t)
    for (std::int64_t h = 0; h < c.heads; ++h) {
      const double* row = x.data() + (t * wide + h + (c.sliced ? 1 : 0)) * c.head_size;
      std::vector<double> out(row, row + c.head_size), bound(static_cast<std::size_t>(c.head_size), 0);
      for (std::int64_t p = 0; p < pairs; ++p) {
        double angle = static_cast<double>(c.first + t) * static_cast<double>(c.scale) *
                       std::pow(10000.0, -2.0 * static_cast<double>(p) / static_cast<double>(d));
        double slack = 0;
        if (c.factors) {
          angle /= f[static_cast<std::size_t>(p)];
          // With a factor, the number of turns is computed as an f32 product instead of a fixed-point number.
          if (f[static_cast<std::size_t>(p)] != 1) slack = angle * 0x1p-22;
        }
        const auto a = static_cast<std::size_t>(c.pairs == RotaryPairs::adjacent ? 2 * p : p);
        const std::size_t b = c.pairs == RotaryPairs::adjacent ? a + 1 : a + static_cast<std::size_t>(pairs);
        const auto by = static_cast<double>(c.magnitude);
        out[a] = by * (row[a] * std::cos(angle) - row[b] * std::sin(angle));
        out[b] = by * (row[a] * std::sin(angle) + row[b] * std::cos(angle));
        bound[a] = bound[b] =
            by * std::hypot(row[a], row[b]) * (1.5e-6 + slack + unit(c.dtype) * 1.01) + half_step(c.dtype);
      }
      wanted.insert(wanted.end(), out.begin(), out.end());
      allowed.insert(allowed.end(), bound.begin(), bound.end());
    }
  Array input = array_of(x, {c.tokens, wide, c.head_size}, c.dtype, device);
  if (c.sliced) input = input.slice(1, 1, c.heads + 1);
  Rotary how{.pairs = c.pairs, .dimensions = c.dimensions, .scale = c.scale, .magnitude = c.magnitude};
  if (c.factors) how.factors = array_of(f, {pairs}, DType::f32, device);
  return worst(poisoned(device, wanted.size() * dtype_size(c.dtype), [&] { return rotary(input, c.first, how); }),
               wanted, allowed);
}

struct AttentionCase {
  std::int64_t tokens, heads, key_heads, head_size, past;
  DType cache = DType::f32;
  std::int64_t spare = 3;  // rows of the cache that must not be read
  std::int64_t window = 0;
  float cap = 0;
  double magnitude = 1;  // of the queries; the scale is divided by it
  bool sinks = false;
};

// Fills a cache with two calls of cache_store, one of them with a strided view. Then computes attention over the cache.
double check_attention(const AttentionCase& c, Device device, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t length = c.past + c.tokens, capacity = length + c.spare;
  const auto q =
      rounded(random.numbers(c.tokens * c.heads * c.head_size, -2 * c.magnitude, 2 * c.magnitude), DType::f32);
  const auto k = rounded(random.numbers(length * c.key_heads * c.head_size, -2, 2), c.cache),
             v = rounded(random.numbers(length * c.key_heads * c.head_size), c.cache);
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_size)) / static_cast<float>(c.magnitude);
  const auto sinks = rounded(random.numbers(c.sinks ? c.heads : 0, -3, 3), DType::f32);
  std::vector<double> wanted;
  const auto group = c.heads / c.key_heads;
  auto cached = [&](const std::vector<double>& from, std::int64_t position, std::int64_t head, std::int64_t e) {
    return from[static_cast<std::size_t>((position * c.key_heads + head) * c.head_size + e)];
  };
  for (std::int64_t t = 0; t < c.tokens; ++t)
    for (std::int64_t h = 0; h < c.heads; ++h) {
      std::vector<double> score(static_cast<std::size_t>(c.past + t + 1)), out(static_cast<std::size_t>(c.head_size));
      double top = -1e300, sum = 0;
      const std::size_t first =
          c.window == 0 || c.past + t < c.window ? 0 : static_cast<std::size_t>(c.past + t + 1 - c.window);
      for (std::size_t j = first; j < score.size(); ++j) {
        for (std::int64_t e = 0; e < c.head_size; ++e)
          score[j] += q[static_cast<std::size_t>((t * c.heads + h) * c.head_size + e)] *
                      cached(k, static_cast<std::int64_t>(j), h / group, e);
        score[j] *= static_cast<double>(scale);
        if (c.cap != 0) score[j] = static_cast<double>(c.cap) * std::tanh(score[j] / static_cast<double>(c.cap));
        top = std::max(top, score[j]);
      }
      for (std::size_t j = first; j < score.size(); ++j) sum += score[j] = std::exp(score[j] - top);
      if (c.sinks) sum += std::exp(sinks[static_cast<std::size_t>(h)] - top);
      for (std::size_t j = first; j < score.size(); ++j)
        for (std::int64_t e = 0; e < c.head_size; ++e)
          out[static_cast<std::size_t>(e)] += score[j] / sum * cached(v, static_cast<std::int64_t>(j), h / group, e);
      wanted.insert(wanted.end(), out.begin(), out.end());
    }
  const Shape shape = {c.key_heads, capacity, c.head_size};
  Array keys = Array::full(shape, std::numeric_limits<double>::quiet_NaN(), c.cache, device), values = keys.copy();
  const std::int64_t cut = length / 2;
  auto store = [&](Array& cache, const std::vector<double>& from) {
    const Array rows = array_of(from, {length, c.key_heads, c.head_size}, DType::f32, device);
    cache_store(cache, rows.slice(0, 0, cut), 0);
    // The second part is a slice of the heads of a wider row.
    const Array both[] = {rows, rows};
    cache_store(cache, concatenate(both, 1).slice(0, cut, length).slice(1, c.key_heads, 2 * c.key_heads), cut);
  };
  store(keys, k), store(values, v);
  // No query sees the positions before the first window.
  if (const std::int64_t unseen = c.window == 0 ? 0 : std::max<std::int64_t>(c.past + 1 - c.window, 0); unseen > 0)
    for (Array* cache : {&keys, &values})
      cache->slice(1, 0, unseen).assign(Array::full({1}, std::numeric_limits<double>::quiet_NaN(), c.cache, device));
  const Array query = array_of(q, {c.tokens, c.heads, c.head_size}, DType::f32, device);
  // The result is a weighted mean of values up to 1. Its error is caused by the scores, which are sums of head_size
  // products up to 4. Matrix units round queries and weights to f16.
  std::optional<Array> logits;
  if (c.sinks) logits = array_of(sinks, {c.heads}, DType::f32, device);
  const bool rounds = choose_attention_tile(tiles_of(device), DType::f32, c.cache, c.head_size, c.tokens).has_value();
  return worst(poisoned(device, wanted.size() * 4,
                        [&] { return attention(query, keys, values, c.past, scale, c.window, c.cap, logits); }),
               wanted, 2e-6, rounds ? 2e-3 : 1.5e-6);
}

}  // namespace

void add_transformer_checks(Checks& checks) {
  auto dtype_text = [](DType t, bool strided) {
    return " " + std::string(dtype_name(t)) + (strided ? " strided" : "");
  };
  for (const Shape& s :
       {Shape{0, 5}, Shape{1, 1}, Shape{3, 17}, Shape{2, 3, 100}, Shape{5, 1111}, Shape{2, 9000}, Shape{65537, 3}})
    for (bool strided : {false, true})
      checks.push_back(
          {"rms_norm", to_string(s) + dtype_text(DType::f32, strided),
           [=](Device device, std::uint64_t seed) { return check_rms_norm(s, DType::f32, strided, device, seed); }});
  for (DType t : {DType::f16, DType::bf16, DType::f64})
    checks.push_back({"rms_norm", "(4, 70)" + dtype_text(t, false), [=](Device device, std::uint64_t seed) {
                        return check_rms_norm({4, 70}, t, false, device, seed);
                      }});

  for (const auto& [s, axis] :
       {std::pair{Shape{0, 5}, 1}, std::pair{Shape{1}, 0}, std::pair{Shape{8, 17}, 1}, std::pair{Shape{8, 17}, 0},
        std::pair{Shape{3, 70, 5}, 1}, std::pair{Shape{9, 1500}, 1}, std::pair{Shape{5, 8192}, 1},
        std::pair{Shape{65537, 3}, 1}, std::pair{Shape{3, 65537}, 0}, std::pair{Shape{2, 65537, 2}, 2}})
    for (bool strided : {false, true})
      checks.push_back({"softmax", to_string(s) + " axis " + std::to_string(axis) + dtype_text(DType::f32, strided),
                        [=, shape = s, along = axis](Device device, std::uint64_t seed) {
                          return check_softmax(shape, along, DType::f32, strided, device, seed);
                        }});
  for (DType t : {DType::f16, DType::bf16, DType::f64})
    for (int axis : {0, 1})
      checks.push_back({"softmax", "(8, 70) axis " + std::to_string(axis) + dtype_text(t, false),
                        [=](Device device, std::uint64_t seed) {
                          return check_softmax({8, 70}, axis, t, false, device, seed);
                        }});

  for (const Shape& s : {Shape{0}, Shape{1}, Shape{7, 33}, Shape{65537, 2}})
    checks.push_back({"silu_gate", to_string(s),
                      [=](Device device, std::uint64_t seed) { return check_silu_gate(s, device, seed); }});

  constexpr auto adjacent = RotaryPairs::adjacent, halves = RotaryPairs::halves;
  for (const RotaryCase& c :
       {RotaryCase{1, 1, 2, 0, adjacent}, RotaryCase{1, 3, 64, 5, adjacent}, RotaryCase{1, 3, 64, 5, halves},
        RotaryCase{7, 2, 34, 130000, adjacent}, RotaryCase{7, 2, 34, 130000, halves},
        RotaryCase{3, 2, 40, 9, adjacent, 20}, RotaryCase{3, 2, 40, 9, halves, 20}, RotaryCase{3, 2, 40, 9, halves, 6},
        RotaryCase{3, 4, 32, 100, adjacent, 0, DType::f16}, RotaryCase{3, 4, 32, 100, halves, 0, DType::f32, true},
        RotaryCase{5, 2, 16, 40, adjacent, 0, DType::f32, true, 0.25f},
        RotaryCase{4, 3, 48, 7, adjacent, 0, DType::f32, false, 1, true}, RotaryCase{65537, 1, 4, 0, halves},
        RotaryCase{0, 3, 8, 0, adjacent}, RotaryCase{4, 2, 7, 3, halves, 4},
        RotaryCase{3, 2, 40, 9, halves, 20, DType::f32, true, 0.25f, false, 1.19f},
        RotaryCase{3, 2, 32, 9, adjacent, 0, DType::f16, false, 1, false, 1.14f}}) {
    std::string shape = to_string(Shape{c.tokens, c.heads, c.head_size}) + " from " + std::to_string(c.first) +
                        (c.pairs == adjacent ? " adjacent" : " halves");
    if (c.dimensions) shape += " of " + std::to_string(c.dimensions);
    shape += dtype_text(c.dtype, c.sliced) + (c.factors ? " factors" : "") + (c.scale != 1 ? " scaled" : "") +
             (c.magnitude != 1 ? " with a magnitude" : "");
    checks.push_back(
        {"rotary", shape, [=](Device device, std::uint64_t seed) { return check_rotary(c, device, seed); }});
  }

  for (const AttentionCase& c : {AttentionCase{1, 1, 1, 2, 0},
                                 AttentionCase{1, 4, 2, 64, 100},
                                 AttentionCase{1, 3, 1, 80, 63},
                                 AttentionCase{1, 2, 2, 256, 200},
                                 AttentionCase{2, 6, 2, 20, 5},
                                 AttentionCase{3, 2, 1, 33, 64},
                                 AttentionCase{1, 4, 4, 48, 129, DType::f16},
                                 AttentionCase{8, 2, 2, 32, 0},
                                 AttentionCase{16, 4, 2, 64, 0},
                                 AttentionCase{17, 4, 1, 48, 30, DType::f16},
                                 AttentionCase{37, 2, 1, 10, 7},
                                 AttentionCase{9, 2, 1, 256, 3, DType::f32, 0},
                                 AttentionCase{1, 1, 1, 4, 70000},
                                 AttentionCase{0, 2, 1, 8, 4},
                                 AttentionCase{20, 1, 1, 7, 1},
                                 AttentionCase{1, 4, 2, 64, 100, DType::f16, 3, 16},
                                 AttentionCase{1, 2, 1, 256, 130, DType::f32, 3, 1},
                                 AttentionCase{9, 2, 1, 48, 40, DType::f32, 3, 7, 2.5f},
                                 AttentionCase{37, 2, 1, 64, 0, DType::f16, 0, 32, 50},
                                 AttentionCase{1, 3, 1, 80, 63, DType::f32, 3, 0, 1.5f},
                                 AttentionCase{70, 4, 2, 128, 100, DType::f16},
                                 AttentionCase{130, 2, 1, 32, 30, DType::f16, 3, 70},
                                 AttentionCase{64, 1, 1, 256, 66, DType::f16, 0, 0, 4},
                                 AttentionCase{66, 2, 1, 16, 0, DType::f16, 3, 0, 0, 1e9},
                                 AttentionCase{5, 2, 2, 20, 3, DType::f32, 3, 1000},
                                 AttentionCase{1, 4, 2, 64, 20, DType::f16, 3, 0, 0, 1, true},
                                 AttentionCase{2, 8, 1, 64, 600, DType::f32, 3, 300, 0, 1, true},
                                 AttentionCase{9, 2, 1, 48, 40, DType::f32, 3, 7, 2.5f, 1, true},
                                 AttentionCase{70, 4, 2, 64, 100, DType::f16, 3, 128, 0, 1, true}}) {
    std::string shape = to_string(Shape{c.tokens, c.heads, c.head_size}) + " over " + std::to_string(c.key_heads) +
                        " heads of " + std::to_string(c.past + c.tokens) + dtype_text(c.cache, false);
    if (c.window != 0) shape += " window " + std::to_string(c.window);
    if (c.cap != 0) shape += " capped";
    if (c.magnitude != 1) shape += " with large queries";
    if (c.sinks) shape += " with sinks";
    checks.push_back(
        {"attention", shape, [=](Device device, std::uint64_t seed) { return check_attention(c, device, seed); }});
  }
}

}  // namespace tessera::ops
