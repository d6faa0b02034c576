// SPDX-License-Identifier: Apache-2.0
// Inverse trigonometric functions and hypot, whose f32 and f64 versions differ only in constants and polynomials. Used
// only in this folder.
#pragma once

#include <limits>

#include "tessera/emit/expr.h"

namespace tessera::emit {

/// pi/2 as a sum of two numbers.
struct HalfPi {
  double high, low;
};
/// Returns `magnitude` with the sign of x.
inline Expr with_sign_of(Expr magnitude, Expr x) {
  const bool wide = x.dtype() == DType::f64;
  const DType bits = wide ? DType::i64 : DType::i32;
  const Expr all = bitcast(bits, x);
  const Expr sign = all.bits(wide ? std::uint64_t{1} << 63 : ~std::uint64_t{0x7fffffff});
  const Expr rest = all.bits(wide ? ~std::uint64_t{0} >> 1 : 0x7fffffff);
  return bitcast(x.dtype(), (bitcast(bits, magnitude) & rest) | (all & sign));
}
inline Expr nan_outside(Expr inside, Expr x, Expr y) {
  return select(inside, y, select(x != x, x, std::numeric_limits<double>::quiet_NaN()));
}

/// asin and acos. For x > 1/2, asin x = pi/2 - 2 asin s with s^2 = (1 - x) / 2, which is computed exactly. `tail(s,
/// s^2)` computes asin(s) - s.
template <class Tail>
Expr arcsine(Expr x, HalfPi half_pi, Tail tail) {
  const Expr a = abs(x), large = a > 0.5;
  const Expr square = select(large, (1 - a) * 0.5, a * a);
  const Expr s = select(large, math(ir::MathOp::sqrt, square), a);
  const Expr t = tail(s, square);
  const Expr d = fma(s, -2.0, s.like(half_pi.high));
  const Expr low = fma(s, -2.0, half_pi.high - d) + half_pi.low;
  const Expr y = select(large, d + (low - (t + t)), s + t);
  return select(x == 0, x, nan_outside(a <= 1, x, with_sign_of(y, x)));
}
template <class Tail>
Expr arccosine(Expr x, HalfPi half_pi, Tail tail) {
  const Expr a = abs(x), large = a > 0.5;
  const Expr square = select(large, (1 - a) * 0.5, a * a);
  const Expr s = select(large, math(ir::MathOp::sqrt, square), x);
  const Expr t = tail(s, square);
  const Expr from_half_pi = half_pi.high - (s - (half_pi.low - t)), sum = s + t;
  const Expr y = select(large, select(x < 0, from_half_pi + from_half_pi, sum + sum), from_half_pi);
  return nan_outside(a <= 1, x, y);
}

/// `unit(q)` computes atan(q) for q between 0 and 1.
template <class Unit>
Expr arctangent(Expr x, HalfPi half_pi, Unit unit) {
  const Expr a = abs(x), steep = a > 1;
  const Expr t = unit(select(steep, 1 / a, a));
  const Expr y = select(steep, half_pi.high - (t - half_pi.low), t);
  return select((x != x) | (x == 0), x, with_sign_of(y, x));
}
/// Divides the smaller of |x| and |y| by the larger one. If the larger one is below `tiny`, both are multiplied by
/// `up`, because quotients of such small numbers are inexact.
template <class Unit>
Expr arctangent2(Expr y, Expr x, HalfPi half_pi, double tiny, double up, Unit unit) {
  const DType bits = x.dtype() == DType::f64 ? DType::i64 : DType::i32;
  const Expr ax = abs(x), ay = abs(y), steep = ay > ax;
  const Expr less = select(steep, ax, ay), more = select(steep, ay, ax);
  const Expr small = more < tiny;
  Expr q = select(small, less * up, less) / select(small, more * up, more);
  q = select(more == 0, 0.0, q);
  q = select(less == std::numeric_limits<double>::infinity(), 1.0, q);
  const Expr t = unit(q);
  const Expr right = select(steep, half_pi.high - (t - half_pi.low), t);
  const Expr left = select(steep, half_pi.high + (t + half_pi.low), 2 * half_pi.high - (t - 2 * half_pi.low));
  const Expr angle = select(bitcast(bits, x) < 0, left, right);
  return select((x != x) | (y != y), x + y, with_sign_of(angle, y));
}

/// If the larger operand is above `large`, both are multiplied by `down`. If it is below `small`, both are multiplied
/// by `up`. The squares then neither overflow nor underflow.
inline Expr hypotenuse(Expr x, Expr y, double large, double down, double small, double up) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Expr ax = abs(x), ay = abs(y), most = max(ax, ay);
  const Expr is_large = most > large, is_small = most < small;
  const Expr scale = select(is_large, down, select(is_small, up, x.like(1)));
  const Expr back = select(is_large, 1 / down, select(is_small, 1 / up, x.like(1)));
  const Expr a = most * scale, b = min(ax, ay) * scale;
  const Expr r = math(ir::MathOp::sqrt, fma(a, a, b * b)) * back;
  return select((ax == infinity) | (ay == infinity), infinity, select((x != x) | (y != y), x + y, r));
}

}  // namespace tessera::emit
