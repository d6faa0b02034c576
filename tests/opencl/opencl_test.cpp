// SPDX-License-Identifier: Apache-2.0
// Tests of the OpenCL driver on the first device: launches, memory, queues, events and errors. node_table_test and
// kernel_devices_test check the results of kernels.
#include "tessera/backend/opencl/api.h"
#include "tessera/device/driver.h"
#include "tests/compilers/emit_zoo.h"
#include "tests/opencl/opencl_fixture.h"
#include "tests/support/errors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

namespace tessera::test {
namespace {

using namespace ir;
using zoo::saxpy;

class OpenCl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!device()) GTEST_SKIP() << "this machine has no OpenCL device (Debian: pocl-opencl-icd)";
  }
};

std::vector<float> random_floats(std::size_t n, float low = -1, float high = 1) {
  static std::mt19937 random(test_seed());
  std::uniform_real_distribution<float> d(low, high);
  std::vector<float> v(n);
  for (float& x : v) x = d(random);
  return v;
}

TEST_F(OpenCl, EnumerationReportsTheDevice) {
  const BackendReport report = driver().enumerate();
  EXPECT_EQ(report.backend, Backend::opencl);
  EXPECT_EQ(report.state, DeviceState::enumerated);
  EXPECT_NE(report.file.find("OpenCL"), std::string::npos);
  int index = 0;
  for (const DeviceInfo& info : report.devices) {
    EXPECT_EQ(info.device, (Device{Backend::opencl, index++}));
    EXPECT_FALSE(info.name.empty());
    EXPECT_FALSE(info.driver_version.empty());
    EXPECT_GT(info.total_memory, 1u << 28);
    EXPECT_GT(info.compute_units, 0u);
    EXPECT_GE(info.can.max_block_threads, 64u);
    EXPECT_FALSE(info.can.subgroup_widths.empty());
    // The driver reports no reason for a usable device. Discovery adds a reason, because no kernel has run on the
    // device.
    EXPECT_EQ(info.reason.empty(), info.state == DeviceState::enumerated) << info.reason;
    EXPECT_EQ(info.remedy.empty(), info.state == DeviceState::enumerated) << info.remedy;
  }
  const DeviceInfo& first = device()->info();
  if (first.driver_version.find("Portable") != std::string::npos) {  // PoCL's device is a CPU
    EXPECT_EQ(first.kind, DeviceKind::cpu);
    EXPECT_TRUE(first.unified_memory);
    EXPECT_TRUE(first.can.f64);
  }
  EXPECT_GT(device()->free_memory(), 1u << 20);
}

TEST_F(OpenCl, OpeningAMissingDeviceReportsTheNumberOfDevices) {
  try {
    driver().open(99);
    FAIL();
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("opencl:99"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("OpenCL device"), std::string::npos) << e.what();
  }
}

TEST_F(OpenCl, SaxpyIsCorrectForManySizes) {
  const Function fn = saxpy();
  const auto kernel = compile(fn);
  for (std::size_t n : {1u, 2u, 63u, 64u, 65u, 255u, 256u, 257u, 1000u, 70001u}) {
    const auto x = random_floats(n), y = random_floats(n);
    const Memory<float> dx(x), dy(y);
    const Argument args[] = {dx.argument(), dy.argument(), scalar(2.5f)};
    queue().launch(*kernel, {n, 1, 1}, args);
    const auto got = dy.read();
    for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(got[i], 2.5f * x[i] + y[i], 1e-6f) << i << " of " << n;
  }
}

TEST_F(OpenCl, WritesOnlyWithinTheExtentAndAppliesOffsets) {
  const std::size_t n = 100;
  const auto x = random_floats(n + 7);
  const std::vector<float> y(n + 20, 1.0f);
  const Memory<float> dx(x), dy(y);
  run(saxpy(), {n, 1, 1}, {dx.argument(7), dy.argument(5), scalar(1.0f)});
  const auto got = dy.read();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool inside = i >= 5 && i < 5 + n;
    ASSERT_EQ(got[i], inside ? x[i - 5 + 7] + 1.0f : 1.0f) << i;
  }
}

