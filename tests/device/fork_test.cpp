// SPDX-License-Identifier: Apache-2.0
// Forks a process while other threads discover, open and use devices. The child must be able to use devices and to
// exit.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <random>
#include <thread>

#include "tessera/array/array.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/test_seed.h"
#include "tessera/device/context.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/launch_interceptor.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"
#include "tests/support/fresh_process.h"
#include "tests/support/test_driver.h"

namespace tessera {
namespace {

using test::add;
using test::expect_contains;
using test::in_fresh_process;
using test::text_of;
using namespace std::chrono_literals;

constexpr Device cpu{Backend::cpu, 0}, interp{Backend::interp, 0}, fake{Backend::cuda, 0};

/// Returns an empty string if the device computes correctly, else the error.
std::string use(Device device) {
  try {
    // The kernels of the cuda test driver are defined by other tests, so only device memory is used here.
    if (device.backend == Backend::cuda) {
      const BufferView view{Storage::allocate(device, 256), 0, 64, DType::f32};
      std::vector<float> there(64, 2), back(64);
      Queue::of(device).upload(view, there.data());
      Queue::of(device).download(back.data(), view);
      return back == there ? "" : "wrong";
    }
    const Array x = Array::arange(1000, 0, 1, DType::f32, device);
    return (x * 2.0f + 1.0f).to_vector<float>().at(999) == 1999.0f && sum(x).item<float>() == 499500.0f ? "" : "wrong";
  } catch (const std::exception& e) {
    return e.what();
  }
}

struct Ended {
  bool in_time = false;
  int code = -1;  // 128 + n means signal n
};
Ended wait_for(pid_t child, std::chrono::seconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > until) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return {};
    }
    std::this_thread::sleep_for(1ms);
  }
  return {true, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
}

/// Forks a process after `moment`, while two threads discover and open all devices. The process has no open devices
/// before this. Returns 0 if the child computes, or if it reports that its parent has opened the device.
int fork_after(std::chrono::microseconds moment) {
  auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, std::uint64_t{1} << 30}});
  cuda.slow_us = 8000;
  logging::set_level(logging::Level::info);
  ::dup2(::open("/dev/null", O_WRONLY), 2);
  const auto user = [](std::vector<Device> devices) {
    return std::thread([devices] {
      for (const Device device : devices) discover(device.backend);
      for (const Device device : devices) use(device);
    });
  };
  std::thread first = user({fake, cpu, interp}), second = user({interp, fake, cpu});
  std::this_thread::sleep_for(moment);
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 0;
    for (const Device device : {interp, fake, cpu}) {
      const std::string wrong = use(device);
      if (!wrong.empty() && wrong.find("before this process was forked") == std::string::npos) {
        code = 1 + static_cast<int>(device.backend);
        ::dprintf(1, "%s: %s\n", to_string(device).c_str(), wrong.c_str());
      }
    }
    ::_exit(code);
  }
  const Ended ended = wait_for(child, 20s);
  first.join();
  second.join();
  return ended.in_time ? ended.code : 200;
}

TEST(Fork, ChildUsesDevicesWhenForkedDuringDiscovery) {
  const int times = std::getenv("TESSERA_TEST_LONG") ? 1000 : 100;
  std::mt19937_64 random(test_seed());
  int hung = 0, failed = 0;
  for (int i = 0; i < times && hung < 3; ++i) {
    const std::chrono::microseconds moment(random() % 70000);
    ::fflush(nullptr);
    const pid_t process = ::fork();
    if (process == 0) ::_exit(fork_after(moment));
    const Ended ended = wait_for(process, 40s);
    hung += !ended.in_time || ended.code == 200;
    failed += ended.in_time && ended.code != 0;
    EXPECT_TRUE(ended.in_time && ended.code == 0) << "forked after " << moment.count() << " us: code " << ended.code;
  }
  EXPECT_EQ(hung, 0);
  EXPECT_EQ(failed, 0);
}

/// Forks a process after `moment`, while two threads probe the system's drivers. There are no cached probe results.
/// Returns 0 if the child also gets the results and computes correctly.
int fork_amid_asking(std::chrono::microseconds moment) {
  const auto ask = [] { return std::thread([] { discover(); }); };
  std::thread first = ask(), second = ask();
  std::this_thread::sleep_for(moment);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool all = discover().size() == all_backends.size();
    for (const DeviceInfo& info : discover(Backend::opencl).devices) use(info.device);
    ::_exit(all && use(cpu).empty() ? 0 : 1);
  }
  const Ended ended = wait_for(child, 20s);
  first.join();
  second.join();
  return ended.in_time ? ended.code : 200;
}

