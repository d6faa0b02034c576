// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/selection/open_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/main_thread_exit.h"
#include "tessera/base/os/system.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/device/discovery/verify_device.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_pack.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/selection/driver_call.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

constexpr std::size_t fast_indices = 16;

/// Devices opened by this process, or by its parents before a fork, newest first. Leaked, because static objects may
/// refer to storages at exit. Read without a lock, because a thread of the parent may have held it during the fork.
struct OpenTable {
  std::atomic<OpenDevice*> newest = nullptr;
  std::atomic<int> count = 0;
  std::array<std::array<std::atomic<OpenDevice*>, fast_indices>, all_backends.size() + 1> fast{};
};
constinit OpenTable table;

/// Locks that serialise opening devices of the same backend.
struct Opening {
  std::array<std::mutex, all_backends.size() + 1> locks;
};
constinit os::PerProcess<Opening> opening;

/// Prints the placement log at exit if TESSERA_STATS=1.
void print_stats() noexcept {
  try {
    if (settings().stats) logging::print(to_string(placement_log()));
  } catch (const std::exception&) {  // out of memory, or an invalid setting that was reported where it was used
  }
}

/// Waits for all work, for a limited time. Uses a separate thread, because the thread_local objects of the exiting
/// thread have been destroyed, including those of drivers.
void wait_for_work() {
  static constinit std::atomic<bool> gave_up = false;
  if (gave_up) return;
  try {
    if (std::ranges::all_of(open_devices(), [](const OpenDevice* d) { return is_built_in(d->device.backend); }))
      return OpenDevice::drain();  // only built-in devices are open, and they cannot hang
    struct Drain {
      std::mutex lock;
      std::condition_variable changed;
      bool over = false;
    };
    // Shared, because the thread may still run after this function returns.
    const auto drain = std::make_shared<Drain>();
    std::thread thread([drain] {
      OpenDevice::drain();
      const std::lock_guard hold(drain->lock);
      drain->over = true;
      drain->changed.notify_all();
    });
    int seconds = Settings().probe_timeout;
    try {
      seconds = settings().probe_timeout;
    } catch (const ArgumentError&) {  // an invalid setting was reported where it was used
    }
    std::unique_lock hold(drain->lock);
    if (drain->changed.wait_for(hold, std::chrono::seconds(seconds), [&] { return drain->over; })) {
      hold.unlock();
      return thread.join();
    }
    hold.unlock();
    thread.detach();
    gave_up = true;
    logging::warn(
        fmt::format("device work did not finish within {} s at exit and was abandoned (TESSERA_PROBE_TIMEOUT sets the "
                    "limit)",
                    seconds));
  } catch (const std::exception&) {  // out of memory or threads: don't wait
  }
}

/// A driver may compile a kernel when it first runs. The static objects of its compiler may have been created after our
/// exit handler was registered and are then destroyed before our handler runs. Queued work must therefore finish before
/// any exit handler runs.
void drain_at_main_end() {
  refuse_exit_of_drivers();
  if (!exiting()) wait_for_work();
}

/// Waits for work that other threads queued after drain_at_main_end(), while drivers are still usable. Afterwards,
/// Tessera never calls drivers again.
void drain_at_exit() {
  refuse_exit_of_drivers();
  if (detail::at_exit.exchange(true)) return;
  print_stats();
  wait_for_work();
}

/// Throws for a device that computed a wrong result, that crashed or hung its driver, or that its driver reports as
/// unusable.
void refuse_unusable(const DeviceInfo& info) {
  if (info.state == DeviceState::loaded)
    fail<DeviceError>({.operation = to_string(info.device),
                       .with = {{"device", info.name}},
                       .wrong = info.reason,
                       .remedy = info.remedy});
  if (info.state != DeviceState::quarantined && info.state != DeviceState::crashed && info.state != DeviceState::hung)
    return;
  fail<DeviceError>(
      {.operation = to_string(info.device),
       .with = {{"device", info.name}},
       .wrong = fmt::format("the device cannot be used (state: {}): {}", state_name(info.state), info.reason),
       .remedy = info.remedy});
}

