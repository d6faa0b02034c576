// SPDX-License-Identifier: Apache-2.0
// A block array from the CPU to GPUs and back: `to` copies the contents, `gather` makes one array of the tiles.
#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const Scope gpus = accelerators();
  const BlockArray at_home = BlockArray::random_uniform({128, 128}, {32, 32}, 7, cpu());

  const BlockArray there = at_home.to(gpus);  // the contents too
  std::printf("%s -> %s\n", to_string(at_home.scope()).c_str(), to_string(there.scope()).c_str());
  check.expect(there.scope().inside(gpus) && there.tile_shape() == at_home.tile_shape(), "there, in the same tiles");

  const Array whole = there.gather(Device{});  // one array, on the CPU
  check.expect(whole.device() == Device{}, "here");
  check.expect(whole.to_vector<float>() == at_home.gather(Device{}).to_vector<float>(), "the same numbers");

  // Only as large, with no contents yet.
  BlockArray fresh = BlockArray::empty(at_home.shape(), at_home.tile_shape(), at_home.dtype(), gpus);
  fresh.fill(3);
  check.expect(sum(fresh).item<float>() == 3 * 128 * 128, "filled there");

  // From an array that is there already, and other tiles of it.
  const BlockArray tiled = BlockArray::from(whole, {50, 128}, gpus), again = tiled.retile({32, 32});
  check.expect(max(again - there).item<float>() == 0 && min(again - there).item<float>() == 0, "tiles do not matter");
  return check.wrong();
}
