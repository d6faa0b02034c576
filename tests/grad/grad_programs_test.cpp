// SPDX-License-Identifier: Apache-2.0
// Gradients of random programs with 20 operations. They are compared with differences in f64, and on every device with
// the f64 gradients. TESSERA_TEST_LONG=1 runs 10,000 programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>

#include "tessera/array/functions.h"
#include "tessera/grad/grad.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/convolution.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Arrays = std::vector<Array>;

/// Generates a program from a seed and runs it. The operations depend only on the seed and on shapes.
class Program {
 public:
  explicit Program(std::uint64_t seed) : seed_(seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (const Shape& s : shapes) {
      auto& v = values_.emplace_back();
      for (std::int64_t i = 0; i < element_count(s); ++i) v.push_back(static_cast<double>(uniform(random)));
    }
  }
  /// Returns the arguments, moved by `by` along `direction`.
  Arrays arguments(DType dtype, Device device, const std::vector<std::vector<double>>& direction = {},
                   double by = 0) const {
    Arrays out;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::vector<double> v = values_[i];
      for (std::size_t e = 0; e < v.size() && by != 0; ++e) v[e] += by * direction[i][e];
      out.push_back(Array::from(v, shapes[i], Device{Backend::cpu, 0}).astype(dtype).to(device));
    }
    return out;
  }
  Array operator()(const Arrays& arguments, std::string* text = nullptr) const {
    Run run{std::mt19937_64(seed_ ^ 0x9E3779B97F4A7C15ull), arguments, text};
    for (int done = 0; done < 20;) done += run.step();
    Array total = Array::zeros({}, arguments[0].dtype(), arguments[0].device());
    for (std::size_t i = run.all.size() - 4; i < run.all.size(); ++i) total = total + mean(tanh(run.all[i] * 0.5));
    return total;
  }

 private:
  static inline const std::vector<Shape> shapes = {{3, 4}, {4}, {2, 3, 4}, {4, 3}};

  struct Run {
    std::mt19937_64 random;
    Arrays all;
    std::string* text;

    std::uint64_t below(std::uint64_t n) { return random() % n; }
    const Array& any() {
      return all[below(2) ? below(all.size()) : all.size() - 1 - below(std::min<std::size_t>(all.size(), 4))];
    }
    bool keep(const char* name, Array a) {
      if (a.size() == 0 || a.size() > 500 || a.rank() > 4) return false;
      if (text != nullptr) *text += std::string(name) + to_string(a.shape()) + " ";
      all.push_back(std::move(a));
      return true;
    }
    static bool meet(const Shape& a, const Shape& b) {
      for (std::size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
        const auto x = a[a.size() - i], y = b[b.size() - i];
        if (x != y && x != 1 && y != 1) return false;
      }
      return true;
    }
    Array ids(std::int64_t count, std::int64_t extent, const Array& like) {
      std::vector<std::int32_t> v;
      for (std::int64_t i = 0; i < count; ++i)
        v.push_back(static_cast<std::int32_t>(below(static_cast<std::uint64_t>(extent) + 1)));
      return Array::from(v, {}, like.device());
    }

    bool step() {
      const Array x = any(), y = any();
      const int axis = x.rank() ? static_cast<int>(below(static_cast<std::uint64_t>(x.rank()))) : -1;
      const bool wide = x.rank() > 0;
      const double c = 0.25 * static_cast<double>(below(9)) - 1;
      switch (below(44)) {
        case 0: return keep("exp", exp(0.4 * x));
        case 1: return keep("sin", sin(x));
        case 2: return keep("cos", cos(x));
        case 3: return keep("tanh", tanh(x));
        case 4: return keep("sigmoid", sigmoid(x));
        case 5: return keep("square", x * x * 0.5);
        case 6: return keep("sqrt", sqrt(x * x + 0.5));
        case 7: return keep("rsqrt", rsqrt(x * x + 0.5));
        case 8: return keep("log1p", log1p(x * x));
        case 9: return keep("expm1", expm1(tanh(x)));
        case 10: return keep("gelu", gelu(x));
        case 11: return keep("silu", silu(x));
        case 12: return keep("erf", erf(x));
        case 13: return keep("abs", abs(x));
        case 14: return keep("relu", relu(x + 0.1));
        case 15: return keep("clip", clip(x, c - 1, c + 1));
        case 16: return keep("pow", pow(abs(x) + 0.5, 1 + c));
        case 17: return meet(x.shape(), y.shape()) && keep("add", x + y);
        case 18: return meet(x.shape(), y.shape()) && keep("sub", x - c * y);
        case 19: return meet(x.shape(), y.shape()) && keep("mul", x * y);
        case 20: return meet(x.shape(), y.shape()) && keep("div", x / (1 + y * y));
        case 21: return meet(x.shape(), y.shape()) && keep("maximum", maximum(x, y));
        case 22: return meet(x.shape(), y.shape()) && keep("minimum", minimum(x, y * 1.5));
        case 23: return meet(x.shape(), y.shape()) && keep("where", where(x > c, x * 2, y));
        case 24: return wide && keep("sum", sum(x, {axis}, below(2)));
        case 25: return wide && keep("mean", mean(x, {axis}, below(2)));
        case 26: return wide && keep("max", max(x, {axis}, below(2)));
        case 27: return wide && keep("logsumexp", logsumexp(x, {axis}, below(2)));
        case 28: return wide && x.shape(axis) > 1 && keep("var", var(x, {axis}, 1, below(2)));
        case 29: return wide && keep("softmax", softmax(x, axis));
        case 30: return wide && keep("cumsum", cumsum(x, axis));
        case 31: return keep("transpose", x.transpose());
        case 32: return keep("reshape", x.reshape({-1}));
        case 33:
          return wide && x.shape(axis) > 1 &&
                 keep("slice", x.slice(axis, 0, x.shape(axis), 1 + static_cast<std::int64_t>(below(2))));
        case 34:
          return wide &&
                 keep("select",
                      x.select(axis, static_cast<std::int64_t>(below(static_cast<std::uint64_t>(x.shape(axis))))));
        case 35: return keep("unsqueeze", x.unsqueeze(0) * 1.5);
        case 36: return wide && keep("concatenate", concatenate({x, x * c}, axis));
        case 37: return keep("stack", stack({x, sin(x)}, 0));
        case 38: return wide && keep("take", take(x, ids(3, x.shape(axis), x), axis));
        case 39: {
          if (!wide) return false;
          const Array which = ids(3, x.shape(axis), x);
          return keep("scatter_add", scatter_add(x, which, take(x, which, axis) * c, axis));
        }
        case 40: {
          std::vector<Padding> widths(static_cast<std::size_t>(x.rank()), Padding{0, 1});
          return wide && keep("pad", pad(x, widths, c));
        }
        case 41: {
          if (x.rank() < 1 || y.rank() < 1) return false;
          const std::int64_t inner = y.rank() == 1 ? y.shape(0) : y.shape(-2);
          const bool batched = x.rank() > 2 && y.rank() > 2;
          return !batched && x.shape(-1) == inner && keep("matmul", matmul(x, y) * 0.3);
        }
        case 42: return x.rank() > 1 && keep("rms_norm", rms_norm(x, x.reshape({-1}).slice(0, 0, x.shape(-1)), 0.1f));
        default: {
          if (x.rank() < 2 || x.rank() > 3) return false;
          const Array h = x.rank() == 2 ? x.reshape({1, 1, x.shape(0), x.shape(1)}) : x.unsqueeze(0);
          return keep("attention", scaled_dot_product_attention(h, tanh(h), h, {.causal = below(2) == 0}).squeeze(0));
        }
      }
    }
  };

  std::uint64_t seed_;
  std::vector<std::vector<double>> values_;
};

