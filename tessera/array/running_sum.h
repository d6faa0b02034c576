// SPDX-License-Identifier: Apache-2.0
// Running sums on the device. Internal to array/.
#pragma once

#include "tessera/array/array.h"
#include "tessera/array/axis_layout.h"

namespace tessera::detail {

/// Running sums of a contiguous array along an axis, computed and returned in the dtype `sums`. If `exclusive` is true,
/// each sum excludes its own element.
Array running_sum(const Array& a, const AxisLayout& axis, DType sums, bool exclusive);

}  // namespace tessera::detail
