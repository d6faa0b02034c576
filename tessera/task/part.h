// SPDX-License-Identifier: Apache-2.0
// The elements of a storage that an access covers: a box, triangle or diagonal of a strided frame. Two parts overlap if
// they share an element; if that cannot be decided exactly, they are assumed to overlap.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "tessera/base/shape.h"
#include "tessera/task/access.h"

namespace tessera {

/// Elements of a storage: those at `begin` + sum(index[k] * stride[k]) bytes with 0 <= index[k] < extent[k] and `low`
/// <= column - row <= `high`. Strides descend.
struct StoragePart {
  static constexpr std::size_t most_axes = 6;               ///< Maximum number of axes that can be described.
  static constexpr std::int64_t unbounded = INT64_MAX / 4;  ///< The band has no limit.

  std::uint64_t begin = 0, end = 0;  ///< bytes: from the first element to one past the last
  std::uint32_t element = 1;         ///< bytes of an element
  std::uint8_t axes =
      0;  ///< number of axes with more than one element; if 0 and `end - begin > element`, any bytes in between
  bool gaps = false;                  ///< the access may cover only some of the described elements
  std::int8_t row = -1, column = -1;  ///< the axes of the band; -1: none
  /// Limits of column - row.
  std::int64_t low = -unbounded, high = unbounded;
  std::array<std::uint64_t, most_axes> stride, extent;  ///< only the first `axes` are set

  /// A part without elements.
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
  /// True if both have the same description.
  friend bool operator==(const StoragePart& a, const StoragePart& b) {
    if (a.begin != b.begin || a.end != b.end || a.element != b.element || a.axes != b.axes || a.gaps != b.gaps ||
        a.row != b.row || a.column != b.column || a.low != b.low || a.high != b.high)
      return false;
    for (std::uint8_t k = 0; k < a.axes; ++k)
      if (a.stride[k] != b.stride[k] || a.extent[k] != b.extent[k]) return false;
    return true;
  }
};

/// The whole storage of `bytes` bytes.
StoragePart full_part(std::uint64_t bytes);
/// The elements of a view. Views with more than `most_axes` axes, or with overlapping axes, are described as all bytes
/// from the first to the last. Throws ShapeError if `triangle` is given and there are fewer than two axes.
StoragePart part_of(const Shape& shape, const Strides& strides, std::int64_t offset, std::size_t element_size,
                    MatrixPart triangle = MatrixPart::none);
/// True if the parts share a byte, or if only their byte ranges can be compared and these overlap.
bool overlap(const StoragePart& a, const StoragePart& b);
/// True if `outer` contains every byte of `inner`; false if that is unknown.
bool contains(const StoragePart& outer, const StoragePart& inner);
std::string to_string(const StoragePart& part);  ///< for messages

}  // namespace tessera
