// SPDX-License-Identifier: Apache-2.0
// Where each tile is, and where tasks that use it run: for tests, and for who wonders.
#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const Scope gpus = accelerators();
  BlockArray a = BlockArray::random_uniform({8, 8}, {4, 4}, 1, gpus);
  std::printf("%s\n", a.where().c_str());
  for (const Tile& tile : a.tiles()) {
    check.expect(gpus.contains(tile.device()), "one of the devices asked for");
    check.expect(tile.array().device() == tile.device(), "and its memory is there");
    // A task that may run on any of them runs where its data is.
    const Task<Device> ran = spawn(
        {.scope = gpus},
        [](Array& t) {
          t += 1;
          return this_task::device();
        },
        inout(tile));
    check.expect(ran.fetch() == tile.device(), "the task went to the tile");
  }
  check.expect(min(a).item<float>() >= 1, "all were changed");
  return check.wrong();
}
