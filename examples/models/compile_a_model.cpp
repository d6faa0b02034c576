// SPDX-License-Identifier: Apache-2.0
// How do I deploy a trained model?
// Load its file, compile() it for a device (with fusion, recording, and another precision), and verify it there.
#include <tessera/tessera.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

using namespace tessera;

auto network(std::uint64_t seed) {
  return setup(sequential(dense<64, 96>, BatchNorm{}, relu, Dropout{}, dense<96, 10>), {.seed = seed, .input = {64}});
}

int main() {
  const Device device = current_device();
  const Array x = random_normal({32, 64}, 3).eval();

  // This file stands for a model that was trained elsewhere.
  const auto file = std::filesystem::temp_directory_path() /
                    ("tessera-compile-a-model-" + std::to_string(::getpid()) + ".safetensors");
  save_model(network(1), file.string());
  auto model = network(2);
  load_model(model, file.string());
  std::filesystem::remove(file);
  const Array expected = model(x).eval();
  const auto error = [&](const Array& y) {
    return max(abs(y - expected)).item<float>() / max(abs(expected)).item<float>();
  };

  const Compiled fast = compile(model, {.device = device, .level = CompileLevel::aggressive});
  std::printf("%s\n", to_string(fast.report()).c_str());
  const bool good = error(fast(x)) < 1e-4f;

  // Compares each layer with a reference device, and the compiled model with the original.
  const Compiled verified = compile(model, {.level = CompileLevel::aggressive, .verify = true});
  std::printf("verified: largest error %s\n", verified.report().worst.value() < 1e-4 ? "below 1e-4" : "too large");

  return good ? 0 : 1;
}

// Output:
// compiled for ..., level aggressive, precision f32
// layer  kind         kernels  bytes  device  note
// 0      Dense              1  24960  ...
// 1      BatchNorm       in 0   1536  ...
// 2      Elementwise     in 0      0  ...
// 3      Dropout         in 0      0  ...
// 4      Dense              1   3880  ...
// ...
// verified: largest error below 1e-4
