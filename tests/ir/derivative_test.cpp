// SPDX-License-Identifier: Apache-2.0
// Compares the derivative of each pure node with central differences in f64. The interpreter computes both.
#include "tessera/ir/derivative.h"

#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "tests/ir/interpreter_helpers.h"

namespace tessera::ir {
namespace {

using namespace test;

struct NodeCase {
  Node node;  ///< op, sub and type; imm for extract
  std::size_t operands;
  std::function<Value(std::span<const Value>)> make;  ///< called with f64 operands
  double low = -2, high = 2;
};

std::vector<NodeCase> node_cases() {
  std::vector<NodeCase> all;
  const auto add = [&](Op op, auto sub, std::size_t operands, std::function<Value(std::span<const Value>)> make,
                       double low = -2, double high = 2) {
    all.push_back({{.op = op, .sub = static_cast<std::uint8_t>(sub), .type = {DType::f64}},
                   operands,
                   std::move(make),
                   low,
                   high});
  };
  for (const UnaryOp op : {UnaryOp::neg, UnaryOp::abs}) add(Op::unary, op, 1, [op](auto x) { return unary(op, x[0]); });
  for (const BinaryOp op : {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::min, BinaryOp::max})
    add(Op::binary, op, 2, [op](auto x) { return binary(op, x[0], x[1]); });
  add(
      Op::binary, BinaryOp::div, 2, [](auto x) { return x[0] / x[1]; }, 0.5, 2);
  add(
      Op::binary, BinaryOp::rem, 2, [](auto x) { return x[0] % x[1]; }, 1.1, 1.9);
  add(Op::select, 0, 3, [](auto x) { return select(x[0] > 0, x[1], x[2]); });
  add(Op::cast, 0, 1, [](auto x) { return cast(DType::f64, x[0]); });
  const auto math_of = [&](MathOp op, double low = -2, double high = 2) {
    add(
        Op::math, op, 1, [op](auto x) { return math(op, x[0]); }, low, high);
  };
  for (const MathOp op : {MathOp::exp, MathOp::exp2, MathOp::sin, MathOp::cos, MathOp::tanh, MathOp::erf}) math_of(op);
  for (const MathOp op : {MathOp::sqrt, MathOp::rsqrt, MathOp::log, MathOp::log2, MathOp::log10}) math_of(op, 0.4, 3);
  for (const MathOp op : {MathOp::atan, MathOp::sinh, MathOp::cosh}) math_of(op);
  for (const MathOp op : {MathOp::asin, MathOp::acos}) math_of(op, -0.9, 0.9);
  math_of(MathOp::tan, -1.2, 1.2);
  for (const MathOp op : {MathOp::atan2, MathOp::hypot})
    add(Op::math, op, 2, [op](auto x) { return math(op, x[0], x[1]); });
  add(
      Op::math, MathOp::pow, 2, [](auto x) { return pow(x[0], x[1]); }, 0.4, 2);
  add(Op::math, MathOp::fma, 3, [](auto x) { return fma(x[0], x[1], x[2]); });
  return all;
}

/// Returns the outputs of a kernel that is called with the scalars `in`.
std::vector<double> computed(std::size_t inputs, std::size_t outputs, std::vector<double> in,
                             const std::function<std::vector<Value>(std::span<const Value>)>& body) {
  Builder builder("derivative", KernelKind::map);
  Builder::Scope scope(builder);
  const BufferRef from = buffer_param("in", DType::f64, Access::read),
                  to = buffer_param("out", DType::f64, Access::read_write);
  std::vector<Value> x;
  for (std::size_t i = 0; i < inputs; ++i) x.push_back(from.load(index_literal(static_cast<std::int64_t>(i))));
  const std::vector<Value> made = body(x);
  for (std::size_t i = 0; i < outputs; ++i) to.store(index_literal(static_cast<std::int64_t>(i)), made[i]);
  std::vector<double> out(outputs, 0.0);
  run(builder.finish(), {1, 1, 1}, {arg(in), arg(out)});
  return out;
}

TEST(Derivative, MatchesCentralDifferencesForEachNode) {
  std::mt19937_64 random(tessera::test_seed());
  for (const NodeCase& c : node_cases()) {
    std::uniform_real_distribution<double> d(c.low, c.high);
    for (int round = 0; round < 20; ++round) {
      std::vector<double> at(c.operands);
      bool near_kink = true;
      while (near_kink) {
        near_kink = false;
        for (double& v : at) v = d(random), near_kink = near_kink || std::abs(v) < 1e-2;
        if (c.operands == 2) near_kink = near_kink || std::abs(at[0] - at[1]) < 1e-2;
      }
      const double g = 1.7, step = 1e-5;
      std::vector<double> with_g = at;
      with_g.push_back(g);
      const std::vector<double> got = computed(c.operands + 1, c.operands, with_g, [&](std::span<const Value> x) {
        const auto operands = x.first(c.operands);
        const Value result = c.make(operands);
        std::vector<Value> seen(operands.begin(), operands.end());
        if (c.node.op == Op::select) seen[0] = operands[0] > 0;  // the condition of select
        const auto adjoint = adjoints(c.node, seen, result, x[c.operands]);
        std::vector<Value> out;
        for (std::size_t i = 0; i < c.operands; ++i)
          out.push_back(adjoint[i].valid() ? adjoint[i] : literal(DType::f64, 0));
        return out;
      });
      const auto value = [&](std::size_t i, double v) {
        std::vector<double> moved = at;
        moved[i] = v;
        return computed(c.operands, 1, moved, [&](std::span<const Value> x) { return std::vector{c.make(x)}; })[0];
      };
      for (std::size_t i = 0; i < c.operands; ++i)
        ASSERT_NEAR(got[i], g * (value(i, at[i] + step) - value(i, at[i] - step)) / (2 * step),
                    1e-6 * (1 + std::abs(got[i])))
            << op_name(c.node.op) << " " << int{c.node.sub} << ", operand " << i << " at " << at[i];
    }
  }
}

// Fails if a differentiable node is added without a case in this file.
TEST(Derivative, EveryDifferentiableNodeHasATestCase) {
  std::set<std::pair<Op, int>> tested;
  for (const NodeCase& c : node_cases()) tested.insert({c.node.op, c.node.sub});
  const auto all_of = [&](Op op, int count, std::set<int> integers) {
    for (int sub = 0; sub < count; ++sub)
      if (!integers.count(sub) && differentiable(op, static_cast<std::uint8_t>(sub), DType::f64)) {
        EXPECT_TRUE(tested.count({op, sub})) << op_name(op) << " " << sub;
      }
  };
  const auto from = [](auto first, auto last) {
    std::set<int> out;
    for (int i = static_cast<int>(first); i < static_cast<int>(last); ++i) out.insert(i);
    return out;
  };
  all_of(Op::unary, static_cast<int>(UnaryOp::count_), from(UnaryOp::not_, UnaryOp::count_));
  all_of(Op::binary, static_cast<int>(BinaryOp::count_), from(BinaryOp::and_, BinaryOp::count_));
  all_of(Op::math, static_cast<int>(MathOp::count_), {});
  all_of(Op::select, 1, {}), all_of(Op::cast, 1, {});
  for (const Op op : {Op::compare, Op::bitcast, Op::dot4}) EXPECT_FALSE(differentiable(op, 0, DType::f64));
  for (const MathOp op : {MathOp::floor, MathOp::ceil, MathOp::trunc, MathOp::rint})
    EXPECT_FALSE(differentiable(Op::math, static_cast<std::uint8_t>(op), DType::f64))
        << "the derivative is zero everywhere";
  EXPECT_FALSE(differentiable(Op::binary, 0, DType::i32));
}

TEST(Derivative, DifferentiatesVectorsPerLane) {
  const std::vector<double> got = computed(5, 6, {1, 2, 3, 4, 10}, [](std::span<const Value> x) {
    const Value v = make_vector({x[0], x[1], x[2], x[3]});
    const Node make{.op = Op::vector, .sub = static_cast<std::uint8_t>(VectorOp::make), .type = {DType::f64, 4}};
    Node lane{.op = Op::vector, .sub = static_cast<std::uint8_t>(VectorOp::extract), .type = {DType::f64}};
    lane.imm = 2;
    const auto of_make = adjoints(make, x.first(4), v, v);
    const Value of_lane = adjoints(lane, std::span(&v, 1), x[2], x[4])[0];
    std::vector<Value> out(of_make.begin(), of_make.end());
    out.push_back(extract(of_lane, 2)), out.push_back(extract(of_lane, 1));
    return out;
  });
  EXPECT_EQ(got, (std::vector<double>{1, 2, 3, 4, 10, 0}));
}

TEST(Derivative, MatchesPyTorchAtTiesAndKinks) {
  const auto at = [](Op op, auto sub, std::vector<double> x, std::function<Value(std::span<const Value>)> make) {
    const std::size_t n = x.size();
    x.push_back(1);
    return computed(n + 1, n, x, [&](std::span<const Value> v) {
      const auto operands = v.first(n);
      const auto a = adjoints({.op = op, .sub = static_cast<std::uint8_t>(sub), .type = {DType::f64}}, operands,
                              make(operands), v[n]);
      return std::vector<Value>(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n));
    });
  };
  const std::vector<double> half = {0.5, 0.5}, zero = {0};
  EXPECT_EQ(at(Op::binary, BinaryOp::max, {3, 3}, [](auto x) { return max(x[0], x[1]); }), half);
  EXPECT_EQ(at(Op::binary, BinaryOp::min, {3, 3}, [](auto x) { return min(x[0], x[1]); }), half);
  EXPECT_EQ(at(Op::unary, UnaryOp::abs, {0}, [](auto x) { return abs(x[0]); }), zero);
  EXPECT_EQ(at(Op::math, MathOp::pow, {0, 0}, [](auto x) { return pow(x[0], x[1]); }), (std::vector<double>{0, 0}));
  EXPECT_EQ(at(Op::math, MathOp::pow, {0, 2}, [](auto x) { return pow(x[0], x[1]); }), (std::vector<double>{0, 0}));
  EXPECT_EQ(at(Op::math, MathOp::hypot, {0, 0}, [](auto x) { return hypot(x[0], x[1]); }), (std::vector<double>{0, 0}));
  // The squares overflow here, so the derivative must be computed as x / length^2.
  EXPECT_EQ(at(Op::math, MathOp::atan2, {0, 0x1p+600}, [](auto x) { return atan2(x[0], x[1]); }),
            (std::vector<double>{0x1p-600, 0}));
}

}  // namespace
}  // namespace tessera::ir
