// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "tessera/ops/catalogue/check.h"

namespace tessera::ops {

namespace {

struct ProductCase {
  Shape a, b;
  DType a_dtype = DType::f32, b_dtype = DType::f32;
  // true: the matrix is transposed in memory and passed as a transposed view
  bool transposed_a = false, transposed_b = false;
  bool bias = false;
  Activation activation = Activation::none;
  std::optional<DType> result = {};  // dtype of the result, if it differs from that of the operands
};

double activated(Activation a, double x) {
  switch (a) {
    case Activation::relu: return std::max(x, 0.0);
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu: return x * 0.5 * (1 + std::erf(x * std::sqrt(0.5)));
    default: return x;
  }
}

// Creates an array with these row-major values. If `transposed`, it is a view of memory in which the last two axes are
// swapped.
Array laid_out(const std::vector<double>& values, const Shape& shape, DType t, bool transposed, Device device) {
  if (!transposed) return array_of(values, shape, t, device);
  Shape swapped = shape;
  std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
  const auto rows = static_cast<std::size_t>(shape[shape.size() - 2]), columns = static_cast<std::size_t>(shape.back());
  std::vector<double> moved(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t matrix = i / (rows * columns), r = i / columns % rows, c = i % columns;
    moved[(matrix * columns + c) * rows + r] = values[i];
  }
  std::vector<int> axes;
  for (std::size_t d = 0; d < shape.size(); ++d) axes.push_back(static_cast<int>(d));
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return array_of(moved, swapped, t, device).permute(axes);
}

double run(const ProductCase& c, Device device, std::uint64_t seed) {
  Random random(seed);
  const DType dtype = promote(c.a_dtype, c.b_dtype);
  const bool real = is_float(dtype);
  auto draw = [&](const Shape& s, DType t) {
    return real ? rounded(random.numbers(element_count(s)), t)
                : random.integers(element_count(s), is_unsigned_int(t) || t == DType::boolean ? 0 : -9,
                                  t == DType::boolean ? 1 : 9);
  };
  const auto a = draw(c.a, c.a_dtype), b = draw(c.b, c.b_dtype);
  const Array left = laid_out(a, c.a, c.a_dtype, c.transposed_a, device),
              right = laid_out(b, c.b, c.b_dtype, c.transposed_b, device);
  Shape as = c.a, bs = c.b;
  if (as.size() == 1) as.insert(as.begin(), 1);
  if (bs.size() == 1) bs.push_back(1);
  const std::int64_t m = as[as.size() - 2], k = as.back(), n = bs.back();
  Epilogue epilogue{.activation = c.activation, .dtype = c.result};
  const auto bias = draw({n}, dtype);
  if (c.bias) epilogue.bias = array_of(bias, {n}, dtype, device);

  as.resize(as.size() - 2), bs.resize(bs.size() - 2);
  const Shape lead = broadcast_shapes("check", as, bs);
  std::vector<double> wanted, allowed;
  const DType result = c.result ? *c.result : real ? dtype : dtype_size(dtype) >= 4 ? dtype : DType::i32;
  const double rounding = unit(dtype == DType::f64 ? DType::f64 : DType::f32);
  const double of_products = c.a_dtype == c.b_dtype ? product_rounding(device, dtype) : 0;
  for (std::int64_t at = 0; at < element_count(lead); ++at) {
    std::int64_t from_a = 0, from_b = 0, step_a = 1, step_b = 1, rest = at;
    for (std::size_t d = lead.size(); d-- > 0;) {
      const std::int64_t i = rest % lead[d];
      rest /= lead[d];
      const std::size_t skip_a = lead.size() - as.size(), skip_b = lead.size() - bs.size();
      if (d >= skip_a) from_a += as[d - skip_a] == 1 ? 0 : i * step_a, step_a *= as[d - skip_a];
      if (d >= skip_b) from_b += bs[d - skip_b] == 1 ? 0 : i * step_b, step_b *= bs[d - skip_b];
    }
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = c.bias ? bias[static_cast<std::size_t>(j)] : 0, size = std::abs(sum);
        for (std::int64_t q = 0; q < k; ++q) {
          const double p = a[static_cast<std::size_t>((from_a * m + i) * k + q)] *
                           b[static_cast<std::size_t>((from_b * k + q) * n + j)];
          sum += p, size += std::abs(p);
        }
        wanted.push_back(activated(c.activation, sum));
        // The rounding error of a sum grows like a random walk. The slope of the activations is below 1.2.
        const double walk = size * (rounding * (4 + 2 * std::sqrt(static_cast<double>(k))) + of_products);
        allowed.push_back(1.2 * walk + unit(result) * (std::abs(wanted.back()) + walk) * 1.01 +
                          (c.activation >= Activation::silu ? 1e-6 : half_step(result)));
      }
  }
  const auto got = poisoned(device, static_cast<std::uint64_t>(wanted.size()) * dtype_size(result),
                            [&] { return matmul(left, right, epilogue); });
  return worst(got, wanted, allowed);
}

}  // namespace

