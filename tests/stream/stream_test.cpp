// SPDX-License-Identifier: Apache-2.0
// Behaviour of the `cuda`, `rocm` and `oneapi` backends that the tests for all devices do not cover: grids, staging,
// contexts, faults, and reports on unusable libraries and drivers. Each case runs in a separate process with fake
// drivers. Some tests use the vendors' compilers, if they are installed.
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <sstream>

#include "tessera/backend/common/launch_shape.h"
#include "tessera/backend/cuda/cuda.h"
#include "tessera/backend/cuda/nvrtc.h"
#include "tessera/backend/oneapi/oneapi.h"
#include "tessera/backend/rocm/rocm.h"
#include "tessera/backend/stream/errors.h"
#include "tessera/backend/stream/library.h"
#include "tessera/base/error.h"
#include "tessera/base/os/library_search.h"
#include "tessera/base/os/system.h"
#include "tessera/device/driver.h"
#include "tessera/ir/value.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::run_in_child;
using test::Variables;
namespace fs = std::filesystem;

std::string fake(const std::string& name) { return test::fake_library(name); }
Variables fakes(const Variables& more = {}) { return test::with_fakes(more); }
std::unique_ptr<Driver> driver_of(Backend backend) {
  return backend == Backend::cuda   ? make_cuda_driver()
         : backend == Backend::rocm ? make_rocm_driver()
                                    : make_oneapi_driver();
}

ir::Function add_one(const char* name = "add_one") {
  ir::Builder builder(name, ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read_write);
  const ir::Value i = ir::global_id();
  x.store(i, x.load(i) + 1.0f);
  return builder.finish();
}

backend::KernelShape shape_of(ir::KernelKind kind, std::array<bool, 3> guarded, bool index64 = true) {
  ir::Function fn;
  fn.name = "grid";
  fn.kind = kind;
  fn.block_size = {64, 1, 1};
  emit::EmittedKernel emitted;
  emitted.dimensions = guarded;
  return {fn, emitted, index64};
}
const Capabilities cuda_limits = {.max_block = {1024, 1024, 64}, .max_blocks = {2147483647, 65535, 65535}};

TEST(Grids, MapKernelGridsCoverTheShapeWithinLimits) {
  std::mt19937_64 random(7);
  const auto kernel = shape_of(ir::KernelKind::map, {true, true, true});
  for (int i = 0; i < 2000; ++i) {
    std::array<std::uint64_t, 3> shape;
    for (auto& n : shape) n = 1 + (random() >> (38 + random() % 26));
    backend::Grid g;
    try {
      g = backend::grid_of(kernel, shape, cuda_limits, 1024);
    } catch (const KernelError&) {
      // The numbers of threads in y and z are powers of two. For this shape, a block would have more than 1,024
      // threads.
      auto needed = [](std::uint64_t n) { return std::bit_ceil((n + 65534) / 65535); };
      EXPECT_TRUE(needed(shape[2]) > 64 || needed(shape[1]) * needed(shape[2]) > 1024) << shape[1] << " " << shape[2];
      continue;
    }
    EXPECT_LE(g.block[0] * g.block[1] * g.block[2], 1024u);
    for (int d = 0; d < 3; ++d) {
      EXPECT_LE(g.block[d], cuda_limits.max_block[d]);
      EXPECT_LE(g.blocks[d], cuda_limits.max_blocks[d]);
      EXPECT_GE(g.blocks[d] * g.block[d], shape[d]);
      EXPECT_LT((g.blocks[d] - 1) * g.block[d], shape[d]);
      EXPECT_GE(g.block[d], 1u);
    }
  }
  // 65,535 blocks of 4 threads are not sufficient, so blocks must be larger.
  EXPECT_EQ(backend::grid_of(kernel, {64, 1000000, 1}, cuda_limits, 1024).block[1], 16u);
}

TEST(Grids, RejectsGridsThatDoNotFit) {
  const auto block = shape_of(ir::KernelKind::block, {true, true, true});
  EXPECT_EQ(backend::grid_of(block, {2147483647, 65535, 1}, cuda_limits, 1024).blocks[1], 65535u);
  test::expect_throw<KernelError>(
      [&] {
        backend::grid_of(block, {1, 65536, 1}, cuda_limits, 1024);
      },
      {"kernel grid", "65536 blocks", "dimension 1", "at most 65535"});
  // HIP counts the threads along a dimension with 32 bits.
  Capabilities hip = cuda_limits;
  hip.max_grid_threads = {0xffffffff, 0xffffffff, 0xffffffff};
  EXPECT_NO_THROW(backend::grid_of(block, {67108863, 1, 1}, hip, 1024));
  test::expect_throw<KernelError>(
      [&] {
        backend::grid_of(block, {67108864, 1, 1}, hip, 1024);
      },
      {"dimension 0", "67108863"});
  test::expect_throw<KernelError>(
      [&] {
        backend::grid_of(shape_of(ir::KernelKind::map, {true, false, false}, false), {1ull << 31, 1, 1}, hip, 1024);
      },
      {"32-bit indices"});
}

