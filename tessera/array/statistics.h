// SPDX-License-Identifier: Apache-2.0
// Order statistics, sums without NaN, counts and searches. Names, argument order and defaults follow NumPy and the
// Python array API standard (https://data-apis.org/array-api). Functions with `axes` reduce all axes if it is empty;
// `keep` keeps the reduced axes with extent 1.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

// Order statistics. Integers are computed in f64 (f32 on a device without f64). NaN if an element is NaN or if there
// are no elements.

/// The middle element, or the mean of the two middle elements.
Array median(const Array& a, std::vector<int> axes = {}, bool keep = false);
/// The value below which the fraction `q` of the elements lies. Between two elements, it is interpolated linearly
/// (NumPy's default method). Throws ArgumentError unless 0 <= q <= 1.
Array quantile(const Array& a, double q, std::vector<int> axes = {}, bool keep = false);

/// The product of the elements along `axes`, in the dtypes of cumsum; 1 if there are none. Pairs are multiplied, then
/// pairs of products, and so on, so that rounding errors grow with the logarithm of the count. Differentiable, also
/// where elements are zero.
Array prod(const Array& a, std::vector<int> axes = {}, bool keep = false);

// Reductions that ignore NaN.

Array nansum(const Array& a, std::vector<int> axes = {}, bool keep = false);   ///< The sum; 0 if all are NaN.
Array nanprod(const Array& a, std::vector<int> axes = {}, bool keep = false);  ///< The product; 1 if all are NaN.
/// The mean; NaN if all elements are NaN.
Array nanmean(const Array& a, std::vector<int> axes = {}, bool keep = false);
/// The largest element; NaN if all elements are NaN.
Array nanmax(const Array& a, std::vector<int> axes = {}, bool keep = false);
/// The smallest element; NaN if all elements are NaN.
Array nanmin(const Array& a, std::vector<int> axes = {}, bool keep = false);

// Searches in ascending arrays. NaN counts as larger than any number, as sort() places it.

/// Which position of equal elements `searchsorted` returns.
enum class SearchSide : std::uint8_t {
  left,   ///< The position of the first one.
  right,  ///< The position after the last one.
};
/// The positions (i64) at which `values` can be inserted into `sorted`, one ascending dimension, so that it remains
/// ascending. Has the shape of `values`. Throws ShapeError if `sorted` does not
/// have exactly one dimension.
Array searchsorted(const Array& sorted, const Array& values, SearchSide side = SearchSide::left);
/// True for each element of `a` that occurs in `values`, which can have any shape. NaN never does.
Array isin(const Array& a, const Array& values);
/// Linear interpolation at `x` of a function with the values `heights` at the ascending positions `at`, both (n,). Left
/// of the first position it has the first value, and right of the last one the last value. Throws ShapeError if the
/// shapes differ or n is 0.
Array interpolate(const Array& x, const Array& at, const Array& heights);

/// The k largest or smallest elements along an axis.
struct TopK {
  Array values;   ///< The elements, the largest (or smallest) first.
  Array indices;  ///< Their positions along the axis, i64.
};
/// Returns the k largest elements along an axis, or the smallest ones if `largest` is false. NaN counts as larger than
/// any number. Throws ArgumentError if there are fewer than k elements.
TopK topk(const Array& a, std::int64_t k, int axis = -1, bool largest = true);

// Counts.

/// The number (i64) of elements that are 0, 1, 2 and so on, up to the largest one. The result has at least `least`
/// elements. Blocks until the largest element is known on the host. Throws DtypeError unless `a` has an integer dtype,
/// and ArgumentError if an element is negative.
Array bincount(const Array& a, std::int64_t least = 0);
/// The distinct elements of an array, and how often each occurs.
struct Counted {
  Array values;  ///< The distinct elements in ascending order, as unique() returns them.
  Array counts;  ///< How often each occurs, i64.
};
/// Blocks until the number of distinct elements is known on the host.
Counted unique_counts(const Array& a);
/// The distinct elements of an array, and where each element is among them.
struct Inverse {
  Array values;   ///< The distinct elements in ascending order, as unique() returns them.
  Array indices;  ///< For each element of the array its position in `values`, i64, in the array's shape.
};
/// Blocks until the number of distinct elements is known on the host.
Inverse unique_inverse(const Array& a);
/// The number of elements in intervals of equal width.
struct Histogram {
  Array counts;  ///< i64 (bins,)
  Array edges;   ///< The limits of the intervals (bins + 1,). Each contains its lower edge; the last one contains both.
};
/// Counts the elements in `bins` intervals between `low` and `high`. Elements outside, and NaN, are not counted. Throws
/// ArgumentError unless bins > 0 and low < high are finite.
Histogram histogram(const Array& a, std::int64_t bins, double low, double high);

}  // namespace tessera
