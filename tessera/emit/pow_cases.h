// SPDX-License-Identifier: Apache-2.0
// The special cases of pow according to C's Annex F, for f32 and f64. Used only in this folder.
#pragma once

#include <limits>

#include "tessera/emit/expr.h"

namespace tessera::emit {

/// Returns x to the power of y. `result` must be correct for finite y and for finite positive x other than 1. `a` is
/// |x|.
inline Expr pow_cases(Expr x, Expr y, Expr a, Expr result) {
  using ir::MathOp;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  const Expr y_whole = math(MathOp::trunc, y) == y;  // true for infinities, which are treated as even
  const Expr half = y * 0.5;
  const Expr y_odd = y_whole & (math(MathOp::trunc, half) != half) & (abs(y) < infinity);
  const Expr zero_or_inf = (a == 0) | (a == infinity);
  const Expr up = (a == 0) == (y < 0);  // 0^-1 and inf^1 are infinite
  result = select(zero_or_inf, select(up, x.like(infinity), x.like(0)), result);
  const Expr y_infinite = abs(y) == infinity;
  result = select(y_infinite, select((a > 1) == (y > 0), x.like(infinity), x.like(0)), result);
  result = select((bitcast(x.dtype() == DType::f64 ? DType::i64 : DType::i32, x) < 0) & y_odd, -result, result);
  result = select((x < 0) & !y_whole & (a < infinity), not_a_number, result);
  result = select((x != x) | (y != y), x + y, result);
  return select((y == 0) | (x == 1) | ((x == -1) & y_infinite), 1, result);
}

}  // namespace tessera::emit
