// SPDX-License-Identifier: Apache-2.0
// A stable radix sort on the device. Internal to array/.
#pragma once

#include "tessera/array/array.h"

namespace tessera::detail {

/// Sorts the rows of a contiguous array, which have `extent` elements each. Returns the sorted elements, or if `order`
/// is true their positions in the rows as i64. Rows have at most 2^31 - 1 elements.
Array radix_sort(const Array& a, std::int64_t extent, bool order);

struct SortedKeys {
  Array keys;
  Array positions;  ///< i32: where each key was before
};
/// Sorts a one-dimensional array of u32 keys below 2^bits. There are at most 2^31 - 1 keys.
SortedKeys radix_sort_keys(const Array& keys, int bits);

}  // namespace tessera::detail
