// SPDX-License-Identifier: Apache-2.0
// Misbehaving drivers of CUDA, HIP and Level Zero. Each fault in tests/drivers/faults.h must cause the documented
// state, error or recovery. Other devices must remain usable, memory must not leak, and no rule of the API may be
// broken. Each case runs in a child, because drivers are loaded only once per process.
#include <functional>

#include <gtest/gtest.h>

#include "tessera/array/array.h"
#include "tessera/base/error.h"
#include "tessera/base/os/library.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tests/stream/child_results.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using test::expect_clean;
using test::expect_contains;
using test::lines;
using test::message;
using test::Variables;

class StreamFaults : public ::testing::TestWithParam<Backend> {
 protected:
  static bool cuda() { return GetParam() == Backend::cuda; }
  static bool rocm() { return GetParam() == Backend::rocm; }
  static bool oneapi() { return GetParam() == Backend::oneapi; }
  static const test::FakeBackend& fake() { return test::fake_backend(GetParam()); }
  static Device device(int index = 0) { return {GetParam(), index}; }
  static std::string name(int index = 0) { return to_string(device(index)); }
  static std::string library(const char* suffix = "") {
    return test::fake_library(fake().driver + std::string(suffix));
  }
  static std::string driver_variable() { return fake().driver_variable; }
  static std::string compiler_variable() { return fake().compiler_variable; }

  /// Runs `work` in a child with fake drivers for all backends and additional variables. Appends violations that the
  /// fakes report.
  static std::string run(const Variables& changed, const std::function<std::string()>& work) {
    return test::run_in_child(
        test::with_fakes(changed),
        [&] {
          std::string text = work();
          for (const test::FakeBackend& f : test::fake_backends)
            text += test::breach_lines(test::fake_library(f.driver));
          return text;
        },
        30);
  }
  /// The fakes of the other backends have the same fault, but they are not used.
  static std::string with(const std::string& fault, const std::function<std::string()>& work, int devices = 1) {
    return run({{"TESSERA_FAKE_FAULT", fault}, {"TESSERA_FAKE_DEVICES", std::to_string(devices)}}, work);
  }
  static std::uint64_t live(const char* what) {
    return os::Library::open(library()).function<std::uint64_t(const char*)>("tessera_fake_live")(what);
  }

  static std::string row() { return test::row_of(GetParam()); }
  static std::string state(int index = 0) { return std::string(state_name(device_info(device(index)).state)); }