[[noreturn]] void refuse_at_exit(Device device, const std::string& name) {
  fail<DeviceError>({.operation = to_string(device),
                     .with = {{"device", name}},
                     .wrong = "the program is exiting, and the device's driver can no longer be called",
                     .remedy = "Use the device only until main returns; cpu and interp work until the process ends"});
}

/// True if the host has run out of memory or threads.
bool is_shortage(const std::exception& e) {
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr) return true;
  const auto* system = dynamic_cast<const std::system_error*>(&e);
  return system != nullptr && (system->code() == std::errc::resource_unavailable_try_again ||
                               system->code() == std::errc::not_enough_memory);
}

void verify(OpenDevice& device, const std::optional<Origin>& origin) {
  std::string wrong;
  try {
    wrong = verify_device(*device.driver, &device.kernels);
    if (!wrong.empty() && origin) record_wrong_result(device.info, *origin, wrong);
  } catch (const OutOfMemory&) {
    throw;  // not an error of the device
  } catch (const std::exception& e) {
    if (is_shortage(e))
      fail<OutOfMemory>({.operation = "open " + to_string(device.device),
                         .wrong = fmt::format("out of host memory or threads: {}", e.what())});
    // The error may be temporary, and it does not mean that the device computes wrong results.
    const std::string failed = fmt::format("the first kernel failed: {}", e.what());
    set_device_state(device.device, DeviceState::enumerated, failed, try_again);
    fail<DeviceError>({.operation = to_string(device.device),
                       .with = {{"device", device.info.name}},
                       .wrong = failed,
                       .remedy = try_again});
  }
  if (wrong.empty()) {
    set_device_state(device.device, DeviceState::verified);
    device.info.state = DeviceState::verified;
    return;
  }
  logging::warn(fmt::format("{} ({}) is quarantined: {}", to_string(device.device), device.info.name, wrong));
  set_device_state(device.device, DeviceState::quarantined, wrong, wrong_remedy);
  refuse_unusable(device_info(device.device));
}

OpenDevice* find_open(Device device) {
  OpenDevice* open = table.newest.load(std::memory_order_acquire);
  while (open != nullptr && open->device != device) open = open->before;
  return open;
}

/// Opens a device that is not open yet. Returns null if the driver now lists a different device than `info`. `differs`
/// then describes the device that it lists.
std::unique_ptr<OpenDevice> open_as(const DeviceInfo& info, std::string& differs) {
  const Device device = info.device;
  auto open = std::make_unique<OpenDevice>();
  open->device = device;
  open->holds_data = holds_data(device);
  open->generation = os::fork_generation();
  const auto start = std::chrono::steady_clock::now();
  const std::optional<Origin> origin = open->holds_data ? origin_of(device) : std::nullopt;
  if (origin && !try_first(info, *origin)) {
    differs = "another device";
    return nullptr;
  }
  Driver& driver = *find_driver(device.backend);
  if (auto why = enter_driver(driver))
    fail<DeviceError>({.operation = to_string(device), .wrong = std::move(*why), .remedy = instead_of_fork});
  std::optional<OpeningMark> mark;
  if (origin) mark.emplace(info, *origin);
  open->info = info;
  const DriverCall call(*open, DriverCall::Kind::build, interned("opening the device"));
  try {
    open->driver = driver.open(device.index);
  } catch (const DeviceError& e) {
    set_device_state(device, DeviceState::enumerated, e.what(), "See the driver's message; opening will be retried");
    mark_report_stale(device.backend);  // its probe had listed the device
    throw;
  }
  open->info = open->driver->info();
  open->info.device = device;
  if (open->info.name != info.name || open->info.identity != info.identity) {
    differs = fmt::format("\"{}\" {}", open->info.name, open->info.identity);
    return nullptr;
  }
  open->host_memory = open->holds_data && (is_built_in(device.backend) || info.kind == DeviceKind::cpu);
  if (open->holds_data) verify(*open, origin);
  if (open->holds_data && logging::enabled(logging::Level::info)) {
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    logging::info(fmt::format("opened {} ({}) in {:.1f} ms: its first kernel gave the correct result",
                              to_string(device), open->info.name, time.count()));
  }
  return open;
}

