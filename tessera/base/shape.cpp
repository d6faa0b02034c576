// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/shape.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

void check_shape(const char* operation, const Shape& shape) {
  std::int64_t n = 1;
  for (auto d : shape)
    if (d < 0 || (d != 0 && (__builtin_mul_overflow(n, d, &n) || n > most_elements)))
      fail<ShapeError>({.operation = operation,
                        .with = {{"shape", to_string(shape)}},
                        .wrong = "the shape is invalid",
                        .remedy = "Extents must not be negative, and their product must be at most 2^48"});
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) strides[i] = step, step *= shape[i];
  return strides;
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

std::string to_string(const Shape& shape) {
  std::string s = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + (shape.size() == 1 ? ",)" : ")");
}

Shape broadcast_shapes(const char* operation, const Shape& a, const Shape& b) {
  if (a == b) return a;
  Shape out(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      fail<ShapeError>({.operation = operation,
                        .with = {{"left", to_string(a)}, {"right", to_string(b)}},
                        .wrong = "the shapes do not broadcast: " + std::to_string(x) + " against " + std::to_string(y) +
                                 " in dimension " + std::to_string(i + 1) + " from the end",
                        .remedy = "Dimensions are aligned from the end and must be equal or 1"});
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  check_shape(operation, out);
  return out;
}

int normalise_axis(const char* operation, int axis, std::size_t rank) {
  const int r = static_cast<int>(rank);
  if (axis < -r || axis >= r)
    fail<ShapeError>({.operation = operation,
                      .with = {{"axis", std::to_string(axis)}, {"dimensions", std::to_string(r)}},
                      .wrong = "the axis is out of range",
                      .remedy = "Axes are numbered from 0, or from -1 for the last"});
  return axis < 0 ? axis + r : axis;
}

}  // namespace tessera
