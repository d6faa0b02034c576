// SPDX-License-Identifier: Apache-2.0
// How do I write my own algorithm over tiles?
// Spawn tasks on tiles in a Region. Their order follows from what each task reads and writes. Here c = a b, in place.
#include <cstdio>

#include <tessera/ops/product.h>

#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const auto scope = with({.scope = accelerators()});
  const BlockArray a = BlockArray::random_uniform({64, 64}, {16, 16}, 1),
                   b = BlockArray::random_uniform({64, 64}, {16, 16}, 2);
  BlockArray c = BlockArray::zeros({64, 64}, {16, 16});
  const Array expected = matmul(a.gather(Device{}), b.gather(Device{}));
  const auto error = [&](const BlockArray& got) { return max(abs(got.gather(Device{}) - expected)).item<float>(); };

  matmul_into(c, a, b, 1, 0);  // the same in one call: c = 1 a b + 0 c
  check.expect(error(c) < 1e-4f, "one call");

  c.fill(0);
  {
    Region r({.scope = accelerators()});
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 4; ++j)
        for (std::int64_t k = 0; k < 4; ++k)
          matmul(r, k == 0 ? out(c.tile(i, j)) : inout(c.tile(i, j)), in(a.tile(i, k)), in(b.tile(k, j)));
  }  // waits, and throws the first error of a task
  std::printf("64 products of tiles on %s: %s\n", to_string(c.scope()).c_str(), error(c) < 1e-4f ? "right" : "wrong");
  check.expect(error(c) < 1e-4f, "loop over tiles");
  return check.failures();
}

// Output:
// 64 products of tiles on ...: right
