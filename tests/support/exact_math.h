// SPDX-License-Identifier: Apache-2.0
// Reference values from the long double functions of the C library. Used to measure the errors of Tessera's functions
// and of the vendors' functions.
#pragma once

#include <cmath>

#include "tessera/ir/node.h"

namespace tessera::test {

inline long double exactly(ir::MathOp op, long double x, long double y) {
  using enum ir::MathOp;
  switch (op) {
    case rsqrt: return 1 / std::sqrt(x);
    case exp: return std::exp(x);
    case exp2: return std::exp2(x);
    case log: return std::log(x);
    case log2: return std::log2(x);
    case sin: return std::sin(x);
    case cos: return std::cos(x);
    case tanh: return std::tanh(x);
    case erf: return std::erf(x);
    case tan: return std::tan(x);
    case asin: return std::asin(x);
    case acos: return std::acos(x);
    case atan: return std::atan(x);
    case sinh: return std::sinh(x);
    case cosh: return std::cosh(x);
    case log10: return std::log10(x);
    case atan2: return std::atan2(x, y);
    case hypot: return std::hypot(x, y);
    default:  // glibc's powl(-inf, -2^63) incorrectly returns inf; pow is correct
      return std::isinf(x) || std::isinf(y) ? std::pow(static_cast<double>(x), static_cast<double>(y)) : std::pow(x, y);
  }
}

}  // namespace tessera::test
