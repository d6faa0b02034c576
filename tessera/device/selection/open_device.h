// SPDX-License-Identifier: Apache-2.0
// An open device with its driver object, memory pool, queues and counters. It is opened on first use, verified with a
// small kernel, and never destroyed. Internal to device/.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/base/os/fork.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel_cache.h"
#include "tessera/device/memory/pool.h"
#include "tessera/device/memory/staging.h"
#include "tessera/device/memory/storage.h"

namespace tessera {

enum class CopyPath : std::uint8_t;  // device/queue/copy_path.h

/// Counts copies and their bytes.
struct CopyCounters {
  std::atomic<std::uint64_t> to_device_bytes = 0, to_host_bytes = 0, within_bytes = 0, from_peers_bytes = 0;
  std::atomic<std::uint64_t> to_device_count = 0, to_host_count = 0, within_count = 0, from_peers_count = 0;
};

namespace detail {
extern constinit std::atomic<bool> at_exit;
}
/// True after the queues were drained at exit.
inline bool exiting() noexcept { return detail::at_exit.load(std::memory_order_relaxed); }

struct OpenDevice {
  Device device;
  DeviceInfo info;
  int ordinal = 0;               ///< number in the order of opening
  OpenDevice* before = nullptr;  ///< the device opened before this one
  std::uint32_t generation = 0;  ///< os::fork_generation() when it was opened
  bool holds_data = true;        ///< false in a dry run, which has unlimited memory and no verification
  bool host_memory = false;      ///< true if it allocates host memory, so that free host memory limits it
  std::unique_ptr<DriverDevice> driver;
  MemoryPool pool{*this};
  StagingPool staging{*this};
  CopyCounters copies;
  KernelCounters kernels;
  std::mutex paths_lock;
  /// Paths of copies from other devices to this one. Guarded by paths_lock.
  std::map<const OpenDevice*, CopyPath> paths;
  std::mutex compile_lock;  ///< serialises compilation
  std::atomic<Queue*> default_queue = nullptr;
  std::atomic<int> queue_count = 0;
  std::mutex queues_lock;
  std::vector<std::weak_ptr<QueueCore>> queues;  ///< guarded by queues_lock

  /// Throws DeviceLost if the device is lost. Throws DeviceError if the parent of this forked process opened it, or if
  /// over() returns true.
  void check() const {
    if (lost_.load(std::memory_order_relaxed) || forked() || over()) refuse();
  }
  bool lost() const { return lost_; }
  bool forked() const { return generation != os::fork_generation(); }
  /// True if the driver must not be called any more, because the process is exiting and the driver's objects may
  /// already be destroyed. Always false for built-in devices.
  bool over() const noexcept {
    return !is_built_in(device.backend) && (phase_ != Phase::seen || exiting()) && over_here();
  }
  /// True if memory need not be freed and work need not be waited for: the device is lost, over() returns true, or the
  /// process was forked.
  bool gone() const noexcept;
  void mark_lost(const std::string& reason) noexcept;

  /// Destroys a kernel after its launches have ended. The kernel must not be launched any more.
  void retire(std::unique_ptr<LoadedKernel> kernel) noexcept;
  void retire(std::unique_ptr<DriverSequence> sequence) noexcept;  ///< destroys a sequence after its replays have ended
  void drop_retired(bool wait) noexcept;
  /// Returns uses that cover all work in the device's queues.
  std::vector<QueueUse> all_uses();

  /// Waits for all queues of all devices. Called at exit.
  static void drain() noexcept;

 private:
  /// State of this thread with respect to exit. Drivers may have thread_local objects. Those of the exiting thread are
  /// destroyed before exit handlers and destructors of static objects run.
  enum class Phase : std::uint8_t {
    unseen,
    seen,    ///< it used a driver; we watch for the end of the main thread
    left,    ///< the main thread after its thread_local objects were destroyed
    drains,  ///< it waits for the devices' work at exit
  };
  static constinit thread_local Phase phase_;
  struct MainThread;
  static bool over_here() noexcept;
  [[noreturn]] void refuse() const;
  struct Retired {
    std::unique_ptr<LoadedKernel> kernel;
    std::unique_ptr<DriverSequence> sequence;
    std::vector<QueueUse> uses;
  };
  void retire(LoadedKernel* kernel, DriverSequence* sequence) noexcept;
  std::atomic<bool> lost_ = false;
  mutable std::mutex lost_lock_;
  std::string lost_reason_;
  std::mutex retired_lock_;
  std::deque<Retired> retired_;
};

/// Returns an open device. The first call opens and verifies it. Throws DeviceError if the device does not exist,
/// cannot be opened, computes a wrong result, or was opened by the parent of this forked process. Throws DeviceLost if
/// it is lost.
OpenDevice& open_device(Device device);
/// Returns all open devices.
std::vector<OpenDevice*> open_devices();
}  // namespace tessera
