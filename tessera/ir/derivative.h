// SPDX-License-Identifier: Apache-2.0
// The derivative of each pure node: the one table from which expressions of arrays, and whole kernels, get theirs.
#pragma once

#include <array>
#include <span>

#include "tessera/ir/value.h"

namespace tessera::ir {

/// Adjoints of a pure node's operands, from that of its result: traced into `Builder::current()`. One that is not valid
/// is of an operand through which nothing can be differentiated: integers, conditions, bits, and what is rounded. Those
/// of 16-bit floats are f32. At kinks as PyTorch: of equal operands of min and max each gets half, and at 0 the
/// derivatives of abs and hypot are 0.
std::array<Value, 4> adjoints(const Node& node, std::span<const Value> operands, Value result, Value adjoint);

/// Whether `adjoints` gives any for such a node: its result is a float, and depends on an operand smoothly.
bool differentiable(Op op, std::uint8_t sub, DType result);

}  // namespace tessera::ir
