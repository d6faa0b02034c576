// SPDX-License-Identifier: Apache-2.0
// A product of block arrays, a new one: a task for each product of two tiles, on the devices that have them. Nothing in
// it speaks of devices.
#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const auto in_force = with({.scope = accelerators()});
  const BlockArray a = BlockArray::random_uniform({96, 64}, {32, 16}, 1),
                   b = BlockArray::random_uniform({64, 80}, {16, 40}, 2);

  const BlockArray c = matmul(a, b);
  std::printf("%s\n", c.where().c_str());

  const Array expected = matmul(a.gather(Device{}), b.gather(Device{}));
  const float off = max(abs(c.gather(Device{}) - expected)).item<float>();
  std::printf("differs from the product on the CPU by at most %g\n", static_cast<double>(off));
  check.expect(off < 1e-4f, "the product");
  check.expect(c.scope().inside(accelerators()), "where its operands are");
  return check.wrong();
}
