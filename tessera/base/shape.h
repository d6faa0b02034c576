// SPDX-License-Identifier: Apache-2.0
// Shapes and strides of arrays: element counts, row-major strides and NumPy's broadcasting rules.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/inline_vector.h"

namespace tessera {

/// Extents, outermost first. An empty shape is a single element. Has the interface of std::vector and converts to and
/// from it; up to six dimensions need no allocation.
using Shape = InlineVector<std::int64_t, 6>;
/// Distance in elements between neighbours along each dimension.
using Strides = InlineVector<std::int64_t, 6>;

/// The maximum number of elements of an array or a view: far below the point where byte counts and strides overflow.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 48;
/// Throws ShapeError naming `operation` if an extent is negative or the product of the non-zero extents exceeds
/// most_elements.
void check_shape(const char* operation, const Shape& shape);

/// The number of elements of an array with this shape.
inline std::int64_t element_count(const Shape& shape) {
  std::int64_t n = 1;
  for (auto d : shape) n *= d;
  return n;
}
/// Row-major strides: the last dimension is contiguous.
Strides contiguous_strides(const Shape& shape);
/// True if the strides are row-major without gaps.
bool is_contiguous(const Shape& shape, const Strides& strides);
std::string to_string(const Shape& shape);  ///< "(2, 3)"

/// The shape to which both broadcast (dimensions are aligned from the end; 1 is stretched). Throws ShapeError naming
/// `operation` and both shapes if they do not broadcast or the result exceeds most_elements.
Shape broadcast_shapes(const char* operation, const Shape& a, const Shape& b);

/// Converts a negative axis, which counts from the end, to a non-negative one. Throws ShapeError if it is out of range.
int normalise_axis(const char* operation, int axis, std::size_t rank);

}  // namespace tessera
