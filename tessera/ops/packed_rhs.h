// SPDX-License-Identifier: Apache-2.0
// A right factor of several products in place, packed once for all of them: by itself each packs it again.
#pragma once

#include "tessera/ops/linear_algebra.h"

namespace tessera::ops {

/// Whether products (m, n) += (m, k) (k, n) on this device run faster with a right factor that is packed before: on the
/// CPU, if k n is some hundred thousand, and four products or more read it (docs/performance.md).
bool is_packing_worthwhile(Device device, std::int64_t m, std::int64_t n, std::int64_t k);

/// b (k, n), of floats, in panels of columns, as multiply_packed_into reads it on b's device: one dimension of up to a
/// panel more than k n elements, f64 of f64, else f32.
Array pack_rhs(const Array& b);

/// multiply_into(c, a, b, how), of the same bits, with `packed` from pack_rhs(b), where is_packing_worthwhile for c and
/// a: c and a are views with strides above 0, c's columns side by side.
void multiply_packed_into(Array& c, const Array& a, const Array& packed, const Update& how = {});

}  // namespace tessera::ops
