// SPDX-License-Identifier: Apache-2.0
// How do I see which device each tile is on?
// where() prints a map of the tiles. Tasks that use a tile run on its device.
#include <cstdio>

#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const Scope gpus = accelerators();
  BlockArray a = BlockArray::random_uniform({8, 8}, {4, 4}, 1, gpus);
  std::printf("%s\n", a.where().c_str());
  for (const Tile& tile : a.tiles()) {
    check.expect(gpus.contains(tile.device()), "tile is on a requested device");
    check.expect(tile.array().device() == tile.device(), "memory is on the device of the tile");
    // A task that may run on any of the devices runs where its data is.
    const Task<Device> ran = spawn(
        {.scope = gpus},
        [](Array& t) {
          t += 1;
          return this_task::device();
        },
        inout(tile));
    check.expect(ran.fetch() == tile.device(), "task ran on the device of its tile");
  }
  check.expect(min(a).item<float>() >= 1, "all tiles were changed");
  return check.failures();
}

// Output:
// (8, 8) f32 in tiles of (4, 4):
//   ...: (0, 0) ...
// ...