TEST(Faults, AreClassifiedByCode) {
  using stream::Fault, stream::fault_of;
  EXPECT_EQ(fault_of(0), Fault::none);
  EXPECT_EQ(fault_of(2), Fault::memory);
  for (int code : {1, 9, 200, 209, 218, 222, 400, 500, 701}) EXPECT_EQ(fault_of(code), Fault::refused) << code;
  for (int code : {4, 100, 201, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999, 12345})
    EXPECT_EQ(fault_of(code), Fault::lost) << code;
}

TEST(Identity, HasTheSameFormatForEveryBackend) {
  EXPECT_EQ(stream::pci_identity("0000:3B:00.0"), "pci:0000:3b:00.0");
  EXPECT_EQ(stream::pci_identity("00000008:01:00.0"), "pci:0008:01:00.0");
  EXPECT_EQ(stream::pci_identity("nothing"), "");
  char bytes[16] = {};
  bytes[0] = static_cast<char>(0xab);
  EXPECT_EQ(stream::uuid_identity(bytes), "uuid:ab000000000000000000000000000000");
}

TEST(LibrarySearch, FindsToolkitsAndPythonPackages) {
  const fs::path root = fs::temp_directory_path() / ("tessera-search-" + std::to_string(::getpid()));
  auto touch = [&](const fs::path& file) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << "x";
  };
  for (const char* file :
       {"cuda-12.9/lib64/libnvrtc.so", "cuda-12.9/lib64/libnvrtc.so.12", "cuda-12.9/lib64/libnvrtc.so.12.9.86",
        "cuda-12.9/lib64/libnvrtc-builtins.so.12.9", "cuda-12.10/lib64/libnvrtc.so",
        "cuda-12.10/lib64/libnvrtc.alt.so.12", "env/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"})
    touch(file);
  const auto folders = os::folders_named(root, "cuda", "lib64");
  EXPECT_EQ(os::library_files(folders, "libnvrtc.so"),
            (std::vector<std::string>{(root / "cuda-12.10/lib64/libnvrtc.so").string(),
                                      (root / "cuda-12.9/lib64/libnvrtc.so.12").string()}));
  const std::string found = run_in_child({{"VIRTUAL_ENV", (root / "env").string()}}, [] {
    const auto files = os::library_files(os::python_library_folders("nvidia"), "libnvrtc.so");
    return files.empty() ? std::string("none") : files[0];
  });
  EXPECT_EQ(found, (root / "env/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12").string());
  EXPECT_TRUE(os::library_files(std::vector<fs::path>{root / "absent"}, "libnvrtc.so").empty());
  EXPECT_EQ(os::read_write_access((root / "absent").c_str()), os::Access::missing);
  EXPECT_EQ(os::read_write_access(root.c_str()), os::Access::granted);
  fs::remove_all(root);
}

// With fake drivers:

class OverFakes : public ::testing::TestWithParam<Backend> {
 protected:
  Backend backend() const { return GetParam(); }
  bool cuda() const { return backend() == Backend::cuda; }
  bool rocm() const { return backend() == Backend::rocm; }
  const test::FakeBackend& named() const { return test::fake_backend(backend()); }
  std::string library() const { return named().driver_variable; }
  std::string compiler() const { return named().compiler_variable; }
  std::string driver_name() const { return named().driver; }

