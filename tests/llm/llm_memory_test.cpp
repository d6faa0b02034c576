// SPDX-License-Identifier: Apache-2.0
// Memory estimates: the formula of torchless, dry runs compared with measurements, models that do not fit, and layers
// on several devices.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "tessera/array/array.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/llm/estimate.h"
#include "tessera/llm/language_model.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::OnEveryDevice;
using test::text_of;
TESSERA_ON_EVERY_DEVICE();

/// Returns the path of a model that tools/random_model.cpp has created. The environment variable overrides the path.
std::string random_model() {
  const char* named = std::getenv("TESSERA_RANDOM_MODEL");
  return named != nullptr ? named : TESSERA_RANDOM_MODEL;
}

constexpr const char* shipped = "models/pgdocs-2m-q8_0.gguf";
constexpr const char* prompt =
    "The query planner chooses among the indexes of a table by what the statistics say of its columns. A sequential "
    "scan reads";

TEST(MemoryFormula, MatchesTorchless) {
  const auto wide = estimate_inference_memory(4096, 14336, 32, 32000, 32, 8, 4096, 4);
  EXPECT_EQ(wide.model_bytes, 28'966'928'384u);
  EXPECT_EQ(wide.kv_cache_bytes, 1'073'741'824u);
  EXPECT_EQ(wide.activation_bytes, 262'144u);
  EXPECT_EQ(wide.total_bytes, 30'040'932'352u);
  EXPECT_EQ(to_string(wide),
            "Inference Memory: 27.98 GB total (26.98 GB model, 1.00 GB KV cache, 0.25 MB activations)");
  const auto narrow = estimate_inference_memory(4096, 14336, 32, 32000, 32, 8, 4096, 2);
  EXPECT_EQ(narrow.total_bytes, 15'020'466'176u);
  EXPECT_NEAR(narrow.total_gb(), 13.99, 0.005);
}

TEST(MemoryFormula, RejectsInvalidArguments) {
  expect_contains(text_of<ArgumentError>([] { estimate_inference_memory(4096, 14336, 32, 32000, 32, 8, 4096, 0); }),
                  {"dtype_bytes = 0"});
  expect_contains(text_of<ArgumentError>([] { estimate_inference_memory(100, 14336, 32, 32000, 32, 8, 4096, 4); }),
                  {"hidden = 100", "heads = 32", "estimate_memory"});
}

TEST(MemoryDryRun, CountsMemoryWithoutAllocatingOrComputing) {
  const Device cpu{Backend::cpu, 0};
  const auto program = [](Device device) {
    Array x = Array::full({1 << 20}, 3.0, DType::f32, device);
    const Array y = sum(exp(x) * x, {0});
    return y.item<float>();
  };
  reset_placement_log();
  const std::uint64_t live = memory_stats(cpu).live_bytes;
  DryRun dry(cpu);
  EXPECT_EQ(program(dry.device()), 0.0f) << "a dry run reads back zeros";
  EXPECT_EQ(device_info(dry.device()).can.max_block_threads, device_info(cpu).can.max_block_threads);
  EXPECT_TRUE(placement_log().kernels.empty() && placement_log().copies.empty());
  EXPECT_EQ(memory_stats(cpu).live_bytes, live);
  trim(cpu);
  reset_peak_memory(cpu);
  const std::uint64_t before = memory_stats(cpu).peak_bytes;
  const double sum = 3 * std::exp(3.0) * (1 << 20);
  EXPECT_NEAR(program(cpu), sum, 1e-5 * sum);
  EXPECT_EQ(dry.stats().peak_bytes, memory_stats(cpu).peak_bytes - before);
  // An allocation that is larger than any machine's memory succeeds. A nested dry run has separate statistics.
  const Array large = Array::empty({1 << 30, 1 << 16}, DType::f32, dry.device());
  EXPECT_GE(dry.stats().live_bytes, std::uint64_t{1} << 48);
  const DryRun inner(cpu);
  EXPECT_NE(inner.device(), dry.device());
  EXPECT_EQ(inner.stats().peak_bytes, 0u);
  for (const BackendReport& row : discover()) EXPECT_NE(row.backend, Backend::dry_run);
  text_of<DeviceError>([] { parse_device("dry-run:0"); });
}

TEST(WeightMemory, HasLittleOverheadForAnyOrderOfWeights) {
  const DryRun dry(Device{Backend::cpu, 0});
  // Sizes of f16 matrices in MiB. Two matrices of 129 MiB do not fit in one allocation, and a matrix of 300 MiB is
  // larger than an allocation.
  const std::int64_t mib = (1 << 20) / 2 / 1024, sizes[] = {300, 129, 8, 129, 129, 40, 8, 129, 129, 1, 129};
  WeightMemory memory(dry.device(), "weights of a test");
  std::uint64_t bytes = 0;
  for (const std::int64_t size : sizes) memory.expect(WeightFormat::f16, size * mib, 1024);
  std::vector<Weight> kept;
  for (auto size = std::rbegin(sizes); size != std::rend(sizes); ++size) {
    const std::uint64_t of_this = static_cast<std::uint64_t>(*size) << 20;
    kept.push_back(Weight::pack(
        WeightFormat::f16, of_this, [](std::uint64_t, std::span<std::byte>) {}, *size * mib, 1024, memory));
    bytes += of_this;
  }
  EXPECT_LE(dry.stats().live_bytes, bytes + bytes / 10);
  // A weight that was not passed to expect() gets a separate allocation.
  kept.push_back(Weight::pack(
      WeightFormat::f16, 8 << 20, [](std::uint64_t, std::span<std::byte>) {}, 8 * mib, 1024, memory));
  EXPECT_LE(dry.stats().live_bytes, bytes + (8 << 20) + bytes / 10);
}

/// Loads and runs the model, and compares the peak memory use with the estimate of a dry run. Returns the ratio of the
/// peak to the size of weights and cache.
double expect_estimate(const std::string& path, Device device, std::string_view text, std::int64_t answer,
                       std::int64_t batch = 256) {
  LoadOptions options{.devices = {device}, .progress = {}, .prompt = std::string(text), .generate = {}};
  options.generate.max_tokens = answer;
  options.generate.sampling.temperature = 0;
  options.generate.batch = batch;
  trim(device);
  reset_peak_memory(device);
  const std::uint64_t before = memory_stats(device).live_bytes;
  const GgufFile file = GgufFile::open(path);
  const auto tokens = static_cast<std::int64_t>(Tokenizer(file).encode(text).size());
  const ModelMemory said =
      estimate_memory(file, std::span(&device, 1), {.context = tokens + answer, .prompt = tokens, .batch = batch});
  EXPECT_EQ(memory_stats(device).peak_bytes, before) << "the estimate must not allocate memory";
  const GenerateResult r = LanguageModel::load(path, options).generate(text, options.generate);
  EXPECT_EQ(static_cast<std::int64_t>(r.tokens.size()), answer);
  const auto measured = static_cast<double>(memory_stats(device).peak_bytes - before);
  const DeviceMemory& d = said.devices.at(0);
  std::printf("%s on %s: %.3f MiB estimated (weights %.3f, cache %.3f, work %.3f), %.3f MiB measured\n", path.c_str(),
              to_string(device).c_str(), static_cast<double>(d.peak) / (1 << 20),
              static_cast<double>(d.weights) / (1 << 20), static_cast<double>(d.cache) / (1 << 20),
              static_cast<double>(d.work()) / (1 << 20), measured / (1 << 20));
  EXPECT_NEAR(static_cast<double>(d.peak), measured, 0.05 * measured);
  EXPECT_TRUE(said.fits());
  return measured / static_cast<double>(d.weights + d.cache);
}

TEST_P(OnEveryDevice, DryRunMatchesMemoryOfShippedModels) {
  expect_estimate(shipped, GetParam(), prompt, 6);
  std::string longer;
  for (int i = 0; i < (GetParam().backend == Backend::interp ? 3 : 12); ++i) longer += prompt;
  expect_estimate("models/pgdocs-2m-f16.gguf", GetParam(), longer, 3);
  expect_estimate("models/pgdocs-2m-f16.gguf", GetParam(), longer, 3, 16);  // the estimate skips some of the steps
}

TEST_P(OnEveryDevice, DryRunMatchesMemoryOfBillionParameterModel) {
  if (GetParam().backend == Backend::interp || compiles_slowly()) return;  // too slow: interp would take an hour
  EXPECT_LE(expect_estimate(random_model(), GetParam(), "Sixteen bytes or", 2), 1.1);
}

TEST_P(OnEveryDevice, ModelThatDoesNotFitIsRejectedBeforeLoading) {
  const Device device = GetParam();
  trim(device);
  reset_placement_log();
  set_memory_limit(device, memory_stats(device).live_bytes + (std::uint64_t{3} << 20));
  const std::string text = text_of<OutOfMemory>([&] { LanguageModel::load("models/pgdocs-2m-f16.gguf", device); });
  set_memory_limit(device, 0);
  expect_contains(text, {"nothing was loaded", to_string(device) + " needs",
                         "3 MiB free (the budget given to set_memory_limit)", "tessera estimate"});
  EXPECT_EQ(to_string(placement_log()), [] {
    reset_placement_log();
    return to_string(placement_log());
  }());
}

TEST(LargestContext, FitsInTheMemoryLimit) {
  const Device cpu{Backend::cpu, 0};
  const GgufFile file = GgufFile::open(shipped);
  EXPECT_EQ(largest_context(file, std::span(&cpu, 1)), 1024) << "the model's context length";
  const auto needs = [&](std::int64_t context) {
    return estimate_memory(file, std::span(&cpu, 1), {.context = context}).devices[0].peak;
  };
  trim(cpu);
  set_memory_limit(cpu, memory_stats(cpu).live_bytes + needs(500));
  const std::int64_t fits = largest_context(file, std::span(&cpu, 1));
  set_memory_limit(cpu, 0);
  EXPECT_GE(fits, 490);
  EXPECT_LE(needs(fits), needs(500));
  set_memory_limit(cpu, memory_stats(cpu).live_bytes + 1);
  EXPECT_EQ(largest_context(file, std::span(&cpu, 1)), 0);
  set_memory_limit(cpu, 0);
}

TEST(LayersOnSeveralDevices, GenerateTheSameText) {
  const Device cpu{Backend::cpu, 0}, interp{Backend::interp, 0};
  const GgufFile file = GgufFile::open(shipped);
  const std::vector<Device> devices = {cpu, interp};
  const ModelMemory whole = estimate_memory(file, devices, {.context = 64});
  EXPECT_EQ(whole.devices[1].layers, 0) << "the first device is enough";
  EXPECT_EQ(whole.devices[1].weights, 0u);
  const std::int64_t layers = whole.devices[0].layers;

  // Limit the memory of the CPU so that a little more than half of the layers fit.
  trim(cpu);
  set_memory_limit(cpu, memory_stats(cpu).live_bytes + whole.devices[0].peak * 6 / 10);
  const ModelMemory spread = estimate_memory(file, devices, {.context = 64});
  LoadOptions options{.devices = devices, .progress = {}, .prompt = "The", .generate = {}};
  options.generate.sampling.temperature = 0;
  options.generate.max_tokens = 8;
  options.generate.cache_dtype = DType::f32;
  {
    const LanguageModel model = LanguageModel::load(shipped, options);
    EXPECT_TRUE(spread.fits());
    EXPECT_GT(spread.devices[0].layers, 0);
    EXPECT_GT(spread.devices[1].layers, 0);
    EXPECT_EQ(spread.devices[0].layers + spread.devices[1].layers, layers);
    EXPECT_GT(model.model().weight_bytes(cpu), 0u);
    EXPECT_GT(model.model().weight_bytes(interp), 0u);
    const auto here = model.generate("The", options.generate);
    set_memory_limit(cpu, 0);
    const auto there = LanguageModel::load(shipped, cpu).generate("The", options.generate);
    EXPECT_EQ(here.tokens, there.tokens);
  }
  set_memory_limit(cpu, memory_stats(cpu).live_bytes + (1 << 20));
  set_memory_limit(interp, memory_stats(interp).live_bytes + (1 << 20));
  expect_contains(text_of<OutOfMemory>([&] { LanguageModel::load(shipped, options); }),
                  {"cpu:0 needs", "interp:0 needs"});
  set_memory_limit(cpu, 0);
  set_memory_limit(interp, 0);
}

TEST(EstimateMemory, RejectsInvalidOptions) {
  const Device cpu{Backend::cpu, 0};
  const GgufFile file = GgufFile::open(shipped);
  const auto with = [&](MemoryOptions options) {
    return text_of<ArgumentError>([&] { estimate_memory(file, std::span(&cpu, 1), options); });
  };
  expect_contains(with({.context = 5000}), {"context = 5000", "1024"});
  expect_contains(with({.context = 10, .prompt = 11}), {"prompt = 11"});
  expect_contains(with({.batch = 0}), {"batch = 0"});
  expect_contains(text_of<DeviceError>([] { parse_devices("cpu:0,cpu"); }),
                  {"\"cpu:0,cpu\" contains cpu:0 twice. List each device once"});
  expect_contains(text_of<DeviceError>([] { parse_devices("cpu:0,"); }), {"cpu"});
}

}  // namespace
}  // namespace tessera
