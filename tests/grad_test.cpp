// SPDX-License-Identifier: Apache-2.0
// Gradients: each operation's rule against central differences in f64, on every device against those; functions of
// functions, ties, what is refused, and what it costs.
#include "tessera/grad/grad.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "tessera/array/dlpack.h"
#include "tessera/array/history.h"
#include "tessera/array/move.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Arrays = std::vector<Array>;

struct Case {
  std::string name;
  std::vector<Shape> shapes;  ///< of the arguments
  std::function<Array(const Arrays&)> f;
  double low = -2, high = 2;
  bool only_f32 = false;  ///< no f64 is taken: differences of f32, to 1e-2
};

std::vector<Case> cases() {
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
  unary("gelu", gelu);
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
  all.push_back({"%", {{5}, {5}}, [](const Arrays& x) { return (x[0] * 7.3) % (x[1] + 9); }, 0.4, 2});
  all.push_back({"square", {{3, 4}}, [](const Arrays& x) { return x[0] * x[0]; }});
  all.push_back({"pow 3", {{6}}, [](const Arrays& x) { return pow(x[0], 3) + pow(x[0], 1) + pow(x[0], 2); }});
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

/// Numbers that all differ, by the range over their count: so that no small step passes a kink or a tie.
std::vector<std::vector<double>> points(const Case& c, std::mt19937_64& random) {
  std::size_t count = 0;
  for (const Shape& s : c.shapes) count += static_cast<std::size_t>(element_count(s));
  count += count % 2;
  std::vector<double> grid(count);
  for (std::size_t i = 0; i < count; ++i)
    grid[i] = c.low + (c.high - c.low) * (static_cast<double>(i) + 0.5) / static_cast<double>(count);
  std::ranges::shuffle(grid, random);
  std::vector<std::vector<double>> out;
  std::size_t at = 0;
  for (const Shape& s : c.shapes) {
    const auto n = static_cast<std::size_t>(element_count(s));
    out.emplace_back(grid.begin() + static_cast<std::ptrdiff_t>(at),
                     grid.begin() + static_cast<std::ptrdiff_t>(at + n));
    at += n;
  }
  return out;
}

Arrays arrays(const Case& c, const std::vector<std::vector<double>>& values, DType dtype, Device device) {
  Arrays out;
  for (std::size_t i = 0; i < values.size(); ++i)
    out.push_back(Array::from(values[i], c.shapes[i], Device{Backend::cpu, 0}).astype(dtype).to(device));
  return out;
}

/// One number of what the function gives, in which every element counts otherwise.
Array weighed(const Array& y) {
  std::vector<double> weights(static_cast<std::size_t>(y.size()));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.3 + static_cast<double>(i * 37 % 11) / 11;
  return sum(y * Array::from(weights, y.shape(), Device{Backend::cpu, 0}).astype(y.dtype()).to(y.device()));
}

std::vector<double> numbers_of(const Array& a) {
  return a.to(Device{Backend::cpu, 0}).astype(DType::f64).to_vector<double>();
}

struct Gradients {
  std::vector<std::vector<double>> parts;
  double largest = 0;
};
Gradients gradients(const Case& c, const Arrays& at) {
  const Arrays got = grad([&](const Arrays& x) { return weighed(c.f(x)); })(at);
  Gradients out;
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].shape(), at[i].shape()) << c.name;
    EXPECT_EQ(got[i].dtype(), at[i].dtype()) << c.name;
    EXPECT_EQ(got[i].device(), at[i].device()) << c.name;
    EXPECT_FALSE(got[i].has_history()) << c.name;
    out.parts.push_back(numbers_of(got[i]));
    for (const double v : out.parts.back()) out.largest = std::max(out.largest, std::abs(v));
  }
  return out;
}