  static std::string computes(Device on) { return test::arithmetic(Array::from(test::counted_floats(), {}, on)); }
  static std::string outcome(Device on) {
    return test::outcome_of([&] { return computes(on); });
  }
  /// Trims the pools and returns the number of allocations that are left in the driver: "0 left".
  static std::string left(int devices) {
    for (int d = 0; d < devices; ++d) message([&] { trim(device(d)); });
    return std::to_string(live("memory")) + " left";
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, StreamFaults, ::testing::Values(Backend::cuda, Backend::rocm, Backend::oneapi),
                         [](const auto& info) { return std::string(backend_name(info.param)); });

// If something is missing, a state with a reason and a remedy is reported, and other devices can be used.

TEST_P(StreamFaults, WorksWithoutFaults) {
  for (const int devices : {1, 2, 4}) {
    const std::string text = run({{"TESSERA_FAKE_DEVICES", std::to_string(devices)}}, [&] {
      std::string all = row() + "\n";
      for (int d = 0; d < devices; ++d) all += lines({outcome(device(d)), state(d)}) + "\n";
      for (int d = 0; d < devices; ++d) trim(device(d));
      return all + std::to_string(live("memory"));
    });
    std::string want;
    for (int d = 0; d < devices; ++d) want += "right\nverified\n";
    EXPECT_EQ(text.substr(0, text.find('|')), "enumerated") << text;
    EXPECT_EQ(text.substr(text.find('\n') + 1), want + "0");
  }
}

TEST_P(StreamFaults, ReportsMissingDriverLibrary) {
  const std::string text = run({{driver_variable(), "/nonexistent/libvendor.so.1"}},
                               [] { return row() + "\n" + message([] { computes(device()); }) + "\n" + computes({}); });
  EXPECT_TRUE(text.starts_with("supported|/nonexistent/libvendor.so.1|")) << text;
  expect_contains(text, {"cannot open shared object file", driver_variable() + " names this file", "|0\n",
                         name() + " does not exist", "Devices that exist: cpu:0", "\nright"});
  expect_clean(text);
}

TEST_P(StreamFaults, ReportsLibraryThatCannotBeLoaded) {
  const std::string text = run({{driver_variable(), library("_refuses")}}, [] { return lines({row(), outcome({})}); });
  EXPECT_TRUE(text.starts_with("supported|" + library("_refuses") + "|")) << text;
  expect_contains(text, {"undefined symbol: tessera_fake_library_that_is_not_installed", "|0\nright"});
}

TEST_P(StreamFaults, ReportsMissingEntryPoint) {
  const std::string text = run({{driver_variable(), library("_incomplete")}}, [] {
    return lines({row(), outcome({})});
  });
  EXPECT_TRUE(text.starts_with("supported|" + library("_incomplete") + "|")) << text;
  expect_contains(
      text, {"the library has no " + std::string(fake().missing), driver_variable() + " names this file", "|0\nright"});
}

TEST_P(StreamFaults, ReportsMissingDevices) {
  const std::string text = with("no-devices", [] { return lines({row(), outcome({})}); });
  EXPECT_TRUE(text.starts_with("loaded|" + library() + "|")) << text;
  expect_contains(text, {fake().no_device, "|0\nright"});
  expect_clean(text);
}

TEST_P(StreamFaults, ReportsDriverThatFailsToInitialise) {
  const std::string text = with(cuda() ? "init:803" : "init:999", [] { return lines({row(), outcome({})}); });
  EXPECT_TRUE(text.starts_with("loaded|" + library() + "|")) << text;
  if (cuda())
    expect_contains(text, {"cuInit returned CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)", "different versions"});
  else if (rocm())
    expect_contains(text, {"hipErrorUnknown (999)"});
  else
    expect_contains(text, {"zeInit returned ZE_RESULT_ERROR_UNKNOWN (0x7ffffffe)"});
  EXPECT_TRUE(text.ends_with("|0\nright")) << text;
}

TEST_P(StreamFaults, ReportsUnknownMajorVersion) {
  if (cuda()) return;  // CUDA keeps old entry points under their old names
  if (oneapi()) {
    const std::string two = with("ze-api=200", [] { return lines({row(), outcome({})}); });
    EXPECT_TRUE(two.starts_with("loaded|")) << two;
    expect_contains(
        two,
        {"the driver implements Level Zero 2.0, but this version of Tessera supports only Level Zero 1", "|0\nright"});
    expect_clean(two);
    // Older and newer minor versions order commands in different ways.
    for (const char* version : {"ze-api=100", "ze-api=107", "ze-api=112"})
      EXPECT_EQ(with(version, [] { return outcome(device()); }), "right") << version;
    return;
  }
  const std::string text = with("hip-major=9", [] { return lines({row(), outcome({})}); });
  EXPECT_TRUE(text.starts_with("loaded|")) << text;
  expect_contains(text, {"HIP version 9.", "TESSERA_ROCM_LIBRARY", "|0\nright"});
  // The older layout of the device properties is also supported.
  EXPECT_TRUE(with("hip-major=5", [] { return outcome(device()); }).starts_with("right"));
}

TEST_P(StreamFaults, ReportsMissingCompiler) {
  const Variables absent = {{compiler_variable(), "/nonexistent/libcompiler.so"},
                            {"TESSERA_OPENCL_LIBRARY", "/nonexistent/libOpenCL.so"}};
  const std::string text = run(absent, [] { return lines({row(), outcome(device()), outcome({})}); });
  expect_contains(text, {"/nonexistent/libcompiler.so", compiler_variable() + " names this file", "DeviceError: ["});
  EXPECT_TRUE(text.ends_with("\nright")) << text;
  expect_clean(text);
}

TEST_P(StreamFaults, ReportsCompilerWithMissingEntryPoint) {
  if (rocm()) return;
  const std::string text = run({{compiler_variable(), test::fake_library(std::string(fake().compiler) + "_incomplete")},
                                {"TESSERA_OPENCL_LIBRARY", "/nonexistent/libOpenCL.so"}},
                               [] { return row(); });
  expect_contains(text, {cuda() ? "it has no nvrtcGetCUBIN" : "it has no oclocFreeOutput"});
}

TEST_P(StreamFaults, ReportsCompilerThatRejectsAllKernels) {
  const std::string text = with("compile", [] { return lines({outcome(device()), state(), outcome({}), left(1)}); });
  expect_contains(text, {"DeviceError: ", "this compiler is set to reject everything", "\nenumerated\nright\n0 left"});
  expect_clean(text);
}

TEST_P(StreamFaults, ReportsDriverThatRejectsCompiledCode) {
  const auto work = [] { return lines({outcome(device()), outcome({})}); };
  const auto expect_refused = [](const std::string& text) {
    expect_contains(text, {"the driver refused to load the compiled code", "install a newer driver"});
    EXPECT_TRUE(text.ends_with("\nright")) << text;
    expect_clean(text);
  };
  for (const char* fault : {"cubin:209", "cubin:218", "cubin:222"}) {
    if (!cuda() && fault != std::string("cubin:209")) continue;
    expect_refused(run({{"TESSERA_FAKE_FAULT", fault}, {"TESSERA_CODEGEN_LIBRARY", "none"}}, work));
    const std::string text = with(fault, work);
    if (cuda() && TESSERA_MODULE_IS_BUILT)  // with the module, PTX is used instead
      EXPECT_EQ(text, "right\nright");
    else
      expect_refused(text);
  }
}

TEST_P(StreamFaults, ReportsContextCreationFailure) {
  if (rocm()) return;  // HIP creates the context in the first call that needs it
  if (oneapi()) {      // one context contains all devices of a driver
    const std::string text = with("context:2", [] { return lines({outcome(device()), outcome({})}); });
    expect_contains(text, {"the driver could not create a context: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "\nright"});
    expect_clean(text);
    return;
  }
  const std::string text = with(
      "context:2@0",
      [] {
        return lines({outcome(device(0)), outcome(device(1)), state(1)});
      },
      2);
  expect_contains(text, {"the driver could not create a context: CUDA_ERROR_OUT_OF_MEMORY", "\nright\nverified"});
  expect_clean(text);
}

// Wrong results:

TEST_P(StreamFaults, DeviceWithWrongResultsIsQuarantined) {
  const std::string text = with(
      "wrong@0",
      [] {
        std::string all = std::string(state_name(discover(GetParam()).devices[0].state)) + "\n";
        all += lines({outcome(device(0)), state(0)}) + "\n";
        all += outcome(device(0)) + "\n";  // the second attempt throws without a trial
        all += lines({outcome(device(1)), state(1), outcome({})}) + "\n";
        const DeviceInfo& info = device_info(device(0));
        return all + info.reason + "|" + info.remedy + "\n" + left(2);
      },
      2);
  EXPECT_TRUE(text.starts_with("enumerated\nDeviceError: [" + name() + "]")) << text;
  expect_contains(text, {"quarantined): the first kernel computed a wrong result: element 700 of 1000 is",
                         "\nquarantined\n", "\nright\nverified\nright\n", "rescan()", "\n0 left"});
  expect_clean(text);
}

TEST_P(StreamFaults, RetriesAFailedAllocation) {
  for (const int n : {3, 4, 5, 6}) {  // the first two allocations are for the verification kernel
    const std::string text = with("oom=" + std::to_string(n) + "@0", [] {
      std::string all = lines({outcome(device()), outcome(device()), state()}) + "\n";
      trim(device());
      return all + std::to_string(live("memory"));
    });
    EXPECT_EQ(text, "right\nright\nverified\n0") << "allocation " << n;
  }
}

TEST_P(StreamFaults, OutOfMemoryListsTheLargestArraysAndIsRecoverable) {
  const std::string text = run({{"TESSERA_FAKE_MEMORY", std::to_string(64 << 20)}}, [] {
    std::string all;
    {
      const Array large = Array::full({5 << 20}, 1.0, DType::f32, device());
      large.eval();
      all += message([] { Array::full({12 << 20}, 1.0, DType::f32, device()).eval(); }) + "\n";
      all += lines({std::to_string(sum(large).item<float>()), state()}) + "\n";
    }
    all += std::to_string(sum(Array::full({12 << 20}, 1.0, DType::f32, device())).item<float>()) + "\n";
    trim(device());
    return all + std::to_string(live("memory"));
  });
  expect_contains(text, {name() + " does not have enough memory", "largest of 1 live", "20 MiB",
                         "5242880.000000\nverified\n12582912.000000\n0"});
  expect_clean(text);
}

TEST_P(StreamFaults, OtherDevicesRemainUsableAfterPermanentOutOfMemory) {
  const std::string text = with(
      "oom=3+@0",
      [] {
        const std::string first = outcome(device());
        return lines({first, outcome(device(1)), state(0), outcome({}), left(2)});
      },
      2);
  expect_contains(text, {"OutOfMemory: [", "\nright\nverified\nright\n0 left"});
  expect_clean(text);
}

TEST_P(StreamFaults, UploadsWorkWithoutPinnedMemory) {
  for (const char* fault : {"host-oom=1+", "host-oom=2+"}) {
    EXPECT_EQ(with(fault,
                   [] {
                     const Array large = Array::from(std::vector<float>(3 << 20, 1.0f), {}, device());
                     return lines({outcome(device()), std::to_string(sum(large).item<float>())});
                   }),
              "right\n3145728.000000")
        << fault;
  }
}

TEST_P(StreamFaults, DeviceRemainsUsableAfterRejectedLaunch) {
  for (const char* fault : {"launch=2", "launch=2:1"}) {
    const std::string text = with(fault, [] {
      const std::string first = outcome(device());
      return lines({first, outcome(device()), state(), left(1)});
    });
    expect_contains(text, {"KernelError: ", name(), "launching", "\nright\nverified\n0 left"});
    expect_clean(text);
  }
}

TEST_P(StreamFaults, KernelsWithManyRegistersRunInSmallerBlocks) {
  EXPECT_EQ(with("threads=64", [] { return outcome(device()); }), "right");
  const std::string text = with("threads=64", [] {
    const auto k = kernel("wide", block(128), [](Buffer<float> x) { x[global_id()] = 1.0f; });
    DeviceScope scope(device());
    DeviceBuffer<float> x(128);
    return lines({message([&] { k.launch(blocks(1), x); }), outcome(device())});
  });
  expect_contains(text, {"wide", "its blocks have 128 threads", "at most 64", "\nright"});
  expect_clean(text);
}

TEST_P(StreamFaults, LostDeviceThrowsAndOtherDevicesRemainUsable) {
  for (const char* fault : {"lost=12@0", "lost=13@0", "lost=14@0", "lost=15:719@0", "lost=16@0", "late=12@0",
                            "late=13@0", "late=14@0", "late=15:719@0", "late=16@0"}) {
    const std::string text = with(
        fault,
        [&] {
          std::string all;
          const Array elsewhere = Array::full({100}, 3.0, DType::f32, device(1));
          elsewhere.eval();
          std::optional<Array> here;
          const std::string first = message([&] {
            here = Array::full({100}, 2.0, DType::f32, device(0));
            for (int i = 0; i < 10; ++i) here = *here + Array::full({100}, 1.0, DType::f32, device(0)), here->eval();
            here->to_vector<float>();
          });
          all += first + "\n";
          for (int i = 0; i < 2; ++i) all += message([&] { (*here + 1.0f).to_vector<float>(); }) + "\n";
          all += message([&] { Array::full({4}, 1.0, DType::f32, device(0)).to_vector<float>(); }) + "\n";
          all += lines(
              {state(0), std::to_string(sum(elsewhere).item<float>()), outcome(device(1)), state(1), outcome({})});
          here.reset();
          all += message([] { trim(device(0)); });
          return all;
        },
        2);
    expect_contains(text, {"the device is lost: ", fake().code_prefix, "\nlost\n300.000000\nright\nverified\nright"});
    EXPECT_EQ(text.find("no error"), text.npos) << fault << ": " << text;
    expect_clean(text);
  }
}

TEST_P(StreamFaults, RescanDoesNotReviveALostDevice) {
  const std::string text = with("lost=10@0", [] {
    message([] {
      for (int i = 0; i < 10; ++i) computes(device());
    });
    const std::string before = state();
    rescan();
    return lines({before, state(), outcome(device())});
  });
  expect_contains(text, {"lost\nlost\nDeviceError: "});
  expect_clean(text);
}

TEST_P(StreamFaults, ForkedChildThrowsAndParentContinues) {
  const std::string text = run({}, [] {
    const Array x = Array::full({100}, 2.0, DType::f32, device());
    x.eval();
    const std::string child = test::run_in_child({}, [&] { return message([&] { x.to_vector<float>(); }); });
    return lines({child, std::to_string(sum(x).item<float>()), outcome(device())});
  });
  expect_contains(text, {"forked", "\n200.000000\nright"});
  expect_clean(text);
}

TEST(StreamBackends, WorkTogetherInOneProcess) {
  const std::string text = test::run_in_child(test::with_fakes({{"TESSERA_FAKE_DEVICES", "4"}}), [] {
    Array x = Array::arange(1000, 0, 1);
    for (int i = 0; i < 4; ++i)
      for (const Backend backend : {Backend::cuda, Backend::rocm, Backend::oneapi, Backend::cpu})
        x = x.to({backend, backend == Backend::cpu ? 0 : i}) + 1.0f;
    std::string out = std::to_string(x.to_vector<float>()[999]);
    for (const test::FakeBackend& f : test::fake_backends) out += test::breaches(test::fake_library(f.driver));
    return out;
  });
  EXPECT_EQ(text, "1015.000000");
}

}  // namespace
}  // namespace tessera
