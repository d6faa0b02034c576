// SPDX-License-Identifier: Apache-2.0
// Kernels compiled by the code-generation module, on every target that this machine can run.
#include "tests/support/cpu_kernels.h"

namespace tessera::testing {
namespace {

using namespace ir;

class CpuCodegen : public ::testing::Test {
 protected:
  std::mt19937 random{seed()};
  std::vector<float> reals(std::size_t n, float low = -2, float high = 2) {
    std::uniform_real_distribution<float> d(low, high);
    std::vector<float> out(n);
    for (float& v : out) v = d(random);
    return out;
  }
};

Function saxpy_kernel() {
  return map_kernel("saxpy", [] {
    auto x = buffer_param("x", DType::f32, Access::read), y = buffer_param("y", DType::f32, Access::read_write);
    auto a = scalar_param("a", DType::f32);
    auto i = global_id();
    y.store(i, a * x.load(i) + y.load(i));
  });
}

TEST_F(CpuCodegen, RunsOnTheModule) {
  Cpu cpu;
  EXPECT_EQ(cpu.info().reason, "");
  EXPECT_NE(cpu.info().driver_version.find("LLVM"), std::string::npos) << cpu.info().driver_version;
  EXPECT_EQ(cpu.info().kind, DeviceKind::cpu);
  EXPECT_GT(cpu.info().total_memory, 0u);
  EXPECT_GE(cpu.info().compute_units, 1u);
}

TEST_F(CpuCodegen, SaxpyOfEverySize) {
  const Function f = saxpy_kernel();
  for (Cpu* cpu : cpu_targets()) {
    auto kernel = cpu->compile(f);
    for (std::size_t n = 1; n <= 70; ++n) {
      auto x = reals(n), y = reals(n), before = y;
      cpu->call().buffer(x).buffer(y).scalar(2.5f).run(*kernel, {n, 1, 1});
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], 2.5f * x[i] + before[i], 2e-6) << cpu->target() << " " << n << " " << i;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
