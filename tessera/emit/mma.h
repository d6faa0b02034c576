// SPDX-License-Identifier: Apache-2.0
// Matrix products for devices without matrix units. Fragments become thread-local arrays, and mma becomes loops. Lanes
// exchange no data, so the code is correct for all subgroup widths and for partial subgroups.
#pragma once

#include <functional>

#include "tessera/ir/builder.h"

namespace tessera::emit {

/// Every lane stores all elements of a and b, but only its own elements of c. These are the elements lane_id, lane_id +
/// lanes, ..., where `lanes` is the number of active lanes in the subgroup and element (i, j) has number 16 * i + j.
/// Elements are stored as f32, which represents 16-bit floats exactly. The product of two elements is also exact,
/// unless a product of bfloat16 values overflows or underflows. Factors of i8 are stored as words of four elements with
/// adjacent k, eight words for each row or column.
class MatrixLoops {
 public:
  /// Appends nodes to `b`. Indices have dtype `index`. `several_lanes` is true if subgroups may have more than one
  /// lane.
  MatrixLoops(ir::Builder& b, DType index, bool several_lanes) : b_(b), index_(index), several_(several_lanes) {}

  /// Creates the memory for a fragment of any role: 256 f32 elements or 128 words per lane.
  ir::NodeId fragment(DType t);
  /// Loads a fragment. `to_f32` converts an element from its type in memory.
  void load(ir::NodeId fragment, ir::FragmentRole role, ir::NodeId memory, ir::NodeId at, ir::NodeId stride,
            bool transposed, const std::function<ir::NodeId(ir::NodeId)>& to_f32);
  void load_words(ir::NodeId fragment, ir::NodeId memory, ir::NodeId at, ir::NodeId stride);
  void fill(ir::NodeId accumulator, ir::NodeId value);
  void multiply(ir::NodeId accumulator, ir::NodeId left, ir::NodeId right);
  /// `dot4` adds the products of two words of i8 to an i32.
  void multiply_words(ir::NodeId accumulator, ir::NodeId left, ir::NodeId right,
                      const std::function<ir::NodeId(ir::NodeId, ir::NodeId, ir::NodeId)>& dot4);
  void store(ir::NodeId accumulator, ir::NodeId memory, ir::NodeId at, ir::NodeId stride);
  /// `rounded` converts an f32 to the dtype of the factor and back.
  void convert(ir::NodeId left, ir::NodeId accumulator, const std::function<ir::NodeId(ir::NodeId)>& rounded);
  void reduce_rows(ir::ReduceOp op, ir::NodeId local, ir::NodeId accumulator);
  ir::NodeId lane_elements();
  ir::NodeId lane_rows() { return number(ir::fragment_side); }
  ir::NodeId place(ir::PlaceOf what, ir::NodeId k);

 private:
  ir::NodeId number(std::int64_t v) { return b_.constant_of(index_, v); }
  ir::NodeId arithmetic(ir::BinaryOp op, ir::NodeId x, ir::NodeId y);
  ir::NodeId plus(ir::NodeId x, ir::NodeId y) { return arithmetic(ir::BinaryOp::add, x, y); }
  ir::NodeId times(ir::NodeId x, ir::NodeId y) { return arithmetic(ir::BinaryOp::mul, x, y); }
  void loop(ir::NodeId count, const std::function<void(ir::NodeId)>& body);
  /// These two functions emit a loop that runs `body(i, j, place)` for all elements, or only for this lane's elements
  /// of c. `place` is the index of the element in the lane's array.
  using Element = std::function<void(ir::NodeId i, ir::NodeId j, ir::NodeId place)>;
  void every_element(const Element& body);
  void for_each_lane_element(const Element& body);
  ir::NodeId active_lanes();
  /// Returns element number e (16 * i + j) of an accumulator in all lanes.
  ir::NodeId element(ir::NodeId accumulator, ir::NodeId e);

  ir::Builder& b_;
  DType index_;
  bool several_;
};

}  // namespace tessera::emit
