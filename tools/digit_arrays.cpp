// SPDX-License-Identifier: Apache-2.0
// usage: digit_arrays SEED STEPS BATCH FILE
//
// Writes the training and test data of `tessera train digits` with this seed as safetensors, for
// tools/compare_digits_with_pytorch.py: x (STEPS * BATCH, 1, 28, 28) f32, y i32, held_out_x and held_out_y.
#include <cstdio>
#include <cstdlib>

#include "tessera/array/safetensors.h"
#include "tessera/device/context.h"
#include "train/digits.h"

int main(int argc, char** argv) try {
  using namespace tessera;
  if (argc != 5) return std::fprintf(stderr, "usage: digit_arrays SEED STEPS BATCH FILE\n"), 2;
  const DeviceScope scope(Device{Backend::cpu, 0});
  const app::Digits digits = app::load_digits(app::digits_folder());
  const std::int64_t count = std::atoll(argv[2]) * std::atoll(argv[3]);
  const auto [x, y] =
      app::digit_samples(digits.train, digits.train_labels, std::strtoull(argv[1], nullptr, 10), 0, count);
  const auto [held_out_x, held_out_y] =
      app::digit_samples(digits.held_out, digits.held_out_labels, app::held_out_seed, 0, 10'000);
  save_safetensors(argv[4], {{"x", x}, {"y", y}, {"held_out_x", held_out_x}, {"held_out_y", held_out_y}});
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "digit_arrays: %s\n", e.what());
  return 1;
}
