// SPDX-License-Identifier: Apache-2.0
// Minimum and maximum of floats for arrays, as in NumPy: NaN propagates, and -0 is less than +0. User kernels have the
// processor's min and max instead, which are faster and ignore NaN.
#pragma once

#include "tessera/ir/value.h"

namespace tessera::detail {

/// `op`: min or max. Operands have any dtype; f16 and bf16 give f32.
ir::Value min_or_max(ir::BinaryOp op, ir::Value a, ir::Value b);

/// Maps f32 or f64 to a signed integer of the same size with the order that arrays use, NaN after (`greatest`) or
/// before all others. The result of a reduction thus does not depend on the order of comparisons.
ir::Value sortable_key(ir::Value v, bool greatest);
ir::Value from_sortable_key(ir::Value key);
/// `v`, with -0 replaced by +0, for operations that treat them as equal.
ir::Value canonicalize_zero(ir::Value v);

}  // namespace tessera::detail
