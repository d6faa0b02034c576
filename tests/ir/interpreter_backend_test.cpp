// SPDX-License-Identifier: Apache-2.0
// Tests the interpreter as a device: its device information, memory and queue, launches through the device layer, and
// environment variables.
#include <cstdlib>

#include "tests/ir/interpreter_helpers.h"

#include "tessera/backend/interp/interp.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel.h"

// Makes oversized allocations fail under the address sanitizer instead of aborting the program.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace tessera {

void register_all_drivers() { register_driver(make_interp_driver()); }

namespace {

/// Sets an environment variable and restores it on destruction.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Setting() { ::unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

ir::Function saxpy() {
  return test::map_kernel("saxpy", [] {
    ir::BufferRef x = test::in("x"), y = test::out("y");
    ir::Value a = ir::scalar_param("a", DType::f32), i = ir::global_id();
    y.store(i, a * x.load(i) + y.load(i));
  });
}
Argument buffer(const Allocation& a, std::uint64_t offset, std::uint64_t elements) { return {&a, offset, elements, 0}; }

TEST(InterpDriver, ReportsItsDeviceInfo) {
  const auto driver = make_interp_driver();
  EXPECT_EQ(driver->backend(), Backend::interp);
  const BackendReport report = driver->enumerate();
  ASSERT_EQ(report.devices.size(), 1u);
  const DeviceInfo& info = report.devices[0];
  EXPECT_EQ(info.name, "reference interpreter");
  EXPECT_EQ(info.kind, DeviceKind::other);
  EXPECT_EQ(to_string(info.device), "interp:0");
  EXPECT_GT(info.total_memory, std::uint64_t{64} << 20);
  EXPECT_TRUE(info.unified_memory);
  EXPECT_EQ(info.can.subgroup_widths, std::vector<std::uint32_t>{32});
  const auto device = driver->open(0);
  EXPECT_GT(device->free_memory(), 0u);
  EXPECT_LE(device->free_memory(), info.total_memory);
  EXPECT_NE(test::error_of<DeviceError>([&] { driver->open(1); }).find("interp:1"), std::string::npos);
}

TEST(InterpDriver, SupportsCopiesFillsAndLaunches) {
  const auto device = make_interp_driver()->open(0);
  const auto queue = device->make_queue();
  const Allocation x = device->allocate(400, MemoryKind::device), y = device->allocate(404, MemoryKind::device);
  std::vector<float> host(100), back(100, -1);
  for (std::size_t i = 0; i < 100; ++i) host[i] = static_cast<float>(i);
  queue->upload(x, 0, host.data(), 400);
  const float one = 1;
  queue->fill(y, 4, 400, std::as_bytes(std::span(&one, 1)));
  const ir::Function fn = saxpy();
  const CompileRequest request{&fn, {}};
  const auto kernels = device->compile({&request, 1});
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0]->source(), ir::to_text(fn));
  const std::array arguments = {buffer(x, 0, 100), buffer(y, 4, 100), Argument{.bits = ir::to_bits(DType::f32, 2.f)}};
  queue->launch(*kernels[0], {100, 1, 1}, arguments);
  EXPECT_EQ(queue->record(), nullptr);
  queue->download(back.data(), y, 4, 400);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(back[i], 2.f * static_cast<float>(i) + 1.f);
  queue->copy(y, 0, y, 4, 200);  // the ranges overlap
  queue->download(back.data(), y, 0, 200);
  for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(back[i], 2.f * static_cast<float>(i) + 1.f);
  const std::uint16_t pattern = 0x1234;
  queue->fill(x, 2, 6, std::as_bytes(std::span(&pattern, 1)));
  std::array<std::uint16_t, 6> words{};
  queue->download(words.data(), x, 0, 12);
  EXPECT_EQ(words, (std::array<std::uint16_t, 6>{0, 0x1234, 0x1234, 0x1234, 0, 0x4000}));
  queue->finish();
  device->release(x);
  device->release(y);
}

