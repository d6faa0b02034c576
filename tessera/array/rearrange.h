// SPDX-License-Identifier: Apache-2.0
// Functions that move, repeat and combine whole axes of an array. Names, argument order and defaults follow NumPy and
// the Python array API standard (https://data-apis.org/array-api).
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// A view with the axis `from` moved to position `to`; the other axes keep their order.
Array moveaxis(const Array& a, int from, int to);
/// A view with two axes exchanged.
Array swapaxes(const Array& a, int first, int second);
/// The elements whose indices along the last two axes are i and i + offset, for all i: (..., n, m) gives (..., k), with
/// k = min(n, m - offset), or min(n + offset, m) if `offset` is negative. A view if `a` is contiguous. Throws
/// ShapeError if `a` has fewer than two dimensions.
Array diag(const Array& a, std::int64_t offset = 0);
/// The sum of each diagonal: (..., n, m) gives (...).
Array trace(const Array& a, std::int64_t offset = 0);

/// Moves each element `shift` positions towards the end of an axis. Elements that leave the end enter at the start.
/// Without an axis, all elements are moved in row-major order.
Array roll(const Array& a, std::int64_t shift, std::optional<int> axis = {});
/// Repeats each element along an axis: {1, 2} twice is {1, 1, 2, 2}. Without an axis, the elements are first arranged
/// in one dimension. Throws ArgumentError if `count` is negative.
Array repeat(const Array& a, std::int64_t count, std::optional<int> axis = {});
/// Repeats the whole array `counts[d]` times along axis d: {1, 2} twice is {1, 2, 1, 2}. As in NumPy, axes of extent 1
/// are added in front of the shorter of `counts` and the shape. Throws ArgumentError if a count is negative.
Array tile(const Array& a, std::vector<std::int64_t> counts);
/// The differences of neighbours along an axis, taken `order` times: out[i] = a[i + 1] - a[i]. For bools, whether they
/// differ. Throws ArgumentError if `order` is negative, and ShapeError if `a` has no axis.
Array diff(const Array& a, std::int64_t order = 1, int axis = -1);
/// The axis of the result along which the first array of `meshgrid` varies.
enum class Indexing : std::uint8_t {
  xy,  ///< The second axis, as the x coordinate of images. The second array varies along the first axis.
  ij,  ///< The first axis, as the row of a matrix.
};
/// Coordinates of a grid: for each of n one-dimensional arrays, a view with n axes that varies along one of them.
/// Throws ShapeError if an array does not have exactly one dimension.
std::vector<Array> meshgrid(const std::vector<Array>& arrays, Indexing indexing = Indexing::xy);

}  // namespace tessera
