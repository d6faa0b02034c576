// SPDX-License-Identifier: Apache-2.0
// Products of arrays as tasks.
#pragma once

#include "tessera/task/region.h"

namespace tessera {

/// c = a b (c as out), or c = c + a b (c as inout), in place, as a task of the region or of no region; shapes, dtypes
/// and errors are those of multiply_into (ops/linear_algebra.h), which the task throws:
///
///   matmul(r, out(c), in(a), in(b));
///
/// ArgumentError, at once: c is said to be something else, or a or b is not read only.
Task<void> matmul(Region& region, const Accessed& c, const Accessed& a, const Accessed& b);
Task<void> matmul(const Accessed& c, const Accessed& a, const Accessed& b);

/// ArgumentError if c is neither out nor inout, or a or b not in. Internal.
void check_product_modes(Access c, Access a, Access b);

}  // namespace tessera
