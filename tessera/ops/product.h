// SPDX-License-Identifier: Apache-2.0
// Matrix products of arrays: batched, over strided operands, with bias and activation computed on the way out.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// The functions that a product can apply to its result.
enum class Activation : std::uint8_t { none, relu, silu, gelu };

/// What happens to a product before it is written.
struct Epilogue {
  std::optional<Array> bias = {};            ///< (columns of the result,) added to every row
  Activation activation = Activation::none;  ///< Applied after the bias.
  /// Of the result, in place of the operands': sums of 16-bit floats as f32, not rounded.
  std::optional<DType> dtype = {};
};

/// a (..., m, k) times b (..., k, n) gives (..., m, n); leading dimensions broadcast, and a one-dimensional operand is
/// a row or column as in NumPy. Integers and bools beside a float are converted to f32 (f64 beside f64). Floats of 16
/// and 32 bits accumulate in f32, f64 in f64, and the result has their promoted dtype; integers narrower than 32 bits
/// and bools give i32, wider ones their own dtype, and wrap. Operands may be strided views (a transposed one costs no
/// copy). ShapeError names both shapes; DtypeError: silu or gelu of integers, or a result of another dtype that is no
/// float.
Array matmul(const Array& a, const Array& b, const Epilogue& epilogue);
Array matmul(const Array& a, const Array& b);

}  // namespace tessera
