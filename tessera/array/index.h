// SPDX-License-Identifier: Apache-2.0
// Indexing by several kinds of indices at once, as in NumPy: `index(a, {Slice{1, 5}, rows, mask})` is a[1:5, rows,
// mask].
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "tessera/array/array.h"

namespace tessera {

/// The index `begin:end:step` of NumPy: positions of an axis from `begin` up to but excluding `end`. Negative bounds
/// count from the end of the axis, and bounds are clipped to it. An empty bound is the end of the axis in this
/// direction.
struct Slice {
  std::optional<std::int64_t> begin = {};  ///< The first position.
  std::optional<std::int64_t> end = {};    ///< The position before which the slice ends.
  std::int64_t step = 1;                   ///< The distance between positions. Can be negative, but not 0.
};
/// Adds an axis of extent 1.
struct NewAxis {};
/// All axes that no other index covers.
struct Ellipsis {};

/// How an axis is indexed:
/// - a position removes the axis; a negative one counts from the end;
/// - an array of integers contains positions along the axis;
/// - an array of bools (a mask) covers as many axes as it has and selects the elements where it is true.
///
/// Arrays of positions are broadcast together, and their axes replace the axes that they index. If there are other
/// indices than positions between arrays, their axes come first, as in NumPy. Positions in arrays can be negative; if
/// one is out of range, reading gives zeros and writing does nothing.
using AxisIndex = std::variant<std::int64_t, Slice, NewAxis, Ellipsis, Array>;

/// Returns a[indices]: a view if there are no arrays among the indices and no negative steps, otherwise a copy.
/// Differentiable. With a mask it blocks until the number of selected elements is known on the host. Throws ShapeError
/// if a position is out of range or the shape of a mask differs from that of its axes, DtypeError for an array of
/// floats, and ArgumentError if there are more indices than axes, two ellipses, or a step of 0.
Array index(const Array& a, const std::vector<AxisIndex>& indices);

/// Sets a[indices] = values. `values` is converted to the dtype of `a` and broadcast to the shape of index(a, indices).
/// If a position occurs several times, the last value wins. A single value for a mask does not wait for the device.
/// Throws as index() and Array::assign.
void index_assign(Array& a, const std::vector<AxisIndex>& indices, const ArrayOperand& values);

/// Adds `values` to a[indices], once for each time that a position occurs, in order, so that all runs give the same
/// bits. Otherwise like index_assign.
void index_add(Array& a, const std::vector<AxisIndex>& indices, const ArrayOperand& values);

}  // namespace tessera
