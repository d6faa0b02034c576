// SPDX-License-Identifier: Apache-2.0
// Evaluates a deferred expression with the memory of its input replaced by copies.
#pragma once

#include <optional>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/array/fused.h"

namespace tessera::detail {

class Expr;

/// A deferred matrix whose operands are scalars and views of the contiguous matrix `from`. All views have the shape of
/// the deferred matrix. Parts of the matrix can be computed from other memory that contains the values of `from`. Each
/// part takes one launch.
class RebasedExpression {
 public:
  /// The position in `from` at which a view begins.
  struct Place {
    std::int64_t row = 0, column = 0;
  };
  /// Returns nullopt if `deferred` has another form: if it has been computed already, reads other memory, or uses views
  /// with a different order of elements.
  static std::optional<RebasedExpression> of(const Array& deferred, const Array& from);
  /// The start of each view, in the order of the `views` argument of `write`.
  const std::vector<Place>& places() const { return places_; }
  /// Computes a part of shape `part` into `to`, in the dtype of `to`. No pending expression may read `to`. All views
  /// must be on one device.
  void write(StridedView to, const Shape& part, std::span<const StridedView> views) const;

 private:
  struct Node {
    /// load: args[0] is an index into places(); param: the value is `bits`; otherwise an operation.
    ir::Op op = ir::Op::none;
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
