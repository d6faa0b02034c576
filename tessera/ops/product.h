// SPDX-License-Identifier: Apache-2.0
// Matrix products of arrays: batched, over strided operands, with bias and activation fused into the kernel.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// The functions that a product can apply to its result.
enum class Activation : std::uint8_t { none, relu, silu, gelu };

/// Operations that are applied to a product before it is stored.
struct Epilogue {
  std::optional<Array> bias = {};            ///< (columns of the result,) added to every row
  Activation activation = Activation::none;  ///< Applied after the bias.
  /// Dtype of the result instead of the operands' promoted dtype; f32 keeps the sums of 16-bit floats unrounded.
  std::optional<DType> dtype = {};
};

/// Returns a (..., m, k) times b (..., k, n): (..., m, n). Leading dimensions broadcast, and a one-dimensional operand
/// is a row or column as in NumPy. Operands may be strided views; transposed ones are not copied.
///
/// An integer or bool operand is converted to f32 if the other operand is a float (f64 for f64). 16-bit and 32-bit
/// floats accumulate in f32, f64 in f64, and the result has their promoted dtype. Integers narrower than 32 bits and
/// bools give i32; wider integers keep their dtype and wrap.
///
/// Throws ShapeError with both shapes if they do not match; DtypeError for silu or gelu of integers, or if `dtype` is
/// set and it or the operands are not floats.
Array matmul(const Array& a, const Array& b, const Epilogue& epilogue);
Array matmul(const Array& a, const Array& b);

}  // namespace tessera
