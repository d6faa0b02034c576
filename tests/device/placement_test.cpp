// SPDX-License-Identifier: Apache-2.0
// Placement scopes, strict placement, and verify_on.
#include <gtest/gtest.h>

#include <thread>

#include "tessera/array/array.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/placement/verify_on.h"
#include "tessera/ir/value.h"
#include "tessera/llm/language_model.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::OnEveryDevice;
using test::text_of;
TESSERA_ON_EVERY_DEVICE();

constexpr Device cpu{Backend::cpu, 0}, interp{Backend::interp, 0};

std::uint64_t launches(const PlacementLog& log, Device device) {
  std::uint64_t n = 0;
  for (const auto& k : log.kernels) n += k.device == device ? k.launches : 0;
  return n;
}
std::uint64_t launches(const PlacementLog& log) {
  std::uint64_t n = 0;
  for (const auto& k : log.kernels) n += k.launches;
  return n;
}

TEST_P(OnEveryDevice, ScopeCountsLaunchesAndCopies) {
  const Array before = exp(Array::from(numbers(100))).eval();
  const Placement outer;
  {
    const Placement inner;
    const Array x = Array::from(numbers(250));
    EXPECT_EQ(sum(x * 2.0 + before.slice(0, 0, 1)).to_vector<float>().size(), 1u);
    const PlacementLog log = inner.log();
    EXPECT_GE(launches(log, GetParam()), 1u);
    EXPECT_EQ(launches(log), launches(log, GetParam())) << to_string(log);
    ASSERT_EQ(log.copies.size(), 1u) << to_string(log);
    EXPECT_EQ(log.copies[0].device, GetParam());
    EXPECT_EQ(log.copies[0].to_device_bytes, 1000u);
    EXPECT_EQ(log.copies[0].to_host_bytes, 4u);
  }
  const std::uint64_t so_far = launches(outer.log());
  EXPECT_GE(so_far, 1u) << "work is counted in all enclosing scopes";
  // Work of threads that do not inherit the scope is not counted.
  std::thread([&] { exp(Array::ones({10}, DType::f32, GetParam())).eval(); }).join();
  EXPECT_EQ(launches(outer.log()), so_far);
  EXPECT_EQ(launches(Placement().log()), 0u) << "a new scope starts at zero";
}

TEST(StrictPlacement, RejectsWorkOnOtherDevicesBeforeItRuns) {
  const Array here = Array::ones({100}, DType::f32, cpu), there = Array::ones({100}, DType::f32, interp);
  const Array pending = there + 1.0;
  {
    const Placement strict = Placement::strict({cpu});
    EXPECT_EQ(sum(here).item<float>(), 100.f);
    expect_contains(text_of<DeviceError>([&] { sum(there); }), {"interp:0", "allowed = cpu:0", "to(...)"});
    expect_contains(text_of<DeviceError>([&] { pending.eval(); }), {"interp:0"});
    expect_contains(text_of<DeviceError>([&] { here.to(interp); }), {"(copy)", "interp:0"});
    expect_contains(text_of<DeviceError>([&] { there.to(cpu); }), {"(copy)", "interp:0"});
    expect_contains(text_of<DeviceError>([&] { there.to_vector<float>(); }), {"(download)", "interp:0"});
    expect_contains(text_of<DeviceError>([&] { Array::from({1.f, 2.f}, {}, interp); }), {"(upload)", "interp:0"});
    expect_contains(text_of<DeviceError>([&] { Array::zeros({3}, DType::f32, interp).eval(); }), {"interp:0"});
    EXPECT_EQ(launches(strict.log()), launches(strict.log(), cpu)) << to_string(strict.log());
    {
      const Placement wider = Placement::strict({cpu, interp});  // does not allow a device that the outer scope rejects
      expect_contains(text_of<DeviceError>([&] { sum(there); }), {"allowed = cpu:0"});
    }
    const DeviceScope scope(interp);
    const Placement current = Placement::strict();
    expect_contains(text_of<DeviceError>([&] { sum(here).eval(); }), {"cpu:0", "allowed = interp:0"});
  }
  EXPECT_EQ(sum(pending).item<float>(), 200.f) << "the rejected work is done afterwards";
  expect_contains(text_of<DeviceError>([] { Placement::strict({Device{Backend::cuda, 77}}); }), {"cuda:77"});
}

