// SPDX-License-Identifier: Apache-2.0
// Products of arrays as tasks.
#pragma once

#include "tessera/task/region.h"

namespace tessera {

/// Computes c = a b (c passed as out) or c = c + a b (c passed as inout) in place, as a task of the region or outside
/// of regions. The task throws the errors of multiply_into (ops/linear_algebra.h) for shapes and dtypes.
///
///   matmul(r, out(c), in(a), in(b));
///
/// Throws ArgumentError immediately if c is not out or inout, or if a or b is not in.
Task<void> matmul(Region& region, const Accessed& c, const Accessed& a, const Accessed& b);
Task<void> matmul(const Accessed& c, const Accessed& a, const Accessed& b);

/// Throws ArgumentError if c is neither out nor inout, or a or b not in. Internal.
void check_product_modes(Access c, Access a, Access b);

}  // namespace tessera
