// SPDX-License-Identifier: Apache-2.0
// Times training steps of five networks, with a Trainer, which records the steps, and with a hand-written loop.
// tools/compare_training_with_pytorch.py has the same networks in PyTorch and times both alternately.
//
// Usage: training [--kernels] [PART OF A NAME]. --kernels also prints the time of each kernel, grouped by number of
// elements. training --serve reads lines "NAME trainer|loop SECONDS" and answers each with the microseconds per step
// and the peak memory of a step in bytes, excluding the memory that stays allocated between steps. The exit status is 2
// if no network matches the name.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "tessera/device/context.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/launch_interceptor.h"
#include "tessera/ir/node.h"
#include "tessera/nn/clip.h"
#include "tessera/nn/images.h"
#include "tessera/nn/llama_network.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/norms.h"
#include "tessera/nn/optimiser.h"
#include "tessera/nn/pack.h"
#include "tessera/nn/sequential.h"
#include "tessera/nn/trainer.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

// The shape of the model in models/.
constexpr std::int64_t vocabulary = 2048;
constexpr LlamaShape language{
    .vocabulary = vocabulary, .layers = 5, .width = 192, .heads = 6, .key_heads = 2, .hidden = 512, .dropout = 0.05};

struct Network {
  std::function<void()> trainer, loop;  // each runs one step
};

template <class Model, class MakeOptimiser>
Network network(const Model& model, const Array& x, const Array& y, MakeOptimiser make, double clip = 0) {
  using Batch = std::tuple<Array, Array>;
  const auto loss = [](const Model& m, const Batch& batch) {
    const Array logits = m(std::get<0>(batch));
    return cross_entropy(logits.reshape({-1, logits.shape(-1)}), std::get<1>(batch));
  };
  const Batch batch{x, y};
  TrainerOptions options{.seed = 1};
  if (clip > 0) options.clip_norm = clip;
  auto trainer = std::make_shared<Trainer<Model, Batch>>(model, make(model), loss, options);
  auto own = std::make_shared<Model>(clone(model));
  pack(*own, make(*own).patterns());
  auto optimiser = std::make_shared<decltype(make(*own))>(make(*own));
  return {[=] { trainer->step(batch); },
          [=] {
            const Training mode({.seed = 1, .counter = Counter(optimiser->steps())});
            auto [value, gradient] = value_and_grad([&](const Model& m) { return loss(m, batch); })(*own);
            if (clip > 0) clip_gradient_norm(gradient, clip);
            optimiser->step(*own, gradient);
            mode.apply(*own);
          }};
}

Array classes(std::int64_t count, std::uint32_t of) { return (random_bits({count}, 2) % of).astype(DType::i32).eval(); }

const std::vector<std::pair<std::string, std::function<Network()>>>& networks() {
  static const auto adam = [](const auto& m) { return Adam(m, {.lr = 1e-3}); };
  static const std::vector<std::pair<std::string, std::function<Network()>>> all = {
      {"dense",
       [] {
         const auto model = setup(sequential(dense<784, 512>, relu, dense<512, 512>, relu, dense<512, 10>));
         return network(model, random_uniform({128, 784}, 1).eval(), classes(128, 10), adam);
       }},
      {"convolution",
       [] {
         const auto model =
             setup(Sequential{Conv2d{.out = 16, .kernel = 3}, Relu{}, MaxPool2d{}, Conv2d{.out = 32, .kernel = 3},
                              Relu{}, MaxPool2d{}, Flatten{}, Dense{.outputs = 10}},
                   {.input = {1, 28, 28}});
         return network(model, random_uniform({128, 1, 28, 28}, 1).eval(), classes(128, 10), adam);
       }},
      {"convolutions-32",
       [] {
         const Conv2d same{.out = 32, .kernel = 3, .padding = 1};
         const auto model = setup(Sequential{same, Relu{}, same, Relu{}, same, Relu{}, same, Relu{}, same, Relu{},
                                             Flatten{}, Dense{.outputs = 10}},
                                  {.input = {32, 32, 32}});
         return network(model, random_uniform({32, 32, 32, 32}, 1).eval(), classes(32, 10), adam);
       }},
      {"residual",
       [] {
         const auto block = [](std::int64_t channels) {
           const Conv2d same{.out = channels, .kernel = 3, .padding = 1, .with_bias = false};
           return Residual{Sequential{same, BatchNorm{}, Relu{}, same, BatchNorm{}}};
         };
         const auto first = [](std::int64_t channels, std::int64_t stride) {
           return Conv2d{.out = channels, .kernel = 3, .stride = stride, .padding = 1, .with_bias = false};
         };
         const auto model = setup(
             Sequential{first(32, 1), BatchNorm{}, Relu{}, block(32), Relu{}, block(32), Relu{}, first(64, 2),
                        BatchNorm{}, Relu{}, block(64), Relu{}, AveragePool2d{16}, Flatten{}, Dense{.outputs = 10}},
             {.input = {3, 32, 32}});
         return network(model, random_uniform({32, 3, 32, 32}, 1).eval(), classes(32, 10), adam);
       }},
      {"language", [] {
         const auto model = setup(LlamaNetwork{.shape = language}, {.seed = 1});
         const Array ids = classes(16 * 256, vocabulary);
         return network(
             model, ids.reshape({16, 256}), ids,
             [](const LlamaNetwork& m) {
               return AdamW(m, {.lr = 3e-3,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .weight_decay = 0.1,
                                .groups = {{.pattern = "*norm.weight", .weight_decay = 0.0}}});
             },
             1.0);
       }}};
  return all;
}

