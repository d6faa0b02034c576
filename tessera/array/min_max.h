// SPDX-License-Identifier: Apache-2.0
// Minimum and maximum of floats for arrays. As in NumPy, NaN propagates. -0 is less than +0. User kernels use the
// processor's min and max instead, which are faster and ignore NaN.
#pragma once

#include "tessera/ir/value.h"

namespace tessera::detail {

/// `op` is min or max. Operands can have any dtype; f16 and bf16 return f32.
ir::Value min_or_max(ir::BinaryOp op, ir::Value a, ir::Value b);

/// Maps f32 or f64 to a signed integer of the same size that sorts in the order that arrays use. NaN sorts last if
/// `greatest` is true, otherwise first. Reducing these integers makes the result independent of the order of
/// comparisons.
ir::Value sortable_key(ir::Value v, bool greatest);
ir::Value from_sortable_key(ir::Value key);
/// Replaces -0 by +0, for operations that treat them as equal.
ir::Value canonicalize_zero(ir::Value v);

}  // namespace tessera::detail
