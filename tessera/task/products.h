// SPDX-License-Identifier: Apache-2.0
// Matrix products of arrays as tasks.
#pragma once

#include "tessera/task/region.h"

namespace tessera {

/// Creates a task that computes a matrix product in place: c = a b if c is passed as out, c = c + a b if it is passed
/// as inout. The task belongs to the given region, or to none. For wrong shapes and dtypes, the task throws the errors
/// of multiply_into (ops/linear_algebra.h).
///
///   matmul(r, out(c), in(a), in(b));
///
/// Throws ArgumentError immediately if c is not passed as out or inout, or if a or b is not passed as in.
Task<void> matmul(Region& region, const Accessed& c, const Accessed& a, const Accessed& b);
Task<void> matmul(const Accessed& c, const Accessed& a, const Accessed& b);

/// Throws ArgumentError if c is not out or inout, or if a or b is not in. Internal.
void check_product_modes(Access c, Access a, Access b);

}  // namespace tessera
