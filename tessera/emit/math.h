// SPDX-License-Identifier: Apache-2.0
// Expands exp, log, sin, ... to arithmetic in the IR. All devices use the same polynomials, independent of their math
// library. The bounds below are valid for all finite arguments, unless a range is given. lower_math_test checks them
// against double.
#pragma once

#include "tessera/ir/fwd.h"
#include "tessera/ir/node.h"

namespace tessera::emit {

/// The largest error of an operation, in units in the last place of the nearest float. lower_math_test checks these
/// bounds. The errors of results below the smallest normal float are measured in units of the smallest denormal. NaN,
/// infinities and signed zeros follow C's Annex F.
///
/// | exp | exp2 | log | log2 | log10 | pow | sin, cos to 1e5 | tanh | erf  |
/// | 1.1 |    1 |   1 | 1.25 |     1 | 1.5 |            1.75 |  1.5 | 1.25 |
///
/// | tan to 1e5 | asin, acos | atan | atan2 | sinh | cosh | hypot |
/// |          2 |       1.25 |  1.5 |  1.75 | 1.75 |  1.5 |  1.25 |
///
/// sin, cos and tan reduce the argument with pi/2 as the sum of three parts, without Payne-Hanek reduction. Above 1e5,
/// the error grows with the argument. Above about 4e6, the results of sin and cos are only guaranteed to be between -1
/// and 1, and the result of tan is only guaranteed not to be NaN.
struct MathBound {
  double ulp, lowest, highest;  ///< valid for arguments between `lowest` and `highest`
};
MathBound math_bound(ir::MathOp op);

/// Returns true if expand_math() supports the operation. All other operations (fma, sqrt, rsqrt, floor, ceil, trunc,
/// rint) must be supported by the target.
bool expands(ir::MathOp op);
/// Returns true if the operation is expanded on every target, in f32 and f64. This is the case for tan and the
/// operations after it.
bool always_expands(ir::MathOp op);

/// Appends arithmetic that computes the operation in f32 to `b`. It adds no control statements, so it can be used
/// anywhere. If `fast_f64` is true, pow uses f64 arithmetic.
ir::NodeId expand_math(ir::Builder& b, ir::MathOp op, ir::NodeId x, ir::NodeId y = ir::no_node, bool fast_f64 = false);

/// Like expand_math(), but for f64, for targets without a math library. The bounds of sin, cos and tan are valid up to
/// 1e12.
///
/// | tan  | asin, acos | atan, atan2 | sinh | cosh | tanh | log10 | hypot | others |
/// | 1.25 |       1.25 |        1.75 |  2.5 |  1.5 |    3 |     1 |  1.25 |      2 |
ir::NodeId expand_math64(ir::Builder& b, ir::MathOp op, ir::NodeId x, ir::NodeId y = ir::no_node);
MathBound math64_bound(ir::MathOp op);  ///< error in units in the last place of the nearest double

}  // namespace tessera::emit
