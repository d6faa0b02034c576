// SPDX-License-Identifier: Apache-2.0
// A trained model made ready for use: loaded, compiled for a device, verified there.
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

  // Load what was trained elsewhere, and compile it for this device.
  const auto file = std::filesystem::temp_directory_path() /
                    ("tessera-compile-a-model-" + std::to_string(::getpid()) + ".safetensors");
  save_model(network(1), file.string());
  auto model = network(2);
  load_model(model, file.string());
  std::filesystem::remove(file);
  const Array wanted = model(x).eval();
  const auto apart = [&](const Array& y) {
    return max(abs(y - wanted)).item<float>() / max(abs(wanted)).item<float>();
  };

  const Compiled fast = compile(model, {.device = device, .level = CompileLevel::aggressive});
  std::printf("%s\n", to_string(fast.report()).c_str());
  const bool good = apart(fast(x)) < 1e-4f;

  // Each layer on the device beside a reference, and the whole beside the model that was given.
  const Compiled verified = compile(model, {.level = CompileLevel::aggressive, .verify = true});
  std::printf("verified: differs by %.2g\n", verified.report().worst.value());

  return good ? 0 : 1;
}
