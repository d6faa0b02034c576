// SPDX-License-Identifier: Apache-2.0
// Shapes and strides of arrays: element counts, row-major strides and NumPy's broadcasting rules.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/inline_vector.h"

namespace tessera {

/// The extents of an array, outermost dimension first. An array with an empty shape has one element. Has the interface
/// of std::vector and converts to and from it. Up to six dimensions are stored inline.
using Shape = InlineVector<std::int64_t, 6>;
/// Distance in elements between neighbours along each dimension.
using Strides = InlineVector<std::int64_t, 6>;

/// Maximum number of elements of an array or a view. Byte counts and strides cannot overflow up to this size.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 48;
/// Throws ShapeError if an extent is negative or if the product of the non-zero extents exceeds most_elements. The
/// message contains `operation`.
void check_shape(const char* operation, const Shape& shape);

/// Returns the number of elements of an array with this shape.
inline std::int64_t element_count(const Shape& shape) {
  std::int64_t n = 1;
  for (auto d : shape) n *= d;
  return n;
}
/// Returns row-major strides; the last dimension is contiguous.
Strides contiguous_strides(const Shape& shape);
/// True if the strides are row-major and the elements have no gaps between them.
bool is_contiguous(const Shape& shape, const Strides& strides);
std::string to_string(const Shape& shape);  ///< "(2, 3)"

/// Returns the shape to which both shapes broadcast. Dimensions are aligned from the end, and dimensions of size 1 are
/// repeated. Throws ShapeError with `operation` and both shapes if they do not broadcast, or if the result exceeds
/// most_elements.
Shape broadcast_shapes(const char* operation, const Shape& a, const Shape& b);

/// Converts a negative axis, which counts from the end, to a non-negative axis. Throws ShapeError if it is out of
/// range.
int normalise_axis(const char* operation, int axis, std::size_t rank);

}  // namespace tessera
