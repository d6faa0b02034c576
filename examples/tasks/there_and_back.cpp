// SPDX-License-Identifier: Apache-2.0
// How do I move a block array to GPUs and back?
// to() copies the tiles to other devices. gather() copies them into one array.
#include <cstdio>

#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const Scope gpus = accelerators();
  const BlockArray on_cpu = BlockArray::random_uniform({128, 128}, {32, 32}, 7, cpu());

  const BlockArray on_gpus = on_cpu.to(gpus);
  std::printf("%s -> %s\n", to_string(on_cpu.scope()).c_str(), to_string(on_gpus.scope()).c_str());
  check.expect(on_gpus.scope().inside(gpus) && on_gpus.tile_shape() == on_cpu.tile_shape(), "same tiles on the GPUs");

  const Array whole = on_gpus.gather(Device{});  // one array on the CPU
  check.expect(whole.device() == Device{}, "gathered on the CPU");
  check.expect(whole.to_vector<float>() == on_cpu.gather(Device{}).to_vector<float>(), "same values");

  // A new array with the same shape and tiles. Nothing is copied.
  BlockArray fresh = BlockArray::empty(on_cpu.shape(), on_cpu.tile_shape(), on_cpu.dtype(), gpus);
  fresh.fill(3);
  check.expect(sum(fresh).item<float>() == 3 * 128 * 128, "filled on the GPUs");

  // Converts an ordinary array to tiles, and changes the tile size.
  const BlockArray tiled = BlockArray::from(whole, {50, 128}, gpus), again = tiled.retile({32, 32});
  check.expect(max(again - on_gpus).item<float>() == 0 && min(again - on_gpus).item<float>() == 0,
               "same values in other tiles");
  return check.failures();
}

// Output:
// cpu:0 -> ...
