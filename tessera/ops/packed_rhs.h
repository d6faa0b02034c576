// SPDX-License-Identifier: Apache-2.0
// Packs the right factor once for several in-place products, which otherwise would each pack it.
#pragma once

#include "tessera/ops/linear_algebra.h"

namespace tessera::ops {

/// Whether products (m, n) += (m, k) (k, n) are faster on this device with a right factor that was packed by pack_rhs:
/// on CPUs, if k n is between 384^2 and 1024^2, and at least four products read the factor (docs/performance.md).
bool is_packing_worthwhile(Device device, std::int64_t m, std::int64_t n, std::int64_t k);

/// Packs b (k, n), of a float dtype, in panels of columns, as multiply_packed_into reads it on b's device. The result
/// is one-dimensional, f64 for f64, else f32, and up to one panel larger than k n elements.
Array pack_rhs(const Array& b);

/// Computes multiply_into(c, a, b, how) with `packed` from pack_rhs(b); the result is bitwise equal. Requires
/// is_packing_worthwhile for c and a, positive strides of c and a, and contiguous columns of c.
void multiply_packed_into(Array& c, const Array& a, const Array& packed, const Update& how = {});

}  // namespace tessera::ops
