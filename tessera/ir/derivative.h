// SPDX-License-Identifier: Apache-2.0
// Derivatives of pure nodes: the table used by array expressions and by whole kernels.
#pragma once

#include <array>
#include <span>

#include "tessera/ir/value.h"

namespace tessera::ir {

/// The adjoints of a pure node's operands, given the adjoint of its result; traced into `Builder::current()`. An
/// invalid Value means that the node is not differentiable in that operand: integers, conditions, bits, rounding.
/// Adjoints of 16-bit floats are f32. At kinks as in PyTorch: equal operands of min and max each get half, and the
/// derivatives of abs and hypot at 0 are 0.
std::array<Value, 4> adjoints(const Node& node, std::span<const Value> operands, Value result, Value adjoint);

/// Whether `adjoints` returns any adjoint for such a node: its result is a float and depends smoothly on an operand.
bool differentiable(Op op, std::uint8_t sub, DType result);

}  // namespace tessera::ir