OpenDevice& open_now(Device device) {
  // Throw for an invalid variable or pack, which is not an error of the device.
  static_cast<void>(settings()), static_cast<void>(pack_in_use());
  device_info(device);  // throws DeviceError if the device does not exist
  std::lock_guard hold(opening->locks[static_cast<std::size_t>(device.backend)]);
  if (OpenDevice* open = find_open(device)) return *open;
  std::unique_ptr<OpenDevice> open;
  // The report may be outdated because a variable was set or a card was removed. On a mismatch, probe the driver once
  // more.
  for (int asked = 0; !open; ++asked) {
    clear_expired_state(device);
    const DeviceInfo info = device_info(device);
    if (exiting() && !is_built_in(device.backend)) refuse_at_exit(device, info.name);
    refuse_unusable(info);
    std::string differs;
    open = open_as(info, differs);
    if (open) break;
    mark_report_stale(device.backend);
    if (asked == 0) continue;
    fail<DeviceError>(
        {.operation = to_string(device),
         .wrong =
             fmt::format("the driver lists {} here, but its probe listed \"{}\" {}", differs, info.name, info.identity),
         .remedy =
             "The machine or the environment has changed, and cached results were discarded: check discover() and "
             "try again"});
  }
  open->ordinal = table.count.fetch_add(1);
  // Registered after the driver's library was loaded, so that our handler runs before those of the driver.
  {
    const os::ForkGuard guard;  // a child could not register anything if atexit was running in another thread
    std::atexit(drain_at_exit);
  }
  os::at_main_thread_exit(drain_at_main_end);
  open->before = table.newest.load(std::memory_order_relaxed);
  while (!table.newest.compare_exchange_weak(open->before, open.get(), std::memory_order_release)) {}
  if (static_cast<std::size_t>(device.index) < fast_indices) {
    table.fast[static_cast<std::size_t>(device.backend)][static_cast<std::size_t>(device.index)].store(
        open.get(), std::memory_order_release);
  }
  return *open.release();
}

}  // namespace

void DriverQueue::copy_from(DriverDevice& owner, const Allocation&, std::size_t, const Allocation&, std::size_t,
                            std::size_t) {
  fail<DeviceError>({.operation = "copy_from",
                     .with = {{"from", to_string(owner.info().device)}},
                     .wrong = "this backend does not support direct copies between devices"});
}

DriverBlas* DriverDevice::blas(std::string& why) {
  why = "this backend has no vendor library for matrix products";
  return nullptr;
}

std::unique_ptr<DriverQueue> DriverDevice::wrap_queue(void*) {
  fail<DeviceError>({.operation = "Queue::wrap",
                     .with = {{"device", to_string(info().device)}},
                     .wrong = "this backend has no vendor queues",
                     .remedy = "Use Queue::of(device), whose calls return when their work has finished"});
}

Allocation DriverDevice::wrap(void*, std::size_t) {
  fail<DeviceError>({.operation = "Storage::wrap_device",
                     .with = {{"device", to_string(info().device)}},
                     .wrong = "this backend cannot wrap memory",
                     .remedy = "Copy it with Queue::upload"});
}

constinit std::atomic<bool> detail::at_exit = false;

OpenDevice& open_device(Device device) {
  OpenDevice* open = nullptr;
  if (device.index >= 0 && static_cast<std::size_t>(device.index) < fast_indices) {
    open = table.fast[static_cast<std::size_t>(device.backend)][static_cast<std::size_t>(device.index)].load(
        std::memory_order_acquire);
  } else {
    open = find_open(device);
  }
  if (open == nullptr) open = &open_now(device);
  open->check();
  return *open;
}

std::vector<OpenDevice*> open_devices() {
  std::vector<OpenDevice*> devices;
  for (OpenDevice* open = table.newest.load(std::memory_order_acquire); open != nullptr; open = open->before)
    devices.push_back(open);
  std::ranges::sort(devices, {}, [](const OpenDevice* open) { return open->device; });
  return devices;
}

constinit thread_local OpenDevice::Phase OpenDevice::phase_ = Phase::unseen;

/// Its destructor runs when the main thread's thread_local objects are destroyed.
struct OpenDevice::MainThread {
  ~MainThread() {
    if (os::is_main_thread()) phase_ = Phase::left;
  }
};

