// SPDX-License-Identifier: Apache-2.0
// The elements of a storage that an access covers: a box, or a triangle or diagonal of a box, with strides. Two parts
// overlap if they have an element in common. If this cannot be decided exactly, they are assumed to overlap.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "tessera/base/shape.h"
#include "tessera/task/access.h"

namespace tessera {

/// Describes elements of a storage by byte offsets: `begin` + sum(index[k] * stride[k]) with 0 <= index[k] < extent[k]
/// and `low` <= column - row <= `high`. Strides are in descending order.
struct StoragePart {
  static constexpr std::size_t most_axes = 6;  ///< Maximum number of axes that can be described.
                                               /// The band has no limit on this side.
  static constexpr std::int64_t unbounded = INT64_MAX / 4;

  std::uint64_t begin = 0, end = 0;  ///< byte offsets of the first element, and of the end of the last element
  std::uint32_t element = 1;         ///< size of an element in bytes
  std::uint8_t axes = 0;  ///< number of axes with several elements; if 0 and `end - begin > element`, any bytes of the
                          ///< range may be accessed
  bool gaps = false;      ///< the access may cover only some of the described elements
  std::int8_t row = -1, column = -1;  ///< the axes of the band; -1: no band
  /// Lower and upper limit of (column - row).
  std::int64_t low = -unbounded, high = unbounded;
  std::array<std::uint64_t, most_axes> stride, extent;  ///< only the first `axes` elements are initialised

  /// Creates a part without elements.
  StoragePart() {}
  StoragePart(const StoragePart& other) { *this = other; }
  StoragePart& operator=(const StoragePart& other) {
    begin = other.begin, end = other.end, element = other.element, axes = other.axes, gaps = other.gaps;
    row = other.row, column = other.column, low = other.low, high = other.high;
    for (std::uint8_t k = 0; k < other.axes; ++k) stride[k] = other.stride[k], extent[k] = other.extent[k];
    return *this;
  }
  /// True if the part has no elements.
  bool empty() const { return begin == end; }
  /// True if both parts have the same description.
  friend bool operator==(const StoragePart& a, const StoragePart& b) {
    if (a.begin != b.begin || a.end != b.end || a.element != b.element || a.axes != b.axes || a.gaps != b.gaps ||
        a.row != b.row || a.column != b.column || a.low != b.low || a.high != b.high)
      return false;
    for (std::uint8_t k = 0; k < a.axes; ++k)
      if (a.stride[k] != b.stride[k] || a.extent[k] != b.extent[k]) return false;
    return true;
  }
};

/// Returns the part that covers a whole storage of `bytes` bytes.
StoragePart full_part(std::uint64_t bytes);
/// Returns the elements of a view. Views with more than `most_axes` axes, or with overlapping axes, are described by
/// the byte range from their first to their last element. Throws ShapeError if `triangle` is given and there are fewer
/// than two axes.
StoragePart part_of(const Shape& shape, const Strides& strides, std::int64_t offset, std::size_t element_size,
                    MatrixPart triangle = MatrixPart::none);
/// Returns true if the parts have a byte in common. Also returns true if only their byte ranges can be compared and
/// these overlap.
bool overlap(const StoragePart& a, const StoragePart& b);
/// Returns true if `outer` contains every byte of `inner`. Returns false if this cannot be decided.
bool contains(const StoragePart& outer, const StoragePart& inner);
std::string to_string(const StoragePart& part);  ///< name in messages

}  // namespace tessera
