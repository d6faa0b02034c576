// SPDX-License-Identifier: Apache-2.0
// A deferred expression over other memory of the same values.
#pragma once

#include <optional>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/array/fused.h"

namespace tessera::detail {

class Expr;

/// A deferred matrix whose operands are scalars and views of the contiguous matrix `from`, each as large as it, taken
/// apart: parts of it are computed over other memory that has from's values, each by one launch.
class RebasedExpression {
 public:
  /// Where a view begins in `from`.
  struct Place {
    std::int64_t row = 0, column = 0;
  };
  /// Nothing if `deferred` is anything else: computed, over other memory, over views in another order.
  static std::optional<RebasedExpression> of(const Array& deferred, const Array& from);
  /// Of each view, in the order in which `write` takes what stands for it.
  const std::vector<Place>& places() const { return places_; }
  /// Computes a part of this shape into `to`, in its dtype; nothing deferred reads that any more. All of one device.
  void write(StridedView to, const Shape& part, std::span<const StridedView> views) const;

 private:
  struct Node {
    ir::Op op = ir::Op::none;  ///< load: args[0] is a place; param: `bits`; else an operation
    std::uint8_t sub = 0, count = 0;
    DType dtype = DType::f32;
    std::array<int, 3> args = {};
    std::uint64_t bits = 0;
  };
  class Builder;
  std::vector<Node> nodes_;  ///< operands before those above them
  std::vector<Place> places_;
};

}  // namespace tessera::detail
