// SPDX-License-Identifier: Apache-2.0
// Array functions beyond arithmetic: joining and splitting, bits, masks, statistics, running sums, sorting, and indexed
// reads and writes. Names, argument order and defaults follow NumPy, or PyTorch if NumPy has no such function.
// Functions that write return a new array; to write in place, assign to a slice.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

// Joining and splitting.

/// Joins arrays of the same shape along a new axis. Dtypes are promoted.
Array stack(std::span<const Array> parts, int axis = 0);
Array stack(std::initializer_list<Array> parts, int axis = 0);
/// Splits an axis into `sections` equal views. Throws ShapeError if the extent is not divisible by `sections`.
std::vector<Array> split(const Array& a, std::int64_t sections, int axis = 0);
/// Splits an axis into views of these extents. Throws ShapeError unless they add up to the extent of the axis.
std::vector<Array> split(const Array& a, const std::vector<std::int64_t>& sizes, int axis = 0);

/// The number of elements to add before and after an axis.
struct Padding {
  std::int64_t before = 0, after = 0;  ///< The number of elements on each side.
};
/// Surrounds `a` with elements of `value`. `widths` has one entry per axis.
Array pad(const Array& a, const std::vector<Padding>& widths, double value = 0);

/// A view with the dimensions reversed.
inline Array transpose(const Array& a) { return a.transpose(); }

/// A copy with the order of the elements reversed along `axes` (all if empty).
Array flip(const Array& a, std::vector<int> axes = {});

// Bits.

/// Integers shifted left. A count of at least the number of bits of the result's dtype gives 0. Counts must not be
/// negative.
Array operator<<(ArrayOperand a, ArrayOperand b);
/// Integers shifted right. Signed integers replicate the sign bit. Counts are those of `<<`.
Array operator>>(ArrayOperand a, ArrayOperand b);
/// The next float after `a` in the direction of `b`.
Array nextafter(ArrayOperand a, ArrayOperand b);

// Masks.

/// Returns the elements where the bool array `mask` is true, in order, along a new first axis (NumPy's a[mask]). If the
/// mask has fewer dimensions than `a`, it selects rows. The mask's shape must match the first axes of `a`. A mask
/// without axes keeps all of `a` or nothing. Blocks until the number of selected elements is known on the host.
Array masked_select(const Array& a, const Array& mask);
/// Returns the positions (i64) of the non-zero elements in row-major order, one array per axis. Like cumsum, sort and
/// argsort, it treats an array without axes as shape (1,). Blocks until the number of positions is known on the host.
std::vector<Array> nonzero(const Array& a);
/// Sets the elements above the k-th diagonal of the last two axes to zero.
Array tril(const Array& a, std::int64_t k = 0);
/// Sets the elements below the k-th diagonal of the last two axes to zero.
Array triu(const Array& a, std::int64_t k = 0);
/// Appends an axis of `classes` elements: 1 at the index and 0 elsewhere. If an index is out of range, all its elements
/// are 0.
Array one_hot(const Array& indices, std::int64_t classes, DType dtype = DType::f32);

// Statistics over `axes` (all if empty). `keep` keeps the reduced axes with extent 1. 16-bit floats are computed in
// f32, integers in f64 (f32 on a device without f64).

/// The variance, computed in two passes and divided by n - correction. A correction of 1 (PyTorch's default) estimates
/// the variance from a sample; 0 (NumPy's default) returns the population variance. NaN if the divisor is not positive.
Array var(Array a, std::vector<int> axes = {}, double correction = 1, bool keep = false);
/// The square root of var. The same function as `std`, whose name conflicts with the namespace after `using namespace
/// tessera`.
Array stddev(Array a, std::vector<int> axes = {}, double correction = 1, bool keep = false);
/// The standard deviation; see stddev.
Array std(Array a, std::vector<int> axes = {}, double correction = 1, bool keep = false);
/// log(sum(exp(a))) without overflow. The result is -infinity if there are no elements or all are -infinity. Integers
/// are computed in f32.
Array logsumexp(Array a, std::vector<int> axes = {}, bool keep = false);
/// Running sums along an axis. Integers and bools are summed in 64 bits, 16-bit floats in f32.
Array cumsum(const Array& a, int axis = 0);
/// Running products along an axis, in the dtypes of cumsum. Differentiable, also where elements are zero.
Array cumprod(const Array& a, int axis = 0);
/// The largest element so far along an axis (NumPy's maximum.accumulate), in the dtype of `a`. NaN propagates.
Array cummax(const Array& a, int axis = 0);
/// The smallest element so far along an axis. Otherwise like cummax.
Array cummin(const Array& a, int axis = 0);

// Sorting. It is stable. NaN sorts last, and -0 before +0. An axis has at most 2^31 - 1 elements.

/// The elements along an axis in ascending order.
Array sort(const Array& a, int axis = -1);
/// The positions (i64) that sort the axis: take_along_axis(a, argsort(a)) equals sort(a).
Array argsort(const Array& a, int axis = -1);
/// The distinct elements of `a` in ascending order, in one dimension. All NaN are equal, and so are the two zeros.
/// Blocks until the number of distinct elements is known on the host.
Array unique(const Array& a);

// Indexing. Indices can have any integer dtype. If an index is out of range or negative, reads return zeros and writes
// are ignored.

/// out[i][j][k] = a[i][indices[i][j][k]][k], for axis 1 of three. `indices` has as many dimensions as `a`. Each of its
/// other extents is 1 or equal to that of `a`. (PyTorch's gather.)
Array take_along_axis(const Array& a, const Array& indices, int axis = -1);
/// A copy of `a` with out[indices[i]] = updates[i] along an axis. `updates` is converted to the dtype of `a` and
/// broadcast to the shape of take(a, indices, axis). If an index occurs several times, the last update wins, on every
/// device.
Array scatter(const Array& a, const Array& indices, const Array& updates, int axis = 0);
/// A copy of `a` with out[indices[i]] += updates[i]. The shapes are the same as for scatter. Updates are added to the
/// element of `a` in the order of the indices, and 16-bit floats are summed in f32, so that all runs produce
/// bit-identical results. (PyTorch's index_add.)
Array scatter_add(const Array& a, const Array& indices, const Array& updates, int axis = 0);
/// A copy of `a` in which `updates` is written at position `starts` (one number per axis). `updates` is converted to
/// the dtype of `a`. Throws ShapeError if `updates` does not fit inside `a`.
Array update_slice(const Array& a, const Array& updates, const std::vector<std::int64_t>& starts);

}  // namespace tessera
