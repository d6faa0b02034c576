// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/packed_rhs.h"

#include <algorithm>

#include "tessera/array/operation.h"
#include "tessera/device/placement/kernel_backend.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/matrix_block.h"

namespace tessera::ops {

bool is_packing_worthwhile(Device device, std::int64_t m, std::int64_t n, std::int64_t k) {
  // Larger products pack both factors themselves, which takes at most 1 % of their time.
  constexpr std::int64_t least = 384 * 384, most = 1024 * 1024;
  return k * n >= least && k * n < most && std::min({m, n, k}) > 16 && blocks_are_vectors(kernel_backend(device)) &&
         tiles_of(device).vectors;
}

Array pack_rhs(const Array& b) {
  const std::int64_t k = b.shape(0), n = b.shape(1), along_k = b.strides()[0], along_n = b.strides()[1];
  const DType t = b.dtype(), sum = t == DType::f64 ? DType::f64 : DType::f32;
  ProductSpec asked{t, t, sum, t};
  asked.update = asked.b_packed = true;
  // The layout of panels is the same for any number of rows.
  const PackedPlan plan = choose_product_kernel(b.device(), asked, {n, n, k, 1}).plan;
  PackSpec how = plan.pack_b;
  how.unit_outer = along_n == 1, how.unit_k = along_k == 1;
  return pack_factor(b.view(), how, n, k, plan.depth, {along_n, along_k});
}

void multiply_packed_into(Array& c, const Array& a, const Array& packed, const Update& how) {
  const detail::Operation operation("multiply_into", c, a, packed);
  const BufferView left = a.view(), right = packed.view(), to = c.view_for_writing();
  update(matrix_block_of(c, to), matrix_block_of(a, left), {&right, a.shape(1), c.shape(1), 0, c.shape(1), 1},
         how.alpha, how.beta, how.lower, true);
  operation.finish_in_place(c, [&] {
    return Attributes{{"alpha", how.alpha}, {"beta", how.beta}, {"lower", how.lower}};
  });
}

}  // namespace tessera::ops
