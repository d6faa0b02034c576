// SPDX-License-Identifier: Apache-2.0
// Matrix products for devices without matrix units: fragments become thread-local arrays, and mma becomes loops. Lanes
// exchange no data, so it is correct for subgroups of any width, full or partial.
#pragma once

#include <functional>

#include "tessera/ir/builder.h"

namespace tessera::emit {

/// Every lane stores all of a and b, and the elements lane_id, lane_id + lanes, ... of c (element (i, j) has number 16
/// * i + j), where `lanes` counts the active lanes of its subgroup. All are stored as f32, which represents 16-bit
/// floats exactly; a product of two is exact unless it leaves float's range (bfloat16 only).
class MatrixLoops {
 public:
  /// Builds into `b`, whose ids have dtype `index`. `several_lanes`: subgroups may be wider than 1.
  MatrixLoops(ir::Builder& b, DType index, bool several_lanes) : b_(b), index_(index), several_(several_lanes) {}

  /// Memory for a fragment of any role: 256 f32 per lane.
  ir::NodeId fragment();
  /// `to_f32` converts an element from its memory format.
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
  /// Emits a loop that calls `body(i, j, place)` for all elements, or for this lane's elements of c; `place` is the
  /// element's index in the lane's array.
  using Element = std::function<void(ir::NodeId i, ir::NodeId j, ir::NodeId place)>;
  void every_element(const Element& body);
  void for_each_lane_element(const Element& body);

  ir::Builder& b_;
  DType index_;
  bool several_;
};

}  // namespace tessera::emit