TEST_F(OpenCl, KernelsWith64BitIndicesAreCorrect) {
  const auto x = random_floats(777), y = random_floats(777);
  const Memory<float> dx(x), narrow(y), wide(y);
  run(saxpy(), {777, 1, 1}, {dx.argument(), narrow.argument(), scalar(0.5f)}, {.index64 = false});
  run(saxpy(), {777, 1, 1}, {dx.argument(), wide.argument(), scalar(0.5f)}, {.index64 = true});
  EXPECT_EQ(narrow.read(), wide.read());
}

TEST_F(OpenCl, FillsWithAllPatternSizesAndCopiesWithOffsets) {
  std::vector<std::uint8_t> expected(1024, 0);
  const Memory<std::uint8_t> a(expected), b(expected);
  for (std::size_t size : {1u, 2u, 4u, 8u}) {
    std::vector<std::byte> pattern(size);
    for (std::size_t i = 0; i < size; ++i) pattern[i] = static_cast<std::byte>(16 * size + i);
    const std::size_t at = 64 * size, bytes = 5 * size;
    queue().fill(a.allocation(), at, bytes, pattern);
    for (std::size_t i = 0; i < bytes; ++i) expected[at + i] = static_cast<std::uint8_t>(pattern[i % size]);
  }
  EXPECT_EQ(a.read(), expected);
  queue().copy(b.allocation(), 3, a.allocation(), 60, 500);
  std::vector<std::uint8_t> right(1024, 0);
  std::copy_n(expected.begin() + 60, 500, right.begin() + 3);
  EXPECT_EQ(b.read(), right);
  // Copies between overlapping ranges of one allocation, in both directions.
  queue().copy(b.allocation(), 10, b.allocation(), 0, 600);
  std::copy_backward(right.begin(), right.begin() + 600, right.begin() + 610);
  EXPECT_EQ(b.read(), right);
  queue().copy(b.allocation(), 0, b.allocation(), 33, 900);
  std::copy(right.begin() + 33, right.begin() + 933, right.begin());
  EXPECT_EQ(b.read(), right);
  std::uint8_t few[5];
  queue().download(few, b.allocation(), 7, 5);
  EXPECT_TRUE(std::equal(few, few + 5, right.begin() + 7));
  queue().upload(b.allocation(), 1, few, 0);
  queue().fill(b.allocation(), 0, 0, std::vector<std::byte>(4));
  queue().copy(b.allocation(), 0, a.allocation(), 0, 0);
  EXPECT_EQ(b.read(), right);
}

TEST_F(OpenCl, CopiesToAndFromPinnedMemory) {
  const Allocation pinned = device()->allocate(4000, MemoryKind::pinned);
  ASSERT_NE(pinned.host, nullptr);
  auto* floats = reinterpret_cast<float*>(pinned.host);
  for (int i = 0; i < 1000; ++i) floats[i] = static_cast<float>(i);
  const Memory<float> there(1000);
  queue().copy(there.allocation(), 0, pinned, 0, 4000);
  queue().finish();
  std::memset(pinned.host, 0, 4000);
  queue().copy(pinned, 400, there.allocation(), 0, 3600);
  queue().finish();
  for (int i = 100; i < 1000; ++i) ASSERT_EQ(floats[i], static_cast<float>(i - 100));
  device()->release(pinned);
}

TEST_F(OpenCl, UploadsReuseStagingBuffers) {
  const std::size_t n = 180000;  // 720 kB: two uploads fit in a staging buffer, and there are more uploads than buffers
  std::vector<std::unique_ptr<Memory<std::uint32_t>>> memories;
  for (std::uint32_t k = 0; k < 60; ++k) {
    std::vector<std::uint32_t> values(n, k);
    values[n - 1] = ~k;
    memories.push_back(std::make_unique<Memory<std::uint32_t>>(values));
    std::ranges::fill(values, 0xdeadu);
  }
  for (std::uint32_t k = 0; k < 60; ++k) {
    const auto got = memories[k]->read();
    ASSERT_EQ(std::pair(got[0], got[n - 1]), std::pair(k, ~k));
  }
}

