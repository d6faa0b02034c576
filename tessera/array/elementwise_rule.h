// SPDX-License-Identifier: Apache-2.0
// Backward rules of deferred operations, derived from the table in ir/derivative.h. Internal to array/.
#pragma once

#include "tessera/array/history.h"
#include "tessera/ir/node.h"

namespace tessera::detail {

/// Returns the backward rule of an operation on these operands. Scalar operands are converted to the dtype `scalars`.
/// The backward pass also uses deferred operations, so its elementwise chains are fused.
Rule elementwise_rule(ir::Op op, std::uint8_t sub, DType dtype, DType scalars, std::span<const ArrayOperand> operands);

}  // namespace tessera::detail