  /// Returns the result of `enumerate` as text.
  std::string row(Variables variables) const {
    return run_in_child(fakes(std::move(variables)), [this] {
      const auto driver = driver_of(backend());
      const BackendReport report = driver->enumerate();
      std::string out = std::string(state_name(report.state)) + " | " + report.file + " | " + report.reason + " | " +
                        report.remedy + "\n";
      for (const DeviceInfo& d : report.devices)
        out += to_string(d.device) + " " + d.identity + " " + std::string(state_name(d.state)) + " " + d.reason +
               " | " + d.remedy + "\n";
      return out;
    });
  }
  std::string on_device(Variables variables, const std::function<std::string(DriverDevice&)>& work) const {
    const fs::path breaches = fs::temp_directory_path() / ("tessera-breaches-" + std::to_string(::getpid()));
    fs::remove(breaches);
    variables.emplace_back("TESSERA_FAKE_BREACHES", breaches.string());
    std::string answer = run_in_child(fakes(std::move(variables)), [&] {
      const auto driver = driver_of(backend());
      driver->enumerate();
      return work(*driver->open(0));
    });
    if (std::ifstream in(breaches); in) {
      std::stringstream text;
      text << in.rdbuf();
      answer += text.str();
    }
    fs::remove(breaches);
    return answer;
  }
};

TEST_P(OverFakes, CopyAndFillWithAllPatternsAndRanges) {
  EXPECT_EQ(on_device({},
                      [](DriverDevice& device) -> std::string {
                        constexpr std::size_t bytes = std::size_t{21} << 20;  // larger than the staging memory
                        std::mt19937_64 random(3);
                        std::vector<std::uint64_t> data(bytes / 8), got(bytes / 8);
                        for (auto& v : data) v = random();
                        std::vector<std::byte> expected(bytes);
                        std::memcpy(expected.data(), data.data(), bytes);
                        const Allocation a = device.allocate(bytes, MemoryKind::device),
                                         pinned = device.allocate(4096, MemoryKind::pinned);
                        const auto queue = device.make_queue();
                        std::string wrong;
                        auto same = [&](const char* what) {
                          queue->download(got.data(), a, 0, bytes);
                          if (std::memcmp(got.data(), expected.data(), bytes) != 0) wrong += std::string(what) + " ";
                        };
                        queue->upload(a, 0, data.data(), bytes);
                        std::fill(data.begin(), data.end(), 0);  // the caller may reuse its memory immediately
                        same("upload");
                        for (const auto [to, from, count] : {std::array<std::size_t, 3>{0, 1 << 20, 10 << 20},
                                                             {1 << 20, 0, 10 << 20},
                                                             {0, 8, 100000},
                                                             {24, 0, 100000},
                                                             {5, 5, 100}}) {
                          queue->copy(a, to, a, from, count);
                          std::memmove(expected.data() + to, expected.data() + from, count);
                          same("overlap");
                        }
                        for (const std::uint64_t pattern : {0x0123456789abcdefull, 0x0123456701234567ull, 0ull})
                          for (const std::size_t size : {1u, 2u, 4u, 8u}) {
                            const std::size_t offset = 8 * (1 + random() % 1000),
                                              count = size * (1 + random() % 100000);
                            queue->fill(a, offset, count, std::as_bytes(std::span(&pattern, 1)).first(size));
                            for (std::size_t i = 0; i < count; ++i)
                              expected[offset + i] = std::as_bytes(std::span(&pattern, 1))[i % size];
                            same("fill");
                          }
                        const std::uint32_t seven = 7;
                        queue->fill(pinned, 0, 4096, std::as_bytes(std::span(&seven, 1)));
                        queue->copy(a, 64, pinned, 0, 4096);
                        std::memcpy(expected.data() + 64, pinned.host, 4096);
                        same("from pinned");
                        queue->copy(pinned, 0, a, 8192, 4096);
                        queue->finish();
                        if (std::memcmp(pinned.host, expected.data() + 8192, 4096) != 0) wrong += "to pinned ";
                        device.release(a), device.release(pinned);
                        return wrong;
                      }),
            "");
}

