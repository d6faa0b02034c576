// SPDX-License-Identifier: Apache-2.0
// A trained model made ready for use: loaded, compiled for a device, in 16 bits and 8, verified, timed.
#include <tessera/tessera.h>

#include <algorithm>
#include <chrono>
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
  const auto file = std::filesystem::temp_directory_path() / "tessera-compile-a-model.safetensors";
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
  bool good = apart(fast(x)) < 1e-4f;

  // Half the bytes, or a quarter.
  for (const CompilePrecision precision : {CompilePrecision::f16, CompilePrecision::mixed, CompilePrecision::q8_0}) {
    const Compiled narrow = compile(model, {.level = CompileLevel::aggressive, .precision = precision});
    const float off = apart(narrow(x));
    std::printf("%-5s differs by %.2g of the largest number\n", std::string(compile_precision_name(precision)).c_str(),
                static_cast<double>(off));
    good = good && off < 0.1f;
  }
  // Training computes with copies of 16 bits, too: weights and gradients stay f32.
  MixedPrecision precision(model, {.dtype = DType::bf16});
  const auto [loss, gradient] = precision.value_and_grad([&](const auto& m) { return mean(m(x) * m(x)); })(model);
  good = good && gradient.template get<0>().weight.dtype() == DType::f32;

  // Each layer on the device beside a reference, and the whole beside the model that was given.
  const Compiled verified = compile(model, {.level = CompileLevel::aggressive, .verify = true});
  std::printf("verified: differs by %.2g\n", verified.report().worst.value());

  // Time: warm, and with the result waited for.
  const auto median_us = [&](const auto& call) {
    std::vector<double> times;
    for (int i = 0; i < 30; ++i) {
      const auto start = std::chrono::steady_clock::now();
      call();
      Queue::of(device).finish();
      times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    std::ranges::nth_element(times, times.begin() + 15);
    return times[15];
  };
  const double model_us = median_us([&] { model(x).eval(); }), fast_us = median_us([&] { fast(x); });
  std::printf("on %s: the model %.0f us, compiled %.0f us\n", to_string(device).c_str(), model_us, fast_us);
  return good ? 0 : 1;
}
