// SPDX-License-Identifier: Apache-2.0
// Compares the f64 functions that lowering expands with long double: for special values, random bits, and values near
// singularities.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <span>

#include "tessera/base/test_seed.h"
#include "tessera/emit/lower.h"
#include "tessera/emit/math.h"
#include "tessera/ir/interpreter.h"
#include "tessera/ir/value.h"
#include "tests/support/exact_math.h"

namespace tessera {
namespace {

using namespace ir;

Function expanded(MathOp op) {
  Builder b("math", KernelKind::map);
  {
    Builder::Scope scope(b);
    const BufferRef x = buffer_param("x", DType::f64, Access::read), y = buffer_param("y", DType::f64, Access::read);
    const BufferRef z = buffer_param("z", DType::f64, Access::read_write);
    const Value i = global_id();
    z.store(i, operand_count(op) == 2 ? math(op, x.load(i), y.load(i)) : math(op, x.load(i)));
  }
  const Function lowered = emit::lower(b.finish(), {.expand_math64 = true});
  for (const Node& n : lowered.nodes) EXPECT_FALSE(n.op == Op::math && emit::expands(n.kind<MathOp>()));
  return lowered;
}

// Returns the error in ulps relative to the double nearest to `right`. It is infinite if both are special values and
// differ.
double ulps(double got, long double right) {
  const auto nearest = static_cast<double>(right);
  if (std::isnan(right) || std::isnan(got)) return std::isnan(right) && std::isnan(got) ? 0 : INFINITY;
  if (got == nearest) return std::signbit(got) == std::signbit(nearest) || nearest != 0 || right != 0 ? 0 : INFINITY;
  if (std::isinf(nearest) || std::isinf(got)) {  // near overflow, both the largest double and infinity are accepted
    const double most = std::numeric_limits<double>::max();
    return std::abs(got) >= most && std::abs(right) >= most && std::signbit(got) == std::signbit(right) ? 1 : INFINITY;
  }
  int exponent = 0;
  std::frexp(right, &exponent);
  return static_cast<double>(std::abs(got - right) / std::ldexp(1.0L, std::max(exponent - 53, -1074)));
}

class Math64 : public testing::TestWithParam<MathOp> {};

TEST_P(Math64, ErrorIsWithinItsBound) {
  const MathOp op = GetParam();
  const emit::MathBound bound = emit::math64_bound(op);
  const Interpreter interpreter(expanded(op));
  std::mt19937_64 random(test_seed());
  std::vector<double> x = {0.0,    -0.0,     1,         -1,     2,      -2,      0.5,   -0.5,   3,
                           -3,     INFINITY, -INFINITY, NAN,    5e-324, -5e-324, 1e308, -1e308, 1e-310,
                           709.78, 709.79,   -745.13,   -745.2, 1023.9, 1024,    -1074, -1075.5},
                      y;
  const std::size_t special = x.size();
  for (std::size_t i = 0; i < special; ++i)
    y.insert(y.end(), x.begin(), x.begin() + static_cast<std::ptrdiff_t>(special));
  x.clear();
  for (std::size_t i = 0; i < special; ++i) x.insert(x.end(), special, y[i]);
  std::uniform_real_distribution<double> near(-12, 12), exponent(-1080, 1030);
  for (int i = 0; i < 400000; ++i) {
    double v = std::bit_cast<double>(random());
    if (i % 4 == 1) v = near(random);
    if (i % 4 == 2)
      v = op == MathOp::log || op == MathOp::log2 || op == MathOp::log10 || op == MathOp::pow ? 1 + near(random) / 24
                                                                                              : 60 * near(random);
    if (i % 4 == 3) v = std::rint(near(random)) * 0.78539816339744828 * (1 + near(random) * 1e-12);
    if ((op == MathOp::asin || op == MathOp::acos) && i % 4 == 1) v /= 12;
    if (std::isfinite(v) && (v < bound.lowest || v > bound.highest)) continue;
    const double l = std::log2(std::abs(v));
    double p = exponent(random) / (l == 0 ? 1 : l);  // keeps most powers finite
    if (random() % 4 == 0) p = std::rint(p);
    if (op != MathOp::pow) p = v * std::exp2(2 * near(random));
    x.push_back(v), y.push_back(random() % 64 == 0 ? std::bit_cast<double>(random()) : p);
  }
  std::vector<double> got(x.size(), -12345);
  const auto bytes = [](std::vector<double>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  const std::vector<InterpreterArgument> arguments = {{.data = bytes(x), .elements = x.size()},
                                                      {.data = bytes(y), .elements = y.size()},
                                                      {.data = bytes(got), .elements = got.size()}};
  interpreter.run({x.size(), 1, 1}, arguments);
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(x[i]) && (x[i] < bound.lowest || x[i] > bound.highest)) continue;
    if (const double error = ulps(got[i], test::exactly(op, x[i], y[i])); error > worst) worst = error, at = i;
  }
  std::printf("%-5s %.3f ulp at %a%s\n", std::string(name_of(op)).c_str(), worst, x[at],
              operand_count(op) == 2 ? (", " + std::to_string(y[at])).c_str() : "");
  EXPECT_LE(worst, bound.ulp) << x[at] << ", " << y[at] << " gave " << got[at];
}

INSTANTIATE_TEST_SUITE_P(All, Math64,
                         testing::Values(MathOp::exp, MathOp::exp2, MathOp::log, MathOp::log2, MathOp::sin, MathOp::cos,
                                         MathOp::tanh, MathOp::erf, MathOp::pow, MathOp::tan, MathOp::asin,
                                         MathOp::acos, MathOp::atan, MathOp::sinh, MathOp::cosh, MathOp::log10,
                                         MathOp::atan2, MathOp::hypot),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace tessera
