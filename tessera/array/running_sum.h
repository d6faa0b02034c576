// SPDX-License-Identifier: Apache-2.0
// Running sums on the device. Inside array/ only.
#pragma once

#include "tessera/array/array.h"
#include "tessera/array/axis_layout.h"

namespace tessera::detail {

/// Of a contiguous array along an axis, summed in `sums`, which the result has; `exclusive`: of what is before each
/// element.
Array running_sum(const Array& a, const AxisLayout& axis, DType sums, bool exclusive);

}  // namespace tessera::detail