/// Returns the microseconds per step, measured for `seconds` after a warm-up of 60 ms.
double time_of(const std::function<void()>& step, double seconds) {
  const auto steps_for = [&](double limit) {
    const auto start = Clock::now();
    double spent = 0;
    long count = 0;
    do {
      step();
      spent = std::chrono::duration<double>(Clock::now() - start).count();
      ++count;
    } while (spent < limit);
    return spent * 1e6 / static_cast<double>(count);
  };
  steps_for(0.06);
  return steps_for(seconds);
}

/// Counts launches and the bytes of their arguments, and waits for each launch to time it.
class Launches : public LaunchInterceptor {
 public:
  Launches() { thread_context.launch_interceptor = this; }
  ~Launches() override { thread_context.launch_interceptor = nullptr; }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  void launched(const Kernel& kernel, Device device, std::array<std::uint64_t, 3>,
                std::span<const LaunchArgument> arguments, const std::function<void()>& launch) override {
    std::string name = kernel.function().name + " of";
    for (const LaunchArgument& a : arguments)
      if (a.view.storage) name += " " + std::to_string(a.view.elements);
    Row& row = rows[name];
    const auto start = Clock::now();
    launch();
    current_queue(device).finish();
    row.us += std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    ++row.launches;
    for (const LaunchArgument& a : arguments)
      if (a.view.storage) row.bytes += a.view.bytes();
  }
  struct Row {
    double us = 0, launches = 0, bytes = 0;
  };
  std::map<std::string, Row> rows;
};

void describe(const std::string& name, const Network& n, bool kernels) {
  for (int i = 0; i < 5; ++i) n.trainer(), n.loop();
  const double trainer = time_of(n.trainer, 1), loop = time_of(n.loop, 1);
  constexpr int steps = 20;
  const Launches seen;
  for (int i = 0; i < steps; ++i) n.loop();
  Launches::Row all;
  for (const auto& [kernel, row] : seen.rows) all.us += row.us, all.launches += row.launches, all.bytes += row.bytes;
  std::printf("%-14s trainer %9.1f us  own loop %9.1f us  %5.0f launches of %8.2f MB and %9.1f us in kernels\n",
              name.c_str(), trainer, loop, all.launches / steps, all.bytes / steps / 1e6, all.us / steps);
  if (!kernels) return;
  std::vector<std::pair<std::string, Launches::Row>> rows(seen.rows.begin(), seen.rows.end());
  std::ranges::sort(rows, [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  for (const auto& [kernel, row] : rows)
    std::printf("  %9.1f us %5.1f launches %8.3f MB %6.1f GB/s  %s\n", row.us / steps, row.launches / steps,
                row.bytes / steps / 1e6, row.bytes / row.us / 1e3, kernel.c_str());
}

int serve() {
  std::map<std::string, Network> known;
  for (const auto& [name, make] : networks()) std::printf("%s ", name.c_str());
  std::printf("\n");
  std::fflush(stdout);
  std::string name, how;
  double seconds = 0;
  while (std::cin >> name >> how >> seconds) {
    if (!known.contains(name)) {
      const auto made = std::ranges::find(networks(), name, [](const auto& n) { return n.first; });
      if (made == networks().end()) return std::fprintf(stderr, "training: no network %s\n", name.c_str()), 2;
      known[name] = made->second();
    }
    const Network& n = known[name];
    const auto& step = how == "loop" ? n.loop : n.trainer;
    const double us = time_of(step, seconds);
    const Device cpu{Backend::cpu, 0};
    trim(cpu), reset_peak_memory(cpu);
    const std::uint64_t before = memory_stats(cpu).live_bytes;
    step();
    std::printf("%.3f %llu\n", us, static_cast<unsigned long long>(memory_stats(cpu).peak_bytes - before));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  bool kernels = false, found = false;
  std::string only;
  const DeviceScope scope(Device{Backend::cpu, 0});
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--serve") return serve();
    word == "--kernels" ? void(kernels = true) : void(only = word);
  }
  std::printf("%s\n", device_info(Device{Backend::cpu, 0}).name.c_str());
  for (const auto& [name, make] : networks()) {
    if (name.find(only) == std::string::npos) continue;
    found = true;
    describe(name, make(), kernels);
  }
  return found ? 0 : 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "training: %s\n", e.what());
  return 1;
}
