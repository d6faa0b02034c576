// SPDX-License-Identifier: Apache-2.0
// exp, log, sin, ... of f32 as arithmetic in the IR: the same polynomials on every device, independent of its libm. The
// bounds below cover all finite arguments unless a range is given; lower_math_test measures them against double.
#pragma once

#include "tessera/ir/fwd.h"
#include "tessera/ir/node.h"

namespace tessera::emit {

/// Largest error in units in the last place of the nearest float, as asserted by the test. Results below the smallest
/// normal float are measured in units of the smallest denormal. NaN, infinities and signed zeros follow C's Annex F.
///
/// | exp | exp2 | log | log2 | log10 | pow | sin, cos to 1e5 | tanh | erf  |
/// | 1.1 |    1 |   1 | 1.25 |     1 | 1.5 |            1.75 |  1.5 | 1.25 |
///
/// | tan to 1e5 | asin, acos | atan | atan2 | sinh | cosh | hypot |
/// |          2 |       1.25 |  1.5 |  1.75 | 1.75 |  1.5 |  1.25 |
///
/// sin, cos and tan reduce with three parts of pi/2 and no Payne-Hanek step: above 1e5 the error grows with the
/// argument, and above about 4e6 the only guarantee is a result between -1 and 1 (tan: not NaN).
struct MathBound {
  double ulp, lowest, highest;  ///< holds for arguments between `lowest` and `highest`
};
MathBound math_bound(ir::MathOp op);

/// Whether `expand_math` supports the operation. The others (fma, sqrt, rsqrt, floor, ceil, trunc, rint) need the
/// target's.
bool expands(ir::MathOp op);
/// Whether the operation is expanded on every target, in f32 and f64: tan and the operations after it.
bool always_expands(ir::MathOp op);

/// Appends the operation on f32 to `b` as arithmetic. Adds no control statements, so it can be used anywhere.
/// `fast_f64` allows f64 arithmetic, which pow then uses.
ir::NodeId expand_math(ir::Builder& b, ir::MathOp op, ir::NodeId x, ir::NodeId y = ir::no_node, bool fast_f64 = false);

/// The same for f64, for targets without a math library. sin, cos and tan keep their bound up to 1e12.
///
/// | tan  | asin, acos | atan, atan2 | sinh | cosh | tanh | log10 | hypot | others |
/// | 1.25 |       1.25 |        1.75 |  2.5 |  1.5 |    3 |     1 |  1.25 |      2 |
ir::NodeId expand_math64(ir::Builder& b, ir::MathOp op, ir::NodeId x, ir::NodeId y = ir::no_node);
MathBound math64_bound(ir::MathOp op);  ///< in units in the last place of the nearest double

}  // namespace tessera::emit