TEST_P(OverFakes, CallsRestoreTheCurrentContextOfTheThread) {
  if (!cuda() && !rocm()) return;  // Level Zero has no current context
  EXPECT_EQ(on_device({{"TESSERA_FAKE_DEVICES", "2"}},
                      [this](DriverDevice& device) -> std::string {
                        void* const lib = ::dlopen(fake(driver_name()).c_str(), RTLD_NOW | RTLD_LOCAL);
                        auto current = [&]() -> std::uintptr_t {
                          if (cuda()) {
                            void* context = nullptr;
                            reinterpret_cast<int (*)(void**)>(::dlsym(lib, "cuCtxGetCurrent"))(&context);
                            return reinterpret_cast<std::uintptr_t>(context);
                          }
                          int number = -1;
                          reinterpret_cast<int (*)(int*)>(::dlsym(lib, "hipGetDevice"))(&number);
                          return static_cast<std::uintptr_t>(number);
                        };
                        // Other code on this thread has made the second device current.
                        if (cuda()) {
                          void* second = nullptr;
                          reinterpret_cast<int (*)(void**, int)>(::dlsym(lib, "cuDevicePrimaryCtxRetain"))(&second, 1);
                          reinterpret_cast<int (*)(void*)>(::dlsym(lib, "cuCtxSetCurrent"))(second);
                        } else {
                          reinterpret_cast<int (*)(int)>(::dlsym(lib, "hipSetDevice"))(1);
                        }
                        const std::uintptr_t before = current();
                        const Allocation a = device.allocate(4096, MemoryKind::device);
                        const auto queue = device.make_queue();
                        const float one = 1;
                        queue->fill(a, 0, 4096, std::as_bytes(std::span(&one, 1)));
                        const auto event = queue->record();
                        event->wait();
                        device.free_memory();
                        device.release(a);
                        return current() == before && before != 0 ? "" : "changed";
                      }),
            "");
}

TEST_P(OverFakes, FaultsMapToErrorTypes) {
  const auto work = [](DriverDevice& device) -> std::string {
    std::string kinds;
    auto kind_of = [&](const std::function<void()>& f) {
      try {
        f();
        kinds += "fine ";
      } catch (const OutOfMemory&) {
        kinds += "memory ";
      } catch (const KernelError&) {
        kinds += "refused ";
      } catch (const DeviceError&) {
        kinds += "lost ";
      }
    };
    const ir::Function fn = add_one();
    const CompileRequest request{&fn, {}};
    std::vector<std::unique_ptr<LoadedKernel>> kernels;
    Allocation a;
    std::unique_ptr<DriverQueue> queue;
    kind_of([&] { kernels = device.compile(std::span(&request, 1)); });
    kind_of([&] { a = device.allocate(400, MemoryKind::device); });
    kind_of([&] { queue = device.make_queue(); });
    if (kernels.empty() || !queue) return kinds;
    const Argument argument{.allocation = &a, .elements = 100};
    const float one = 1;
    kind_of([&] { queue->fill(a, 0, 400, std::as_bytes(std::span(&one, 1))); });
    for (int i = 0; i < 2; ++i) kind_of([&] { queue->launch(*kernels[0], {100, 1, 1}, std::span(&argument, 1)); });
    kind_of([&] { queue->finish(); });
    return kinds;
  };
  EXPECT_EQ(on_device({}, work), "fine fine fine fine fine fine fine ");
  EXPECT_EQ(on_device({{"TESSERA_FAKE_FAULT", "oom=1"}}, work).substr(0, 12), "fine memory ");
  EXPECT_EQ(on_device({{"TESSERA_FAKE_FAULT", "launch=1"}}, work), "fine fine fine fine refused fine fine ");
  EXPECT_EQ(on_device({{"TESSERA_FAKE_FAULT", "compile"}}, work), "refused fine fine ");
  EXPECT_EQ(on_device({{"TESSERA_FAKE_FAULT", "cubin:209"}, {"TESSERA_CODEGEN_LIBRARY", "none"}}, work),
            "refused fine fine ");
  EXPECT_EQ(on_device({{"TESSERA_FAKE_FAULT", "lost=2"}}, work), "fine fine fine fine lost lost lost ");
  EXPECT_EQ(on_device({{"TESSERA_FAKE_FAULT", "late=2"}}, work), "fine fine fine fine fine fine lost ");
}

TEST_P(OverFakes, ErrorsNameTheKernelThatFailsInABatch) {
  const std::string text = on_device({{"TESSERA_FAKE_FAULT", "compile"}}, [](DriverDevice& device) {
    const ir::Function first = add_one("first"), second = add_one("second");
    const CompileRequest requests[] = {{&first, {}}, {&second, {.noalias = false}}};
    device.compile(requests);
    return std::string("compiled");
  });
  expect_contains(text, {"exception", "kernel first", "the device's compiler rejected it", "error"});
}

