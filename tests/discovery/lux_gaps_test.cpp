// SPDX-License-Identifier: Apache-2.0
// What neither Lux nor Axiom tests, because there it does not hold: precision, purity, ownership, overlap, enumeration,
// binding preferences, and placement that is never silent. Each case is a process of its own.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "tessera/base/test_seed.h"
#include "tessera/tessera.h"
#include "tests/support/errors.h"
#include "tests/support/over_fakes.h"

namespace tessera {
namespace {

using test::expect_has;
using test::expect_throw;
using test::four_gpus;
using test::in_process;

const Device cpu{Backend::cpu, 0}, cuda0{Backend::cuda, 0}, cuda1{Backend::cuda, 1}, rocm0{Backend::rocm, 0};

std::vector<float> values(const Array& a) { return a.to_vector<float>(); }
PlacementLog::Copies copies(const Placement& scope, Device device) {
  for (const auto& c : scope.log().copies)
    if (c.device == device) return c;
  return {};
}

TEST(Gaps, Behaviour35PrecisionIsKeptAndConversionReachesResidentArrays) {
  in_process(four_gpus(), [] {
    const Array x = Array::full({5}, 1.0 / 3, DType::f64, cuda0);
    EXPECT_EQ(to(x, cuda0).dtype(), DType::f64);
    EXPECT_EQ(to(x, cuda1).to_vector<double>()[4], 1.0 / 3);
    const Array narrow = to(x, cuda0).astype(DType::f32);
    EXPECT_EQ(narrow.device(), cuda0);
    EXPECT_EQ(values(narrow)[0], 1.0f / 3);
  });
}

TEST(Gaps, Behaviour35TwoSelectionsDoNotInfluenceEachOther) {
  in_process(four_gpus(), [] {
    EXPECT_EQ(gpu_device({.index = 1}), cuda1);
    EXPECT_EQ(gpu_device(), cuda0);
    EXPECT_EQ(current_device(), cuda0);
    const Array a = Array::zeros({4}, DType::f32, cuda1);  // and neither does where memory is taken
    EXPECT_EQ(gpu_device(), cuda0);
    EXPECT_EQ(Array::zeros({4}).device(), cuda0);
    // A target is always one device: there is none without a number that lets an array stay on another.
    EXPECT_EQ(to(a, Device{Backend::cuda}).device(), cuda0);
  });
}

TEST(Gaps, Behaviour35AnErrorWhileMovingLeavesNothingBehind) {
  in_process(four_gpus({{"TESSERA_FAKE_MEMORY", "8388608"}}), [] {
    const DeviceScope scope(cuda0);
    const std::vector<Array> parts = {Array::ones({1000}, DType::f32, cpu), Array::ones({1 << 22}, DType::f32, cpu)};
    const std::uint64_t live = memory_stats(cuda1).live_bytes;
    const std::map<std::string, std::vector<Array>> model = {{"layers", parts}};
    expect_throw<OutOfMemory>([&] { to(model, cuda1); }, {"allocate layers.1"});
    EXPECT_EQ(memory_stats(cuda1).live_bytes, live);
    EXPECT_EQ(current_device(), cuda0);
    EXPECT_EQ(device_of(parts), cpu);
    EXPECT_EQ(values(to(parts[0], cuda1))[999], 1);
  });
}

TEST(Gaps, Behaviour36ABatchIsOnItsWayBeforeTheKernelsOfTheOneBeforeHaveFinished) {
  in_process(four_gpus({{"TESSERA_FAKE_DELAY_US", "20000"}}), [] {
    std::vector<Array> source, results;
    for (int i = 0; i < 6; ++i) source.push_back(Array::full({512}, i, DType::f32, cpu));
    const Placement scope;
    std::uint64_t n = 0;
    for (const auto& batch : prefetch(source, cuda0)) {
      // No host read until the end: nothing here has waited for a kernel when the next copy is queued.
      for (int k = 0; k < 4; ++k) results.push_back((batch + k).eval());
      ++n;
      EXPECT_EQ(copies(scope, cuda0).to_device_count, std::min<std::uint64_t>(n + 1, 6));
      EXPECT_EQ(copies(scope, cuda0).to_host_count, 0u);
    }
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(values(results[i]), std::vector<float>(512, static_cast<float>(i / 4 + i % 4)));
  });
}

TEST(Gaps, Behaviour36ResidentBatchesAreNeverFreedAndTwoMayBeHeld) {
  in_process(four_gpus(), [] {
    std::vector<Array> resident;
    for (int i = 0; i < 5; ++i) resident.push_back(Array::full({64}, i, DType::f32, cuda0));
    std::optional<Array> before;
    int n = 0;
    for (auto batch : prefetch(resident, cuda0)) {
      EXPECT_EQ(values(before.value_or(batch - 1) - batch), std::vector<float>(64, -1));
      before = batch;
      ++n;
    }
    EXPECT_EQ(n, 5);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(values(resident[static_cast<std::size_t>(i)])[63], static_cast<float>(i));
  });
}

TEST(Gaps, Behaviour37DevicesAreListedTheirFreeMemoryChangesAndWrongNumbersSaySo) {
  in_process(four_gpus(), [] {
    EXPECT_EQ(gpus().size(), 4u);
    const std::vector<Device> all = devices();
    for (const Device d : {cpu, cuda0, cuda1, rocm0})
      EXPECT_TRUE(std::count(all.begin(), all.end(), d)) << to_string(d);
    const DeviceInfo& info = device_info(cuda1);
    EXPECT_FALSE(info.name.empty());
    EXPECT_FALSE(info.identity.empty());
    EXPECT_GT(info.total_memory, 0u);
    const std::uint64_t free = free_memory(cuda1), other = free_memory(cuda0);
    const Array taken = Array::zeros({1 << 20}, DType::f32, cuda1);
    EXPECT_LE(free_memory(cuda1) + (4u << 20), free);
    EXPECT_EQ(free_memory(cuda0), other);
    for (const int bad : {-1, 4, 1000000000, std::numeric_limits<int>::min()}) {
      expect_throw<DeviceError>([&] { gpu_device({.index = bad}); },
                                {"there is no GPU " + std::to_string(bad), "this machine has 4, and the first is 0"});
      expect_throw<DeviceError>(
          [&] {
            Array::zeros({1}, DType::f32, Device{Backend::cuda, bad});
          },
          {"does not exist", "Devices that exist: cpu:0"});
    }
  });
}

TEST(Gaps, Behaviour38APreferenceBindsTheEnvironmentCountsMoreAndChangesNeedNoRestart) {
  std::string folder = (std::filesystem::temp_directory_path() / "tessera-lux-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/tessera/config.toml";
  std::filesystem::create_directories(folder + "/tessera");
  std::ofstream(file) << "[device]\nprefer = \"cuda:0\"\n";
  // Its driver finds no device: no other takes its place.
  in_process(four_gpus({{"XDG_CONFIG_HOME", folder}, {"TESSERA_CUDA_LIBRARY", "/nonexistent/libcuda.so"}}), [&] {
    for (int again = 0; again < 2; ++again) {
      expect_throw<DeviceError>([] { current_device(); },
                                {file + ":2:10", "cuda:0 does not exist", "/nonexistent/libcuda.so", "rocm:0"});
      EXPECT_THROW(gpu_device(), DeviceError);
    }
    ::setenv("TESSERA_DEVICE", "rocm:1", 1);
    rescan();
    EXPECT_EQ(current_device(), (Device{Backend::rocm, 1}));
    ::setenv("TESSERA_DEVICE", "", 1);
    std::ofstream(file) << "[device]\nprefer = \"rocm:0\"\n";  // another process
    rescan();
    EXPECT_EQ(current_device(), rocm0);
    set_preferred_device(cpu);
    EXPECT_EQ(current_device(), cpu);
    for (int again = 0; again < 3; ++again) {
      const Array taken = Array::zeros({1000});
      EXPECT_EQ(taken.device(), cpu);
      rescan();
    }
  });
  std::filesystem::remove_all(folder);
}

TEST(Gaps, Behaviour38OneSeedGivesTheSameBitsEverywhereAndItsStateSurvivesARoundTrip) {
  in_process(four_gpus(), [] {
    const std::uint64_t seed = test_seed();
    const auto bits = random_bits({1001}, seed, cpu).to_vector<std::uint32_t>();
    const auto uniforms = random_uniform({1001}, seed, -2, 3, cpu).to_vector<float>();
    for (const Device d : {cuda0, cuda1, rocm0}) {
      EXPECT_EQ(random_bits({1001}, seed, d).to_vector<std::uint32_t>(), bits);
      EXPECT_EQ(random_uniform({1001}, seed, -2, 3, d).to_vector<float>(), uniforms);
      Generator g(seed), h(seed);
      EXPECT_EQ(g.bits({10}, cpu).to_vector<std::uint32_t>(), h.bits({10}, d).to_vector<std::uint32_t>());
      g = to(to(g, d), cpu);
      EXPECT_EQ(g, h);
      EXPECT_EQ(g.bits({10}, d).to_vector<std::uint32_t>(), h.bits({10}, cpu).to_vector<std::uint32_t>());
    }
  });
}

struct Layer {
  Array weight, bias;
  auto fields() { return std::tuple(field("weight", weight), field("bias", bias)); }
};
struct Params {
  std::vector<Layer> layers;
  auto fields() { return std::tuple(field("layers", layers)); }
};
Array forward(const Params& p, Array x) {
  for (const Layer& l : p.layers) x = relu(matmul(x, l.weight) + l.bias);
  return x;
}
Params params() {
  return {{{random_uniform({8, 16}, 1, -1, 1, cpu), random_uniform({16}, 2, -1, 1, cpu)},
           {random_uniform({16, 4}, 3, -1, 1, cpu), random_uniform({4}, 4, -1, 1, cpu)}}};
}

TEST(Gaps, Behaviour39MixedDevicesNameTheLeavesAndNothingRunsOnTheCpuSilently) {
  in_process(four_gpus(), [] {
    Params p = params();
    p.layers[1].bias = p.layers[1].bias | cuda0;
    expect_throw<DeviceError>([&] { device_of(p, "params"); },
                              {"params.layers.1.weight: cpu:0", "params.layers.1.bias: cuda:0"});
    EXPECT_THROW(forward(p, Array::ones({3, 8}, DType::f32, cpu)), DeviceError) << "no operation mixes devices";
    const Params there = to(p, cuda0);
    const Array x = Array::ones({3, 8}, DType::f32, cuda0);
    const Array expected = forward(to(p, cpu), Array::ones({3, 8}, DType::f32, cpu));
    std::vector<float> got;
    {
      const Placement strict = Placement::strict({cuda0});
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32})
        mean(maximum(Array::ones({4, 4}, dtype, cuda0) * 2, 1)).eval();
      got = values(forward(there, x));
      std::uint64_t on_cpu = 0, on_gpu = 0;
      for (const auto& k : strict.log().kernels) (k.device == cuda0 ? on_gpu : on_cpu) += k.launches;
      EXPECT_EQ(on_cpu, 0u);
      EXPECT_GT(on_gpu, 0u);
    }
    const auto want = values(expected);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4);
  });
}

