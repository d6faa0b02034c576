// SPDX-License-Identifier: Apache-2.0
// Several GPUs of two vendors in one process: copies between them, separate state, and cleanup after errors. Each case
// runs in a separate process with fake drivers for four GPUs.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tessera/base/test_seed.h"
#include "tessera/tessera.h"
#include "tests/support/errors.h"
#include "tests/support/fake_gpus.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::four_gpus;
using test::in_process;

const Device cpu{Backend::cpu, 0}, cuda0{Backend::cuda, 0}, cuda1{Backend::cuda, 1}, rocm0{Backend::rocm, 0},
    rocm1{Backend::rocm, 1};

std::vector<float> values(const Array& a) { return a.to_vector<float>(); }

TEST(SeveralGpus, FirstWorkingGpuIsSelected) {
  in_process(four_gpus(), [] {
    EXPECT_EQ(gpus(), (std::vector<Device>{cuda0, cuda1, rocm0, rocm1}));
    EXPECT_EQ(current_device(), cuda0);
  });
  in_process(four_gpus({{"TESSERA_FAKE_FAULT", "wrong@0"}}), [] {
    EXPECT_EQ(gpu_device({.free_memory = 1}), cuda1) << "the query opened the first, which computes a wrong result";
    EXPECT_EQ(gpu_device(), cuda1);
    EXPECT_EQ(gpus().size(), 3u) << "rocm:0 has not been opened";
  });
}

TEST(SeveralGpus, CopiesBetweenAllPairsKeepDtype) {
  in_process(four_gpus(), [] {
    const Array x = random_uniform({5000}, test_seed(), -100, 100, cpu);
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i8, DType::boolean}) {
      const Array y = x.astype(dtype).eval();
      const auto bytes = values(y.astype(DType::f32));
      for (const Device from : {cpu, cuda0, cuda1, rocm0, rocm1})
        for (const Device target : {cpu, cuda0, cuda1, rocm0, rocm1}) {
          const Array there = to(to(y, from), target);
          EXPECT_EQ(there.device(), target);
          EXPECT_EQ(there.dtype(), dtype);
          EXPECT_EQ(values(there.astype(DType::f32)), bytes) << to_string(from) << " to " << to_string(target);
        }
    }
    const Array large = random_uniform({3000000}, test_seed(), -1, 1, cpu);  // needs several staging buffers
    EXPECT_EQ(values(to(to(large, cuda1), rocm0)), values(large));
  });
}

TEST(SeveralGpus, FailedMoveLeaksNoMemory) {
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

TEST(SeveralGpus, WorkAllocatesMemoryOnlyOnItsDevice) {
  in_process(four_gpus(), [] {
    const std::uint64_t free = free_memory(cuda1), other = free_memory(cuda0);
    const Array weight = to(random_uniform({512, 2048}, 1, -1, 1, cpu), cuda1);
    EXPECT_LE(free_memory(cuda1) + (4u << 20), free);
    const Placement strict = Placement::strict({cuda1});
    for (int i = 0; i < 3; ++i) values(relu(matmul(Array::ones({3, 512}, DType::f32, cuda1), weight)));
    EXPECT_EQ(free_memory(cuda0), other);
    EXPECT_EQ(memory_stats(cuda0).allocations + memory_stats(cuda0).live_bytes, 0u);
  });
}

TEST(SeveralGpus, ReserveForOtherProgramsDoesNotReduceAMemoryLimit) {
  in_process(four_gpus(), [] {
    const std::uint64_t mebi = 1 << 20;
    EXPECT_LE(free_memory(cuda1, 256 * mebi) + 256 * mebi, free_memory(cuda1));
    EXPECT_EQ(free_memory(cuda1, ~std::uint64_t{0}), 0u);
    set_memory_limit(cuda1, memory_stats(cuda1).live_bytes + 3 * mebi);
    EXPECT_EQ(free_memory(cuda1, 256 * mebi), 3 * mebi);
  });
}

TEST(SeveralGpus, ThreadsHaveIndependentCurrentDevices) {
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

TEST(SeveralGpus, RandomNumbersAreIdenticalOnAllDevices) {
  in_process(four_gpus(), [] {
    const std::uint64_t seed = test_seed();
    const auto bits = random_bits({1001}, seed, cpu).to_vector<std::uint32_t>();
    const auto uniforms = values(random_uniform({1001}, seed, -2, 3, cpu));
    for (const Device d : {cuda0, cuda1, rocm0}) {
      EXPECT_EQ(random_bits({1001}, seed, d).to_vector<std::uint32_t>(), bits);
      EXPECT_EQ(values(random_uniform({1001}, seed, -2, 3, d)), uniforms);
      Generator g(seed), h(seed);
      EXPECT_EQ(g.bits({10}, cpu).to_vector<std::uint32_t>(), h.bits({10}, d).to_vector<std::uint32_t>());
      EXPECT_EQ(to(to(g, d), cpu), h);
    }
  });
}

}  // namespace
}  // namespace tessera
