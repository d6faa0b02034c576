// SPDX-License-Identifier: Apache-2.0
// Products of matrices for devices without matrix units: fragments become a thread's own memory, and mma becomes loops.
// It needs nothing of the other lanes, so it is right for subgroups of any width, full or not.
#pragma once

#include "tessera/ir/builder.h"

namespace tessera::emit {

/// Every lane keeps the whole of a and b, and of c the elements lane_id, lane_id + lanes, and so on (element (i, j) is
/// number 16 * i + j), where `lanes` are those of its subgroup that there are. All are kept as f32, which holds 16-bit
/// floats; a product of two is exact unless it leaves float's range (bfloat16 only).
class MatrixLoops {
 public:
  /// Builds into `b`, whose ids are of `index`. `several_lanes`: subgroups may be wider than 1.
  MatrixLoops(ir::Builder& b, DType index, bool several_lanes) : b_(b), index_(index), several_(several_lanes) {}

  /// Memory for a fragment of any role: 256 f32 in each lane.
  ir::NodeId fragment();
  /// `to_f32` widens an element as it is in memory.
  void load(ir::NodeId fragment, ir::FragmentRole role, ir::NodeId memory, ir::NodeId at, ir::NodeId stride,
            bool transposed, const std::function<ir::NodeId(ir::NodeId)>& to_f32);
  void fill(ir::NodeId accumulator, ir::NodeId value);
  void multiply(ir::NodeId accumulator, ir::NodeId left, ir::NodeId right);
  void store(ir::NodeId accumulator, ir::NodeId memory, ir::NodeId at, ir::NodeId stride);

 private:
  ir::NodeId number(std::int64_t v) { return b_.constant_of(index_, v); }
  ir::NodeId arithmetic(ir::BinaryOp op, ir::NodeId x, ir::NodeId y);
  ir::NodeId plus(ir::NodeId x, ir::NodeId y) { return arithmetic(ir::BinaryOp::add, x, y); }
  ir::NodeId times(ir::NodeId x, ir::NodeId y) { return arithmetic(ir::BinaryOp::mul, x, y); }
  void loop(ir::NodeId count, const std::function<void(ir::NodeId)>& body);
  /// Calls `body(i, j, place)` for all elements, or for those of c that are this lane's, in a loop; `place` is where
  /// the lane keeps the element.
  using Element = std::function<void(ir::NodeId i, ir::NodeId j, ir::NodeId place)>;
  void every_element(const Element& body);
  void for_each_lane_element(const Element& body);

  ir::Builder& b_;
  DType index_;
  bool several_;
};

}  // namespace tessera::emit
