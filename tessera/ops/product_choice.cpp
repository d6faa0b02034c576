// SPDX-License-Identifier: Apache-2.0
// Chooses the kernel for a product.
#include "tessera/array/elementwise.h"
#include "tessera/device/context.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/kernel_backend.h"
#include "tessera/executor/executor.h"
#include "tessera/ops/kernels.h"

namespace tessera::ops {

const ProductChoice& choose_product_kernel(Device device, const ProductSpec& asked, std::array<std::int64_t, 4> sizes) {
  static constinit thread_local std::array<ProductChoice, 16> all[2];
  const auto [m, n, k, matrices] = sizes;
  const auto n_of = [](std::int64_t v) { return static_cast<std::uint64_t>(v); };
  // If all threads are busy with tasks, a single block computes the whole product: several blocks would each pack the
  // data that all of them read. Large products are still split, so that threads that become idle can help.
  const bool one_thread = asked.update && blocks_are_vectors(kernel_backend(device)) &&
                          m * n * k * matrices <= 1 << 24 && executor::Executor::is_saturated();
  auto& known = all[one_thread];
  ProductChoice& here =
      known[hash_of({n_of(m) ^ n_of(n) << 16 ^ n_of(k) << 32 ^ n_of(matrices) << 48, asked.hash()}) >> 60];
  if (here.sizes == sizes && here.device == device && here.asked == asked) return here;
  Tiles tiles = tiles_of(device);
  if (one_thread) tiles.compute_units = 1;
  ProductChoice made{device, asked, choose_product(tiles, asked, m, n, k, matrices), sizes, {}};
  if (made.spec.packed)
    made.plan = choose_packed(tiles, made.spec, m, n, k, matrices);
  else
    made.spec.c_unit = made.spec.lower = false;
  made.spec.tf32 = false;
  if (made.spec.stages == 0) made.spec.whole_vectors = made.spec.out_vectors = false;
  static auto& products = *new KernelFamily<ProductSpec>(trace_product);
  static auto& packed_products = *new KernelFamily<PackedSpec>(trace_packed_product);
  made.kernel = made.spec.packed ? &packed_products(made.plan.spec) : &products(made.spec);
  return here = made;
}

}  // namespace tessera::ops