TEST(InterpDriver, UsesTheIndexWidthOfTheVariant) {
  const ir::Function fn = test::map_kernel("wide", [] {
    ir::BufferRef y = test::out("y", DType::i64);
    y.store(0, ir::cast(DType::i64, ir::extent() * 3000000));
  });
  const auto device = make_interp_driver()->open(0);
  const auto queue = device->make_queue();
  const std::array requests = {CompileRequest{&fn, {}}, CompileRequest{&fn, {.index64 = true}}};
  const auto kernels = device->compile(requests);
  const Allocation y = device->allocate(8, MemoryKind::pinned);
  for (const bool wide : {false, true}) {
    const std::array arguments = {buffer(y, 0, 1)};
    queue->launch(*kernels[wide], {1000, 1, 1}, arguments);
    std::int64_t value = 0;
    queue->download(&value, y, 0, 8);
    EXPECT_EQ(value, wide ? 3000000000 : std::int64_t{static_cast<std::int32_t>(3000000000u)});
  }
  EXPECT_NE(kernels[1]->source().find("index64"), std::string::npos);
  device->release(y);
}

TEST(InterpDriver, RunsKernelsThroughTheDeviceLayer) {
  const Device interp{Backend::interp, 0};
  const Kernel kernel(saxpy());
  auto storage = Storage::allocate(interp, 800);
  const BufferView x{storage, 0, 100, DType::f32}, y{storage, 400, 100, DType::f32};
  std::vector<float> host(100, 3.f), back(100, -1);
  Queue& queue = Queue::of(interp);
  queue.upload(x, host.data());
  queue.fill(y, ir::to_bits(DType::f32, 1.f));
  kernel.launch({100, 1, 1}, {x, y, LaunchArgument::scalar(2.f)});
  queue.download(back.data(), y);
  EXPECT_EQ(back, std::vector<float>(100, 7.f));
  EXPECT_EQ(kernel.source(interp).substr(0, 16), "kernel saxpy map");
}