std::vector<double> numbers_of(const Array& a) {
  return a.to(Device{Backend::cpu, 0}).astype(DType::f64).to_vector<double>();
}

struct Outcome {
  std::vector<std::vector<double>> gradient;
  double largest = 0;
};
Outcome differentiated(const Program& program, const Arrays& at) {
  Outcome out;
  for (const Array& g : grad([&](const Arrays& x) { return program(x); })(at)) {
    out.gradient.push_back(numbers_of(g));
    for (const double v : out.gradient.back()) out.largest = std::max(out.largest, std::abs(v));
  }
  return out;
}

/// Generates programs for which finite differences are accurate: the largest derivative is below 1e3, and differences
/// with two step sizes agree, which they do not near a kink. Other programs are replaced and counted. Everything is
/// computed in f64 on the interpreter, which needs no compiler.
class Programs {
 public:
  explicit Programs(std::uint64_t seed) : random_(seed) {}

  struct Measured {
    Program program;
    std::uint64_t seed;
    Outcome outcome;
    std::vector<std::vector<double>> direction;
    /// The derivative along the direction, from differences, and the sum of the magnitudes of the gradient.
    double wanted = 0, scale = 0;

    double slope(const Outcome& of) const {
      double sum = 0;
      for (std::size_t p = 0; p < direction.size(); ++p)
        for (std::size_t e = 0; e < direction[p].size(); ++e) sum += of.gradient[p][e] * direction[p][e];
      return sum;
    }
  };
  static constexpr Device device{Backend::interp, 0};
  Measured next() {
    const DeviceScope scope(device);
    for (;;) {
      const std::uint64_t seed = random_();
      Measured m{Program(seed), seed, {}, {}, 0, 0};
      m.outcome = differentiated(m.program, m.program.arguments(DType::f64, device));
      ++drawn_;
      std::uniform_real_distribution<double> uniform(-1, 1);
      for (const auto& part : m.outcome.gradient)
        for (auto& d = m.direction.emplace_back(); const double g : part) {
          d.push_back(uniform(random_));
          m.scale += std::abs(g * d.back());
        }
      const auto by = [&](double h) {
        const auto value = [&](double to) {
          return numbers_of(m.program(m.program.arguments(DType::f64, device, m.direction, to)))[0];
        };
        return (value(h) - value(-h)) / (2 * h);
      };
      const double coarse = by(1e-5);
      m.wanted = by(4e-6);
      m.scale = std::max(m.scale, 1e-2);
      if (m.outcome.largest < 1e3 && std::abs(coarse - m.wanted) < 1e-6 * m.scale) return m;
      ++redrawn_;
    }
  }
  int drawn() const { return drawn_; }
  int redrawn() const { return redrawn_; }

