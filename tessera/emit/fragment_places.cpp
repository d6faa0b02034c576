// SPDX-License-Identifier: Apache-2.0
#include "tessera/emit/fragment_places.h"

#include <vector>

namespace tessera::emit {

using ir::BinaryOp;
using ir::NodeId;

// Index arithmetic never wraps.
NodeId FragmentPlaces::plus(NodeId x, std::int64_t y) {
  b_.set_no_wrap(true);
  const NodeId out = b_.binary(BinaryOp::add, x, number(y));
  b_.set_no_wrap(false);
  return out;
}
// Returns lane / divisor % modulus * factor, or without the remainder if modulus is 0.
NodeId FragmentPlaces::lane_part(std::int64_t divisor, std::int64_t modulus, std::int64_t factor) {
  NodeId out = b_.binary(BinaryOp::div, b_.index(ir::IndexKind::lane_id), number(divisor));
  if (modulus != 0) out = b_.binary(BinaryOp::rem, out, number(modulus));
  b_.set_no_wrap(true);
  out = b_.binary(BinaryOp::mul, out, number(factor));
  b_.set_no_wrap(false);
  return out;
}

NodeId FragmentPlaces::place(ir::PlaceOf what, std::int64_t k) {
  const bool nvidia = layout_ == ir::FragmentLayout::mma;
  switch (what) {
    case ir::PlaceOf::valid: return b_.constant(DType::boolean, 1);
    case ir::PlaceOf::slot: return number(slot(k));
    case ir::PlaceOf::row: k = slot(k); [[fallthrough]];
    case ir::PlaceOf::slot_row: return nvidia ? plus(lane_part(4, 0, 1), 8 * k) : lane_part(1, 16, 1);
    default: break;
  }
  if (nvidia) return plus(lane_part(1, 4, 2), k / 4 * 8 + k % 2);
  return layout_ == ir::FragmentLayout::mfma ? plus(lane_part(16, 0, 4), k) : plus(lane_part(16, 0, 1), 2 * k);
}

// Words of a left factor in prelude_matrix.cpp: word r of NVIDIA's has row group + 8 (r % 2) and columns 2t + 8 (r / 2)
// and the next one, which are elements 4 (r / 2) + 2 (r % 2) and the next one of the accumulator. CDNA's word r has
// elements 2r and 2r + 1. A lane of RDNA has the even or the odd columns of an accumulator, and all columns of a
// factor.
void FragmentPlaces::convert(NodeId left, NodeId accumulator, const std::function<NodeId(NodeId)>& bits) {
  const auto half = [&](std::int64_t k) { return b_.cast(DType::u32, bits(b_.load(accumulator, number(k)))); };
  const auto pair = [&](NodeId low, NodeId high) {
    return b_.binary(BinaryOp::or_, low, b_.binary(BinaryOp::shl, high, b_.constant(DType::u32, 16)));
  };
  const NodeId odd = b_.compare(ir::CompareOp::ge, b_.index(ir::IndexKind::lane_id), number(16));
  std::vector<NodeId> words;
  for (std::int64_t r = 0; r < (layout_ == ir::FragmentLayout::wmma ? 8 : elements() / 2); ++r) {
    if (layout_ == ir::FragmentLayout::wmma) {
      const NodeId mine = half(r), other = b_.subgroup(ir::SubgroupOp::shuffle_xor, mine, number(16));
      words.push_back(b_.select(odd, pair(other, mine), pair(mine, other)));
    } else {
      const std::int64_t k = layout_ == ir::FragmentLayout::mma ? r / 2 * 4 + r % 2 * 2 : 2 * r;
      words.push_back(pair(half(k), half(k + 1)));
    }
  }
  for (std::size_t r = 0; r < words.size(); ++r) b_.store(left, number(static_cast<std::int64_t>(r)), words[r]);
}

void FragmentPlaces::reduce_rows(ir::ReduceOp op, NodeId local, NodeId accumulator) {
  const BinaryOp step = op == ir::ReduceOp::sum ? BinaryOp::add : BinaryOp::max;
  std::vector<NodeId> of_row(static_cast<std::size_t>(rows()));
  for (std::int64_t k = 0; k < elements(); ++k) {
    NodeId& v = of_row[static_cast<std::size_t>(slot(k))];
    const NodeId element = b_.load(accumulator, number(k));
    v = v == ir::no_node ? element : b_.binary(step, v, element);
  }
  // The lanes that share a row differ in these bits of their number.
  const std::vector<std::int64_t> masks = layout_ == ir::FragmentLayout::mma    ? std::vector<std::int64_t>{1, 2}
                                          : layout_ == ir::FragmentLayout::mfma ? std::vector<std::int64_t>{16, 32}
                                                                                : std::vector<std::int64_t>{16};
  for (std::size_t s = 0; s < of_row.size(); ++s) {
    for (const std::int64_t mask : masks)
      of_row[s] = b_.binary(step, of_row[s], b_.subgroup(ir::SubgroupOp::shuffle_xor, of_row[s], number(mask)));
    b_.store(local, number(static_cast<std::int64_t>(s)), of_row[s]);
  }
}

}  // namespace tessera::emit
