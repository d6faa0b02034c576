// SPDX-License-Identifier: Apache-2.0
// How do I resume an interrupted training run?
// With .checkpoint and .resume, fit() continues from its last checkpoint. The result equals that of an uninterrupted
// run.
#include <tessera/nn/fit.h>
#include <tessera/nn/layers.h>
#include <tessera/nn/losses.h>
#include <tessera/nn/sequential.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

using namespace tessera;

using Net = Sequential<Dense, Elementwise, Dense>;
using Batch = std::tuple<Array, Array>;

/// Trains up to `epochs`, from the checkpoint if there is one.
auto train(std::uint64_t epochs, const std::string& checkpoint) {
  const Array x = random_uniform({256, 2}, 1, -1, 1).eval();
  const Array y = (sum(x, {1}) > 0).astype(DType::i32).eval();
  const Net net = setup(sequential(dense<2, 16>, relu, dense<16, 2>), {.seed = 1});
  return fit(net, batches(x, y, {.size = 64, .shuffle = true, .seed = 2}),
             {.loss = [](const Net& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); },
              .epochs = epochs,
              .checkpoint = checkpoint,
              .resume = !checkpoint.empty()});
}

int main() {
  const std::string file =
      std::filesystem::temp_directory_path() / ("tessera-resume-" + std::to_string(::getpid()) + ".safetensors");
  const auto unbroken = train(6, {}).model.get<0>().weight.to_vector<float>();
  train(2, file);  // simulates an interruption after two epochs
  const auto [model, result] = train(6, file);
  std::filesystem::remove(file);
  const bool same = model.get<0>().weight.to_vector<float>() == unbroken;
  std::printf("%llu steps; the weights are %s an uninterrupted run\n", static_cast<unsigned long long>(result.steps),
              same ? "identical to" : "different from");
  return same ? 0 : 1;
}

// Output:
// 24 steps; the weights are identical to an uninterrupted run
