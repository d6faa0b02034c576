// SPDX-License-Identifier: Apache-2.0
// Which kernel computes a product.
#include "tessera/ops/kernels.h"

namespace tessera::ops {

const ProductChoice& choose_product_kernel(Device device, const ProductSpec& asked, std::array<std::int64_t, 4> sizes) {
  static constinit thread_local std::array<ProductChoice, 16> known;
  const auto [m, n, k, matrices] = sizes;
  const auto n_of = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  ProductChoice& here =
      known[hash_of({n_of(m) ^ n_of(n) << 16 ^ n_of(k) << 32 ^ n_of(matrices) << 48, asked.hash()}) >> 60];
  if (here.sizes == sizes && here.device == device && here.asked == asked) return here;
  const Tiles tiles = tiles_of(device);
  ProductChoice made{device, asked, choose_product(tiles, asked, m, n, k, matrices), sizes, {}};
  if (made.spec.packed)
    made.plan = choose_packed(tiles, made.spec, m, n, k, matrices);
  else
    made.spec.c_unit = made.spec.lower = false;
  static auto& products = *new KernelFamily<ProductSpec>(trace_product);
  static auto& packed_products = *new KernelFamily<PackedSpec>(trace_packed_product);
  made.kernel = made.spec.packed ? &packed_products(made.plan.spec) : &products(made.spec);
  return here = made;
}

}  // namespace tessera::ops
