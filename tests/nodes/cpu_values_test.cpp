// SPDX-License-Identifier: Apache-2.0
// Runs the table of nodes (node_table_test) for older CPUs, which have narrower vectors and no 16-bit float
// conversions. Only CPU levels that this machine can execute are tested.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tessera/backend/cpu/cpu.h"
#include "tessera/base/error.h"
#include "tessera/device/driver.h"
#include "tests/nodes/node_table.h"

namespace tessera::test {
namespace {

/// A CPU device that generates code for a given CPU level. Throws DeviceError if this machine cannot run it.
class CpuTarget : public Target {
 public:
  explicit CpuTarget(std::string target) : name_(std::move(target)) {
    ::setenv("TESSERA_CPU_TARGET", name_.c_str(), 1);
    driver_ = make_cpu_driver();
    device_ = driver_->open(0);
    ::unsetenv("TESSERA_CPU_TARGET");
    queue_ = device_->make_queue();
  }
  std::string name() const override { return name_; }
  const Capabilities& can() const override { return device_->info().can; }
  Functions functions(DType t) const override { return t == DType::f64 ? Functions::host : Functions::ours; }
  void run(const ir::Function& fn, std::array<std::uint64_t, 3> shape, std::vector<Memory>& memory) override {
    const CompileRequest request{&fn, {.noalias = true, .index64 = index64(memory)}};
    const auto kernel = std::move(device_->compile({&request, 1})[0]);
    std::vector<Allocation> allocations(memory.size());
    std::vector<Argument> arguments(memory.size());
    for (std::size_t k = 0; k < memory.size(); ++k) {
      arguments[k].bits = memory[k].bits;
      if (!memory[k].is_buffer) continue;
      allocations[k] = device_->allocate(memory[k].bytes.size(), MemoryKind::device);
      std::memcpy(allocations[k].host, memory[k].bytes.data(), memory[k].bytes.size());
      arguments[k] = {&allocations[k], guard, memory[k].elements};
    }
    queue_->launch(*kernel, shape, arguments);
    queue_->finish();
    for (std::size_t k = 0; k < memory.size(); ++k) {
      if (!memory[k].is_buffer) continue;
      std::memcpy(memory[k].bytes.data(), allocations[k].host, memory[k].bytes.size());
      device_->release(allocations[k]);
    }
  }

 private:
  std::string name_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<DriverDevice> device_;
  std::unique_ptr<DriverQueue> queue_;
};

TEST(CpuValues, EveryCellIsCorrectOnEveryCpuLevel) {
  std::vector<std::unique_ptr<Target>> targets;
  std::vector<const char*> levels = {"x86-64-v3", "x86-64"};  // cpu:0 is "native", tested by node_table_test
#if !defined(__x86_64__)
  levels = {"generic"};
#else
  if (std::getenv("TESSERA_TEST_LONG") != nullptr) levels = {"x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"};
#endif
  for (const char* name : levels) {
    try {
      targets.push_back(std::make_unique<CpuTarget>(name));
    } catch (const DeviceError& e) {
      ::unsetenv("TESSERA_CPU_TARGET");
      std::printf("skipped: %s\n", e.what());
    }
  }
  ASSERT_FALSE(targets.empty());
  const std::size_t count = targets.size();
  const Table table = walk(std::move(targets));
  std::size_t cells = 0, refused = 0;
  for (const auto& row : table.cells)
    for (const Cell& cell : row) cells += cell.refusal.empty(), refused += cell.lacking.size();
  std::printf("%zu cells on %zu targets, %zu rejected\n", cells, count, refused);
  EXPECT_EQ(refused, 0u) << "the CPU supports the whole kernel language";
}

}  // namespace
}  // namespace tessera::test