 private:
  std::mt19937_64 random_;
  int drawn_ = 0, redrawn_ = 0;
};

std::string text_of(const Programs::Measured& m) {
  std::string text = "seed " + std::to_string(m.seed) + ": ";
  const DeviceScope scope(Programs::device);
  m.program(m.program.arguments(DType::f64, Programs::device), &text);
  return text;
}

// Gradients on cpu in f64, compared with differences.
TEST(GradPrograms, GradientsMatchFiniteDifferences) {
  const Device cpu{Backend::cpu, 0};
  const DeviceScope scope(cpu);
  Programs programs(testing::seed());
  const char* const all = std::getenv("TESSERA_TEST_LONG");
  const int count = all != nullptr && std::string_view(all) == "1" ? 10000 : 60;
  double worst = 0;
  for (int i = 0; i < count; ++i) {
    const auto m = programs.next();
    const double got = m.slope(differentiated(m.program, m.program.arguments(DType::f64, cpu)));
    worst = std::max(worst, std::abs(got - m.wanted) / m.scale);
    ASSERT_NEAR(got, m.wanted, 1e-5 * m.scale) << text_of(m);
    ASSERT_NEAR(m.slope(m.outcome), m.wanted, 1e-5 * m.scale) << "on the interpreter, " << text_of(m);
  }
  EXPECT_LE(programs.redrawn(), programs.drawn() / 5);
  std::cout << count << " programs, and " << programs.redrawn() << " replaced; the largest difference is " << worst
            << ", seed " << testing::seed() << "\n";
}

TEST_P(OnEveryDevice, RandomProgramsMatchF64Gradients) {
  if (GetParam().backend == Backend::cpu) return;  // tested above
  Programs programs(testing::seed() + 1);
  for (int i = 0, count = compiles_slowly() ? 8 : 20; i < count; ++i) {
    const auto m = programs.next();
    const Outcome got = differentiated(m.program, m.program.arguments(DType::f32, GetParam()));
    for (std::size_t p = 0; p < got.gradient.size(); ++p)
      for (std::size_t e = 0; e < got.gradient[p].size(); ++e)
        ASSERT_NEAR(got.gradient[p][e], m.outcome.gradient[p][e], 2e-3 * std::max(m.outcome.largest, 1e-2))
            << "argument " << p << ", element " << e << " of " << text_of(m);
  }
}

}  // namespace
}  // namespace tessera
