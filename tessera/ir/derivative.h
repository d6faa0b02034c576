// SPDX-License-Identifier: Apache-2.0
// Derivatives of pure nodes. Array expressions and kernels use the same rules.
#pragma once

#include <array>
#include <span>

#include "tessera/ir/value.h"

namespace tessera::ir {

/// Returns the adjoints of a pure node's operands, given the adjoint of its result. The computation is traced into
/// `Builder::current()`. An invalid Value means that the node is not differentiable with respect to that operand
/// (integers, conditions, bit operations, rounding). Adjoints of 16-bit floats are f32.
///
/// Kinks are treated as in PyTorch. If the operands of min or max are equal, each gets half of the adjoint. The
/// derivatives of abs and hypot at 0 are 0.
std::array<Value, 4> adjoints(const Node& node, std::span<const Value> operands, Value result, Value adjoint);

/// Returns true if `adjoints` can return an adjoint for nodes with this operation and result type: the result is a
/// float that depends smoothly on an operand.
bool differentiable(Op op, std::uint8_t sub, DType result);

}  // namespace tessera::ir