TEST(Fork, ChildEndsWhenForkedWhileProbingSystemDrivers) {
  const int times = std::getenv("TESSERA_TEST_LONG") ? 500 : 40;
  std::mt19937_64 random(test_seed());
  const test::Folder cache;
  int hung = 0;
  for (int i = 0; i < times && hung < 3; ++i) {
    const bool probe = i % 2 == 0;  // otherwise, drivers are loaded into the process itself
    const std::chrono::microseconds moment(random() % 15000);
    ::fflush(nullptr);
    const pid_t process = ::fork();
    if (process == 0) {
      ::setenv("TESSERA_CACHE_DIR", cache.path().c_str(), 1);
      if (!probe) ::setenv("TESSERA_PROBE", "off", 1);
      ::_exit(fork_amid_asking(moment));
    }
    const Ended ended = wait_for(process, 60s);
    hung += !ended.in_time || ended.code == 200;
    EXPECT_TRUE(ended.in_time && ended.code == 0)
        << "forked after " << moment.count() << " us" << (probe ? "" : ", without probes") << ": code " << ended.code;
  }
}

TEST(Fork, ChildInheritsReportsAndProbesOtherDrivers) {
  in_fresh_process([] {
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, std::uint64_t{1} << 30}});
    auto& rocm = add(Backend::rocm, {{DeviceKind::discrete_gpu, std::uint64_t{1} << 30}});
    discover(Backend::cuda);
    EXPECT_EQ(use(interp), "");
    in_fresh_process([&] {
      EXPECT_EQ(discover(Backend::cuda).devices.size(), 1u);
      EXPECT_EQ(cuda.enumerations, 1);
      EXPECT_EQ(discover(Backend::rocm).devices.size(), 1u);
      EXPECT_EQ(rocm.enumerations, 1);
      EXPECT_EQ(use(fake), "");
      EXPECT_EQ(use(cpu), "");
      expect_contains(use(interp), {"interp:0", "before this process was forked"});
      in_fresh_process([] { expect_contains(use(cpu), {"before this process was forked"}); });
    });
    EXPECT_EQ(use(fake), "");
    EXPECT_EQ(use(interp), "");
  });
}

TEST(Fork, ThrowsInChildForPendingWorkOfAParentThread) {
  struct Holds : LaunchInterceptor {
    std::atomic<bool> inside = false, over = false;
    void launched(const Kernel&, Device, std::array<std::uint64_t, 3>, std::span<const LaunchArgument>,
                  const std::function<void()>& launch) override {
      inside = true;
      while (!over) std::this_thread::sleep_for(1ms);
      launch();
    }
  };
  in_fresh_process([] {
    const Array x = Array::ones({100}, DType::f32, interp), y = x + 1;
    Holds holds;
    std::thread computes([&] {
      thread_context.launch_interceptor = &holds;
      y.eval();
      thread_context.launch_interceptor = nullptr;
    });
    while (!holds.inside) std::this_thread::yield();
    in_fresh_process([&] {
      ::alarm(20);
      expect_contains(text_of<DeviceError>([&] { y.eval(); }), {"interp:0", "before this process was forked"});
    });
    holds.over = true;
    computes.join();
    EXPECT_EQ(y.to_vector<float>().at(99), 2.f);
  });
}

TEST(Fork, ForkWaitsForWorkThatChildCannotFinish) {
  in_fresh_process([] {
    std::atomic<bool> inside = false, over = false;
    std::thread loader([&] {
      const os::ForkGuard whole;
      const os::ForkGuard again;
      inside = true;
      std::this_thread::sleep_for(200ms);
      over = true;
    });
    while (!inside) std::this_thread::yield();
    in_fresh_process([&] {
      EXPECT_TRUE(over) << "forked in the middle";
      EXPECT_FALSE(os::forked_during_guard());
      const os::ForkGuard nobody_has_it;
    });
    loader.join();
    {  // a thread that forks during such work does not wait for itself, and the child can finish the work
      const os::ForkGuard mine;
      in_fresh_process([] { EXPECT_FALSE(os::forked_during_guard()); });
    }
    in_fresh_process([] { EXPECT_FALSE(os::forked_during_guard()); });
  });
}

TEST(Fork, ForkStopsWaitingAfterTimeout) {
  if (!std::getenv("TESSERA_TEST_LONG")) GTEST_SKIP() << "takes 10 s; set TESSERA_TEST_LONG=1";
  in_fresh_process([] {
    std::atomic<bool> inside = false, let_go = false;
    std::thread loader([&] {
      const os::ForkGuard whole;
      inside = true;
      while (!let_go) std::this_thread::sleep_for(1ms);
    });
    while (!inside) std::this_thread::yield();
    const auto start = std::chrono::steady_clock::now();
    in_fresh_process([&] {
      EXPECT_TRUE(os::forked_during_guard());
      EXPECT_EQ(use(interp), "");
      const std::string text = use(cpu);
      EXPECT_NE(text.find("forked while another thread loaded"), std::string::npos) << text;
    });
    EXPECT_GE(std::chrono::steady_clock::now() - start, 9s);
    let_go = true;
    loader.join();
  });
}

}  // namespace
}  // namespace tessera

/// These tests fork while other threads are running.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
