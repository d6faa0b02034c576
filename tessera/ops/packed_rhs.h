// SPDX-License-Identifier: Apache-2.0
// Packs the right factor once for several in-place products. Otherwise each product would pack it.
#pragma once

#include "tessera/ops/linear_algebra.h"

namespace tessera::ops {

/// True if products (m, n) += (m, k) (k, n) are faster on this device when pack_rhs has packed the right factor. This
/// is the case on CPUs if k n is between 384^2 and 1024^2, and at least four products read the factor
/// (docs/performance.md).
bool is_packing_worthwhile(Device device, std::int64_t m, std::int64_t n, std::int64_t k);

/// Packs b (k, n) in panels of columns for multiply_packed_into on b's device. b has a float dtype. The result is
/// one-dimensional, with up to one panel more than k n elements. Its dtype is f64 if b is f64, otherwise f32.
Array pack_rhs(const Array& b);

/// Computes multiply_into(c, a, b, how) with `packed` from pack_rhs(b). The results are bit-identical. Requires that
/// is_packing_worthwhile is true for c and a, that c and a have positive strides, and that the columns of c are
/// contiguous.
void multiply_packed_into(Array& c, const Array& a, const Array& packed, const Update& how = {});

}  // namespace tessera::ops
