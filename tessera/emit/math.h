// SPDX-License-Identifier: Apache-2.0
// exp, log, sin, ... of f32 as arithmetic in the IR: the same polynomial on every device, without any device's libm.
// Bounds below are over all finite arguments unless a range is given; lower_math_test measures them against double.
#pragma once

#include "tessera/ir/fwd.h"
#include "tessera/ir/node.h"

namespace tessera::emit {

/// Largest error in units in the last place of the nearest float, as the test holds it. Results below the smallest
/// normal float count in units of the smallest denormal. NaN, infinities and signed zeros come out as C's Annex F says.
///
/// | exp | exp2 | log | log2 | log10 | pow | sin, cos to 1e5 | tanh | erf  |
/// | 1.1 |    1 |   1 | 1.25 |     1 | 1.5 |            1.75 |  1.5 | 1.25 |
///
/// | tan to 1e5 | asin, acos | atan | atan2 | sinh | cosh | hypot |
/// |          2 |       1.25 |  1.5 |  1.75 | 1.75 |  1.5 |  1.25 |
///
/// sin, cos and tan reduce with three parts of pi/2 and no Payne-Hanek step: past 1e5 the error grows with the
/// argument, and past about 4e6 the result is only known to lie between -1 and 1 (of tan: to be a number).
struct MathBound {
  double ulp, lowest, highest;  ///< holds for arguments between `lowest` and `highest`
};
MathBound math_bound(ir::MathOp op);

/// Whether `expand_math` knows the operation. The others (fma, sqrt, rsqrt, floor, ceil, trunc, rint) are the target's.
bool expands(ir::MathOp op);
/// Whether it is expanded on every target, of f32 and of f64: tan and those behind it.
bool always_expands(ir::MathOp op);

/// The operation on f32 as arithmetic, appended to `b`; no control statements, so it may stand anywhere. `fast_f64`: it
/// may be arithmetic of f64, which pow then is.
ir::NodeId expand_math(ir::Builder& b, ir::MathOp op, ir::NodeId x, ir::NodeId y = ir::no_node, bool fast_f64 = false);

/// The same of f64, for targets without a library of functions. sin, cos and tan are within their bound to 1e12.
///
/// | tan  | asin, acos | atan, atan2 | sinh | cosh | tanh | log10 | hypot | others |
/// | 1.25 |       1.25 |        1.75 |  2.5 |  1.5 |    3 |     1 |  1.25 |      2 |
ir::NodeId expand_math64(ir::Builder& b, ir::MathOp op, ir::NodeId x, ir::NodeId y = ir::no_node);
MathBound math64_bound(ir::MathOp op);  ///< in units in the last place of the nearest double

}  // namespace tessera::emit
