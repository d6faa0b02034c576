// SPDX-License-Identifier: Apache-2.0
// Evaluates a deferred expression over copies of its input.
#pragma once

#include <optional>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/array/fused.h"

namespace tessera::detail {

class Expr;

/// A deferred matrix whose operands are scalars and views of the contiguous matrix `from`, all of the matrix's shape.
/// Parts of it can be computed over other memory that contains the values of `from`, one launch per part.
class RebasedExpression {
 public:
  /// The position in `from` at which a view begins.
  struct Place {
    std::int64_t row = 0, column = 0;
  };
  /// nullopt if `deferred` has any other form: already computed, over other memory, or over views with a different
  /// order of elements.
  static std::optional<RebasedExpression> of(const Array& deferred, const Array& from);
  /// The start of each view, in the order of the `views` argument of `write`.
  const std::vector<Place>& places() const { return places_; }
  /// Computes a part of this shape into `to`, in its dtype. No pending expression may read `to`. All views are on one
  /// device.
  void write(StridedView to, const Shape& part, std::span<const StridedView> views) const;

 private:
  struct Node {
    ir::Op op = ir::Op::none;  ///< load: args[0] is an index of places(); param: `bits`; else an operation.
    std::uint8_t sub = 0, count = 0;
    DType dtype = DType::f32;
    std::array<int, 3> args = {};
    std::uint64_t bits = 0;
  };
  class Builder;
  std::vector<Node> nodes_;  ///< Operands come before their users.
  std::vector<Place> places_;
};

}  // namespace tessera::detail