TEST(Gaps, Behaviour41WorkOnOneGpuTakesMemoryOnThatOneOnly) {
  in_process(four_gpus(), [] {
    const Params p = params();
    const Placement scope;
    const std::uint64_t elsewhere = memory_stats(cuda0).allocations + memory_stats(cuda0).reuses;
    const Params there = to(p, cuda1);
    EXPECT_EQ(copies(scope, cuda1).to_device_count, 4u) << "each weight once";
    const Array host = Array::ones({3, 8}, DType::f32, cpu);
    for (int i = 1; i <= 3; ++i) {
      const Placement pass;
      const auto result = values(forward(there, to(host, cuda1)));
      EXPECT_EQ(copies(pass, cuda1).to_device_count, 1u) << "the input";
      EXPECT_EQ(copies(pass, cuda1).to_host_count, 1u) << "the result";
      for (const auto& k : pass.log().kernels) EXPECT_EQ(k.device, cuda1) << k.kernel;
    }
    EXPECT_EQ(memory_stats(cuda0).allocations + memory_stats(cuda0).reuses, elsewhere);
    EXPECT_EQ(memory_stats(cuda0).live_bytes, 0u);
    EXPECT_GT(memory_stats(cuda1).live_bytes, 0u);
    EXPECT_EQ(copies(scope, cuda0).to_device_count + copies(scope, cuda0).to_host_count, 0u);
  });
}

