// SPDX-License-Identifier: Apache-2.0
// A deferred expression over other memory of the same values.
#pragma once

#include <optional>

#include "tessera/array/array.h"

namespace tessera::detail {

/// Part of a deferred matrix whose operands are scalars and views of the contiguous matrix `from`, each as large as it:
/// its elements from (row, column) on, of the shape `part`, deferred over `to`, which has from's values from (to_row,
/// to_column) on. Nothing if `deferred` is anything else: computed, over other memory, over views in another order.
std::optional<Array> part_over(const Array& deferred, const Array& from, std::int64_t row, std::int64_t column,
                               const Shape& part, const Array& to, std::int64_t to_row, std::int64_t to_column);

}  // namespace tessera::detail
