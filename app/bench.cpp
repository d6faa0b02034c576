// SPDX-License-Identifier: Apache-2.0
// `tessera bench`: times a network on several devices. Runs are warmed up, and each call is synchronised. The runs of
// different devices are interleaved, so that other load on the machine affects all of them equally. Prints medians,
// quartiles, and a comparison with the limit that follows from the measured speed of the device.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "arguments.h"
#include "clock.h"
#include "command.h"
#include "measure.h"
#include "terminal.h"
#include "tessera/base/printable.h"
#include "tessera/tessera.h"

namespace tessera::app {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct BenchArguments {
  std::string layers = "784,512,512,10", devices, precision = "f32";
  std::int64_t batch = 1;
  double seconds = 2;
  bool json = false;
};

/// Dense layers with relu between them.
struct Network {
  std::vector<Dense> layers;
  Array operator()(const Array& x) const {
    Array y = x;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      y = layers[i](y);
      if (i + 1 < layers.size()) y = relu(y);
    }
    return y;
  }
};

std::vector<std::int64_t> sizes_of(const std::string& text) {
  std::vector<std::int64_t> sizes;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    std::int64_t n = 0;
    const auto [end, wrong] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (wrong != std::errc() || end != word.data() + word.size() || n < 1 || n > 65536)
      fail<ArgumentError>({.operation = "tessera bench --layers",
                           .with = {{"layers", text}, {"size", word}},
                           .wrong = "sizes must be integers from 1 to 65536",
                           .remedy = "Separate them by commas: 784,512,10"});
    sizes.push_back(n);
  }
  if (sizes.size() < 2 || text.ends_with(','))
    fail<ArgumentError>({.operation = "tessera bench --layers",
                         .with = {{"layers", text}},
                         .wrong = "a network needs an input and an output size",
                         .remedy = "Give at least two sizes, separated by a comma"});
  return sizes;
}
CompilePrecision precision_of(const std::string& name) {
  for (const CompilePrecision p : {CompilePrecision::f32, CompilePrecision::bf16, CompilePrecision::f16,
                                   CompilePrecision::mixed, CompilePrecision::q8_0})
    if (compile_precision_name(p) == name) return p;
  fail<ArgumentError>({.operation = "tessera bench --precision",
                       .with = {{"precision", name}},
                       .wrong = "unknown precision",
                       .remedy = "Use f32, bf16, f16, mixed or q8_0"});
}

/// One execution mode on one device.
struct Run {
  Device device;
  std::string how;  ///< "eager", "compiled"
  std::function<void()> once;
  double first_seconds = 0;  ///< time of the first call, including compilation
  std::vector<double> seconds;
  double at(double q) const { return seconds[static_cast<std::size_t>(q * static_cast<double>(seconds.size() - 1))]; }
};
struct OnDevice {
  Device device;
  std::string name;
  Figures limits;
  double least_seconds = 0;  ///< lower limit of a call: the maximum of the arithmetic time and the memory time
  std::uint64_t bytes = 0;   ///< size of the parameters after compilation
};

/// Times all runs in rounds. The order changes in each round, and `seconds` is the average time for each run.
void time_all(std::vector<Run>& runs, double seconds, Progress& progress) {
  for (Run& r : runs)
    for (int i = 0; i < 3; ++i) r.once();
  const auto end = Clock::now() + std::chrono::duration<double>(seconds * static_cast<double>(runs.size()));
  for (std::size_t round = 0; round < 15 || (Clock::now() < end && round < 20000); ++round) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      Run& r = runs[(i + round) % runs.size()];
      r.once();  // not timed: the CPU caches contain the data of another run
      r.seconds.push_back(seconds_of(r.once));
    }
    progress.update(fmt::format("round {}", round + 1));
  }
  for (Run& r : runs) std::ranges::sort(r.seconds);
}

std::vector<Device> devices_of(const std::string& names) {
  if (!names.empty()) return parse_devices(names);
  std::vector<Device> all = {Device{Backend::cpu, 0}};
  for (const Device d : gpus()) all.push_back(d);
  return all;
}

