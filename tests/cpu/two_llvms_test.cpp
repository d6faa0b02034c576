// SPDX-License-Identifier: Apache-2.0
// The code-generation module (LLVM 16) and PoCL (another version of LLVM) compile in the same process, in both orders.
// PoCL's cache is empty, because a cached kernel would hide a conflict. Each order runs in a separate process, because
// a conflict crashes the process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "tessera/backend/cpu/cpu.h"
#include "tessera/backend/opencl/opencl.h"
#include "tessera/base/error.h"
#include "tessera/device/driver.h"
#include "tessera/ir/value.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

ir::Function saxpy() {
  ir::Builder b("saxpy", ir::KernelKind::map);
  ir::Builder::Scope scope(b);
  auto x = ir::buffer_param("x", DType::f32, ir::Access::read),
       y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
  auto i = ir::global_id();
  y.store(i, 2.0f * x.load(i) + ir::exp(y.load(i)));
  return b.finish();
}

// Compiles and runs a kernel that computes 2 x + 1. Returns false if the result is wrong.
bool computes(DriverDevice& device) {
  const ir::Function f = saxpy();
  const CompileRequest request{&f, {}};
  const auto kernel = std::move(device.compile(std::span(&request, 1))[0]);
  constexpr std::size_t n = 1000;
  std::vector<float> x(n), y(n, 0.0f);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
  const auto queue = device.make_queue();
  const Allocation a = device.allocate(n * sizeof(float), MemoryKind::device),
                   b = device.allocate(n * sizeof(float), MemoryKind::device);
  queue->upload(a, 0, x.data(), n * sizeof(float));
  queue->upload(b, 0, y.data(), n * sizeof(float));
  const Argument arguments[] = {{.allocation = &a, .elements = n}, {.allocation = &b, .elements = n}};
  queue->launch(*kernel, {n, 1, 1}, arguments);
  queue->download(y.data(), b, 0, n * sizeof(float));
  device.release(a), device.release(b);
  for (std::size_t i = 0; i < n; ++i)
    if (y[i] != 2 * x[i] + 1) return false;
  return true;
}

enum Code { fine = 0, wrong_numbers = 1, threw = 2, no_pocl = 77, no_module = 78 };

int run(bool cpu_first) {
  try {
    auto cpu = make_cpu_driver();
    auto opencl = make_opencl_driver();
    auto on_cpu = [&] {
      auto device = cpu->open(0);
      if (!device->info().reason.empty()) return int(no_module);
      return computes(*device) ? int(fine) : int(wrong_numbers);
    };
    auto on_pocl = [&] {
      for (const DeviceInfo& info : opencl->enumerate().devices) {
        if (info.driver_version.find("ocl") == std::string::npos && info.name.find("pthread") == std::string::npos &&
            info.kind != DeviceKind::cpu)
          continue;
        auto device = opencl->open(info.device.index);
        return computes(*device) ? int(fine) : int(wrong_numbers);
      }
      return int(no_pocl);
    };
    const int first = cpu_first ? on_cpu() : on_pocl();
    if (first != fine) return first;
    const int second = cpu_first ? on_pocl() : on_cpu();
    if (second != fine) return second;
    return cpu_first ? on_cpu() : on_pocl();  // runs the first compiler again, after the second one
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return threw;
  }
}

class TwoLlvms : public ::testing::TestWithParam<bool> {};

TEST_P(TwoLlvms, ModuleAndPoclCompileInOneProcess) {
  const test::Folder cache;
  const pid_t child = ::fork();  // this process has opened neither library
  if (child == 0) {
    ::setenv("POCL_CACHE_DIR", cache.path().c_str(), 1);
    ::alarm(240);
    const int code = run(GetParam());
    std::fflush(stderr);
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "the process was killed by signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == no_pocl)
    GTEST_SKIP() << "no OpenCL device that is a CPU: PoCL (pocl-opencl-icd) is not installed";
  if (WEXITSTATUS(status) == no_module)
    GTEST_SKIP() << "the code-generation module was not built (TESSERA_CODEGEN=OFF)";
  EXPECT_EQ(WEXITSTATUS(status), fine);
}

INSTANTIATE_TEST_SUITE_P(Orders, TwoLlvms, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ModuleFirst" : "PoclFirst"; });

}  // namespace
}  // namespace tessera
