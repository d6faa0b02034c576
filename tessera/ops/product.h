// SPDX-License-Identifier: Apache-2.0
// Matrix products of arrays. They can be batched, read strided operands, and apply a bias and an activation in the
// kernel.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// The functions that a product can apply to its result.
enum class Activation : std::uint8_t { none, relu, silu, gelu };

/// Operations that are applied to a product before it is stored.
struct Epilogue {
  std::optional<Array> bias = {};            ///< One number per column of the result, added to every row.
  Activation activation = Activation::none;  ///< Applied after the bias.
  /// Dtype of the result, instead of the promoted dtype of the operands. For 16-bit floats, f32 returns the sums
  /// without rounding them to 16 bits.
  std::optional<DType> dtype = {};
};

/// Returns the product of a (..., m, k) and b (..., k, n): (..., m, n). Leading dimensions are broadcast. As in NumPy,
/// a one-dimensional operand is a row on the left and a column on the right. Operands can be strided views, and
/// transposed views are not copied.
///
/// If one operand is a float, an integer or bool operand is converted to f32 (f64 if the other is f64). 16-bit and
/// 32-bit floats are accumulated in f32, f64 in f64. The result has the promoted dtype of the floats. Bools and
/// integers of less than 32 bits return i32. Wider integers keep their dtype and wrap on overflow.
///
/// Throws ShapeError with both shapes if they do not match. Throws DtypeError for silu or gelu of integers, or if
/// `dtype` is set and either `dtype` or an operand's dtype is not a float dtype.
Array matmul(const Array& a, const Array& b, const Epilogue& epilogue);
Array matmul(const Array& a, const Array& b);

}  // namespace tessera
