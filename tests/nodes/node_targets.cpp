// SPDX-License-Identifier: Apache-2.0
// The targets on which the cells of the table of nodes run.
#include <algorithm>
#include <cstdio>

#include "tessera/device/launch/kernel.h"
#include "tessera/emit/lower.h"
#include "tessera/ir/interpreter.h"
#include "tessera/testing/testing.h"
#include "tests/nodes/node_table.h"
#include "tests/opencl/fragile_driver.h"

namespace tessera::test {

using namespace ir;

namespace {

class DeviceTarget : public Target {
 public:
  explicit DeviceTarget(Device device) : device_(device) {}
  std::string name() const override { return to_string(device_); }
  const Capabilities& can() const override { return device_info(device_).can; }
  Functions functions(DType t) const override {
    switch (device_.backend) {
      case Backend::cuda:
        return device_info(device_).driver_version.find("NVRTC") != std::string::npos ? Functions::cuda
                                                                                      : Functions::ptx;
      case Backend::rocm: return Functions::hip;
      case Backend::opencl:
      case Backend::oneapi: return t == DType::f64 ? Functions::opencl : Functions::ours;
      case Backend::cpu: return t == DType::f64 ? Functions::host : Functions::ours;
      case Backend::interp: return Functions::host;
      default: return Functions::ours;
    }
  }
  void run(const Function& fn, std::array<std::uint64_t, 3> shape, std::vector<Memory>& memory) override {
    Queue& queue = Queue::of(device_);
    std::vector<LaunchArgument> arguments;
    std::vector<BufferView> whole;
    for (const Memory& m : memory) {
      if (!m.is_buffer) {
        arguments.push_back(LaunchArgument::scalar(m.dtype, m.bits));
        whole.emplace_back();
        continue;
      }
      BufferView all{Storage::allocate(device_, m.bytes.size(), "cells"), 0, m.bytes.size(), DType::u8};
      queue.upload(all, m.bytes.data());
      arguments.emplace_back(BufferView{all.storage, guard, m.elements, m.dtype});
      whole.push_back(std::move(all));
    }
    Kernel(fn).launch(shape, arguments);
    for (std::size_t k = 0; k < memory.size(); ++k)
      if (memory[k].is_buffer) queue.download(memory[k].bytes.data(), whole[k]);
    queue.finish();
  }

 private:
  Device device_;
};

/// The interpreter. It also detects errors of the kernels: races, out-of-bounds accesses, uninitialised values and
/// index overflow. With `poor`, it runs functions that were lowered for a device with minimal features.
class InterpreterTarget : public Target {
 public:
  explicit InterpreterTarget(bool poor) : poor_(poor) {
    can_.f64 = can_.atomic_i64 = !poor;
    can_.subgroup_widths = {poor ? 1u : 16u};
  }
  std::string name() const override { return poor_ ? "lowered" : "checked"; }
  Functions functions(DType t) const override { return poor_ && t == DType::f32 ? Functions::ours : Functions::host; }
  const Capabilities& can() const override { return can_; }
  void run(const Function& fn, std::array<std::uint64_t, 3> shape, std::vector<Memory>& memory) override {
    std::vector<InterpreterArgument> arguments;
    for (Memory& m : memory) {
      if (m.is_buffer)
        arguments.push_back({m.bytes.data() + guard, m.elements, 0});
      else
        arguments.push_back({nullptr, 0, m.bits});
    }
    InterpreterOptions options;
    options.subgroup_width = can_.subgroup_widths[0];
    options.checks = !poor_;  // an emulated float atomic begins with a plain read, which is a race
    Function given = fn;
    given.index64 = index64(memory);
    if (poor_) {
      emit::Target least;
      least.f16_convert = least.bf16_convert = least.f64 = least.dot4 = least.atomic_f32 = least.atomic_i64 =
          least.block_operations = least.vectors = false;
      least.expand_math = true, least.subgroup_width = 1, least.index64 = given.index64;
      given = emit::lower(fn, least);
    }
    interpret(given, shape, arguments, options);
  }

 private:
  bool poor_;
  Capabilities can_;
};

}  // namespace

bool Target::index64(std::span<const Memory> memory) {
  return std::ranges::any_of(
      memory, [](const Memory& m) { return !m.is_buffer && m.dtype == DType::index && m.bits == wide_index; });
}

std::vector<std::unique_ptr<Target>> all_targets() {
  std::vector<std::unique_ptr<Target>> all;
  for (Device device : testing::all_devices()) {
    if (ends_process_for_some_kernels(device))
      std::printf("%s is not tested: %s\n", to_string(device).c_str(), device_info(device).driver_version.c_str());
    else
      all.push_back(std::make_unique<DeviceTarget>(device));
  }
  for (const bool poor : {false, true}) all.push_back(std::make_unique<InterpreterTarget>(poor));
  return all;
}

}  // namespace tessera::test
