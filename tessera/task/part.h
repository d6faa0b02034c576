// SPDX-License-Identifier: Apache-2.0
// What part of a storage an access touches: a box, triangle or diagonal of a strided frame. Two parts overlap where
// they have an element in common; where that is not known exactly, they are taken to overlap.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "tessera/base/shape.h"

namespace tessera {

/// Which elements of a matrix (of the last two axes) an access touches. Triangles have the diagonal, unless they say
/// `unit`: these are the triangles of matrices whose diagonal is known to be 1, and is not read.
enum class MatrixPart : std::uint8_t { none, upper, lower, unit_upper, unit_lower, diagonal };
const char* to_string(MatrixPart triangle);  ///< the part as one word: "upper"
/// Column index less row index of its elements: the least and the greatest.
std::pair<std::int64_t, std::int64_t> band_of(MatrixPart triangle);

/// Elements of a storage: those at `begin` + sum(index[k] * stride[k]) bytes for 0 <= index[k] < extent[k] whose last
/// two indices of the view lie in a band. Strides descend.
struct StoragePart {
  static constexpr std::size_t most_axes = 6;  ///< Axes that are described, at most.
  static constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max() / 4;  ///< No bound of the band.

  std::uint64_t begin = 0, end = 0;   ///< bytes: from the first element to behind the last
  std::uint32_t element = 1;          ///< bytes of one
  std::uint8_t axes = 0;              ///< with more than one element; 0 with `end - begin > element`: any bytes between
  bool gaps = false;                  ///< perhaps not all of what this says
  std::int8_t row = -1, column = -1;  ///< which axes the band is of
  /// Column index less row index, of those touched.
  std::int64_t low = -unbounded, high = unbounded;
  std::array<std::uint64_t, most_axes> stride, extent;  ///< of the first `axes`; nothing else is set

  /// No elements.
  StoragePart() {}
  StoragePart(const StoragePart& other) { *this = other; }
  StoragePart& operator=(const StoragePart& other) {
    begin = other.begin, end = other.end, element = other.element, axes = other.axes, gaps = other.gaps;
    row = other.row, column = other.column, low = other.low, high = other.high;
    for (std::uint8_t k = 0; k < other.axes; ++k) stride[k] = other.stride[k], extent[k] = other.extent[k];
    return *this;
  }
  /// True if it has no elements.
  bool empty() const { return begin == end; }
  /// True if both describe the same elements in the same way.
  friend bool operator==(const StoragePart& a, const StoragePart& b) {
    if (a.begin != b.begin || a.end != b.end || a.element != b.element || a.axes != b.axes || a.gaps != b.gaps ||
        a.row != b.row || a.column != b.column || a.low != b.low || a.high != b.high)
      return false;
    for (std::uint8_t k = 0; k < a.axes; ++k)
      if (a.stride[k] != b.stride[k] || a.extent[k] != b.extent[k]) return false;
    return true;
  }
};

/// All of `bytes`.
StoragePart full_part(std::uint64_t bytes);
/// The elements of a view. Of more than `most_axes` axes, or axes that overlap each other, all bytes between the first
/// and the last. ShapeError if `triangle` is asked of fewer than two axes.
StoragePart part_of(const Shape& shape, const Strides& strides, std::int64_t offset, std::size_t element_size,
                    MatrixPart triangle = MatrixPart::none);
/// Whether they have bytes in common; true where only their intervals tell.
bool overlap(const StoragePart& a, const StoragePart& b);
/// Whether every byte of `inner` is one of `outer`; false where that is not known.
bool contains(const StoragePart& outer, const StoragePart& inner);
std::string to_string(const StoragePart& part);  ///< for messages

}  // namespace tessera
