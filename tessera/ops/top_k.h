// SPDX-License-Identifier: Apache-2.0
// Internal. The largest elements of a row, for sampling tokens on the device. Larger elements come first, then smaller
// indices. NaN and infinity are equal and larger than all other elements. -0 equals 0. The results are therefore the
// same on every device.
#pragma once

#include "tessera/array/array.h"

namespace tessera::ops {

/// The largest `k` that top_k supports on a device.
std::int64_t most_top_k(Device device);

/// Returns the `k` largest elements of a row x, f32 (n,) or (1, n), in ascending order of their indices. The result is
/// i32 (k, 2): the bits of each element and its index. Throws DtypeError or ShapeError if x is not
/// such a row, and ArgumentError unless k is between 1 and the smaller of n and most_top_k.
Array top_k(const Array& x, std::int64_t k);

/// Returns the index of the largest element of a row x, f32 (n,) or (1, n). The result is i32 (3,): the index, or -1 if
/// the element is NaN or infinite; the bits of the element; its index. Throws DtypeError or ShapeError if x is not such
/// a row or is empty.
Array finite_argmax(const Array& x);

}  // namespace tessera::ops
