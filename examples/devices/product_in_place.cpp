// SPDX-License-Identifier: Apache-2.0
// Products into a block array that is there: as one call, and as a loop over tiles in a region, where what each task
// reads and writes makes the order.
#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const auto in_force = with({.scope = accelerators()});
  const BlockArray a = BlockArray::random_uniform({64, 64}, {16, 16}, 1),
                   b = BlockArray::random_uniform({64, 64}, {16, 16}, 2);
  BlockArray c = BlockArray::zeros({64, 64}, {16, 16});
  const Array expected = matmul(a.gather(Device{}), b.gather(Device{}));
  const auto off = [&](const BlockArray& got) { return max(abs(got.gather(Device{}) - expected)).item<float>(); };

  matmul_into(c, a, b, 1, 0);  // c = a b; by default c = c + a b
  check.expect(off(c) < 1e-4f, "as one call");

  c.fill(0);
  {
    Region r({.scope = accelerators()});
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 4; ++j)
        for (std::int64_t k = 0; k < 4; ++k)
          matmul(r, k == 0 ? out(c.tile(i, j)) : inout(c.tile(i, j)), in(a.tile(i, k)), in(b.tile(k, j)));
  }  // waits, and throws what a task threw
  std::printf("64 products of tiles on %s; off by %g\n", to_string(c.scope()).c_str(), static_cast<double>(off(c)));
  check.expect(off(c) < 1e-4f, "as a loop over tiles");
  return check.wrong();
}
