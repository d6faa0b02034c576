// SPDX-License-Identifier: Apache-2.0
// A driver for tests: host memory, queues that are real threads with random delays (so that a missing event shows),
// checked addresses, and faults on demand. Kernels run through a C++ function of the same name, or the interpreter.
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

/// What a kernel's C++ function gets: bytes of each buffer from its offset on, bits of each scalar.
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

/// How one device behaves; tests change it while it runs.
struct Behaviour {
  std::atomic<int> max_delay_us = 0;            ///< before each piece of queued work, random up to this
  std::atomic<bool> immediate = false;          ///< queues made from now on work within the call, and have no thread
  std::atomic<bool> host_visible = false;       ///< allocations tell their host address
  std::atomic<int> fail_allocation_in = 0;      ///< n: the n-th allocation from now fails, ...
  std::atomic<int> failing_allocations = 1;     ///< ... and this many from there on
  std::atomic<bool> fail_launch = false;        ///< launches throw a KernelError
  std::atomic<bool> fail_after_launch = false;  ///< the same, and the work is in the queue nevertheless
  std::atomic<bool> fail_record = false;        ///< no event can be made
  std::atomic<int> failed_work = 0;             ///< how often `fail_work` did
  std::atomic<bool> fail_work = false;          ///< queued launches fail when they run, with a KernelError
  std::atomic<bool> lose = false;               ///< queued work fails when it runs, with a DeviceLost
  std::atomic<bool> fail_open = false;
  std::atomic<bool> compute_wrongly = false;
  std::atomic<bool> fail_compile = false;
  std::atomic<int> shortage = 0;  ///< compiling throws what the host's shortage does: 1: of memory, 2: of threads
  std::atomic<int> compiled = 0, compile_calls = 0, allocations = 0, live_allocations = 0, records = 0, opened = 0;
  std::atomic<std::uint64_t> live_bytes = 0;
  std::atomic<int> live_kernels = 0;

  /// Queues stop before their next piece of work until `resume`.
  void hold() { held = true; }
  void resume() {
    {
      std::lock_guard g(lock);
      held = false;
    }
    changed.notify_all();
  }
  /// Misuse that the driver saw: addresses outside of allocations, memory that was given back, calls on threads whose
  /// thread_local objects are gone, ...
  std::vector<std::string> misuse();
  void note_misuse(std::string text);

  std::mutex lock;
  std::condition_variable changed;
  std::atomic<bool> held = false;
  std::vector<std::string> seen;        // under lock
  std::vector<ir::Function> functions;  // under lock: what was compiled
  std::vector<Variant> variants;        // under lock: of each
};

class TestDriver : public Driver {
 public:
  explicit TestDriver(Backend backend) : backend_(backend) {}

  /// Devices to enumerate; before the driver is registered.
  DeviceInfo& add_device(DeviceKind kind, std::uint64_t total_memory);
  std::string fail_enumerate;  ///< the driver throws this when asked
  std::atomic<int> enumerations = 0;
  std::atomic<int> slow_us = 0;  ///< enumerating and opening take this long
  std::shared_ptr<Behaviour> behaviour(int index) { return behaviours_.at(static_cast<std::size_t>(index)); }

  Backend backend() const override { return backend_; }
  BackendReport enumerate() override;
  std::unique_ptr<DriverDevice> open(int index) override;

 private:
  Backend backend_;
  std::vector<DeviceInfo> devices_;
  std::vector<std::shared_ptr<Behaviour>> behaviours_;
};

/// Puts work into a test device's queue by what `Queue::submit_native` gives.
void put_native(void* native, std::function<void()> work);

/// The C++ function that stands for the kernels of this name on every test device.
void set_body(const std::string& kernel, Body body);

}  // namespace tessera::test
