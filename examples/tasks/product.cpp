// SPDX-License-Identifier: Apache-2.0
// How do I multiply block arrays?
// matmul() runs one task for each product of two tiles, on the devices of the tiles.
#include <cstdio>

#include <tessera/ops/product.h>

#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const auto scope = with({.scope = accelerators()});
  const BlockArray a = BlockArray::random_uniform({96, 64}, {32, 16}, 1),
                   b = BlockArray::random_uniform({64, 80}, {16, 40}, 2);

  const BlockArray c = matmul(a, b);
  std::printf("%s\n", c.where().c_str());

  const Array expected = matmul(a.gather(Device{}), b.gather(Device{}));
  const float error = max(abs(c.gather(Device{}) - expected)).item<float>();
  std::printf("the product on the CPU %s\n", error < 1e-4f ? "agrees" : "differs");
  check.expect(error < 1e-4f, "product");
  check.expect(c.scope().inside(accelerators()), "on the devices of its operands");
  return check.failures();
}

// Output:
// (96, 80) f32 in tiles of (32, 40):
//   ...: (0, 0) ...
// ...
// the product on the CPU agrees