TEST(Grad, IsWhatDifferencesAre) {
  const DeviceScope cpu({Backend::cpu, 0});
  std::mt19937_64 random(testing::seed());
  for (const Case& c : cases()) {
    auto values = points(c, random);
    const DType t = c.only_f32 ? DType::f32 : DType::f64;
    const double step = c.only_f32 ? 1e-2 : 1e-4, bound = c.only_f32 ? 1e-2 : 1e-5;
    const Gradients got = gradients(c, arrays(c, values, t, {Backend::cpu, 0}));
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t e = 0; e < values[i].size(); ++e) {
        const double kept = values[i][e];
        const auto at = [&](double v) {
          values[i][e] = v;
          return numbers_of(weighed(c.f(arrays(c, values, t, {Backend::cpu, 0}))))[0];
        };
        const double want = (at(kept + step) - at(kept - step)) / (2 * step);
        values[i][e] = kept;
        ASSERT_NEAR(got.parts[i][e], want, bound * std::max(got.largest, 1e-3))
            << c.name << ", argument " << i << ", element " << e;
      }
  }
}

TEST_P(OnEveryDevice, GradientsAreThoseInF64) {
  int without_f64 = 0;
  for (const Case& c : cases()) {
    if (c.only_f32) continue;
    // A vendor's compiler takes a second or so for each of a case's kernels: every time another eighth of them.
    if (!is_built_in(GetParam().backend) && random() % 8 != 0) continue;
    const auto values = points(c, random);
    const Gradients want = gradients(c, arrays(c, values, DType::f64, {Backend::cpu, 0}));
    Gradients got;
    try {
      got = gradients(c, arrays(c, values, DType::f32, GetParam()));
    } catch (const DtypeError&) {  // a device without f64, which one of these asks for
      if (device_info(GetParam()).can.f64) throw;
      ++without_f64;
      continue;
    }
    for (std::size_t i = 0; i < want.parts.size(); ++i)
      for (std::size_t e = 0; e < want.parts[i].size(); ++e)
        ASSERT_NEAR(got.parts[i][e], want.parts[i][e], 1e-4 * std::max(want.largest, 1e-2))
            << c.name << ", argument " << i << ", element " << e;
  }
  EXPECT_LE(without_f64, 1);
}

TEST_P(OnEveryDevice, SecondDerivativesAreThoseOfTheFormula) {
  struct Second {
    const char* name;
    std::function<Array(const Array&)> f;
    double (*want)(double);
  };
  const std::vector<Second> all = {
      {"x^3", [](const Array& x) { return x * x * x; }, [](double x) { return 6 * x; }},
      {"exp", [](const Array& x) { return exp(x); }, [](double x) { return std::exp(x); }},
      {"sin", [](const Array& x) { return sin(x); }, [](double x) { return -std::sin(x); }},
      {"cos(2x)", [](const Array& x) { return cos(2 * x); }, [](double x) { return -4 * std::cos(2 * x); }},
      {"log", [](const Array& x) { return log(x); }, [](double x) { return -1 / (x * x); }},
      {"1/x", [](const Array& x) { return 1 / x; }, [](double x) { return 2 / (x * x * x); }},
      {"sqrt", [](const Array& x) { return sqrt(x); }, [](double x) { return -0.25 * std::pow(x, -1.5); }},
      {"pow", [](const Array& x) { return pow(x, 4); }, [](double x) { return 12 * x * x; }},
      {"sigmoid", [](const Array& x) { return sigmoid(x); },
       [](double x) {
         const double s = 1 / (1 + std::exp(-x));
         return s * (1 - s) * (1 - 2 * s);
       }},
      {"tanh", [](const Array& x) { return tanh(x); },
       [](double x) {
         const double t = std::tanh(x);
         return -2 * t * (1 - t * t);
       }},
      {"views",
       [](const Array& x) {
         return concatenate({x.slice(0, 0, 2), x.slice(0, 2, 5)}) * x;
       },
       [](double) { return 2.0; }},
  };
  const std::vector<float> at = {0.5f, 0.8f, 1.1f, 1.4f, 1.7f};
  const Array x = Array::from(at);
  for (const Second& s : all) {
    auto first = grad([&](const Array& v) { return sum(s.f(v)); });
    const Array second = grad([&](const Array& v) { return sum(first(v)); })(x);
    const std::vector<float> got = second.to_vector<float>();
    for (std::size_t i = 0; i < at.size(); ++i)
      EXPECT_NEAR(got[i], s.want(static_cast<double>(at[i])), 2e-4) << s.name << " at " << at[i];
  }
}

}  // namespace
}  // namespace tessera