TEST_P(OverFakes, ReportReasonAndRemedyForEachState) {
  expect_contains(row({}), {"enumerated", fake(driver_name())});
  expect_contains(row({{library(), "/no/such/library.so"}}),
                  {"supported", "/no/such/library.so", "cannot open", library(), "no other is tried"});
  expect_contains(row({{library(), fake(driver_name() + "_refuses")}}),
                  {"supported", "tessera_fake_library_that_is_not_installed"});
  expect_contains(
      row({{library(), fake(driver_name() + "_incomplete")}}),
      {"supported", "no " + std::string(named().missing), library() + " names this file", "no other is tried"});
  expect_contains(row({{"TESSERA_FAKE_FAULT", "no-devices"}}), {"loaded", named().no_device});
  expect_contains(row({{"TESSERA_FAKE_FAULT", "init:999"}}), {"loaded", cuda() || rocm() ? "(999)" : "(0x7ffffffe)"});
  expect_contains(row({{compiler(), "/no/such/compiler.so"}, {"TESSERA_OPENCL_LIBRARY", "/no/such/libOpenCL.so"}}),
                  {"loaded", ":0 pci:", "the device was found, but", "/no/such/compiler.so", compiler()});
  if (cuda()) {
    expect_contains(row({{"TESSERA_FAKE_FAULT", "init:803"}}), {"803", "different versions"});
    expect_contains(row({{"TESSERA_FAKE_FAULT", "init:804"}}), {"804", "cuda-compat"});
    expect_contains(row({{"TESSERA_FAKE_FAULT", "init:34"}}), {"34", "stub"});
    expect_contains(row({{"TESSERA_FAKE_FAULT", "no-devices"}, {"CUDA_VISIBLE_DEVICES", ""}}),
                    {"CUDA_VISIBLE_DEVICES is set to \"\""});
    expect_contains(row({{compiler(), fake("nvrtc_incomplete")}}), {"no nvrtcGetCUBIN"});
  } else if (rocm()) {
    for (const char* major : {"4", "8"})
      expect_contains(row({{"TESSERA_FAKE_FAULT", std::string("hip-major=") + major}}),
                      {"loaded", std::string("HIP version ") + major, "5, 6 and 7"});
    for (const char* major : {"5", "7"})
      expect_contains(row({{"TESSERA_FAKE_FAULT", std::string("hip-major=") + major}}), {"enumerated", "rocm:0 pci:"});
  }
}

TEST_P(OverFakes, OrderDevicesByPciAddress) {
  const std::string text = row({{"TESSERA_FAKE_DEVICES", "4"}});
  std::vector<std::string> identities;
  std::istringstream lines(text);
  std::string line, device, identity;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream(line) >> device >> identity;
    identities.push_back(identity);
  }
  ASSERT_EQ(identities.size(), 4u) << text;
  EXPECT_TRUE(std::ranges::is_sorted(identities)) << text;
  EXPECT_TRUE(std::ranges::adjacent_find(identities) == identities.end()) << text;
}

INSTANTIATE_TEST_SUITE_P(Backends, OverFakes, ::testing::Values(Backend::cuda, Backend::rocm, Backend::oneapi),
                         [](const auto& info) { return std::string(backend_name(info.param)); });

// The vendors' compilers:

TEST(Compilers, NvrtcCompilesToCodeOrPtxAndReportsErrors) {
  const auto nvrtc = cuda::Nvrtc::open(1000000);
  if (!nvrtc.usable()) GTEST_SKIP() << "passed by: NVRTC is not installed: " << nvrtc.reason();
  const int oldest = nvrtc.supported().front(), newest = nvrtc.supported().back();
  EXPECT_EQ(nvrtc.architecture_for(oldest), "sm_" + std::to_string(oldest));
  EXPECT_EQ(nvrtc.architecture_for(newest + 10), "compute_" + std::to_string(newest)) << "the driver compiles it";
  EXPECT_EQ(nvrtc.architecture_for(oldest - 1), "");
  const auto ptx =
      nvrtc.compile("extern \"C\" __global__ void f(int* p) { *p = 1; }", nvrtc.architecture_for(newest + 10), false);
  ASSERT_TRUE(ptx.made) << ptx.log;
  expect_contains(ptx.bytes, {".target sm_" + std::to_string(newest), ".entry f"});
  const auto bad = nvrtc.compile("int f() { return missing; }", nvrtc.architecture_for(90), false);
  EXPECT_FALSE(bad.made);
  expect_contains(bad.log, {"missing"});
  for (const bool exact : {false, true}) {
    const auto sum = nvrtc.compile("extern \"C\" __global__ void f(float* p) { p[0] = p[1] * p[2] + p[3]; }",
                                   nvrtc.architecture_for(newest + 10), exact);
    ASSERT_TRUE(sum.made) << sum.log;
    EXPECT_EQ(sum.bytes.find("fma.rn.f32") == std::string::npos, exact) << sum.bytes;
  }
}

}  // namespace
}  // namespace tessera
