// SPDX-License-Identifier: Apache-2.0
// Sums of products over named axes. Names and semantics follow NumPy.
#pragma once

#include <string_view>

#include "tessera/array/array.h"

namespace tessera {

/// Multiplies arrays and sums the products over axes that are named by letters. `subscripts` has the letters of the
/// axes of each operand, and after "->" those of the result: "ij,jk->ik" is a matrix product, "ii->i" a diagonal,
/// "ij->ji" a transpose, "bij,bjk->bik" a product of batches, and "i,j->ij" an outer product. Letters that are not in
/// the result are summed over. Without "->", the result has the letters that occur once, in alphabetic order. "..."
/// stands for any number of further axes, which are broadcast and come first without "->". Spaces are ignored.
///
/// With more than two operands, the pair whose product has the fewest elements is multiplied first. Pairs with a common
/// letter that is summed over use matmul. The operands are converted to their promoted dtype, which is that of the
/// result: integers wrap, bools are combined by "and" and "or", and 16-bit floats are summed in f32 within a product.
///
/// Throws ArgumentError if the subscripts cannot be read or do not name the axes of each operand, and ShapeError if the
/// extents of a letter differ.
Array einsum(std::string_view subscripts, const std::vector<Array>& operands);

/// Sums the products of `a` and `b` over the last `axes` axes of `a` and the first `axes` axes of `b`.
Array tensordot(const Array& a, const Array& b, int axes = 2);
/// Sums the products of `a` and `b` over pairs of axes: axis a_axes[i] of `a` and axis b_axes[i] of `b`. The result has
/// the other axes of `a`, then those of `b`. Throws ShapeError if the extents of a pair differ, and ArgumentError if
/// the numbers of axes differ or an axis occurs twice.
Array tensordot(const Array& a, const Array& b, std::vector<int> a_axes, std::vector<int> b_axes);

/// The Kronecker product: out[i m + k] = a[i] b[k] along each axis, where m is the extent of `b`. As in NumPy, axes of
/// extent 1 are added in front of the shorter shape.
Array kron(const Array& a, const Array& b);
/// The products of all pairs of elements: (size of `a`, size of `b`).
Array outer(const Array& a, const Array& b);

}  // namespace tessera
