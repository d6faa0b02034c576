// SPDX-License-Identifier: Apache-2.0
// Work at exit: in destructors of static objects, in atexit handlers and in destructors of thread_local objects.
// Built-in devices still compute. Drivers are not called, because their objects may be destroyed. Each test runs in a
// child process.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>

#include "tessera/array/array.h"
#include "tessera/base/error.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/settings.h"
#include "tessera/ir/value.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"
#include "tests/support/fresh_process.h"
#include "tests/support/test_driver.h"

namespace tessera {

/// Created before main runs, and therefore destroyed after everything that main creates.
struct AtTheEnd {
  std::function<void()>* work = nullptr;
  ~AtTheEnd() {
    if (work) (*work)();
  }
} at_the_end;

namespace {

using test::add;
using test::expect_contains;
using test::text_of;

/// Each block of 64 threads reverses its elements through shared memory, doubles them and adds `plus`.
Kernel turning(float plus) {
  ir::Builder builder("turning", ir::KernelKind::block, {64, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
  const auto tile = ir::shared(DType::f32, 64);
  const ir::Value t = ir::thread_id(), i = ir::global_id();
  tile.store(t, x.load(i));
  ir::barrier();
  y.store(i, tile.load(ir::Operand(std::int64_t{63}) - t) * 2.0f + plus);
  return Kernel(builder.finish());
}

std::shared_ptr<Storage> memory(Device device, std::size_t elements) {
  return Storage::allocate(device, elements * sizeof(float));
}
BufferView view(std::shared_ptr<Storage> storage, std::size_t elements) {
  return {std::move(storage), 0, elements, DType::f32};
}

/// Launches the kernel with a small and with a large grid, which also uses other threads. Returns the number of wrong
/// elements.
int wrong_elements(const Kernel& kernel, Device device, float plus) {
  int wrong = 0;
  for (const std::size_t blocks : {2u, 20000u}) {
    if (device.backend == Backend::interp && blocks > 100) continue;
    const std::size_t n = blocks * 64;
    std::vector<float> x(n), y(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 1000);
    const BufferView from = view(memory(device, n), n), to = view(memory(device, n), n);
    Queue& queue = Queue::of(device);
    queue.upload(from, x.data());
    kernel.launch({blocks, 1, 1}, {from, to});
    queue.download(y.data(), to);
    for (std::size_t i = 0; i < n; ++i) wrong += y[i] != x[i / 64 * 64 + 63 - i % 64] * 2 + plus;
  }
  return wrong;
}

/// Returns the exit code of a child that runs `work` and then returns from main. 128 + n means signal n.
int exit_code_of(const std::function<void()>& work) {
  ::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    try {
      work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "unexpected: %s\n", e.what());
      ::_exit(100);
    }
    std::exit(99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Overwrites free memory with a pattern. Uses blocks of every size, including those that this thread has freed.
class Neighbours {
 public:
  Neighbours() {
    for (std::size_t bytes = 16; bytes <= 1 << 20; bytes += bytes / 4 + 16)
      for (int i = 0; i < 8; ++i) blocks_.emplace_back(bytes, '\x5a');
  }
  bool whole() const {
    for (const auto& block : blocks_)
      for (const char c : block)
        if (c != '\x5a') return false;
    return true;
  }

 private:
  std::vector<std::vector<char>> blocks_;
};

class OwnDevices : public ::testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Exit, OwnDevices, ::testing::Values(Device{Backend::cpu, 0}, Device{Backend::interp, 0}),
                         [](const auto& each) { return std::string(backend_name(each.param.backend)); });

TEST_P(OwnDevices, ComputeInStaticDestructors) {
  const Device device = GetParam();
  EXPECT_EQ(exit_code_of([&] {
              static Device here = device;
              static const Kernel& known = *new Kernel(turning(1));
              static int wrong = 0;
              static const Array& before = *new Array(Array::from({1.0f, 2.0f, 3.0f}, {}, here));
              const auto compute = [] {
                const Neighbours neighbours;
                for (int i = 0; i < 3; ++i) wrong += wrong_elements(known, here, 1) != 0;
                wrong += (before * 2.0f + 1.0f).to_vector<float>() != std::vector<float>{3, 5, 7};
                wrong += !neighbours.whole();
              };
              compute();
              struct InMain {
                std::function<void()> work;
                ~InMain() { work(); }
              };
              static InMain after_thread_locals{compute};
              static std::function<void()> last = [compute] {
                compute();
                ::_exit(wrong);
              };
              at_the_end.work = &last;
            }),
            0);
}

TEST_P(OwnDevices, ComputeInThreadLocalDestructors) {
  const Device device = GetParam();
  EXPECT_EQ(exit_code_of([&] {
              static Device here = device;
              static const Kernel& known = *new Kernel(turning(1));
              static int wrong = 0;
              struct Last {
                bool used = false;
                ~Last() {
                  const Neighbours neighbours;
                  wrong += wrong_elements(known, here, 1) != 0 || !neighbours.whole();
                }
              };
              for (int i = 0; i < 4; ++i)
                std::thread([] {
                  static thread_local Last last;
                  last.used = true;  // created before the objects of the launch, and therefore destroyed after them
                  wrong += wrong_elements(known, here, 1) != 0;
                }).join();
              ::_exit(wrong);
            }),
            0);
}

TEST(Exit, CompilingAfterExitThrows) {
  const Device cpu{Backend::cpu, 0};
  if (device_info(cpu).reason.find("interpreter") != std::string::npos) GTEST_SKIP() << "cpu uses the interpreter here";
  EXPECT_EQ(exit_code_of([&] {
              static const Kernel &known = *new Kernel(turning(1)), &fresh = *new Kernel(turning(3));
              static Device here{Backend::cpu, 0};
              if (wrong_elements(known, here, 1) != 0) ::_exit(1);
              static std::function<void()> last = [] {
                const std::string text = text_of<KernelError>([] { wrong_elements(fresh, here, 3); });
                if (text.find("exiting") == std::string::npos) std::fprintf(stderr, "%s\n", text.c_str()), ::_exit(2);
                ::_exit(wrong_elements(known, here, 1) == 0 ? 0 : 3);
              };
              at_the_end.work = &last;
            }),
            0);
}

TEST(Exit, NoDriverCallsAfterMainThreadObjectsAreDestroyed) {
  EXPECT_EQ(exit_code_of([] {
              static auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, std::uint64_t{1} << 30}});
              static const Device device{Backend::cuda, 0};
              static std::atomic<int> ran = 0;
              static int refused = 0;
              test::set_body("turning", [](const test::Launch&) { ++ran; });
              static const Kernel& kernel = *new Kernel(turning(1));
              // Allocated before the device was opened, and therefore destroyed after the queues are drained.
              static std::shared_ptr<Storage> kept;
              const auto use = [] {
                const auto text = text_of<DeviceError>([] {
                  const BufferView there = view(kept, 64);
                  kernel.launch({1, 1, 1}, {there, there});
                });
                refused += text.find("the program is exiting") != std::string::npos;
                refused += text_of<DeviceError>([] { memory(device, 64); }).find("exiting") != std::string::npos;
              };
              kept = memory(device, 64);
              struct InMain {
                std::shared_ptr<Storage> storage;
                std::function<void()> work;
                ~InMain() {
                  storage.reset();
                  work();
                }
              };
              static InMain before_drain{memory(device, 64), use};
              static std::shared_ptr<Storage> input = memory(device, 64);
              cuda.behaviour(0)->max_delay_us = 2000;
              for (int i = 0; i < 20; ++i) kernel.launch({1, 1, 1}, {view(input, 64), view(kept, 64)});
              static std::function<void()> last = [use] {
                use();
                kept.reset();
                input.reset();
                const auto misuse = cuda.behaviour(0)->misuse();
                for (const std::string& text : misuse) std::fprintf(stderr, "%s\n", text.c_str());
                ::_exit(misuse.empty() && ran == 20 && refused == 4 ? 0 : 10 + refused);
              };
              at_the_end.work = &last;
            }),
            0);
}

TEST(Exit, StopsWaitingForHangingWorkAfterTimeout) {
  const auto start = std::chrono::steady_clock::now();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(exit_code_of([] {
              ::setenv("TESSERA_PROBE_TIMEOUT", "1", 1);
              forget_settings();
              auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, std::uint64_t{1} << 30}});
              test::set_body("turning", [](const test::Launch&) {});
              static const Kernel& kernel = *new Kernel(turning(1));
              static auto storage = memory({Backend::cuda, 0}, 64);
              static auto other = memory({Backend::cuda, 0}, 64);
              cuda.behaviour(0)->hold();
              kernel.launch({1, 1, 1}, {view(storage, 64), view(other, 64)});
              static std::function<void()> last = [] { ::_exit(0); };
              at_the_end.work = &last;
            }),
            0);
  expect_contains(::testing::internal::GetCapturedStderr(), {"did not finish within 1 s", "TESSERA_PROBE_TIMEOUT"});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took.count(), 1);
  EXPECT_LT(took.count(), 30);
}

