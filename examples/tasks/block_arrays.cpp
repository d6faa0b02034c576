// SPDX-License-Identifier: Apache-2.0
// How do I spread an array over several devices?
// A BlockArray is an array in tiles, each on one device. Its values do not depend on the tiling or on the devices.
#include <cmath>
#include <cstdio>

#include "accelerators.h"

using namespace tessera;

int main() {
  Checks check;
  const Scope gpus = accelerators();

  // Puts all tiles on one device. `with` sets the default scope.
  {
    const auto scope = with({.scope = gpus.devices().front()});
    const BlockArray uniform = BlockArray::random_uniform({128, 128}, {32, 32}, 1);
    const BlockArray ones = BlockArray::ones({128, 128}, {32, 32}), zeros = BlockArray::zeros({128, 128}, {32, 32});
    const BlockArray normal = BlockArray::random_normal({128, 128}, {32, 32}, 1);
    for (const BlockArray& a : {uniform, ones, zeros, normal})
      check.expect(a.scope() == Scope(gpus.devices().front()), "all tiles on one device");
    check.expect(sum(ones).item<float>() == 128 * 128 && sum(zeros).item<float>() == 0, "sums of ones and zeros");
    const float mean_of = mean(uniform).item<float>(), largest = max(uniform).item<float>();
    check.expect(mean_of > 0.48f && mean_of < 0.52f && largest < 1, "uniform distribution");
    check.expect(std::abs(mean(normal).item<float>()) < 0.05f, "normal distribution");
  }

  // Uses all devices: block-cyclic by default, by rows, or with your own function.
  const BlockArray everywhere = BlockArray::random_uniform({256, 256}, {64, 64}, 1, gpus);
  std::printf("%s\n", everywhere.where().c_str());
  check.expect(everywhere.scope() == gpus || gpus.devices().size() > 16, "every device has tiles");
  const BlockArray rows = BlockArray::zeros({256, 256}, {64, 64}, DType::f32, gpus, by_rows());
  for (std::int64_t j = 0; j < 4; ++j)
    check.expect(rows.device_of(2, j) == rows.device_of(2, 0), "each row of tiles on one device");
  const Device last = gpus.devices().back();
  const BlockArray custom = BlockArray::ones({192, 192}, {32, 32}, DType::f32, gpus,
                                             [](const Shape& tile, const Shape&, const std::vector<Device>& devices) {
                                               return tile[0] == tile[1] ? devices.back() : devices.front();
                                             });
  check.expect(custom.device_of(3, 3) == last, "diagonal tiles on the chosen device");

  // Random numbers do not depend on the tiling or on the devices.
  const BlockArray on_cpu = BlockArray::random_uniform({256, 256}, {100, 30}, 1, cpu());
  check.expect(everywhere.gather(Device{}).to_vector<float>() == on_cpu.gather(Device{}).to_vector<float>(),
               "numbers depend only on the seed");
  return check.failures();
}

// Output:
// (256, 256) f32 in tiles of (64, 64):
//   ...: (0, 0) ...
// ...
