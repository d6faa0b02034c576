// SPDX-License-Identifier: Apache-2.0
// Backward rules of deferred operations, from the table of ir/derivative.h. Internal to array/.
#pragma once

#include "tessera/array/history.h"
#include "tessera/ir/node.h"

namespace tessera::detail {

/// The backward rule of an operation on these operands, whose scalars are converted to `scalars`. The backward pass
/// uses deferred operations as well, so those of a chain are fused.
Rule elementwise_rule(ir::Op op, std::uint8_t sub, DType dtype, DType scalars, std::span<const ArrayOperand> operands);

}  // namespace tessera::detail