TEST_F(OpenCl, PinnedAllocationIsThreadSafe) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<Allocation> mine;
      for (unsigned i = 0; i < 20; ++i) {
        mine.push_back(device()->allocate(1000 + 100 * i, MemoryKind::pinned));
        ASSERT_NE(mine.back().host, nullptr);
        std::memset(mine.back().host, static_cast<int>(t), mine.back().bytes);
        if (i % 3 == 0) {
          EXPECT_EQ(mine.front().host[0], static_cast<std::byte>(t));
          device()->release(mine.front());
          mine.erase(mine.begin());
        }
      }
      for (const Allocation& a : mine) {
        EXPECT_EQ(a.host[a.bytes - 1], static_cast<std::byte>(t));
        device()->release(a);
      }
    });
  for (std::thread& t : threads) t.join();
}

// Users attach this text to bug reports for driver vendors.
TEST_F(OpenCl, KernelSourceIsACompleteProgram) {
  std::vector<Function> fns = {saxpy(), zoo::tiled_product()};
  for (const DType t : {DType::i8, DType::f32}) fns.push_back(zoo::arithmetic(t));  // with helper functions
  std::vector<CompileRequest> requests;
  for (const Function& f : fns) requests.push_back({&f, {}});
  const auto kernels = device()->compile(requests);
  const auto context = static_cast<cl::Context>(device()->native_context());
  cl::DeviceId id = nullptr;
  constexpr std::uint32_t context_devices = 0x1081;
  const auto get_context_info =
      cl::api().library.function<cl::Code(cl::Context, std::uint32_t, std::size_t, void*, std::size_t*)>(
          "clGetContextInfo");
  ASSERT_EQ(get_context_info(context, context_devices, sizeof id, &id, nullptr), cl::success);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const std::string text = kernels[i]->source();
    EXPECT_NE(text.find("void " + fns[i].name), text.npos) << text;
    const char* source = text.c_str();
    cl::Code code = cl::success;
    const cl::Program program = cl::api().create_program(context, 1, &source, nullptr, &code);
    ASSERT_EQ(code, cl::success);
    EXPECT_EQ(cl::api().build_program(program, 1, &id, "-cl-std=CL1.2", nullptr, nullptr), cl::success) << text;
    cl::api().release_program(program);
  }
  EXPECT_NE(kernels[2]->source().find("static inline char tessera_div_i8"), std::string::npos) << kernels[2]->source();
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(OpenCl, RejectsUnsupportedFeaturesAndNamesTheKernel) {
  const Function big = block_kernel("big", {32, 1, 1}, [] {
    const BufferRef x = buffer_param("x", DType::f32, Access::read_write);
    const BufferRef s = shared(DType::f32, 1 << 24);
    s.store(thread_id(), 1.0);
    barrier();
    x.store(thread_id(), s.load(0));
  });
  const std::string text = test::text_of<KernelError>([&] { compile(big); });
  EXPECT_HAS(text, "kernel big");
  EXPECT_HAS(text, "shared memory");
  const Memory<float> x(8);
  const std::string few = test::text_of<KernelError>([&] { run(saxpy(), {8, 1, 1}, {x.argument()}); });
  EXPECT_HAS(few, "saxpy");
  const Argument odd{&x.allocation(), 2, 4};
  const std::string offset = test::text_of<KernelError>([&] {
    run(saxpy(), {1, 1, 1}, {odd, x.argument(), scalar(1.0f)});
  });
  EXPECT_HAS(offset, "buffer x");
}

TEST_F(OpenCl, DeviceRemainsUsableAfterOutOfMemory) {
  test::text_of<OutOfMemory>([] { device()->allocate(std::size_t{1} << 60, MemoryKind::device); });
  const std::vector<float> v = {1, 2, 3};
  EXPECT_EQ(Memory<float>(v).read(), v);
}

}  // namespace
}  // namespace tessera::test