TEST(InterpDriver, EnvironmentVariableEnablesChecks) {
  const ir::Function fn = test::map_kernel("racing", [] { test::out("y").store(ir::global_id() / 2, 1.f); });
  const CompileRequest request{&fn, {}};
  for (const bool checks : {false, true}) {
    const Setting setting("TESSERA_CHECK", checks ? "1" : "0");
    const auto device = make_interp_driver()->open(0);
    EXPECT_EQ(device->info().name, checks ? "reference interpreter, checking" : "reference interpreter");
    const auto queue = device->make_queue();
    const Allocation y = device->allocate(40, MemoryKind::device);
    const auto kernels = device->compile({&request, 1});
    const std::array arguments = {buffer(y, 0, 10)};
    const std::string error = test::error_of<KernelError>([&] { queue->launch(*kernels[0], {20, 1, 1}, arguments); });
    if (checks)
      EXPECT_NE(error.find("[kernel racing, interpreter_backend_test.cpp:"), std::string::npos) << error;
    else
      EXPECT_EQ(error, "");
    device->release(y);
  }
}
TEST(InterpDriver, ChecksFindReadsOfUninitialisedMemory) {
  const ir::Function fn = saxpy();
  const CompileRequest request{&fn, {}};
  const Setting setting("TESSERA_CHECK", "1");
  const auto device = make_interp_driver()->open(0);
  const auto queue = device->make_queue();
  const auto kernels = device->compile({&request, 1});
  const Allocation x = device->allocate(80, MemoryKind::device), y = device->allocate(80, MemoryKind::device);
  const auto launch = [&] {
    const std::array arguments = {buffer(x, 0, 20), buffer(y, 0, 20), Argument{.bits = ir::to_bits(DType::f32, 2.f)}};
    return test::error_of<KernelError>([&] { queue->launch(*kernels[0], {20, 1, 1}, arguments); });
  };
  const auto reads = [](const std::string& what) { return "reads " + what + ", which is uninitialised"; };
  const std::vector<float> ones(20, 1);
  const float one = 1;
  queue->upload(x, 0, ones.data(), 40);
  queue->fill(y, 0, 80, std::as_bytes(std::span(&one, 1)));
  EXPECT_NE(launch().find(reads("x[10]")), std::string::npos) << launch();
  queue->copy(x, 40, y, 0, 40);
  EXPECT_EQ(launch(), "");

  const Allocation z = device->allocate(80, MemoryKind::device);
  queue->copy(y, 40, z, 0, 8);  // the copy must not initialise the destination
  EXPECT_NE(launch().find(reads("y[10]")), std::string::npos) << launch();
  device->reused(y);
  EXPECT_NE(launch().find(reads("y[0]")), std::string::npos) << launch();
  device->host_writes(y, 0, 80);
  EXPECT_EQ(launch(), "");

  EXPECT_NO_THROW(device->host_reads(y, 0, 80));
  device->host_writes(z, 12, 4);
  EXPECT_NO_THROW(device->host_reads(z, 12, 4));
  const std::string error = test::error_of<ArgumentError>([&] { device->host_reads(z, 8, 16); });
  EXPECT_NE(error.find("the host reads memory that was never written"), std::string::npos) << error;
  EXPECT_NE(error.find("never written = 12, first at byte = 0"), std::string::npos) << error;
  for (const Allocation& a : {x, y, z}) device->release(a);
}
TEST(InterpDriver, EnvironmentVariableSetsTheSubgroupWidth) {
  const ir::Function fn = test::block_kernel("widths", {64, 1, 1}, [] {
    ir::BufferRef y = test::out("y", DType::i32);
    y.store(ir::thread_id(), ir::subgroup_sum(ir::cast(DType::i32, ir::subgroup_size() / ir::subgroup_size())));
  });
  const CompileRequest request{&fn, {}};
  for (const int width : {1, 8, 32, 64}) {
    const Setting setting("TESSERA_SUBGROUP", std::to_string(width).c_str());
    const auto device = make_interp_driver()->open(0);
    EXPECT_EQ(device->info().can.subgroup_widths, std::vector<std::uint32_t>{static_cast<std::uint32_t>(width)});
    const auto queue = device->make_queue();
    const Allocation y = device->allocate(256, MemoryKind::device);
    const auto kernels = device->compile({&request, 1});
    const std::array arguments = {buffer(y, 0, 64)};
    queue->launch(*kernels[0], {1, 1, 1}, arguments);
    std::vector<std::int32_t> sums(64);
    queue->download(sums.data(), y, 0, 256);
    EXPECT_EQ(sums, std::vector<std::int32_t>(64, width));
    device->release(y);
  }
}
TEST(InterpDriver, ProvidesOneDevicePerSubgroupWidth) {
  const Setting setting("TESSERA_SUBGROUP", "32,1,8");
  const auto driver = make_interp_driver();
  const BackendReport report = driver->enumerate();
  ASSERT_EQ(report.devices.size(), 3u);
  for (const int i : {0, 1, 2}) {
    const std::uint32_t width = std::array{32u, 1u, 8u}[static_cast<std::size_t>(i)];
    EXPECT_EQ(report.devices[static_cast<std::size_t>(i)].device, (Device{Backend::interp, i}));
    EXPECT_EQ(driver->open(i)->info().can.subgroup_widths, std::vector{width});
  }
  EXPECT_NE(test::error_of<DeviceError>([&] { driver->open(3); }).find("there are 3 interpreters"), std::string::npos);
}
TEST(InterpDriver, RejectsInvalidEnvironmentVariables) {
  for (const auto& [name, value] : {std::pair{"TESSERA_CHECK", "maybe"},
                                    {"TESSERA_SUBGROUP", "0"},
                                    {"TESSERA_SUBGROUP", "129"},
                                    {"TESSERA_SUBGROUP", "32x"},
                                    {"TESSERA_SUBGROUP", "-1"},
                                    {"TESSERA_SUBGROUP", "8,"},
                                    {"TESSERA_SUBGROUP", "8,,1"}}) {
    const Setting setting(name, value);
    const auto driver = make_interp_driver();
    const BackendReport report = driver->enumerate();
    EXPECT_TRUE(report.devices.empty());
    EXPECT_NE(report.reason.find(name), std::string::npos) << report.reason;
    EXPECT_NE(report.reason.find(value), std::string::npos) << report.reason;
    EXPECT_FALSE(report.remedy.empty());
    EXPECT_NE(test::error_of<ArgumentError>([&] { driver->open(0); }).find(value), std::string::npos);
  }
}
TEST(InterpDriver, OversizedAllocationThrowsOutOfMemory) {
  const auto device = make_interp_driver()->open(0);
  EXPECT_NE(test::error_of<OutOfMemory>([&] {
              device->allocate(std::size_t{1} << 60, MemoryKind::device);
            }).find("1152921504606846976"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
