// SPDX-License-Identifier: Apache-2.0
// Shapes and strides of arrays: counting, row-major strides, and NumPy's broadcasting.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/inline_vector.h"

namespace tessera {

/// Extents, outermost first. An empty shape is a single element. Used like a std::vector, from and to which it
/// converts; up to six dimensions need no allocation.
using Shape = InlineVector<std::int64_t, 6>;
/// Distance in elements between neighbours along each dimension.
using Strides = InlineVector<std::int64_t, 6>;

/// The most elements of an array or of a view of one: far below where byte counts and strides wrap.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 48;
/// ShapeError names `operation` if an extent is negative, or the product of those that are not 0 is above
/// most_elements.
void check_shape(const char* operation, const Shape& shape);

/// The number of elements of an array of this shape.
inline std::int64_t element_count(const Shape& shape) {
  std::int64_t n = 1;
  for (auto d : shape) n *= d;
  return n;
}
/// Row-major strides: the last dimension is contiguous.
Strides contiguous_strides(const Shape& shape);
/// True if the strides are those of row-major order without gaps.
bool is_contiguous(const Shape& shape, const Strides& strides);
std::string to_string(const Shape& shape);  ///< "(2, 3)"

/// The shape both broadcast to (dimensions align at the end; 1 stretches). ShapeError names `operation` and both
/// shapes, also where they would have more than most_elements.
Shape broadcast_shapes(const char* operation, const Shape& a, const Shape& b);

/// `axis` counted from the end if negative. ShapeError if it is not one of `rank` axes.
int normalise_axis(const char* operation, int axis, std::size_t rank);

}  // namespace tessera
