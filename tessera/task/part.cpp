// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/part.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {
namespace {

/// The axes of two parts in one common frame, and the offset of the second part from the first along each axis.
struct Frame {
  static constexpr int most = 2 * StoragePart::most_axes;
  int axes = 0;
  std::array<std::int64_t, most> stride{}, a{}, b{};  // extents of the two parts
  std::array<std::int64_t, most> at{};
  int row_a = -1, column_a = -1, row_b = -1, column_b = -1;
};

/// Returns std::nullopt if the two parts cannot be described by one regular frame.
std::optional<Frame> frame_of(const StoragePart& a, const StoragePart& b) {
  const auto bytes_only = [](const StoragePart& p) { return p.axes == 0 && p.end - p.begin != p.element; };
  if (a.element != b.element || bytes_only(a) || bytes_only(b)) return {};
  Frame frame;
  for (int i = 0, j = 0; i < a.axes || j < b.axes; ++frame.axes) {
    const std::uint64_t left = i < a.axes ? a.stride[i] : 0, right = j < b.axes ? b.stride[j] : 0;
    const int k = frame.axes;
    frame.stride[k] = static_cast<std::int64_t>(std::max(left, right)), frame.a[k] = frame.b[k] = 1;
    if (left >= right) {
      if (i == a.row) frame.row_a = k;
      if (i == a.column) frame.column_a = k;
      frame.a[k] = static_cast<std::int64_t>(a.extent[i++]);
    }
    if (right >= left) {
      if (j == b.row) frame.row_b = k;
      if (j == b.column) frame.column_b = k;
      frame.b[k] = static_cast<std::int64_t>(b.extent[j++]);
    }
    if (k == 0) continue;
    const std::int64_t outer = frame.stride[k - 1], most = std::max(frame.a[k], frame.b[k]);
    if (outer % frame.stride[k] != 0 || most > outer / frame.stride[k]) return {};
  }
  if (frame.axes == 0) frame.axes = 1, frame.stride[0] = a.element, frame.a[0] = frame.b[0] = 1;
  return frame;
}

/// Finds the positions in the frame that the second part may have, `distance` bytes after the first part, and calls
/// `meets(frame)` for each position at which the boxes of the two parts overlap. Stops when `meets` returns true. There
/// may be two positions: with rows of s elements, a distance of r elements is also a distance of r - s elements from
/// the next row.
template <class F>
bool any_place(Frame& frame, std::int64_t distance, const F& meets, std::uint32_t element, int axis = 0) {
  const std::int64_t stride = frame.stride[axis];
  std::int64_t quotient = distance / stride, rest = distance % stride;
  if (rest < 0) --quotient, rest += stride;
  const auto boxes_meet = [&](std::int64_t at) { return at < frame.a[axis] && at + frame.b[axis] > 0; };
  if (axis + 1 == frame.axes) {
    frame.at[axis] = quotient;
    if (boxes_meet(quotient) && rest < element && meets(frame)) return true;
    frame.at[axis] = quotient + 1;
    return rest != 0 && stride - rest < element && boxes_meet(quotient + 1) && meets(frame);
  }
  frame.at[axis] = quotient;
  if (boxes_meet(quotient) && any_place(frame, rest, meets, element, axis + 1)) return true;
  frame.at[axis] = quotient + 1;
  return rest != 0 && boxes_meet(quotient + 1) && any_place(frame, rest - stride, meets, element, axis + 1);
}

/// Returns true if the part contains every byte between its first and its last element.
bool dense(const StoragePart& part) {
  std::uint64_t bytes = part.element;
  for (int k = 0; k < part.axes; ++k) bytes *= part.extent[k];
  return part.row < 0 && !part.gaps && (part.axes == 0 || bytes == part.end - part.begin);
}

}  // namespace

std::pair<std::int64_t, std::int64_t> band_of(MatrixPart triangle) {
  switch (triangle) {
    case MatrixPart::none: break;
    case MatrixPart::upper: return {0, StoragePart::unbounded};
    case MatrixPart::unit_upper: return {1, StoragePart::unbounded};
    case MatrixPart::lower: return {-StoragePart::unbounded, 0};
    case MatrixPart::unit_lower: return {-StoragePart::unbounded, -1};
    case MatrixPart::diagonal: return {0, 0};
  }
  return {-StoragePart::unbounded, StoragePart::unbounded};
}

const char* to_string(MatrixPart triangle) {
  switch (triangle) {
    case MatrixPart::none: return "all";
    case MatrixPart::upper: return "upper triangle";
    case MatrixPart::lower: return "lower triangle";
    case MatrixPart::unit_upper: return "upper triangle without the diagonal";
    case MatrixPart::unit_lower: return "lower triangle without the diagonal";
    case MatrixPart::diagonal: return "diagonal";
  }
  return "?";
}

StoragePart full_part(std::uint64_t bytes) {
  StoragePart part;
  part.end = bytes;
  return part;
}