void add_product_checks(Checks& checks) {
  std::vector<ProductCase> cases;
  auto plain = [&](Shape a, Shape b) { cases.push_back({std::move(a), std::move(b)}); };
  plain({0, 3}, {3, 2}), plain({2, 0}, {0, 3}), plain({1, 1}, {1, 1}), plain({3, 5}, {5, 7}), plain({17, 33}, {33, 19});
  plain({65, 70}, {70, 100}), plain({20, 1100}, {1100, 50}), plain({1, 300}, {300, 77}), plain({4, 129}, {129, 50}),
      plain({65537, 3}, {3, 5}), plain({3, 2}, {2, 65537});
  plain({40}, {40}), plain({40}, {40, 6}), plain({50, 2000}, {2000}), plain({2, 3, 4, 5}, {3, 5, 6}),
      plain({3, 1, 8, 9}, {2, 9, 20});
  for (int both = 1; both < 4; ++both)
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{66, 50, 40}, std::array<std::int64_t, 3>{3, 200, 30},
                                  std::array<std::int64_t, 3>{200, 2, 1030}, std::array<std::int64_t, 3>{20, 70, 1}})
      cases.push_back({{m, k}, {k, n}, DType::f32, DType::f32, (both & 1) != 0, (both & 2) != 0});
  // Large enough that CPUs pack both factors.
  for (int both = 0; both < 4; ++both)
    cases.push_back({{130, 200}, {200, 100}, DType::f32, DType::f32, (both & 1) != 0, (both & 2) != 0});
  cases.push_back({{130, 150}, {150, 70}, DType::f16, DType::f16, false, true, true, Activation::silu});
  plain({2, 3, 40, 430}, {3, 430, 70}), plain({3, 40, 30}, {30, 70}), plain({40, 30}, {3, 30, 70});
  cases.push_back({{2, 3, 20, 9}, {2, 1, 9, 30}, DType::f32, DType::f32, true, true});
  for (Activation act : {Activation::relu, Activation::silu, Activation::gelu})
    cases.push_back({{33, 20}, {20, 45}, DType::f32, DType::f32, false, false, true, act});
  cases.push_back({{30, 200}, {200, 1}, DType::f32, DType::f32, false, false, true});
  cases.push_back({{3, 0}, {0, 4}, DType::f32, DType::f32, false, false, true, Activation::gelu});
  for (DType t : {DType::f16, DType::bf16, DType::f64, DType::i32, DType::i8, DType::i64, DType::u32, DType::boolean}) {
    cases.push_back({{19, 40}, {40, 50}, t, t});
    cases.push_back({{50, 90}, {90, 2}, t, t, false, true});
  }
  // On devices with matrix units, these cases use fragments: all tile sizes, with partial tiles.
  for (DType t : {DType::f16, DType::bf16, DType::f32}) {
    for (int both = 0; both < 4; ++both)
      cases.push_back({{130, 72}, {72, 141}, t, t, (both & 1) != 0, (both & 2) != 0});
    cases.push_back({{136, 72}, {72, 144}, t, t, true});
    cases.push_back({{16, 16}, {16, 16}, t, t}), cases.push_back({{5, 33}, {33, 300}, t, t, false, true});
    cases.push_back({{2, 3, 70, 31}, {2, 1, 31, 67}, t, t, false, false, true, Activation::gelu});
    cases.push_back({{40, 1}, {1, 40}, t, t, true}), cases.push_back({{300, 600}, {600, 9}, t, t});
  }
  // Sums of 16-bit floats that are returned as f32, as for gradients of weights, and f32 products that are rounded once
  // to 16 bits.
  for (DType t : {DType::f16, DType::bf16}) {
    cases.push_back(
        {.a = {130, 72}, .b = {72, 141}, .a_dtype = t, .b_dtype = t, .transposed_a = true, .result = DType::f32});
    cases.push_back({.a = {3, 3000}, .b = {3000, 5}, .a_dtype = t, .b_dtype = t, .result = DType::f32});
    cases.push_back({.a = {20, 40}, .b = {40, 1}, .a_dtype = t, .b_dtype = t, .result = DType::f32});
    cases.push_back({.a = {33, 40}, .b = {40, 50}, .bias = true, .activation = Activation::gelu, .result = t});
  }
  cases.push_back({{19, 40}, {40, 50}, DType::f16, DType::f32});
  cases.push_back({{70, 40}, {40, 50}, DType::i32, DType::f32, false, true});
  cases.push_back({{20, 30}, {30, 40}, DType::i32, DType::i32, false, false, true, Activation::relu});
  for (const ProductCase& c : cases) {
    std::string shape =
        to_string(c.a) + (c.transposed_a ? "^T" : "") + " x " + to_string(c.b) + (c.transposed_b ? "^T" : "");
    shape += " " + std::string(dtype_name(c.a_dtype)) +
             (c.a_dtype == c.b_dtype ? "" : " " + std::string(dtype_name(c.b_dtype))) +
             (c.result ? " to " + std::string(dtype_name(*c.result)) : "");
    constexpr const char* names[] = {"", " relu", " silu", " gelu"};
    shape += std::string(c.bias ? " bias" : "") + names[static_cast<std::size_t>(c.activation)];
    checks.push_back({"matmul", shape, [c](Device device, std::uint64_t seed) { return run(c, device, seed); }});
  }
  checks.push_back(
      {"matmul", "30 overlapping views (8,) of 37 numbers x (8, 5)", [](Device device, std::uint64_t seed) {
         Random random(seed);
         const auto v = rounded(random.numbers(37), DType::f32), w = rounded(random.numbers(8 * 5), DType::f32);
         const Array line = array_of(v, {37}, DType::f32, device);
         std::vector<double> wanted, allowed;
         for (std::size_t i = 0; i < 30; ++i)
           for (std::size_t j = 0; j < 5; ++j) {
             double sum = 0, size = 0;
             for (std::size_t q = 0; q < 8; ++q)
               sum += v[i + q] * w[q * 5 + j], size += std::abs(v[i + q] * w[q * 5 + j]);
             wanted.push_back(sum), allowed.push_back(size * 0x1p-21);
           }
         const Array right = array_of(w, {8, 5}, DType::f32, device);
         double most = 0;
         for (std::size_t i = 0; i < 30; ++i) {
           const auto got = poisoned(device, 5 * 4, [&] {
             return matmul(line.slice(0, static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 8), right);
           });
           const auto at = static_cast<std::ptrdiff_t>(i * 5);
           most = std::max(most, worst(got, {wanted.begin() + at, wanted.begin() + at + 5},
                                       {allowed.begin() + at, allowed.begin() + at + 5}));
         }
         return most;
       }});
}

}  // namespace tessera::ops
