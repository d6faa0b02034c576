// SPDX-License-Identifier: Apache-2.0
// An array seen along one axis. Inside array/ only.
#pragma once

#include "tessera/base/shape.h"

namespace tessera {
class Array;
}

namespace tessera::detail {

/// Contiguous elements as (outer, extent, inner), the extent being that of the axis.
struct AxisLayout {
  std::int64_t outer = 1, extent = 1, inner = 1;
  AxisLayout(const Shape& shape, std::size_t axis) : extent(shape[axis]) {
    for (std::size_t d = 0; d < axis; ++d) outer *= shape[d];
    for (std::size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  }
};

/// A copy of a contiguous array with its rows along `axis` in the opposite order.
Array reversed(const Array& a, const AxisLayout& axis);

}  // namespace tessera::detail
