// SPDX-License-Identifier: Apache-2.0
// Reports and errors of the backend if there is no library, platform, device or memory, or if the compiler rejects a
// kernel. Each case runs in a child process, because a process opens the OpenCL library only once. opencl_shim injects
// driver faults.
#include "tests/opencl/opencl_fixture.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "tessera/base/os/library.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/memory/storage.h"
#include "tests/support/run_in_child.h"

namespace tessera::test {
namespace {

using namespace ir;

using test::run_in_child;

std::string enumerated() {
  const BackendReport r = driver().enumerate();
  return std::to_string(static_cast<int>(r.state)) + "|" + r.file + "|" + r.reason + "|" + r.remedy + "|" +
         std::to_string(r.devices.size());
}
std::string state(DeviceState s) { return std::to_string(static_cast<int>(s)) + "|"; }
#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(OpenClFailures, ReportsMissingLibrary) {
  const std::string text = run_in_child({{"TESSERA_OPENCL_LIBRARY", "/nonexistent/libOpenCL.so.1"}}, enumerated);
  EXPECT_EQ(text.substr(0, 2), state(DeviceState::supported)) << text;
  EXPECT_HAS(text, "|/nonexistent/libOpenCL.so.1|");
  EXPECT_HAS(text, "cannot open shared object file");
  EXPECT_HAS(text, "ocl-icd-libopencl1");
  const std::string opened =
      run_in_child({{"TESSERA_OPENCL_LIBRARY", "/nonexistent/libOpenCL.so.1"}}, [] { return driver().open(0), ""; });
  EXPECT_HAS(opened, "opencl:0");
  EXPECT_HAS(opened, "cannot open shared object file");
}

TEST(OpenClFailures, ReportsLibraryWithoutOpenClFunctions) {
  const std::string text = run_in_child({{"TESSERA_OPENCL_LIBRARY", "libm.so.6"}}, enumerated);
  EXPECT_EQ(text.substr(0, 2), state(DeviceState::supported)) << text;
  EXPECT_HAS(text, "the library has no clGetPlatformIDs");
}

TEST(OpenClFailures, ReportsFileThatIsNotALibrary) {
  const std::string file = (std::filesystem::temp_directory_path() / "tessera-not-a-library").string();
  std::ofstream(file) << "text";
  const std::string text = run_in_child({{"TESSERA_OPENCL_LIBRARY", file}}, enumerated);
  EXPECT_EQ(text.substr(0, 2), state(DeviceState::supported)) << text;
  EXPECT_HAS(text, file);
  std::filesystem::remove(file);
}

TEST(OpenClFailures, ReportsUnwritablePoclCacheFolder) {
  const std::string first = run_in_child({}, [] {
    const BackendReport r = driver().enumerate();
    return r.devices.empty() ? "" : r.devices[0].driver_version;
  });
  if (first.find("Portable Computing Language") == first.npos) GTEST_SKIP() << "PoCL is not the first platform here";
  const std::string file = (std::filesystem::temp_directory_path() / "tessera-no-folder").string();
  std::ofstream(file) << "text";  // even root cannot create a folder below a file
  for (const auto& [variables, folder] :
       {std::pair<test::Variables, std::string>{{{"POCL_CACHE_DIR", file + "/a"}}, file + "/a"},
        {{{"POCL_CACHE_DIR", ""}, {"XDG_CACHE_HOME", file}}, file + "/pocl/kcache"}}) {
    // run_in_child() can set variables but not unset them, so an empty value stands for an unset variable.
    const std::string text = run_in_child(variables, [] {
      if (const char* named = std::getenv("POCL_CACHE_DIR"); named && !*named) unsetenv("POCL_CACHE_DIR");
      return enumerated();
    });
    if (text.find("without devices") == text.npos) continue;  // a different platform has devices
    EXPECT_HAS(text, "CL_DEVICE_NOT_FOUND");
    EXPECT_HAS(text, "PoCL's cache folder " + folder + " is not writable");
    EXPECT_HAS(text, "Set POCL_CACHE_DIR to a writable folder");
  }
  std::filesystem::remove(file);
}

#ifdef TESSERA_OPENCL_SHIM
class Shim : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string found = run_in_child({}, [] { return std::to_string(driver().enumerate().devices.size()); });
    if (found == "0") GTEST_SKIP() << "this machine has no OpenCL device (Debian: pocl-opencl-icd)";
  }
  static std::string with(const std::string& mode, const std::function<std::string()>& work) {
    return run_in_child({{"TESSERA_OPENCL_LIBRARY", TESSERA_OPENCL_SHIM}, {"TESSERA_SHIM", mode}}, work);
  }
};
Function named(const std::string& name) {
  return map_kernel(name, [] {
    const BufferRef y = buffer_param("y", DType::f32, Access::read_write);
    y.store(global_id(), y.load(global_id()) + 1);
  });
}
/// Runs a kernel on a small buffer, to check that the process can still compute after a fault.
std::string still_works() {
  const Memory<float> y(std::vector<float>{1, 2});
  run(named("fine"), {2, 1, 1}, {y.argument()});
  return y.read() == std::vector<float>{2, 3} ? " and the next kernel works" : " and the next kernel is wrong";
}