/// Drivers such as PoCL compile a kernel when it first runs. Here this happens during exit. The static objects of the
/// compiler were created after all exit handlers were registered.
class OpenclAtExit : public ::testing::TestWithParam<int> {
 public:
  static constexpr int no_device = 77, ended = 42;
  /// Runs a process with an empty cache that queues kernels and then calls `leave`. Returns its exit code.
  static int leave_with_queued_work(const std::function<void(const std::function<void()>&)>& leave) {
    const test::Folder folder;
    return exit_code_of([&] {
      ::setenv("POCL_CACHE_DIR", (folder / "pocl").c_str(), 1);
      ::setenv("TESSERA_CACHE_DIR", (folder / "tessera").c_str(), 1);
      if (discover(Backend::opencl).devices.empty()) ::_exit(no_device);
      static std::function<void()> last = [] { ::_exit(ended); };
      at_the_end.work = &last;
      leave([] {
        const Device device{Backend::opencl, 0};
        static auto from = memory(device, 6400), to = memory(device, 6400);
        for (const float plus : {1.0f, 2.0f}) turning(plus).launch({100, 1, 1}, {view(from, 6400), view(to, 6400)});
      });
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Repeated, OpenclAtExit, ::testing::Range(0, 2));

TEST_P(OpenclAtExit, QueuedWorkFinishesWhenMainReturns) {
  const int code = leave_with_queued_work([](const auto& queue) { queue(); });
  if (code == no_device) GTEST_SKIP() << "no OpenCL device";
  EXPECT_EQ(code, ended);
}

TEST_P(OpenclAtExit, QueuedWorkOfOtherThreadsFinishesWhenMainReturns) {
  const int code = leave_with_queued_work([](const auto& queue) { std::thread(queue).join(); });
  if (code == no_device) GTEST_SKIP() << "no OpenCL device";
  EXPECT_EQ(code, ended);
}

}  // namespace
}  // namespace tessera
