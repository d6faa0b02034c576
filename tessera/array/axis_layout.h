// SPDX-License-Identifier: Apache-2.0
// Splits the shape of a contiguous array at one axis. Internal to array/.
#pragma once

#include "tessera/base/shape.h"

namespace tessera {
class Array;
}

namespace tessera::detail {

/// A contiguous array seen as three dimensions (outer, extent, inner), where `extent` is the extent of the axis.
struct AxisLayout {
  std::int64_t outer = 1, extent = 1, inner = 1;
  AxisLayout(const Shape& shape, std::size_t axis) : extent(shape[axis]) {
    for (std::size_t d = 0; d < axis; ++d) outer *= shape[d];
    for (std::size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  }
};

/// A copy of a contiguous array with the elements along `axis` in reverse order.
Array reversed(const Array& a, const AxisLayout& axis);

}  // namespace tessera::detail
