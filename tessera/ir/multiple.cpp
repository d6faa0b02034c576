// SPDX-License-Identifier: Apache-2.0
// Finds powers of two that divide an integer.
#include "tessera/ir/multiple.h"

#include <algorithm>
#include <bit>

#include "tessera/ir/node.h"

namespace tessera::ir {

namespace {

constexpr int most = 32;  // more is never needed

/// Returns the number of low bits of the value that are known to be 0, at most `most`.
int zero_bits(const Function& fn, NodeId id, int depth) {
  const Node& n = fn[id];
  if (!is_int(n.type.dtype) || n.type.lanes != 1 || depth == 0) return 0;
  const auto of = [&](int i) { return zero_bits(fn, n.args[static_cast<std::size_t>(i)], depth - 1); };
  if (n.op == Op::constant) return n.imm == 0 ? most : std::min(most, std::countr_zero(n.imm));
  if (n.op == Op::cast) return is_int(fn[n.args[0]].type.dtype) ? of(0) : 0;
  if (n.op == Op::select) return std::min(of(1), of(2));
  if (n.op != Op::binary) return 0;
  switch (n.kind<BinaryOp>()) {
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::min:
    case BinaryOp::max:
    case BinaryOp::or_:
    case BinaryOp::xor_:
    case BinaryOp::rem: return std::min(of(0), of(1));
    case BinaryOp::and_: return std::max(of(0), of(1));
    case BinaryOp::mul: return std::min(most, of(0) + of(1));
    case BinaryOp::shl: {
      const Node& by = fn[n.args[1]];
      return by.op == Op::constant
                 ? std::min<int>(most, of(0) + static_cast<int>(by.imm & (8 * dtype_size(n.type.dtype) - 1)))
                 : of(0);
    }
    default: return 0;
  }
}

}  // namespace

std::uint64_t known_multiple(const Function& fn, NodeId id) { return std::uint64_t{1} << zero_bits(fn, id, 10); }

}  // namespace tessera::ir