int run_bench(const BenchArguments& o) {
  const std::vector<std::int64_t> sizes = sizes_of(o.layers);
  const CompilePrecision precision = precision_of(o.precision);
  Progress progress(o.json);
  std::vector<OnDevice> devices;
  std::vector<Run> runs;
  double operations = 0;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
    operations += 2.0 * static_cast<double>(o.batch * sizes[i] * sizes[i + 1]);
  for (const Device device : devices_of(o.devices)) {
    OnDevice& d = devices.emplace_back(OnDevice{.device = device, .name = device_info(device).name, .limits = {}});
    progress.update(fmt::format("{}: measuring its limits", to_string(device)));
    d.limits = measure(device, std::chrono::seconds(60));
    if (!d.limits.ended || !d.limits.error.empty())
      fail<DeviceError>({.operation = "tessera bench",
                         .with = {{"device", to_string(device)}},
                         .wrong = d.limits.ended ? d.limits.error : "the device did not respond within a minute",
                         .remedy = "See `tessera doctor`"});
    const DeviceScope scope(device);
    Network network;
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
      network.layers.push_back(Dense{.inputs = sizes[i], .outputs = sizes[i + 1]});
    const Network model = setup(std::move(network), {.seed = 1});
    const Array x = random_normal({o.batch, sizes[0]}, 2).eval();
    const auto add = [&](const char* how, std::function<Array()> call) {
      Run run{.device = device, .how = how, .once = {}, .seconds = {}};
      run.once = [device, call = std::move(call)] {
        const DeviceScope there(device);
        const Array y = call();
        Queue::of(device).finish();
      };
      run.first_seconds = seconds_of(run.once);
      runs.push_back(std::move(run));
    };
    if (precision == CompilePrecision::f32) add("eager", [model, x] { return Array(model(x).eval()); });
    std::optional<Compiled> fast;
    const double compiling =
        seconds_of([&] { fast = compile(model, {.level = CompileLevel::aggressive, .precision = precision}); });
    add("compiled", [fast = *fast, x] { return fast(x); });
    runs.back().first_seconds += compiling;
    std::uint64_t parameters_bytes = 0;
    for_each_array(model, [&](const Array& a) { parameters_bytes += a.bytes(); });
    const double share = precision == CompilePrecision::f32    ? 1
                         : precision == CompilePrecision::q8_0 ? 34.0 / 128
                                                               : 0.5;
    d.bytes = static_cast<std::uint64_t>(static_cast<double>(parameters_bytes) * share);
    double passed = 0;
    for (const std::int64_t n : sizes) passed += 4.0 * static_cast<double>(o.batch * n);
    d.least_seconds = std::max(operations / d.limits.product_operations,
                               (static_cast<double>(d.bytes) + passed) / d.limits.copy_bytes);
  }
  time_all(runs, o.seconds, progress);
  progress.clear();

  if (o.json) {
    Json json = {{"layers", sizes}, {"batch", o.batch}, {"precision", o.precision}, {"devices", Json::array()}};
    for (const OnDevice& d : devices) {
      Json entry = {{"device", to_string(d.device)},
                    {"name", d.name},
                    {"copy_bytes_per_second", d.limits.copy_bytes},
                    {"product_operations_per_second", d.limits.product_operations},
                    {"least_seconds", d.least_seconds},
                    {"runs", Json::array()}};
      for (const Run& r : runs)
        if (r.device == d.device)
          entry["runs"].push_back({{"how", r.how},
                                   {"first_seconds", r.first_seconds},
                                   {"rounds", r.seconds.size()},
                                   {"median_seconds", r.at(0.5)},
                                   {"quartiles_seconds", {r.at(0.25), r.at(0.75)}},
                                   {"samples_per_second", static_cast<double>(o.batch) / r.at(0.5)},
                                   {"operations_per_second", operations / r.at(0.5)},
                                   {"of_limit", d.least_seconds / r.at(0.5)}});
      json["devices"].push_back(std::move(entry));
    }
    app::print("{}\n", json.dump(2));
    return success;
  }
  app::print("{} with {}, precision {}; {:.3g} million operations per call\n", fmt::join(sizes, "-"),
             count_noun(o.batch, "sample"), o.precision, operations / 1e6);
  app::print("{:<10} {:<9} {:>9} {:>11} {:>21} {:>12} {:>9}\n", "device", "", "first ms", "median us", "quartiles us",
             "samples/s", "of limit");
  for (const OnDevice& d : devices)
    for (const Run& r : runs)
      if (r.device == d.device)
        app::print("{:<10} {:<9} {:>9.1f} {:>11.1f} {:>21} {:>12.0f} {:>7.0f} %\n", to_string(d.device), r.how,
                   r.first_seconds * 1e3, r.at(0.5) * 1e6,
                   fmt::format("{:.1f} to {:.1f}", r.at(0.25) * 1e6, r.at(0.75) * 1e6),
                   static_cast<double>(o.batch) / r.at(0.5), 100 * d.least_seconds / r.at(0.5));
  for (const OnDevice& d : devices)
    app::print(
        "{} ({}): at least {:.1f} us per call, computed from the measured {:.1f} GB/s of a memory copy and {:.1f} "
        "GFLOP/s of a matrix product. More than 100 % means that data was in caches, or that the machine was busy "
        "during this measurement\n",
        to_string(d.device), d.name, d.least_seconds * 1e6, d.limits.copy_bytes / 1e9,
        d.limits.product_operations / 1e9);
  return success;
}

}  // namespace

Command bench_command(CLI::App& program) {
  auto options = std::make_shared<BenchArguments>();
  CLI::App* command = program.add_subcommand("bench", "Time a network on the CPU and on GPUs");
  command
      ->add_option("--layers", options->layers, "Layer sizes of a network of dense layers with relu (784,512,512,10)")
      ->check(require_nonempty);
  command->add_option("--batch", options->batch, "Samples per call (1)")->transform(integer_in_range(1, 1 << 20));
  command->add_option("--devices", options->devices, "Device names, separated by commas (the CPU and all GPUs)")
      ->check(require_nonempty);
  command->add_option("--precision", options->precision, "f32, bf16, f16, mixed or q8_0 (f32)");
  command->add_option("--seconds", options->seconds, "Seconds to measure each mode on each device (2)")
      ->transform(number(0, 600, true));
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Each call is synchronised, and the modes are interleaved after a warm-up. `first` is the time of the first "
      "call,\n"
      "including compilation. The limit is the maximum of two times: the arithmetic at the speed of a large matrix "
      "product, and\nreading parameters and activations at the speed of a memory copy. Both speeds are measured "
      "first.\n\nExamples:\n  tessera bench\n  tessera bench --layers 1024,1024 --batch 128\n  tessera bench --devices "
      "cpu,opencl:0 --json");
  return {command, [options] { return run_bench(*options); }};
}

}  // namespace tessera::app
