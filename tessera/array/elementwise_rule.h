// SPDX-License-Identifier: Apache-2.0
// Rules of deferred operations, from the table of ir/derivative.h. Inside array/ only.
#pragma once

#include "tessera/array/history.h"
#include "tessera/ir/node.h"

namespace tessera::detail {

/// The rule of one operation on these operands, whose scalars become `scalars`; its `wanted` operands have history. Its
/// backward is deferred operations, too: those of a chain meet in one kernel.
Rule elementwise_rule(ir::Op op, std::uint8_t sub, DType dtype, DType scalars, std::span<const ArrayOperand> operands);

}  // namespace tessera::detail
