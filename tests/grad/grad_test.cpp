// SPDX-License-Identifier: Apache-2.0
// Gradients. The rule of each operation is compared with central differences in f64, and the gradients on every device
// with the f64 gradients. Also tests nested functions, ties, errors, and cost.
#include "tessera/grad/grad.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>

#include "tests/grad/grad_cases.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using test::Arrays;
using test::Case;

/// Returns distinct numbers that are evenly spaced over the range, so that a small step crosses no kink or tie.
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

/// The device that computes f64 references. It needs no compiler.
constexpr Device reference{Backend::interp, 0};

/// Reduces the value of the function to one number, with a different weight for each element.
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

// Gradients on cpu.
TEST(Grad, GradientsMatchFiniteDifferences) {
  std::mt19937_64 random(testing::seed());
  for (const Case& c : test::grad_cases()) {
    auto values = points(c, random);
    const DType t = c.only_f32 ? DType::f32 : DType::f64;
    const double step = c.only_f32 ? 1e-2 : 1e-4, bound = c.only_f32 ? 1e-2 : 1e-5;
    const Gradients got = [&] {
      const DeviceScope cpu({Backend::cpu, 0});
      return gradients(c, arrays(c, values, t, {Backend::cpu, 0}));
    }();
    const DeviceScope scope(reference);
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t e = 0; e < values[i].size(); ++e) {
        const double kept = values[i][e];
        const auto at = [&](double v) {
          values[i][e] = v;
          return numbers_of(weighed(c.f(arrays(c, values, t, reference))))[0];
        };
        const double want = (at(kept + step) - at(kept - step)) / (2 * step);
        values[i][e] = kept;
        ASSERT_NEAR(got.parts[i][e], want, bound * std::max(got.largest, 1e-3))
            << c.name << ", argument " << i << ", element " << e;
      }
  }
}

// Computes a scalar from the gradient and compares its derivative along a random direction with finite differences.
// This tests the rules; devices are tested below.
TEST(Grad, SecondDerivativesMatchFiniteDifferencesOfGradients) {
  const DeviceScope scope(reference);
  std::mt19937_64 random(testing::seed());
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const Case& c : test::grad_cases()) {
    if (c.only_f32 || c.once) continue;
    SCOPED_TRACE(c.name);
    const auto values = points(c, random);
    auto first = grad([&](const Arrays& x) { return weighed(c.f(x)); });
    const auto number = [&](const Arrays& x) {
      Array total = Array::zeros({}, DType::f64);
      for (const Array& g : first(x)) total = total + weighed(g);
      return total;
    };
    const Arrays at = arrays(c, values, DType::f64, reference);
    const Arrays second = grad(number)(at);
    std::vector<std::vector<double>> directions;
    double got = 0, largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::vector<double> numbers = numbers_of(second[i]);
      std::vector<double>& d = directions.emplace_back();
      for (std::size_t e = 0; e < numbers.size(); ++e) {
        d.push_back(uniform(random));
        got += numbers[e] * d.back(), largest += std::abs(numbers[e]);
      }
    }
    const double step = 1e-5;
    const auto moved = [&](double by) {
      auto all = values;
      for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t e = 0; e < all[i].size(); ++e) all[i][e] += by * directions[i][e];
      return numbers_of(number(arrays(c, all, DType::f64, reference)))[0];
    };
    EXPECT_NEAR(got, (moved(step) - moved(-step)) / (2 * step), 1e-5 * std::max(largest, 1.0)) << c.name;
  }
}

TEST_P(OnEveryDevice, GradientsMatchF64Gradients) {
  int without_f64 = 0;
  for (const Case& c : test::grad_cases()) {
    if (c.only_f32) continue;
    if (compiles_slowly() && random() % 8 != 0) continue;
    const auto values = points(c, random);
    const Gradients want = gradients(c, arrays(c, values, DType::f64, reference));
    Gradients got;
    try {
      got = gradients(c, arrays(c, values, DType::f32, GetParam()));
    } catch (const KernelError&) {  // a device without f64, which some cases need
      if (device_info(GetParam()).can.f64) throw;
      ++without_f64;
      continue;
    }
    for (std::size_t i = 0; i < want.parts.size(); ++i)
      for (std::size_t e = 0; e < want.parts[i].size(); ++e)
        ASSERT_NEAR(got.parts[i][e], want.parts[i][e], 1e-4 * std::max(want.largest, 1e-2))
            << c.name << ", argument " << i << ", element " << e;
  }
  EXPECT_LE(without_f64, 2) << "a cast to f64, and an f64 mask";
}

TEST_P(OnEveryDevice, SecondDerivativesMatchTheFormulas) {
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
