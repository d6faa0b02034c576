// SPDX-License-Identifier: Apache-2.0
// Running sums, products, maxima and minima on the device. Internal to array/.
#pragma once

#include "tessera/array/array.h"
#include "tessera/array/axis_layout.h"

namespace tessera::detail {

/// What is accumulated along an axis.
enum class Running : std::uint8_t { sum, product, max, min };

/// Running sums of a contiguous array along an axis, computed and returned in the dtype `sums`. If `exclusive` is true,
/// each sum excludes its own element. `sums` is not a 16-bit float.
Array running_sum(const Array& a, const AxisLayout& axis, DType sums, bool exclusive, Running what = Running::sum);

/// The last of these running sums along an axis with at least one element. The extent of the axis is 1 in the result,
/// whose shape is (outer, 1, inner).
Array running_total(const Array& a, const AxisLayout& axis, DType sums, Running what);

}  // namespace tessera::detail
