// SPDX-License-Identifier: Apache-2.0
// How do I use block arrays and tasks on several processes or machines?
// Run it with mpirun -n 4. Without a launcher, it runs on one process.
#include <tessera/dist/map.h>
#include <tessera/dist/world.h>

#include <cstdio>

#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  dist::World world;
  const int last = world.size() - 1;

  // Every rank owns a part of the tiles, and computes that part of each result.
  const BlockArray a = BlockArray::random_uniform({64, 64}, {16, 16}, 1, world.all());
  const BlockArray product = matmul(a, transpose(a));
  check.expect(product.tile(0, 0).here() == (product.tile(0, 0).owner() == world.rank()), "each tile has an owner");
  const float total = sum(product).item<float>();  // on all ranks

  // Tasks run on the owner of the tile that they write. Tiles of other ranks are sent to it.
  BlockArray rows = BlockArray::zeros({4, 64}, {1, 64}, DType::f32, world.all(), by_rows());
  Region r;
  for (std::int64_t i = 0; i < 4; ++i)
    r.spawn([](const Array& tile, Array& row) { row.fill(max(tile).item<float>()); }, in(product.tile(i, i)),
            inout(rows.tile(i, 0)));
  // This task runs on the last rank. fetch() gives its result to all.
  Task<float> largest = r.spawn(
      {.scope = world.on(last)}, [](const BlockArray& x) { return max(x).item<float>(); }, rows);
  r.wait();
  check.expect(largest.fetch() == max(product).item<float>(), "the largest element is on the diagonal");

  // Ranks ask for items when they are ready.
  const std::vector<int> squares = dist::map(world, std::vector<int>{1, 2, 3, 4, 5}, [](int x) { return x * x; });
  check.expect(squares == std::vector<int>{1, 4, 9, 16, 25}, "results are in the order of the items");
  if (world.first()) std::printf("sum of all elements: %.0f\n", static_cast<double>(total));
  return check.failures();
}

// Output:
// sum of all elements: ...
