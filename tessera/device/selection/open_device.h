// SPDX-License-Identifier: Apache-2.0
// A device once it is open: its driver's object, pool, queues and counters. Made on first need, verified by a small
// kernel, never destroyed. Internal to device/.
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

/// Bytes and numbers of copies.
struct CopyCounters {
  std::atomic<std::uint64_t> to_device_bytes = 0, to_host_bytes = 0, within_bytes = 0, from_peers_bytes = 0;
  std::atomic<std::uint64_t> to_device_count = 0, to_host_count = 0, within_count = 0, from_peers_count = 0;
};

namespace detail {
extern constinit std::atomic<bool> at_exit;
}
/// True from the drain at exit on.
inline bool exiting() noexcept { return detail::at_exit.load(std::memory_order_relaxed); }

struct OpenDevice {
  Device device;
  DeviceInfo info;
  int ordinal = 0;               ///< in the order of opening
  OpenDevice* before = nullptr;  ///< opened before this one
  std::uint32_t generation = 0;  ///< os::fork_generation() when it was opened
  bool holds_data = true;        ///< false in a dry run: no bounds of memory, nothing to verify
  bool host_memory = false;      ///< its memory is the machine's: the host's facts bound it
  std::unique_ptr<DriverDevice> driver;
  MemoryPool pool{*this};
  StagingPool staging{*this};
  CopyCounters copies;
  KernelCounters kernels;
  std::mutex paths_lock;
  std::map<const OpenDevice*, CopyPath> paths;  ///< under paths_lock: how copies from others to this device go
  std::mutex compile_lock;                      ///< one compilation at a time
  std::atomic<Queue*> default_queue = nullptr;
  std::atomic<int> queue_count = 0;
  std::mutex queues_lock;
  std::vector<std::weak_ptr<QueueCore>> queues;  ///< under queues_lock

  /// DeviceLost if the device is lost; DeviceError if it was opened by the parent of this forked process, or is over.
  void check() const {
    if (lost_.load(std::memory_order_relaxed) || forked() || over()) refuse();
  }
  bool lost() const { return lost_; }
  bool forked() const { return generation != os::fork_generation(); }
  /// The driver may not be called any more: the process is exiting, and objects of the driver's are gone. Only the
  /// library's own devices work to the very end.
  bool over() const noexcept {
    return !is_built_in(device.backend) && (phase_ != Phase::seen || exiting()) && over_here();
  }
  /// Frees and waits are pointless: the device is lost or over, or the process was forked.
  bool gone() const noexcept;
  void mark_lost(const std::string& reason) noexcept;

  /// Kernels that nobody can launch any more, kept until what was launched has ended.
  void retire(std::unique_ptr<LoadedKernel> kernel) noexcept;
  void retire(std::unique_ptr<DriverSequence> sequence) noexcept;  ///< likewise
  void drop_retired(bool wait) noexcept;
  /// Everything that is under way on the device's queues.
  std::vector<QueueUse> all_uses();

  /// Waits for all queues of all devices, for the drain at exit.
  static void drain() noexcept;

 private:
  /// What has become of this thread. A driver may keep thread_local objects, and of the thread that ends the process
  /// they go before handlers and static objects' destructors run.
  enum class Phase : std::uint8_t {
    unseen,
    seen,    ///< used a driver; the main thread's end is watched
    left,    ///< the main thread, whose thread_local objects are gone
    drains,  ///< waits for the devices' work at exit
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

/// Opens and verifies a device on the first call. DeviceError if it does not exist, cannot be opened, computes wrongly,
/// is lost, or belongs to the parent of this forked process.
OpenDevice& open_device(Device device);
/// The devices open now.
std::vector<OpenDevice*> open_devices();
}  // namespace tessera
