// SPDX-License-Identifier: Apache-2.0
// Expands operations that some processors lack to integer arithmetic in the IR: conversions between 16-bit floats and
// f32, and dot products of packed bytes. The results are bit-identical to tessera/base/half.h and ir/semantics.h.
#pragma once

#include "tessera/ir/fwd.h"
#include "tessera/ir/node.h"

namespace tessera::emit {

ir::NodeId f32_from_f16(ir::Builder& b, ir::NodeId bits);   ///< converts f16 bits (u16) to f32
ir::NodeId f16_from_f32(ir::Builder& b, ir::NodeId value);  ///< converts f32 to f16 bits (u16), rounding to nearest
                                                            ///< even
ir::NodeId f32_from_bf16(ir::Builder& b, ir::NodeId bits);
ir::NodeId bf16_from_f32(ir::Builder& b, ir::NodeId value);

/// Expands Op::dot4 to shifts and multiplications.
ir::NodeId expand_dot4(ir::Builder& b, ir::Dot4Signs signs, ir::NodeId x, ir::NodeId y, ir::NodeId c);

}  // namespace tessera::emit
