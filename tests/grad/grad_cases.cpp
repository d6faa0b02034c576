// SPDX-License-Identifier: Apache-2.0
#include "tests/grad/grad_cases.h"

#include "tessera/array/functions.h"
#include "tessera/array/move.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"

namespace tessera::test {

namespace {

/// Returns an identity matrix with the shape, dtype and device of `like`.
Array identity(const Array& like) {
  const Array ones = Array::ones(like.shape(), like.dtype(), like.device());
  return tril(ones) - tril(ones, -1);
}

}  // namespace

std::vector<Case> array_cases() {
  std::vector<Case> all;
  const std::vector<Shape> some = {{3, 4}, {1}, {0}};
  const auto unary = [&](const char* name, Array (*f)(Array), double low = -2, double high = 2) {
    for (const Shape& s : some)
      all.push_back({name + to_string(s), {s}, [f](const Arrays& x) { return f(x[0]); }, low, high});
    all.push_back({std::string(name) + " of a view",
                   {{4, 6}},
                   [f](const Arrays& x) { return f(x[0].transpose().slice(0, 1, 6, 2)); },
                   low,
                   high});
  };
  unary("abs", abs), unary("sqrt", sqrt, 0.5, 2), unary("rsqrt", rsqrt, 0.5, 2), unary("exp", exp);
  unary("exp2", exp2), unary("log", log, 0.5, 3), unary("log2", log2, 0.5, 3), unary("sin", sin), unary("cos", cos);
  unary("tanh", tanh), unary("erf", erf), unary("sigmoid", sigmoid), unary("silu", silu), unary("relu", relu);
  unary("gelu", gelu), unary("tan", tan, -1.2, 1.2), unary("asin", asin, -0.9, 0.9), unary("acos", acos, -0.9, 0.9);
  unary("atan", atan), unary("sinh", sinh), unary("cosh", cosh), unary("log10", log10, 0.5, 3);
  unary("negative", [](Array x) { return -std::move(x); });
  const auto binary = [&](const char* name, Array (*f)(ArrayOperand, ArrayOperand), double low = -2, double high = 2) {
    using Pair = std::vector<Shape>;
    for (const Pair& s : {Pair{{3, 4}, {3, 4}}, Pair{{3, 4}, {4}}, Pair{{2, 1, 3}, {4, 1}}, Pair{{1}, {3}},
                          Pair{{}, {2, 2}}, Pair{{0, 3}, {3}}})
      all.push_back(
          {name + to_string(s[0]) + to_string(s[1]), s, [f](const Arrays& x) { return f(x[0], x[1]); }, low, high});
    all.push_back(
        {name + std::string(" itself"), {{5}}, [f](const Arrays& x) { return f(x[0], x[0] * 1.5); }, low, high});
    all.push_back({name + std::string(" scalars"),
                   {{5}},
                   [f](const Arrays& x) { return f(x[0], 1.3) + f(1.3, x[0]); },
                   low,
                   high});
  };
  binary("+", operator+), binary("-", operator-), binary("*", operator*), binary("/", operator/, 0.5, 3);
  binary("minimum", minimum), binary("maximum", maximum), binary("pow", pow, 0.5, 2);
  binary("atan2", atan2, 0.5, 3), binary("hypot", hypot, 0.5, 2);
  all.push_back({"copysign", {{3, 4}, {4}}, [](const Arrays& x) {
                   return copysign(x[0], x[1]) * x[0] + copysign(x[0] * 2, -1) + copysign(3, x[1]);
                 }});
  all.push_back({"%", {{5}, {5}}, [](const Arrays& x) { return (x[0] * 7.3) % (x[1] + 9); }, 0.4, 2});
  all.push_back({"square", {{3, 4}}, [](const Arrays& x) { return x[0] * x[0]; }});
  all.push_back(
      {"pow 3", {{6}}, [](const Arrays& x) { return pow(x[0], 3) + pow(x[0], 1) + pow(x[0], 2) + pow(x[0], 0); }});
  all.push_back({"where", {{3, 4}, {4}}, [](const Arrays& x) { return where(x[0] > 0.3, x[0] * x[1], x[1]); }});
  all.push_back(
      {"rounded", {{7}}, [](const Arrays& x) { return x[0] * (floor(x[0]) + ceil(x[0]) + trunc(x[0]) + rint(x[0])); }});
  all.push_back({"chain", {{3, 4}, {4}}, [](const Arrays& x) {
                   Array h = tanh(x[0] * x[1] + 0.5);
                   return exp(-h * h) / (1 + x[1] * x[1]) + h;
                 }});
  all.push_back({"long", {{5}}, [](const Arrays& x) {
                   Array h = x[0];
                   for (int i = 0; i < 40; ++i) h = sin(h) + 0.9 * h;
                   return h;
                 }});
  const auto view = [&](const char* name, Shape shape, std::function<Array(const Array&)> f) {
    all.push_back({name, {shape}, [f](const Arrays& x) { return f(x[0]) * f(x[0] * 2); }});
  };
  view("reshape", {3, 4}, [](const Array& x) { return x.reshape({2, -1}); });
  view("reshape of a view", {3, 4}, [](const Array& x) { return x.transpose().reshape({2, 6}); });
  view("transpose", {3, 4}, [](const Array& x) { return x.transpose(); });
  view("permute", {2, 3, 4}, [](const Array& x) { return x.permute({2, 0, -2}); });
  view("broadcast_to", {3, 1}, [](const Array& x) { return x.broadcast_to({2, 3, 4}); });
  view("slice", {7, 3}, [](const Array& x) { return x.slice(0, 1, 6, 2); });
  view("slice backwards", {7, 3}, [](const Array& x) { return x.slice(0, -2, -8, -2); });
  view("slice from the end to the start", {3, 4}, [](const Array& x) { return x.slice(1, -1, -5, -1); });
  view("empty slice backwards", {7, 3}, [](const Array& x) { return x.slice(0, 2, 3, -1); });
  view("empty slice", {7, 3}, [](const Array& x) { return x.slice(0, 3, 3); });
  view("overlapping slices", {7}, [](const Array& x) { return x.slice(0, 0, 5) * x.slice(0, 2, 7); });
  view("select", {3, 4}, [](const Array& x) { return x.select(1, -1); });
  view("unsqueeze", {3}, [](const Array& x) { return x.unsqueeze(-1); });
  view("squeeze", {3, 1}, [](const Array& x) { return x.squeeze(1); });
  view("as_contiguous", {3, 4}, [](const Array& x) { return x.transpose().as_contiguous(); });
  view("copy", {3, 4}, [](const Array& x) { return x.transpose().copy(); });
  view("astype", {3, 4}, [](const Array& x) { return x.astype(DType::f64).astype(x.dtype()); });
  view("to", {3, 4}, [](const Array& x) {
    const Device other{x.device().backend == Backend::interp ? Backend::cpu : Backend::interp, 0};
    return (x.to(other) * 2).to(x.device());
  });
  view("to of a structure", {3, 4}, [](const Array& x) {
    const Device other{x.device().backend == Backend::interp ? Backend::cpu : Backend::interp, 0};
    return to(to(Arrays{x}, other), x.device())[0];
  });
  for (const std::vector<int>& axes : {std::vector<int>{}, {0}, {-1}, {0, 2}})
    for (const bool keep : {false, true}) {
      const auto reduction = [&](const char* name, auto f) {
        all.push_back({name + std::to_string(axes.size()) + (keep ? " keep" : ""), {{2, 3, 4}}, [=](const Arrays& x) {
                         return f(x[0] * 1.5, axes, keep);
                       }});
      };
      reduction("sum", [](Array x, auto a, bool k) { return sum(std::move(x), a, k); });
      reduction("mean", [](Array x, auto a, bool k) { return mean(std::move(x), a, k); });
      reduction("max", [](Array x, auto a, bool k) { return max(std::move(x), a, k); });
      reduction("min", [](Array x, auto a, bool k) { return min(std::move(x), a, k); });
    }
  all.push_back({"deviation", {{4, 5}}, [](const Arrays& x) {
                   const Array d = x[0] - mean(x[0], {1}, true);
                   return sqrt(mean(d * d, {1}));
                 }});
  const auto product = [&](Shape a, Shape b) {
    all.push_back({"matmul" + to_string(a) + to_string(b), {a, b}, [](const Arrays& x) { return matmul(x[0], x[1]); }});
  };
  product({3, 4}, {4, 5}), product({4}, {4, 5}), product({3, 4}, {4}), product({4}, {4}), product({2, 3, 4}, {4, 5});
  product({2, 3, 4}, {2, 4, 5}), product({2, 1, 3, 4}, {3, 4, 2}), product({3, 0}, {0, 2}), product({0, 3}, {3, 2});
  product({2, 3, 4}, {4}), product({4}, {2, 4, 3}), product({3, 4}, {2, 4, 5});
  for (const Activation a : {Activation::none, Activation::relu, Activation::silu, Activation::gelu})
    all.push_back({"matmul with epilogue " + std::to_string(static_cast<int>(a)),
                   {{2, 3, 4}, {4, 5}, {5}},
                   [a](const Arrays& x) { return matmul(x[0], x[1], {.bias = x[2], .activation = a}); }});
  for (int how = 0; how < 16; ++how) {
    const TriangularSystem s{how & 1 ? Side::right : Side::left, how & 2 ? Triangle::upper : Triangle::lower,
                             (how & 4) != 0, (how & 8) != 0};
    const auto solve = [s](const Arrays& x) { return solve_triangular(x[0] + 4 * identity(x[0]), x[1], s); };
    all.push_back({"solve_triangular " + std::to_string(how), {{3, 3}, how & 1 ? Shape{2, 3} : Shape{3, 2}}, solve});
    if (how == 1 || how == 6)
      all.push_back({"solve_triangular of a vector " + std::to_string(how), {{3, 3}, {3}}, solve});
  }
  all.push_back({"cholesky", {{3, 4}}, [](const Arrays& x) {
                   return cholesky(matmul(x[0], x[0].transpose()) + identity(matmul(x[0], x[0].transpose())));
                 }});
  all.push_back(
      {"cholesky of a lower triangle", {{3, 3}}, [](const Arrays& x) { return cholesky(x[0] + 20 * identity(x[0])); }});
  all.push_back({"matmul of views", {{4, 3}, {5, 4}}, [](const Arrays& x) {
                   return matmul(x[0].transpose(), x[1].transpose());
                 }});
  all.push_back({"concatenate", {{2, 3}, {2, 1}, {2, 0}}, [](const Arrays& x) {
                   const Array all = concatenate({x[0], x[1], x[2], x[0]}, 1);
                   return all * all;
                 }});
  all.push_back({"take", {{4, 3}}, [](const Arrays& x) {
                   const Array ids = Array::from({2, 0, 2, 7, -1, 2}, Shape{2, 3}, x[0].device());
                   const Array rows = take(x[0], ids);
                   return rows * rows;
                 }});
  for (const int axis : {0, 1, -1})
    all.push_back(
        {"softmax" + std::to_string(axis), {{3, 2, 5}}, [axis](const Arrays& x) { return softmax(x[0], axis); }});
  all.push_back({"rms_norm", {{2, 3, 5}, {5}}, [](const Arrays& x) { return rms_norm(x[0], x[1], 1e-3f); }});
  all.push_back({"silu_gate", {{3, 4}, {3, 4}}, [](const Arrays& x) { return silu_gate(x[0], x[1]); }});
  all.push_back(
      {"rotary",
       {{3, 2, 8}},
       [](const Arrays& x) { return rotary(x[0], 5, {.pairs = RotaryPairs::halves, .dimensions = 6, .scale = 0.5f}); },
       -2,
       2,
       true});
  for (const WeightFormat format : {WeightFormat::f32, WeightFormat::f16})
    all.push_back({"linear" + std::to_string(static_cast<int>(format)),
                   {{3, 32}},
                   [format](const Arrays& x) {
                     const std::size_t bytes = format == WeightFormat::f32 ? 4 : 2;
                     std::vector<std::byte> data(2 * 32 * bytes);
                     for (std::size_t i = 0; i < 64; ++i)  // 1, 2, 1, 2, ... as f32 or f16
                       data[i * bytes + bytes - 1] = std::byte(i % 2 ? 0x40 : 0x3c),
                                                data[i * bytes + bytes - 2] = std::byte(0);
                     return linear(x[0], Weight::pack(format, data, 2, 32, x[0].device()));
                   },
                   -2,
                   2,
                   true});
  return all;
}

std::vector<Case> grad_cases() {
  std::vector<Case> all = array_cases();
  for (auto part : {function_cases, linalg_cases})
    for (Case& c : part()) all.push_back(std::move(c));
  return all;
}

}  // namespace tessera::test
