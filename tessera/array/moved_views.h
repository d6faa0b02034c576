// SPDX-License-Identifier: Apache-2.0
// A deferred expression over other memory of the same values.
#pragma once

#include <optional>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/array/fused.h"

namespace tessera::detail {

/// Part of a deferred matrix whose operands are scalars and views of the contiguous matrix `from`, each as large as it:
/// its elements from (row, column) on, of the shape `part`, deferred over `to`, which has from's values from (to_row,
/// to_column) on. Nothing if `deferred` is anything else: computed, over other memory, over views in another order.
std::optional<Array> part_over(const Array& deferred, const Array& from, std::int64_t row, std::int64_t column,
                               const Shape& part, const Array& to, std::int64_t to_row, std::int64_t to_column);

class Expr;

/// The same matrix taken apart, so that parts of it are computed over other memory with little ado: nothing is deferred
/// again, each part is one launch.
class MovedViews {
 public:
  /// Where a view begins in `from`.
  struct Place {
    std::int64_t row = 0, column = 0;
  };
  /// Nothing if `deferred` is anything else than `part_over` takes.
  static std::optional<MovedViews> of(const Array& deferred, const Array& from);
  /// Of each view, in the order in which `write` takes what stands for it.
  const std::vector<Place>& places() const { return places_; }
  /// Computes a part of this shape into `to`, which nothing deferred reads any more; all of one device.
  void write(StridedView to, const Shape& part, std::span<const StridedView> views) const;

 private:
  struct Node {
    ir::Op op = ir::Op::none;  ///< load: args[0] is a place; param: `bits`; else an operation
    std::uint8_t sub = 0, count = 0;
    DType dtype = DType::f32;
    std::array<int, 3> args = {};
    std::uint64_t bits = 0;
  };
  class Taking;
  std::vector<Node> nodes_;  ///< operands before those above them
  std::vector<Place> places_;
};

}  // namespace tessera::detail
