// SPDX-License-Identifier: Apache-2.0
// Concurrent launches on the CPU, launches in forked children, and the backend without the code-generation module.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "tessera/device/launch/operation_count.h"
#include "tessera/emit/lower.h"
#include "tests/cpu/cpu_compare.h"

namespace tessera::testing {
namespace {

ir::Function add_one() {
  return map_kernel("add_one", [] {
    auto x = ir::buffer_param("x", DType::i32, ir::Access::read_write);
    x.store(ir::global_id(), x.load(ir::global_id()) + 1);
  });
}

TEST(CpuLaunch, ForkedChildRunsKernels) {
  Cpu cpu;
  std::vector<std::int32_t> x(2'000'000, 5);
  cpu.call().buffer(x).run(add_one(), {x.size(), 1, 1});
  ASSERT_EQ(x[1'999'999], 6);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // kills a child that hangs, so that the test fails
    try {
      cpu.call().buffer(x).run(add_one(), {x.size(), 1, 1});
      _exit(x[0] == 7 && x[1'999'999] == 7 ? 0 : 1);
    } catch (const DeviceError&) {
      _exit(2);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(CpuLaunch, LaunchIsThreadSafe) {
  Cpu cpu;
  auto kernel = cpu.compile(add_one());
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      std::vector<std::int32_t> x(300'000, 1);
      for (int i = 0; i < 5; ++i) cpu.call().buffer(x).run(*kernel, {x.size(), 1, 1});
      for (auto v : x) ASSERT_EQ(v, 6);
    });
  for (auto& c : callers) c.join();
}

TEST(CpuLaunch, EstimatesThreadCostFromScalarsAndSizes) {
  const ir::Function fn = map_kernel("sums", [] {
    const auto x = ir::buffer_param("x", DType::f32, ir::Access::read_write);
    const auto y = ir::buffer_param("y", DType::i32, ir::Access::read);
    const auto n = ir::scalar_param("n", DType::i32);
    const auto add = [&](const auto& begin, const auto& end, int step) {
      ir::for_(begin, end, step, [&](const ir::Value& i) { x.store(i, x.load(i) + 1.0f); });
    };
    add(1, ir::cast(DType::index, n) * 3 - 1, 2);
    add(0, y.size(), 1);
    add(0, ir::cast(DType::index, y.load(0)), 1);  // unknown at launch
    ir::Value doubled = ir::cast(DType::index, n);
    for (int i = 0; i < 200; ++i) doubled = doubled + doubled;
    add(0, doubled, 1);  // also unknown, because the analysis gives up after some steps
  });
  const OperationCount cost(emit::lower(fn, {}));
  Packer packed;
  cost.pack(packed);
  const std::string bytes = packed.take();
  Unpacker in(bytes);
  const OperationCount again(in);
  in.end();
  const auto of = [&](std::int64_t n, std::uint64_t size) {
    const std::array<Argument, 3> arguments = {Argument{}, Argument{.elements = size},
                                               Argument{.bits = static_cast<std::uint64_t>(n)}};
    EXPECT_EQ(cost(arguments), again(arguments));
    return cost(arguments);
  };
  const double none = of(0, 0);
  EXPECT_GE(none, 2 * 64 * 3);
  EXPECT_EQ(of(-2, 0), none);  // zero iterations, not a negative number
  const double round = (of(4, 0) - none) / 5;
  EXPECT_GE(round, 3);
  EXPECT_EQ(of(2000, 0) - none, 2999 * round);
  EXPECT_EQ(of(0, 1000) - none, 1000 * (of(0, 1) - none));
}

TEST(CpuWithoutModule, FallsBackToInterpreterWithWarning) {
  ::setenv("TESSERA_CODEGEN_LIBRARY", "/nowhere/libtessera-codegen.so", 1);
  Cpu cpu;
  ::unsetenv("TESSERA_CODEGEN_LIBRARY");
  EXPECT_NE(cpu.info().reason.find("/nowhere/libtessera-codegen.so"), std::string::npos) << cpu.info().reason;
  EXPECT_NE(cpu.info().reason.find("interpreter"), std::string::npos) << cpu.info().reason;
  EXPECT_NE(cpu.info().remedy.find("TESSERA_CODEGEN_LIBRARY"), std::string::npos) << cpu.info().remedy;
  std::vector<std::int32_t> x(1000, 1);
  cpu.call().buffer(x).run(add_one(), {x.size(), 1, 1});
  for (auto v : x) ASSERT_EQ(v, 2);
  EXPECT_NE(cpu.compile(add_one())->source().find("kernel add_one"), std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
