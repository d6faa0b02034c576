// SPDX-License-Identifier: Apache-2.0
// A driver for tests. It uses host memory, and its queues have threads and random delays, to detect missing events. It
// checks addresses and fails on demand. Kernels are C++ functions with the same name.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/device/driver.h"

namespace tessera::test {

/// Arguments of a kernel's C++ function: the bytes of each buffer from its offset on, and the bits of each scalar.
struct Launch {
  std::array<std::uint64_t, 3> shape;
  struct Argument {
    std::byte* bytes = nullptr;
    std::uint64_t elements = 0;
    std::uint64_t bits = 0;
    template <class T>
    T* as() const {
      return reinterpret_cast<T*>(bytes);
    }
  };
  std::vector<Argument> arguments;
};
using Body = std::function<void(const Launch&)>;

/// Behaviour of a device. Tests can change it at any time.
struct Behaviour {
  std::atomic<int> max_delay_us = 0;            ///< maximum random delay before each queued operation, in microseconds
  std::atomic<bool> immediate = false;          ///< new queues compute within the call and have no thread
  std::atomic<bool> host_visible = false;       ///< allocations have a host address
  std::atomic<int> fail_allocation_in = 0;      ///< if n > 0, the n-th allocation from now on fails
  std::atomic<int> failing_allocations = 1;     ///< number of consecutive allocations that then fail
  std::atomic<bool> fail_launch = false;        ///< launches throw a KernelError
  std::atomic<bool> fail_after_launch = false;  ///< launches throw a KernelError after the work was queued
  std::atomic<bool> fail_record = false;        ///< no event can be created
  std::atomic<int> failed_work = 0;             ///< number of errors caused by `fail_work`
  std::atomic<bool> fail_work = false;          ///< queued launches fail with a KernelError when they run
  std::atomic<bool> lose = false;               ///< queued work fails with a DeviceLost when it runs
  std::atomic<bool> fail_open = false;
  std::atomic<bool> compute_wrongly = false;
  std::atomic<bool> fail_compile = false;
  std::atomic<int> shortage = 0;  ///< compiling fails because of a lack of host memory (1) or threads (2)
  std::atomic<int> compiled = 0, compile_calls = 0, allocations = 0, live_allocations = 0, records = 0, opened = 0;
  std::atomic<std::uint64_t> live_bytes = 0;
  std::atomic<int> live_kernels = 0;

  /// Pauses all queues before their next operation, until `resume` is called.
  void hold() { held = true; }
  void resume() {
    {
      std::lock_guard g(lock);
      held = false;
    }
    changed.notify_all();
  }
  /// Returns the misuse that the driver has detected: accesses outside of allocations, use of freed memory, calls on
  /// threads with destroyed thread_local objects, and so on.
  std::vector<std::string> misuse();
  void note_misuse(std::string text);

  std::mutex lock;
  std::condition_variable changed;
  std::atomic<bool> held = false;
  std::vector<std::string> seen;        // guarded by lock
  std::vector<ir::Function> functions;  // compiled functions; guarded by lock
  std::vector<Variant> variants;        // variants of these functions; guarded by lock
};

class TestDriver : public Driver {
 public:
  explicit TestDriver(Backend backend) : backend_(backend) {}

  /// Adds a device. Must be called before the driver is registered.
  DeviceInfo& add_device(DeviceKind kind, std::uint64_t total_memory);
  std::string fail_enumerate;  ///< if not empty, enumeration fails with this reason
  std::atomic<int> enumerations = 0;
  std::atomic<int> slow_us = 0;  ///< duration of enumerating and opening in microseconds
  std::shared_ptr<Behaviour> behaviour(int index) { return behaviours_.at(static_cast<std::size_t>(index)); }

  Backend backend() const override { return backend_; }
  BackendReport enumerate() override;
  std::unique_ptr<DriverDevice> open(int index) override;

 private:
  Backend backend_;
  std::vector<DeviceInfo> devices_;
  std::vector<std::shared_ptr<Behaviour>> behaviours_;
};

/// Enqueues work in a queue of a test device. `native` is the handle from `Queue::submit_native`.
void put_native(void* native, std::function<void()> work);

/// Sets the C++ function that runs for kernels with this name on all test devices.
void set_body(const std::string& kernel, Body body);

}  // namespace tessera::test
