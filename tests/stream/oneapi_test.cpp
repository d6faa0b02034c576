// SPDX-License-Identifier: Apache-2.0
// Behaviour that is specific to the `oneapi` backend: events and ordering with Level Zero's events, allocations above
// the size limit, Intel's OpenCL driver as a replacement for libocloc, and reports on machines without a GPU. Each case
// runs in a separate process with fake drivers. Some tests use Intel's compiler and loader, if they are installed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>
#include <thread>

#include "tessera/backend/common/program.h"
#include "tessera/backend/oneapi/compiler.h"
#include "tessera/backend/oneapi/oneapi.h"
#include "tessera/backend/oneapi/ze_api.h"
#include "tessera/base/error.h"
#include "tessera/device/driver.h"
#include "tessera/ir/value.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"
#include "tests/support/run_in_child.h"
#include "tests/support/sanitized.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::fake_library;
using test::run_in_child;
using test::Variables;
namespace fs = std::filesystem;

/// y = y * a + x. The result is wrong if launches are reordered.
ir::Function scale_add() {
  ir::Builder builder("scale_add", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
  const ir::Value a = ir::scalar_param("a", DType::f32);
  const ir::Value i = ir::global_id();
  y.store(i, y.load(i) * a + x.load(i));
  return builder.finish();
}

std::string row() {
  const BackendReport report = make_oneapi_driver()->enumerate();
  std::string out = std::string(state_name(report.state)) + " | " + report.file + " | " + report.reason + " | " +
                    report.remedy + "\n";
  for (const DeviceInfo& d : report.devices)
    out += to_string(d.device) + " " + d.name + " " + d.identity + " " + std::string(state_name(d.state)) + " " +
           d.driver_version + " | " + d.reason + " | " + d.remedy + "\n";
  return out;
}

/// Runs `work` in a child with fake drivers. Appends the violations that the fake Level Zero driver reports.
std::string over_fakes(const Variables& variables, const std::function<std::string()>& work) {
  return run_in_child(test::with_fakes(variables), [&] {
    const std::string text = work();
    return text + test::breaches(fake_library("ze"));
  });
}

std::uint64_t float_as_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

/// Builds a kernel on each device and computes with it. Returns "right" or the error that was thrown.
std::string computes(int devices) {
  const auto driver = make_oneapi_driver();
  std::string text;
  for (int d = 0; d < devices; ++d) try {
      const auto device = driver->open(d);
      const ir::Function fn = scale_add();
      const CompileRequest request{&fn, {}};
      const auto kernels = device->compile(std::span(&request, 1));
      const auto queue = device->make_queue();
      const Allocation x = device->allocate(400, MemoryKind::device), y = device->allocate(400, MemoryKind::device);
      const float two = 2;
      for (const Allocation& a : {x, y}) queue->fill(a, 0, 400, std::as_bytes(std::span(&two, 1)));
      const Argument arguments[] = {
          {.allocation = &x, .elements = 100}, {.allocation = &y, .elements = 100}, {.bits = float_as_bits(3)}};
      queue->launch(*kernels[0], {100, 1, 1}, arguments);
      float out[100] = {};
      queue->download(out, y, 0, 400);
      text += std::ranges::all_of(out, [](float v) { return v == 8; }) ? "right\n" : "wrong\n";
      device->release(x), device->release(y);
    } catch (const Error& e) {
      text += std::string(e.what()) + "\n";
    }
  return text;
}

// The command lists of the fake run commands in any order that events and barriers allow. The fake reports uses of
// memory that are not ordered.

TEST(Order, DriverOrBarriersKeepCommandsInOrder) {
  for (const char* version : {"ze-api=104", "ze-api=107"}) {
    const std::string text = over_fakes({{"TESSERA_FAKE_FAULT", version}, {"TESSERA_FAKE_DEVICES", "2"}}, [] {
      const auto driver = make_oneapi_driver();
      const auto first = driver->open(0), second = driver->open(1);
      const ir::Function fn = scale_add();
      const CompileRequest request{&fn, {}};
      constexpr std::size_t n = 1000, bytes = n * 4;
      std::vector<float> ones(n, 1.0f), out(n, -1.0f);
      std::vector<Allocation> memory;
      std::string wrong;
      for (DriverDevice* device : {first.get(), second.get()}) {
        const auto kernels = device->compile(std::span(&request, 1));
        const auto a = device->make_queue(), b = device->make_queue();
        const Allocation x = device->allocate(bytes, MemoryKind::device),
                         y = device->allocate(bytes, MemoryKind::device);
        a->upload(x, 0, ones.data(), bytes);
        a->upload(y, 0, ones.data(), bytes);
        // Alternates between two queues more often than there are events in a pool.
        float want = 1;
        for (int i = 0; i < 300; ++i) {
          DriverQueue &from = i % 2 ? *b : *a, &to = i % 2 ? *a : *b;
          const float factor = i % 3 == 0 ? 0.5f : 1.0f;
          const Argument arguments[] = {
              {.allocation = &x, .elements = n}, {.allocation = &y, .elements = n}, {.bits = float_as_bits(factor)}};
          from.launch(*kernels[0], {n, 1, 1}, arguments);
          want = want * factor + 1;
          to.wait(*from.record());
        }
        a->download(out.data(), y, 0, bytes);
        for (const float v : out)
          if (v != want) wrong = "got " + std::to_string(v) + ", want " + std::to_string(want);
        b->finish();
        device->release(x), device->release(y);
      }
      return wrong;
    });
    EXPECT_EQ(text, "") << version;
  }
}

TEST(Order, QueueMayWaitForEventsManyTimes) {
  EXPECT_EQ(over_fakes({},
                       []() -> std::string {
                         const auto driver = make_oneapi_driver();
                         const auto device = driver->open(0);
                         const auto a = device->make_queue(), b = device->make_queue();
                         const Allocation x = device->allocate(4096, MemoryKind::device);
                         const std::uint32_t word = 7;
                         for (int i = 0; i < 1000; ++i) {
                           a->fill(x, 0, 4, std::as_bytes(std::span(&word, 1)));
                           b->wait(*a->record());
                           // Without this call, queues might wait for all 1000 events at the same time.
                           if (i % 50 == 0) a->finish();
                         }
                         b->finish(), a->finish();
                         const auto events = os::Library::open(fake_library("ze"))
                                                 .function<std::uint64_t(const char*)>("tessera_fake_live")("events");
                         device->release(x);
                         return events <= 512 ? "" : std::to_string(events) + " events were created for 1000 waits";
                       }),
            "");
}

TEST(Order, EventsOutliveTheirQueuesAndAreReused) {
  EXPECT_EQ(over_fakes({},
                       []() -> std::string {
                         const auto driver = make_oneapi_driver();
                         const auto device = driver->open(0);
                         const Allocation x = device->allocate(4096, MemoryKind::device);
                         const std::uint32_t word = 7;
                         for (int i = 0; i < 100; ++i) {
                           std::shared_ptr<DriverEvent> event;
                           {
                             const auto queue = device->make_queue();
                             queue->fill(x, 0, 4, std::as_bytes(std::span(&word, 1)));
                             event = queue->record();
                           }
                           event->wait();
                           if (!event->done()) return "not done";
                         }
                         device->release(x);
                         return "";
                       }),
            "");
}

TEST(Order, EventsAreNotReusedWhileAQueueWaits) {
  EXPECT_EQ(over_fakes({{"TESSERA_FAKE_DELAY_US", "2000"}},
                       []() -> std::string {
                         const auto driver = make_oneapi_driver();
                         const auto device = driver->open(0);
                         const auto a = device->make_queue(), b = device->make_queue();
                         const Allocation x = device->allocate(4096, MemoryKind::device),
                                          y = device->allocate(4096, MemoryKind::device);
                         const std::uint32_t word = 7;
                         for (int i = 0; i < 10; ++i) b->fill(y, 0, 4, std::as_bytes(std::span(&word, 1)));
                         a->fill(x, 0, 4, std::as_bytes(std::span(&word, 1)));
                         b->wait(*a->record());
                         a->finish();  // the event is signalled, but `b` has not executed its wait yet
                         a->fill(x, 0, 4, std::as_bytes(std::span(&word, 1)));
                         a->record();  // records the same DriverEvent again, with another Level Zero event
                         a->finish(), b->finish();
                         device->release(x), device->release(y);
                         return "";
                       }),
            "");
}

TEST(Order, WorkIsOrderedAcrossDriverContexts) {
  const Variables four = {{"TESSERA_FAKE_DEVICES", "4"}, {"TESSERA_FAKE_FAULT", "ze-drivers=2"}};
  EXPECT_EQ(over_fakes(four, [] { return computes(4); }), "right\nright\nright\nright\n");
  EXPECT_EQ(over_fakes(four,
                       []() -> std::string {
                         const auto driver = make_oneapi_driver();
                         std::vector<std::unique_ptr<DriverDevice>> devices;
                         std::vector<std::unique_ptr<DriverQueue>> queues;
                         for (int d = 0; d < 4; ++d) {
                           devices.push_back(driver->open(d));
                           queues.push_back(devices.back()->make_queue());
                         }
                         // Uses all queues, across drivers and back.
                         const Allocation x = devices[0]->allocate(4096, MemoryKind::device);
                         const std::uint32_t word = 7;
                         for (std::size_t i = 0; i < 100; ++i) {
                           DriverQueue& from = *queues[i % 4];
                           if (i % 4 == 0) from.fill(x, 0, 4096, std::as_bytes(std::span(&word, 1)));
                           if (const auto event = from.record()) queues[(i + 1) % 4]->wait(*event);
                         }
                         for (auto& queue : queues) queue->finish();
                         queues.clear();
                         devices[0]->release(x);
                         return "";
                       }),
            "");
}

TEST(Kernels, LaunchIsThreadSafe) {
  EXPECT_EQ(over_fakes({{"TESSERA_FAKE_DELAY_US", "0"}},
                       []() -> std::string {
                         const auto driver = make_oneapi_driver();
                         const auto device = driver->open(0);
                         const ir::Function fn = scale_add();
                         const CompileRequest request{&fn, {}};
                         const auto kernels = device->compile(std::span(&request, 1));
                         std::atomic<int> wrong = 0;
                         std::vector<std::thread> threads;
                         for (int t = 0; t < 4; ++t)
                           threads.emplace_back([&, t] {
                             const std::size_t n = 100 + 300 * static_cast<std::size_t>(t), bytes = n * 4;
                             std::vector<float> data(n, static_cast<float>(t + 1)), out(n, -1.0f);
                             const auto queue = device->make_queue();
                             const Allocation x = device->allocate(bytes, MemoryKind::device),
                                              y = device->allocate(bytes, MemoryKind::device);
                             queue->upload(x, 0, data.data(), bytes);
                             queue->upload(y, 0, data.data(), bytes);
                             const Argument arguments[] = {{.allocation = &x, .elements = n},
                                                           {.allocation = &y, .elements = n},
                                                           {.bits = float_as_bits(1.0f)}};
                             for (int i = 0; i < 1000; ++i) queue->launch(*kernels[0], {n, 1, 1}, arguments);
                             queue->download(out.data(), y, 0, bytes);
                             for (const float v : out) wrong += v != static_cast<float>(1001 * (t + 1));
                             device->release(x), device->release(y);
                           });
                         for (auto& thread : threads) thread.join();
                         return wrong == 0 ? "" : std::to_string(wrong) + " elements are wrong";
                       }),
            "");
}

TEST(Memory, LargeAllocationsRequestRelaxedLimits) {
  // The largest allocation of the fake is a quarter of its memory, but with relaxed limits it is larger.
  EXPECT_EQ(over_fakes({{"TESSERA_FAKE_MEMORY", std::to_string(64 << 20)}},
                       []() -> std::string {
                         const auto driver = make_oneapi_driver();
                         const auto device = driver->open(0);
                         const std::uint64_t before = device->free_memory();
                         const Allocation large = device->allocate(48 << 20, MemoryKind::device);
                         const std::uint64_t within = device->free_memory();
                         std::string text = before - within == 48 << 20 ? "" : "free memory is not updated; ";
                         try {
                           device->allocate(48 << 20, MemoryKind::device);
                           text += "allocated more than available; ";
                         } catch (const OutOfMemory& e) {
                           if (std::string(e.what()).find("ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY") == std::string::npos)
                             text += e.what();
                         }
                         device->release(large);
                         return text + (device->free_memory() == before ? "" : "memory was not returned");
                       }),
            "");
}

TEST(Memory, OptionsForLargeBuffersDependOnTheDevice) {
  EXPECT_EQ(oneapi::compile_options(false, false), "-cl-std=CL2.0");
  expect_contains(oneapi::compile_options(true, true),
                  {"-cl-intel-greater-than-4GB-buffer-required", "-cl-fp32-correctly-rounded-divide-sqrt"});
}

TEST(ErrorCodes, AreClassifiedAndHaveNames) {
  using stream::Fault;
  const oneapi::LoaderFunctions none;
  const oneapi::ZeApi api(none);
  EXPECT_EQ(api.fault_of(0), Fault::none);
  for (int code : {0x70000002, 0x70000003, 0x78000009})
    EXPECT_EQ(api.fault_of(code), Fault::memory) << std::hex << code;
  for (int code : {0x70000004, 0x70000005, 0x78000003, 0x78000004, 0x7800000f, 0x78000011, 0x78000013, 0x78000016})
    EXPECT_EQ(api.fault_of(code), Fault::refused) << std::hex << code;
  for (int code : {0x70000001, 0x70000006, 0x70010000, 0x78000001, 0x7ffffffe, 12345})
    EXPECT_EQ(api.fault_of(code), Fault::lost) << std::hex << code;
  expect_contains(oneapi::text_of(0x70000001), {"ZE_RESULT_ERROR_DEVICE_LOST (0x70000001)"});
  EXPECT_EQ(oneapi::text_of(0x71234567), "ze_result_t 0x71234567");
}

TEST(Devices, ReportTheirProperties) {
  const std::string text = over_fakes({{"TESSERA_FAKE_DEVICES", "2"}, {"TESSERA_FAKE_MEMORY", "8589934592"}}, [] {
    std::string out;
    for (const DeviceInfo& d : make_oneapi_driver()->enumerate().devices) {
      out += d.name + "|" + d.vendor + "|" + d.identity + "|" + std::string(kind_name(d.kind)) + "|" +
             std::to_string(d.total_memory) + "|" + std::to_string(d.compute_units) + "|" + (d.can.f64 ? "f64" : "") +
             (d.can.atomic_i64 ? " i64" : "") + (d.can.int8_dot ? " dot4" : "") + "|" +
             std::to_string(d.can.shared_bytes) + "|";
      for (const auto w : d.can.subgroup_widths) out += std::to_string(w) + " ";
      out += "|" + d.driver_version + "\n";
    }
    return out;
  });
  EXPECT_EQ(
      text,
      "Fake Arc A770|Intel|pci:0000:03:00.0|discrete GPU|8589934592|512| i64 dot4|65536|8 16 32 |Level Zero 1.4, "
      "driver 1.3.25143, libocloc\n"
      "Fake Iris Xe|Intel|pci:0000:04:00.0|integrated GPU|8589934592|64|f64 i64 dot4|65536|8 16 32 |Level Zero 1.4, "
      "driver 1.3.25143, libocloc\n");
}

TEST(Compilers, IntelOpenclDriverReplacesMissingOcloc) {
  const Variables without = {{"TESSERA_OCLOC_LIBRARY", "/nonexistent/libocloc.so"},
                             {"TESSERA_OPENCL_LIBRARY", fake_library("intel_cl")},
                             {"TESSERA_FAKE_DEVICES", "2"}};
  EXPECT_EQ(over_fakes(without, [] { return computes(2); }), "right\nright\n");
  const std::string text = over_fakes(without, row);
  expect_contains(text, {"oneapi:1 Fake Iris Xe pci:0000:04:00.0 enumerated", "kernels compiled by its OpenCL driver"});
}

TEST(Compilers, IntelOpenclDriverIsLoadedWithoutOtherPlatforms) {
  const fs::path folder = fs::temp_directory_path() / ("tessera-icd-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  fs::create_symlink(fake_library("intel_cl"), folder / "libigdrcl.so");
  std::ofstream(folder / "a.icd") << fake_library("icd_crashes") << "\n";  // the common loader would also load this one
  std::ofstream(folder / "intel.icd") << (folder / "libigdrcl.so").string() << "\n";
  const Variables files = {{"TESSERA_OCLOC_LIBRARY", "/nonexistent/libocloc.so"},
                           {"TESSERA_OPENCL_LIBRARY", ""},
                           {"OCL_ICD_VENDORS", folder.string()}};
  EXPECT_EQ(over_fakes(files, [] { return computes(1); }), "right\n");
  fs::remove(folder / "intel.icd");
  expect_contains(over_fakes(files, row), {"no compiler for its kernels", "not registered in /etc/OpenCL/vendors"});
  fs::remove_all(folder);
}

TEST(Compilers, IntelOpenclDriverCompilesForCardsUnknownToOcloc) {
  const Variables old = {{"TESSERA_FAKE_FAULT", "no-target"}, {"TESSERA_OPENCL_LIBRARY", fake_library("intel_cl")}};
  EXPECT_EQ(over_fakes(old, [] { return computes(1); }), "right\n");
  const std::string alone =
      over_fakes({{"TESSERA_FAKE_FAULT", "no-target"}, {"TESSERA_OPENCL_LIBRARY", "/nonexistent/libOpenCL.so"}},
                 [] { return computes(1); });
  expect_contains(alone, {"libocloc does not support this card", "0x56a0", "Could not determine device target",
                          "Install a newer libocloc"});
}

TEST(Compilers, ErrorsIncludeTheLogOfIntelOpenclDriver) {
  const std::string text = over_fakes({{"TESSERA_OCLOC_LIBRARY", "/nonexistent/libocloc.so"},
                                       {"TESSERA_OPENCL_LIBRARY", fake_library("intel_cl")},
                                       {"TESSERA_FAKE_FAULT", "compile"}},
                                      [] { return computes(1); });
  expect_contains(text, {"kernel scale_add", "the device's compiler rejected it", "error: refused"});
}

TEST(Compilers, ReportsBothCompilersIfNeitherIsUsable) {
  const std::string text = over_fakes(
      {{"TESSERA_OCLOC_LIBRARY", "/nonexistent/libocloc.so"}, {"TESSERA_OPENCL_LIBRARY", "/nonexistent/libOpenCL.so"}},
      row);
  expect_contains(text,
                  {"loaded", "the device was found, but no compiler for its kernels", "neither libocloc",
                   "/nonexistent/libocloc.so", "/nonexistent/libOpenCL.so", "TESSERA_OCLOC_LIBRARY names this file"});
}

// These tests use the real compiler:

TEST(Compilers, OclocErrorsIncludeTheLog) {
  if (test::sanitized) GTEST_SKIP() << "passed by: " << test::no_deepbind;
  const auto ocloc = oneapi::Ocloc::open();
  if (!ocloc.usable())
    GTEST_SKIP() << "passed by: libocloc is not installed (Debian 12: intel-opencl-icd): " << ocloc.reason();
  const std::string answer = run_in_child({}, [&] {
    const auto bad = ocloc.compile("__kernel void f(__global int* p) { *p = missing; }", "0x56a0",
                                   oneapi::compile_options(true, true));
    const auto unknown =
        ocloc.compile("__kernel void f(__global int* p) { *p = 1; }", "0xffff", oneapi::compile_options(false, false));
    return std::string(bad.image.made ? "made " : "refused ") + (bad.knows_device ? "known " : "unknown ") +
           bad.image.log + "\n" + (unknown.image.made ? "made " : "refused ") +
           (unknown.knows_device ? "known " : "unknown ") + unknown.image.log;
  });
  expect_contains(answer, {"refused known ", "undeclared identifier 'missing'", "\nrefused unknown "});
}

// Machines without a GPU:

TEST(Discovery, ReportsMissingDriver) {
  const std::string none = over_fakes({{"TESSERA_FAKE_FAULT", "no-devices"}, {"ZE_AFFINITY_MASK", "7"}}, row);
  expect_contains(none, {"loaded", "zeInit returned ZE_RESULT_ERROR_UNINITIALIZED (0x78000001)",
                         "ZE_AFFINITY_MASK is set to \"7\"", "unset it"});
  const std::string absent = over_fakes({{"TESSERA_ONEAPI_LIBRARY", "/nonexistent/libze_loader.so.1"}}, row);
  expect_contains(absent, {"supported | /nonexistent/libze_loader.so.1", "no other is tried"});
}

// Uses Intel's own loader on a machine without a GPU, like with libze1 and intel-opencl-icd.
TEST(Discovery, ReportsErrorsOfIntelsLoader) {
  if (test::sanitized) GTEST_SKIP() << "passed by: " << test::no_deepbind;
  const std::string text = run_in_child({{"TESSERA_ONEAPI_LIBRARY", TESSERA_TEST_ZE_LOADER}}, row);
  if (text.starts_with("supported"))
    GTEST_SKIP() << "passed by: the Level Zero loader is not installed (Debian: libze1): " << text;
  if (text.find("oneapi:0") != text.npos) return;  // there is a GPU, which other tests use
  expect_contains(
      text, {"loaded | ", "zeInit returned ZE_RESULT_ERROR_UNINITIALIZED (0x78000001): no driver could be started"});
  std::printf("%s", text.c_str());
}

}  // namespace
}  // namespace tessera
