// SPDX-License-Identifier: Apache-2.0
// Functions of arrays that networks need beyond arithmetic: joining and cutting, masks, statistics, running sums, and
// reading and writing by index. Names, orders of arguments and defaults are NumPy's or, where it has none, PyTorch's.
// What writes gives a new array: in place there is assign() of a slice.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

// Joining and cutting.

/// Joins along a new axis. All of one shape; dtypes are promoted.
Array stack(std::span<const Array> parts, int axis = 0);
Array stack(std::initializer_list<Array> parts, int axis = 0);
/// Views of equal parts. ShapeError if the axis does not divide into them.
std::vector<Array> split(const Array& a, std::int64_t sections, int axis = 0);
/// Views of parts with these extents. ShapeError unless they make up the axis.
std::vector<Array> split(const Array& a, const std::vector<std::int64_t>& sizes, int axis = 0);

/// Elements to add before and after those of an axis.
struct Padding {
  std::int64_t before = 0, after = 0;  ///< How many, on each side.
};
/// `a` with elements of `value` around it; one width for each axis.
Array pad(const Array& a, const std::vector<Padding>& widths, double value = 0);

/// A view with the dimensions reversed: rows as columns.
inline Array transpose(const Array& a) { return a.transpose(); }

/// The elements of `axes` (all if empty) in the opposite order. A copy.
Array flip(const Array& a, std::vector<int> axes = {});

// Masks.

/// NumPy's a[mask]: the elements (or rows, if the mask has fewer dimensions) where `mask`, of bools, is true, in their
/// order along a first axis. The mask has the extents of a's first axes; one without axes keeps all of `a` or nothing.
/// The host waits for their number.
Array masked_select(const Array& a, const Array& mask);
/// Where `a` is not zero: positions (i64) along each axis, an array for each, row by row. The host waits for their
/// number. An array without axes counts as one of shape (1,), here and in cumsum, sort and argsort.
std::vector<Array> nonzero(const Array& a);
/// The last two axes as matrices: elements above (`tril`) or below (`triu`) the k-th diagonal are zero.
Array tril(const Array& a, std::int64_t k = 0);
/// Sets the elements below the k-th diagonal to zero; see tril.
Array triu(const Array& a, std::int64_t k = 0);
/// A last axis of `classes` elements: 1 at the index and 0 elsewhere; all 0 where the index is out of range.
Array one_hot(const Array& indices, std::int64_t classes, DType dtype = DType::f32);

// Statistics over `axes`, all if empty; `keep` leaves extents of 1. 16-bit floats compute as f32, integers as f64 (f32
// on a device without f64).

/// The mean square distance from the mean, in two passes, with n - correction for the count: 1 for the estimate from a
/// sample (PyTorch's default), 0 for the variance of the numbers themselves (NumPy's). No elements left: NaN.
Array var(Array a, std::vector<int> axes = {}, double correction = 1, bool keep = false);
/// The root of var. `std` is the same; behind `using namespace tessera` that name is ambiguous with the namespace.
Array stddev(Array a, std::vector<int> axes = {}, double correction = 1, bool keep = false);
/// The standard deviation; see stddev.
Array std(Array a, std::vector<int> axes = {}, double correction = 1, bool keep = false);
/// log(sum(exp(a))) without overflow; -infinity where all are -infinity, or there are none. Integers compute as f32.
Array logsumexp(Array a, std::vector<int> axes = {}, bool keep = false);
/// Running sums along an axis. Integers and bools are summed as 64 bits, 16-bit floats as f32.
Array cumsum(const Array& a, int axis = 0);

// In order. NaN comes last, and -0 before +0; otherwise equal elements keep their order. 2^31 - 1 elements an axis at
// most.

/// The elements along an axis in ascending order.
Array sort(const Array& a, int axis = -1);
/// Where they were: positions (i64) with which take_along_axis(a, argsort(a)) is sort(a).
Array argsort(const Array& a, int axis = -1);
/// The different elements of all of `a` in ascending order, each once: one dimension. All NaN are one, and so are the
/// two zeros. The host waits for their number.
Array unique(const Array& a);

// By index. Indices are of any integer dtype; those out of range, negative ones too, read zeros and write nothing.

/// out[i][j][k] = a[i][indices[i][j][k]][k] for axis 1 of three: `indices` has the dimensions of `a`, and extents equal
/// to a's or 1 outside of the axis. (PyTorch's gather.)
Array take_along_axis(const Array& a, const Array& indices, int axis = -1);
/// `a` with out[indices[i]] = updates[i] along an axis: `updates` (of a's dtype after conversion) broadcasts to the
/// shape that take(a, indices, axis) has. Of equal indices the last one wins, on every device.
Array scatter(const Array& a, const Array& indices, const Array& updates, int axis = 0);
/// `a` with out[indices[i]] += updates[i], shapes as scatter's. Sums are made in the order of the indices, beginning
/// with a's element, and 16-bit floats are summed as f32: the same bits in every run. (PyTorch's index_add.)
Array scatter_add(const Array& a, const Array& indices, const Array& updates, int axis = 0);
/// `a` with `updates` (of a's dtype after conversion) written from `starts`, one for each axis, on. ShapeError if they
/// do not lie inside of it.
Array update_slice(const Array& a, const Array& updates, const std::vector<std::int64_t>& starts);

}  // namespace tessera