StoragePart part_of(const Shape& shape, const Strides& strides, std::int64_t offset, std::size_t element_size,
                    MatrixPart triangle) {
  if (triangle != MatrixPart::none && shape.size() < 2)
    fail<ShapeError>({.operation = to_string(triangle),
                      .with = {{"shape", to_string(shape)}},
                      .wrong = "the array needs at least two dimensions"});
  const auto [low, high] = band_of(triangle);
  if (triangle != MatrixPart::none && (shape[shape.size() - 2] == 1 || shape[shape.size() - 1] == 1)) {
    // The matrix has a single row or column, so the band selects an interval of this row or column.
    const std::size_t row = shape.size() - 2, column = shape.size() - 1, along = shape[row] == 1 ? column : row;
    const std::int64_t first = std::max<std::int64_t>(0, along == column ? low : -high);
    const std::int64_t last = std::min(shape[along] - 1, along == column ? high : -low);
    Shape stretch = shape;
    stretch[along] = std::max<std::int64_t>(0, last - first + 1);
    return part_of(stretch, strides, offset + first * strides[along], element_size);
  }
  StoragePart part;
  part.element = static_cast<std::uint32_t>(element_size);
  part.begin = part.end = static_cast<std::uint64_t>(offset) * element_size;
  if (element_count(shape) == 0) return part;
  std::uint64_t span = 0;
  bool exact = true;
  const int rank = static_cast<int>(shape.size());
  std::array<int, StoragePart::most_axes> source{};
  for (int d = 0; d < rank; ++d) {
    if (shape[d] == 1 || strides[d] == 0) continue;
    const auto stride = static_cast<std::uint64_t>(strides[d]) * element_size;
    span += (static_cast<std::uint64_t>(shape[d]) - 1) * stride;
    if (part.axes == StoragePart::most_axes) exact = false;
    if (!exact) continue;
    int at = part.axes++;
    for (; at > 0 && part.stride[at - 1] < stride; --at) {
      part.stride[at] = part.stride[at - 1], part.extent[at] = part.extent[at - 1];
      source[at] = source[at - 1];
    }
    part.stride[at] = stride, part.extent[at] = static_cast<std::uint64_t>(shape[d]), source[at] = d;
  }
  part.end = part.begin + span + element_size;
  for (int k = 1; k < part.axes; ++k)
    if (part.extent[k] * part.stride[k] > part.stride[k - 1]) exact = false;
  if (!exact) {
    part.axes = 0, part.gaps = true;
    return part;
  }
  if (triangle == MatrixPart::none) return part;
  for (int k = 0; k < part.axes; ++k) {
    if (source[k] == rank - 2) part.row = static_cast<std::int8_t>(k);
    if (source[k] == rank - 1) part.column = static_cast<std::int8_t>(k);
  }
  if (part.row < 0 || part.column < 0)  // broadcast rows or columns share memory
    part.row = part.column = -1, part.gaps = true;
  else
    part.low = low, part.high = high;
  return part;
}

bool overlap(const StoragePart& a, const StoragePart& b) {
  if (a.begin >= b.end || b.begin >= a.end || a.empty() || b.empty()) return false;
  if (a == b || (dense(a) && dense(b))) return true;
  std::optional<Frame> frame = frame_of(a, b);
  if (!frame) return true;
  const auto meet = [&](const Frame& f) {
    // In the common box, (column - row) takes every value between its minimum and maximum at the corners.
    const auto from = [&](int axis) { return std::max<std::int64_t>(0, f.at[axis]); };
    const auto last = [&](int axis) { return std::min(f.a[axis], f.at[axis] + f.b[axis]) - 1; };
    const auto in_band = [&](int row, int column, std::int64_t low, std::int64_t high) {
      return row < 0 || std::max(low, from(column) - last(row)) <= std::min(high, last(column) - from(row));
    };
    const std::int64_t shift = f.row_b < 0 ? 0 : f.at[f.column_b] - f.at[f.row_b];
    const std::int64_t low = b.low + shift, high = b.high + shift;
    if (f.row_a >= 0 && f.row_a == f.row_b && f.column_a == f.column_b)
      return in_band(f.row_a, f.column_a, std::max(a.low, low), std::min(a.high, high));
    if (f.row_a >= 0 && f.row_a == f.column_b && f.column_a == f.row_b)  // one of the two views is transposed
      return in_band(f.row_a, f.column_a, std::max(a.low, -high), std::min(a.high, -low));
    return in_band(f.row_a, f.column_a, a.low, a.high) && in_band(f.row_b, f.column_b, low, high);
  };
  return any_place(*frame, static_cast<std::int64_t>(b.begin) - static_cast<std::int64_t>(a.begin), meet, a.element);
}

bool contains(const StoragePart& outer, const StoragePart& inner) {
  if (inner.empty() || outer == inner) return true;
  if (inner.begin < outer.begin || inner.end > outer.end) return false;
  if (outer.gaps) return false;
  if (dense(outer)) return true;
  std::optional<Frame> frame = frame_of(outer, inner);
  if (!frame) return false;
  const auto within = [&](const Frame& f) {
    for (int k = 0; k < f.axes; ++k)
      if (f.at[k] < 0 || f.at[k] + f.b[k] > f.a[k]) return false;
    if (f.row_a < 0) return true;
    std::int64_t low = f.at[f.column_a] - (f.at[f.row_a] + f.b[f.row_a] - 1);
    std::int64_t high = f.at[f.column_a] + f.b[f.column_a] - 1 - f.at[f.row_a];
    const std::int64_t shift = f.row_b < 0 ? 0 : f.at[f.column_b] - f.at[f.row_b];
    if (f.row_a == f.row_b && f.column_a == f.column_b)
      low = std::max(low, inner.low + shift), high = std::min(high, inner.high + shift);
    if (f.row_b >= 0 && f.row_a == f.column_b && f.column_a == f.row_b)
      low = std::max(low, -inner.high - shift), high = std::min(high, -inner.low - shift);
    return low > high || (outer.low <= low && high <= outer.high);
  };
  const std::int64_t distance = static_cast<std::int64_t>(inner.begin) - static_cast<std::int64_t>(outer.begin);
  return distance % frame->stride[frame->axes - 1] == 0 && any_place(*frame, distance, within, outer.element);
}

std::string to_string(const StoragePart& part) {
  return "bytes " + std::to_string(part.begin) + " to " + std::to_string(part.end);
}

}  // namespace tessera