TEST(Gaps, Behaviour42TwoThreadsNeverSeeEachOthersDevice) {
  in_process(four_gpus(), [] {
    std::atomic<int> wrong = 0;
    const auto work = [&](Device mine) {
      for (int i = 0; i < 10000; ++i) {
        const DeviceScope scope(mine);
        if (current_device() != mine) ++wrong;
        if (i % 500 == 0) {
          const Array a = Array::full({16}, i);
          if (a.device() != mine || values(a + 1)[3] != static_cast<float>(i + 1)) ++wrong;
        }
        if (current_device() != mine) ++wrong;
      }
    };
    std::thread first(work, cuda1), second(work, rocm0);
    first.join();
    second.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(current_device(), cuda0);
  });
}

TEST(Gaps, Behaviour42AShapeErrorIsNotHealedAndAnExhaustedDeviceIsTrimmedAndAskedAgain) {
  in_process(four_gpus({{"TESSERA_FAKE_MEMORY", "16777216"}}), [] {
    const Array x = Array::ones({3, 8}, DType::f32, cuda0);
    const Placement scope;
    EXPECT_THROW(matmul(x, Array::ones({9, 2}, DType::f32, cuda0)), ShapeError);
    for (const auto& k : scope.log().kernels) EXPECT_EQ(k.device, cuda0) << "not tried elsewhere";
    {
      const Array large = Array::zeros({3 << 20}, DType::u8, cuda0), other = Array::zeros({7 << 20}, DType::u8, cuda0);
    }
    EXPECT_GT(memory_stats(cuda0).cached_bytes, std::uint64_t{9} << 20);
    const Array fits = Array::zeros({12 << 20}, DType::u8, cuda0);  // only once what is cached was given back
    EXPECT_EQ(fits.device(), cuda0);
    EXPECT_THROW(Array::zeros({12 << 20}, DType::u8, cuda0), OutOfMemory);
    EXPECT_EQ(values(x + 1)[0], 2) << "and it goes on";
  });
}

}  // namespace
}  // namespace tessera