TEST_F(Shim, KernelRunsWithoutFaults) { EXPECT_HAS(with("", still_works), "and the next kernel works"); }
TEST_F(Shim, ReportsMissingPlatforms) {
  const std::string text = with("no platform", enumerated);
  EXPECT_EQ(text.substr(0, 2), state(DeviceState::loaded)) << text;
  EXPECT_HAS(text, "/etc/OpenCL/vendors");
  EXPECT_HAS(text, "pocl-opencl-icd");
}
TEST_F(Shim, LargeAllocationOnIntelGpuSuggestsOneApi) {
  const std::string text = with("intel gpu", [] {
    try {
      device()->allocate(1 << 20, MemoryKind::device);
    } catch (const OutOfMemory& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  });
  EXPECT_HAS(text, "cannot allocate this much memory in one piece");
  EXPECT_HAS(text, "Use the oneapi device of this GPU");
}
TEST_F(Shim, ReportsPlatformsWithoutDevices) {
  const std::string text = with("no device", enumerated);
  EXPECT_EQ(text.substr(0, 2), state(DeviceState::loaded)) << text;
  EXPECT_HAS(text, "OpenCL platforms without devices: ");
  EXPECT_HAS(text, "CL_DEVICE_NOT_FOUND");
}
TEST_F(Shim, FailedAllocationThrowsOutOfMemory) {
  const std::string text = with("no memory", [] {
    try {
      device()->allocate(5000, MemoryKind::device);
    } catch (const OutOfMemory& e) {
      return e.what() + still_works();
    }
    return std::string("no error");
  });
  EXPECT_HAS(text, "CL_MEM_OBJECT_ALLOCATION_FAILURE");
  EXPECT_HAS(text, "and the next kernel works");
}
std::string pinned(const char* when) {
  const auto count =
      os::Library::open(std::string(TESSERA_OPENCL_SHIM)).function<std::int64_t(int)>("tessera_shim_pinned");
  return std::string(when) + " " + std::to_string(count(0)) + " buffers " + std::to_string(count(1)) + " mapped; ";
}
TEST_F(Shim, PinnedMemoryIsMappedUntilReleased) {
  const std::string text = with("", [] {
    const std::string never = pinned("before");
    std::string all = never;
    const Allocation a = device()->allocate(5000, MemoryKind::pinned), b = device()->allocate(1, MemoryKind::pinned);
    all += pinned("two");
    device()->release(a);
    all += pinned("one");
    device()->release(b);
    {
      const auto queue = device()->make_queue();
      const Allocation there = device()->allocate(100, MemoryKind::device);
      const int value = 7;
      queue->upload(there, 0, &value, sizeof value);
      all += pinned("uploading");
      device()->release(there);
    }
    all += pinned("after");
    return all + still_works();
  });
  EXPECT_HAS(text,
             "before 0 buffers 0 mapped; two 2 buffers 2 mapped; one 1 buffers 1 mapped; uploading 1 buffers 1 "
             "mapped; after 0 buffers 0 mapped; ");
  EXPECT_HAS(text, "and the next kernel works");
}
TEST_F(Shim, UploadsWorkWithoutPinnedMemory) {
  const std::string text = with("no mapping", [] {
    try {
      device()->allocate(5000, MemoryKind::pinned);
    } catch (const OutOfMemory& e) {
      const std::string all = e.what() + pinned(", left");
      return all + still_works();
    }
    return std::string("no error");
  });
  EXPECT_HAS(text, "the driver cannot allocate pinned host memory of this size");
  EXPECT_HAS(text, ", left 0 buffers 0 mapped; ");
  EXPECT_HAS(text, "and the next kernel works");
}
TEST_F(Shim, BatchErrorNamesTheKernelAndIncludesTheLog) {
  const std::string text = with("bad kernel", [] {
    const Function fns[] = {named("innocent"), named("guilty"), named("bystander")};
    std::vector<CompileRequest> requests;
    for (const Function& f : fns) requests.push_back({&f, {}});
    try {
      device()->compile(requests);
    } catch (const KernelError& e) {
      return e.what() + still_works();
    }
    return std::string("no error");
  });
  EXPECT_HAS(text, "[kernel guilty]");
  EXPECT_HAS(text, "undeclared_name");
  EXPECT_HAS(text, "| __kernel void guilty");
  EXPECT_EQ(text.find("innocent"), std::string::npos) << text;
  EXPECT_HAS(text, "and the next kernel works");
}
TEST_F(Shim, MapsLaunchFailuresToErrorTypes) {
  const auto launch = [] {
    try {
      return still_works();
    } catch (const OutOfMemory& e) {
      return std::string("out of memory: ") + e.what();
    } catch (const DeviceError& e) {
      return std::string("device error: ") + e.what();
    } catch (const KernelError& e) {
      return std::string("kernel error: ") + e.what();
    }
  };
  const std::string refused = with("refused launch", launch);
  EXPECT_HAS(refused, "kernel error: [kernel fine] clEnqueueNDRangeKernel returned CL_INVALID_WORK_GROUP_SIZE (-54)");
  const std::string resources = with("no resources", launch), lost = with("lost device", launch);
  EXPECT_HAS(resources, "out of memory: [kernel fine] clEnqueueNDRangeKernel returned CL_OUT_OF_RESOURCES (-5)");
  EXPECT_HAS(lost, "device error: [kernel fine] clEnqueueNDRangeKernel returned CL_DEVICE_NOT_AVAILABLE (-2)");
}
TEST_F(Shim, SuccessfulLaunchesDoNotHideEarlierFailure) {
  for (const bool download : {false, true}) {
    const std::string text = with("first launch fails", [download]() -> std::string {
      const Memory<float> y(std::vector<float>{1, 2});
      const auto kernel = compile(named("fine"));
      const Argument argument = y.argument();
      for (int i = 0; i < 600; ++i) queue().launch(*kernel, {2, 1, 1}, {&argument, 1});
      try {
        if (download)
          y.read();
        else
          queue().finish();
      } catch (const Error& e) {
        return e.what();
      }
      return "nothing was reported";
    });
    EXPECT_HAS(text, "a command returned CL_OUT_OF_RESOURCES (-5)");
  }
}

constexpr Device first{Backend::opencl, 0};
constexpr std::uint64_t count = 1000;
BufferView buffer() { return {Storage::allocate(first, count * sizeof(float)), 0, count, DType::f32}; }
/// Runs each function. For each one, appends "reported" if it throws the error that the shim injected, or "nothing" if
/// it does not throw.
std::string told(std::initializer_list<std::function<void()>> all) {
  std::string said;
  for (const auto& wait : all) {
    try {
      wait();
      said += "nothing; ";
    } catch (const Error& e) {
      const bool known = std::string(e.what()).find("a command returned CL_OUT_OF_RESOURCES (-5)") != std::string::npos;
      said += known ? "reported; " : e.what();
    }
  }
  return said;
}
/// Returns a function that downloads the buffer on the device's default queue.
std::function<void()> reading(const BufferView& from) {
  return [from] {
    std::vector<float> values(from.elements, -77.0f);
    Queue::of(first).download(values.data(), from);
  };
}
/// Opens the device without faults, so that the device check succeeds, and then sets the mode of the shim.
void open_queues(const std::string& mode) {
  register_driver(make_opencl_driver());
  Queue::of(first).finish();
  setenv("TESSERA_SHIM", mode.c_str(), 1);
}

TEST_F(Shim, WaitOnAnotherQueueReportsFailedLaunch) {
  const std::string text = with("", [] {
    open_queues("first launch fails");
    const Kernel kernel(named("fine"));
    const BufferView y = buffer(), other = buffer();
    Queue queue(first);
    queue.fill(y, 0), queue.fill(other, 0);
    const auto launch = [&](const BufferView& on) {
      kernel.launch({count, 1, 1}, std::array<LaunchArgument, 1>{on}, &queue);
    };
    launch(y), launch(other);  // the first launch fails, the second one succeeds
    return told({reading(y), reading(y), reading(other), [&] { queue.finish(); }, [&] { y.storage->wait_writable(); },
                 [&] { launch(y); }, reading(y)});
  });
  EXPECT_EQ(text, "reported; nothing; nothing; nothing; nothing; nothing; nothing; ");
}
TEST_F(Shim, WaitForMemoryReportsFailedLaunch) {
  const std::string text = with("", [] {
    open_queues("first launch fails");
    const Kernel kernel(named("fine"));
    const BufferView y = buffer();
    kernel.launch({count, 1, 1}, std::array<LaunchArgument, 1>{y}, nullptr);
    return told({[&] { y.storage->wait_writable(); }, [&] { y.storage->wait_writable(); }, reading(y)});
  });
  EXPECT_EQ(text, "reported; nothing; nothing; ");
}
TEST_F(Shim, DownloadReportsFailedLaunchOfClosedQueue) {
  const std::string text = with("", [] {
    open_queues("first launch fails");
    const Kernel kernel(named("fine"));
    const BufferView y = buffer();
    Queue theirs(first);
    std::unique_ptr<Queue> adopted = Queue::wrap(first, theirs.native_handle());
    adopted->fill(y, 0);
    kernel.launch({count, 1, 1}, std::array<LaunchArgument, 1>{y}, adopted.get());
    adopted.reset();
    return told({reading(y), reading(y), [&] { theirs.finish(); }});
  });
  EXPECT_EQ(text, "reported; nothing; nothing; ");
}
TEST_F(Shim, ReportsFailedUploadsCopiesAndFillsOnce) {
  for (const std::string what : {"write", "copy", "fill"}) {
    for (const bool elsewhere : {false, true}) {
      const std::string text = with("", [what, elsewhere] {
        open_queues("first " + what + " fails");
        const BufferView x = buffer(), y = buffer();
        const std::vector<float> values(count, 1.0f);
        std::optional<Queue> own;
        if (elsewhere) own.emplace(first);
        Queue& queue = elsewhere ? *own : Queue::of(first);
        if (what == "write") queue.upload(y, values.data());
        if (what == "copy") queue.copy(y, x);
        if (what == "fill") queue.fill(y, 0);
        // These uploads reuse all staging buffers. The error must not get lost.
        const BufferView large{Storage::allocate(first, std::size_t{1} << 20), 0, std::size_t{1} << 18, DType::f32};
        const std::vector<float> many(large.elements, 2.0f);
        for (int i = 0; i < 40; ++i) queue.upload(large, many.data());
        return told({reading(y), reading(y), reading(large), [&] { queue.finish(); }});
      });
      EXPECT_EQ(text, "reported; nothing; nothing; nothing; ") << what << (elsewhere ? ", on a separate queue" : "");
    }
  }
}
TEST_F(Shim, EventReportsFailedReadIntoPinnedMemory) {
  const std::string text = with("first read fails", [] {
    const Memory<float> y(std::vector<float>{1, 2});
    const Allocation host = device()->allocate(2 * sizeof(float), MemoryKind::pinned);
    const auto fetch = [&] { queue().copy(host, 0, y.allocation(), 0, 2 * sizeof(float)); };
    const auto before = queue().record();
    fetch();
    const auto event = queue().record();
    fetch();
    // An event reports its error to all waiters, because a wait may be internal. The queue reports it only once.
    const auto wait = [&] { event->wait(); };
    const auto finish = [] { queue().finish(); };
    const std::string all = told({[&] { before->wait(); }, wait, wait, finish, wait, finish, fetch,
                                  [] { queue().record()->wait(); }, [&] { y.read(); }});
    device()->release(host);
    return all + still_works();
  });
  EXPECT_EQ(text,
            "nothing; reported; reported; reported; reported; nothing; nothing; nothing; nothing;  and the next kernel "
            "works");
}
// PoCL creates as many devices as POCL_DEVICES requests. Each device has its own context, so the host waits during
// copies between them.
TEST_F(Shim, CopyToAnotherDeviceReportsEarlierFailure) {
  for (const std::string what : {"read", "launch"}) {
    const std::string text = run_in_child(
        {{"TESSERA_OPENCL_LIBRARY", TESSERA_OPENCL_SHIM}, {"TESSERA_SHIM", ""}, {"POCL_DEVICES", "pthread pthread"}},
        [what]() -> std::string {
          constexpr Device second{Backend::opencl, 1};
          if (driver().enumerate().devices.size() < 2) return "one device";
          open_queues("");
          Queue::of(second).finish();
          const BufferView y = buffer();
          const BufferView there{Storage::allocate(second, count * sizeof(float)), 0, count, DType::f32};
          const Kernel kernel(named("fine"));
          kernel.prepare(first);
          setenv("TESSERA_SHIM", ("first " + what + " fails").c_str(), 1);
          const auto launch = [&] { kernel.launch({count, 1, 1}, std::array<LaunchArgument, 1>{y}, nullptr); };
          const auto copy = [&] { Queue::of(second).copy(there, y); };
          return told({launch, copy, copy, reading(y), [&] { Queue::of(second).finish(); }});
        });
    if (text == "one device")
      GTEST_SKIP() << "passed by: PoCL created only one device, although POCL_DEVICES requests two";
    EXPECT_EQ(text, "nothing; reported; nothing; nothing; nothing; ") << what;
  }
}
TEST_F(Shim, EventDoesNotRepeatAnErrorReportedByADownload) {
  const std::string text = with("first launch fails", [] {
    const Memory<float> y(std::vector<float>{1, 2});
    const auto kernel = compile(named("fine"));
    const Argument argument = y.argument();
    queue().launch(*kernel, {2, 1, 1}, {&argument, 1});
    const auto event = queue().record();
    const std::string all = told({[&] { y.read(); }, [&] { event->wait(); }, [] { queue().finish(); }});
    return all + still_works();
  });
  EXPECT_EQ(text, "reported; nothing; nothing;  and the next kernel works");
}
// After a failed command, some drivers fail later commands with CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST. The
// backend must not mark the device as lost because of this code.
TEST_F(Shim, ReportsFailedLaunchRatherThanFailedMarker) {
  for (const bool download : {false, true}) {
    const std::string text = with("first launch and marker fail", [download] {
      const Memory<float> y(std::vector<float>{1, 2});
      const auto kernel = compile(named("fine"));
      const Argument argument = y.argument();
      queue().launch(*kernel, {2, 1, 1}, {&argument, 1});
      const auto event = queue().record();
      const std::function<void()> wait = [&] { event->wait(); };
      const std::string all = download ? told({[&] { y.read(); }, wait}) : told({wait, wait});
      return all + told({[] { queue().finish(); }});
    });
    EXPECT_EQ(text, download ? "reported; nothing; nothing; " : "reported; reported; reported; ");
  }
}
#endif

}  // namespace
}  // namespace tessera::test
