// SPDX-License-Identifier: Apache-2.0
// The smaller and the greater of floats as arrays have them, by NumPy's rule: a NaN wins, and -0 is below +0. Kernels
// that users write have the processor's min and max, which are quicker and skip NaN.
#pragma once

#include "tessera/ir/value.h"

namespace tessera::detail {

/// `op`: min or max. Operands of any dtype; of f16 and bf16 the result is f32.
ir::Value min_or_max(ir::BinaryOp op, ir::Value a, ir::Value b);

/// f32 or f64 as a signed integer of its size that orders as arrays do, NaN after (`greatest`) or before all others.
/// So the order in which many are compared does not matter.
ir::Value sortable_key(ir::Value v, bool greatest);
ir::Value from_sortable_key(ir::Value key);
/// `v`, but +0 where it is -0: for those to whom both are the same.
ir::Value canonicalize_zero(ir::Value v);

}  // namespace tessera::detail
