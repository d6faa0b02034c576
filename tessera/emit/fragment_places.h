// SPDX-License-Identifier: Apache-2.0
// The elements of an accumulator in the registers of a lane, for devices with matrix units. prelude_matrix.cpp
// documents the layouts and their sources.
#pragma once

#include <functional>

#include "tessera/emit/lower.h"
#include "tessera/ir/builder.h"

namespace tessera::emit {

class FragmentPlaces {
 public:
  /// Appends nodes to `b`. Indices have dtype `index`.
  FragmentPlaces(ir::Builder& b, DType index, ir::FragmentLayout layout) : b_(b), index_(index), layout_(layout) {}

  std::int64_t elements() const {
    return layout_ == ir::FragmentLayout::mfma ? 4 : 8;
  }                                                                                 ///< number of elements of a lane
  std::int64_t rows() const { return layout_ == ir::FragmentLayout::mma ? 2 : 1; }  ///< number of rows of a lane
  ir::NodeId place(ir::PlaceOf what, std::int64_t k);
  /// Packs rounded elements to the words of a left factor. `bits` rounds an f32 and returns its u16.
  void convert(ir::NodeId left, ir::NodeId accumulator, const std::function<ir::NodeId(ir::NodeId)>& bits);
  void reduce_rows(ir::ReduceOp op, ir::NodeId local, ir::NodeId accumulator);

 private:
  ir::NodeId number(std::int64_t v) { return b_.constant_of(index_, v); }
  ir::NodeId plus(ir::NodeId x, std::int64_t y);
  ir::NodeId lane_part(std::int64_t divisor, std::int64_t modulus, std::int64_t factor);
  std::int64_t slot(std::int64_t k) const { return layout_ == ir::FragmentLayout::mma ? k / 2 % 2 : 0; }

  ir::Builder& b_;
  DType index_;
  ir::FragmentLayout layout_;
};

}  // namespace tessera::emit