bool OpenDevice::over_here() noexcept {
  if (phase_ == Phase::unseen) {
    phase_ = Phase::seen;
    if (os::is_main_thread()) {
      static thread_local const MainThread watched;
      static_cast<void>(&watched);
    }
  }
  return phase_ == Phase::left || (phase_ == Phase::seen && exiting());
}

void OpenDevice::drain() noexcept {
  const Phase before = std::exchange(phase_, Phase::drains);
  try {
    for (OpenDevice* device : open_devices()) {
      if (device->lost() || device->forked()) continue;
      std::vector<std::shared_ptr<QueueCore>> queues;
      {
        std::lock_guard hold(device->queues_lock);
        for (const auto& weak : device->queues)
          if (auto queue = weak.lock()) queues.push_back(std::move(queue));
      }
      for (const auto& queue : queues) {
        for (int attempt = 0; attempt < 2; ++attempt) {  // the first attempt may throw an error of earlier work
          try {
            queue->finish();
            break;
          } catch (...) {  // no caller can handle the error at exit
          }
        }
      }
    }
  } catch (const std::exception&) {  // out of memory: don't wait
  }
  phase_ = before;
}

bool OpenDevice::gone() const noexcept { return lost_ || forked() || over(); }

void OpenDevice::mark_lost(const std::string& reason) noexcept {
  try {
    {
      std::lock_guard hold(lost_lock_);
      if (lost_) return;  // later errors are consequences of the first one
      lost_reason_ = reason;
      lost_ = true;
    }
    logging::warn(fmt::format("{} ({}) is lost: {}", to_string(device), info.name, reason));
    set_device_state(device, DeviceState::lost, reason, "Restart the program to use this device again");
  } catch (...) {
    lost_ = true;
  }
}

void OpenDevice::refuse() const {
  if (forked()) {
    fail<DeviceError>(
        {.operation = to_string(device),
         .wrong = "the device was opened before this process was forked, and drivers do not survive a fork",
         .remedy = instead_of_fork});
  }
  if (!lost_) refuse_at_exit(device, info.name);
  std::string reason;
  {
    std::lock_guard hold(lost_lock_);
    reason = lost_reason_;
  }
  fail<DeviceLost>(
      {.operation = to_string(device),
       .with = {{"device", info.name}},
       .wrong = "the device is lost: " + reason,
       .remedy = "Its memory contents are lost. Restart the program to use it again; other devices keep working"});
}

std::vector<QueueUse> OpenDevice::all_uses() {
  std::vector<QueueUse> uses;
  std::lock_guard hold(queues_lock);
  for (const auto& weak : queues)
    if (auto queue = weak.lock()) uses.push_back(queue->last_use());
  return uses;
}

void OpenDevice::retire(std::unique_ptr<LoadedKernel> kernel) noexcept { retire(kernel.release(), nullptr); }
void OpenDevice::retire(std::unique_ptr<DriverSequence> sequence) noexcept { retire(nullptr, sequence.release()); }

// Leaks the kernel if the driver must not be called or if work is still running.
void OpenDevice::retire(LoadedKernel* kernel, DriverSequence* sequence) noexcept {
  if (forked()) return;
  try {
    auto uses = gone() ? std::vector<QueueUse>{} : all_uses();
    std::lock_guard hold(retired_lock_);
    retired_.emplace_back();
    retired_.back().kernel.reset(kernel);
    retired_.back().sequence.reset(sequence);
    retired_.back().uses = std::move(uses);
  } catch (...) {  // out of memory for the list
  }
  drop_retired(false);
}

void OpenDevice::drop_retired(bool wait) noexcept {
  if (gone()) return;
  std::deque<Retired> over;
  try {
    std::unique_lock hold(retired_lock_);
    std::deque<Retired> candidates = std::exchange(retired_, {});
    hold.unlock();
    for (Retired& r : candidates) {
      bool done = true;
      for (const QueueUse& use : r.uses) {
        if (wait)
          use.queue->wait_ended(use);
        else
          done = done && use.queue->done(use);
      }
      if (done) {
        over.push_back(std::move(r));
      } else {
        hold.lock();
        retired_.push_back(std::move(r));
        hold.unlock();
      }
    }
  } catch (...) {}
}

}  // namespace tessera
