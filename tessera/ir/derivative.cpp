// SPDX-License-Identifier: Apache-2.0
#include "tessera/ir/derivative.h"

#include <numbers>

namespace tessera::ir {

namespace {

using Adjoints = std::array<Value, 4>;

Adjoints of_unary(UnaryOp op, Value a, Value g) {
  switch (op) {
    case UnaryOp::neg: return {-g};
    case UnaryOp::abs: return {select(a > 0, g, select(a < 0, -g, g * a))};
    default: return {};
  }
}

// For min and max: the operand that was not selected gets 0. If an operand is NaN, both operands get the full adjoint.
Value of_extreme(Value other_taken, Value equal, Value g) {
  return select(other_taken, 0.0f, select(equal, g * 0.5, g));
}

Adjoints of_binary(BinaryOp op, Value a, Value b, Value r, Value g) {
  switch (op) {
    case BinaryOp::add: return {g, g};
    case BinaryOp::sub: return {g, -g};
    case BinaryOp::mul: return {g * b, g * a};
    case BinaryOp::div: return {g / b, -(g * r) / b};
    case BinaryOp::rem: return {g, -(g * trunc(a / b))};
    case BinaryOp::min: return {of_extreme(a > b, a == b, g), of_extreme(b > a, a == b, g)};
    case BinaryOp::max: return {of_extreme(a < b, a == b, g), of_extreme(b < a, a == b, g)};
    default: return {};
  }
}

Adjoints of_math(MathOp op, std::span<const Value> x, Value r, Value g) {
  const Value a = x[0];
  switch (op) {
    case MathOp::fma: return {g * x[1], g * a, g};
    case MathOp::sqrt: return {g * 0.5 / r};
    case MathOp::rsqrt: return {g * -0.5 * (r * r * r)};
    case MathOp::exp: return {g * r};
    case MathOp::exp2: return {g * r * std::numbers::ln2};
    case MathOp::log: return {g / a};
    case MathOp::log2: return {g / (a * std::numbers::ln2)};
    case MathOp::sin: return {g * cos(a)};
    case MathOp::cos: return {-(g * sin(a))};
    case MathOp::tanh: return {g * (1 - r * r)};
    case MathOp::tan: return {g * (1 + r * r)};
    case MathOp::asin: return {g * rsqrt((1 - a) * (1 + a))};
    case MathOp::acos: return {-(g * rsqrt((1 - a) * (1 + a)))};
    case MathOp::atan: return {g / (1 + a * a)};
    case MathOp::sinh: return {g * cosh(a)};
    case MathOp::cosh: return {g * sinh(a)};
    case MathOp::log10: return {g / (a * std::numbers::ln10)};
    case MathOp::atan2: {
      const Value length = hypot(a, x[1]);  // avoids the squares, which could overflow or underflow
      return {select(length == 0, 0.0f, g * (x[1] / length) / length),
              select(length == 0, 0.0f, -(g * (a / length)) / length)};
    }
    case MathOp::hypot: return {select(r == 0, 0.0f, g * (a / r)), select(r == 0, 0.0f, g * (x[1] / r))};
    case MathOp::erf: return {g * (2 * std::numbers::inv_sqrtpi) * exp(-(a * a))};
    case MathOp::pow: {
      const Value b = x[1];
      // x^0 is 1 for all x, and 0^b is 0 for all b > 0. Both derivatives are 0, but the formulas would return NaN.
      return {select(b == 0, 0.0f, g * (b * pow(a, b - 1))), select(a == 0 && b >= 0, 0.0f, g * (r * log(a)))};
    }
    default: return {};
  }
}

Adjoints of_vector(const Node& node, std::span<const Value> x, Value g) {
  Adjoints out;
  if (node.kind<VectorOp>() == VectorOp::make) {
    for (std::uint32_t i = 0; i < x.size(); ++i) out[i] = extract(g, i);
    return out;
  }
  const Type whole = x[0].type();
  std::array<Value, 4> lanes;
  for (std::uint32_t i = 0; i < whole.lanes; ++i) lanes[i] = i == node.imm ? g : literal(whole.dtype, 0);
  switch (whole.lanes) {
    case 2: return {make_vector({lanes[0], lanes[1]})};
    case 3: return {make_vector({lanes[0], lanes[1], lanes[2]})};
    default: return {make_vector({lanes[0], lanes[1], lanes[2], lanes[3]})};
  }
}

}  // namespace

bool differentiable(Op op, std::uint8_t sub, DType result) {
  if (!is_float(result)) return false;
  switch (op) {
    case Op::select:
    case Op::cast:
    case Op::vector:
    case Op::unary:
    case Op::binary: return true;  // of floats only
    case Op::math:
      switch (static_cast<MathOp>(sub)) {
        case MathOp::floor:
        case MathOp::ceil:
        case MathOp::trunc:
        case MathOp::rint: return false;
        default: return true;
      }
    default: return false;
  }
}

std::array<Value, 4> adjoints(const Node& node, std::span<const Value> x, Value result, Value g) {
  if (!differentiable(node.op, node.sub, node.type.dtype)) return {};
  switch (node.op) {
    case Op::unary: return of_unary(node.kind<UnaryOp>(), x[0], g);
    case Op::binary: return of_binary(node.kind<BinaryOp>(), x[0], x[1], result, g);
    case Op::select: return {Value(), select(x[0], g, 0.0f), select(x[0], 0.0f, g)};
    case Op::cast: return {is_float(x[0].dtype()) ? cast(x[0].dtype(), g) : Value()};
    case Op::math: return of_math(node.kind<MathOp>(), x, result, g);
    default: return of_vector(node, x, g);
  }
}

}  // namespace tessera::ir