// All kernels and copies of a model run on the model's device, and each weight is copied to this device only once.
TEST_P(OnEveryDevice, ModelRunsOnlyOnItsDevice) {
  LoadOptions options{.devices = {GetParam()}, .progress = {}, .prompt = "A table", .generate = {}};
  options.generate.max_tokens = 5;
  options.generate.sampling.temperature = 0;
  const Placement strict = Placement::strict({GetParam()});
  const LanguageModel model = LanguageModel::load("models/pgdocs-2m-q8_0.gguf", options);
  const PlacementLog loaded = strict.log();
  ASSERT_EQ(loaded.copies.size(), 1u);
  EXPECT_GE(loaded.copies[0].to_device_bytes, model.model().weight_bytes());
  EXPECT_LE(loaded.copies[0].to_device_bytes, model.model().weight_bytes() + 4096) << "each weight once";
  model.generate("A table", options.generate);
  const PlacementLog log = strict.log();
  EXPECT_EQ(launches(log), launches(log, GetParam())) << to_string(log);
  ASSERT_EQ(log.copies.size(), 1u) << to_string(log);
  EXPECT_LE(log.copies[0].to_device_bytes, loaded.copies[0].to_device_bytes + 4096) << "only tokens";
}

TEST_P(OnEveryDevice, VerifyOnReportsNoErrorsForCorrectKernels) {
  if (GetParam() == interp) return;
  const auto data = numbers(1000);
  const VerifyReport report = verify_on(interp, [&] {
    const Array x = Array::from(data, Shape{10, 100}), y = softmax(x * 3.0, 1);
    Array z = y.copy();
    z += x;  // reads and writes the same memory
    EXPECT_EQ(argmax(z, 1).to_vector<std::int64_t>().size(), 10u);
  });
  EXPECT_TRUE(report.agrees()) << to_string(report);
  EXPECT_EQ(report.reference, interp);
  std::uint64_t n = 0;
  for (const auto& k : report.kernels) {
    EXPECT_EQ(k.device, GetParam());
    n += k.launches;
  }
  EXPECT_GE(n, 3u) << to_string(report);
}

/// Writes the subgroup size of the device. The results of this kernel differ between devices by design.
Kernel width_kernel() {
  ir::Builder builder("width", ir::KernelKind::block, {64, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
  y.store(ir::global_id(), ir::cast(DType::f32, ir::subgroup_size()) + 0.5f);
  return Kernel(builder.finish());
}

TEST(VerifyOn, ReportsKernelWithDifferentResult) {
  const Device narrow{Backend::interp, 1};  // its subgroups have 1 thread; those of interp:0 have 32
  if (device_info(interp).can.subgroup_widths == device_info(narrow).can.subgroup_widths)
    FAIL() << "both devices have the same width";
  const Kernel kernel = width_kernel();
  const VerifyReport report = verify_on(narrow, [&] {
    const Array y = Array::zeros({64}, DType::f32, interp);
    exp(y).eval();
    kernel.launch({1, 1, 1}, {y.view_for_writing()});
  });
  EXPECT_FALSE(report.agrees());
  ASSERT_FALSE(report.kernels.empty());
  EXPECT_EQ(report.kernels[0].kernel, "width") << "sorted by error";
  EXPECT_EQ(report.kernels[0].wrong, 64u);
  expect_contains(report.kernels[0].first_wrong, {"y[0] is 32.5", "on interp:1 1.5", "launch 1"});
  for (std::size_t i = 1; i < report.kernels.size(); ++i) EXPECT_EQ(report.kernels[i].wrong, 0u);
  expect_contains(to_string(report), {"width", "y[0] is 32.5"});
  EXPECT_TRUE(verify_on(narrow, [] {}).kernels.empty());
  text_of<DeviceError>([] { verify_on(Device{Backend::cuda, 77}, [] {}); });
}

}  // namespace
}  // namespace tessera
