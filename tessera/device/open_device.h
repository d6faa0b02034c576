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

#include "tessera/device/driver.h"
#include "tessera/device/pool.h"
#include "tessera/device/staging.h"
#include "tessera/device/storage.h"

namespace tessera {

/// Bytes and numbers of copies.
struct CopyCounters {
  std::atomic<std::uint64_t> to_device_bytes = 0, to_host_bytes = 0, within_bytes = 0, from_peers_bytes = 0;
  std::atomic<std::uint64_t> to_device_count = 0, to_host_count = 0, within_count = 0, from_peers_count = 0;
};

struct OpenDevice {
  Device device;
  DeviceInfo info;
  int ordinal = 0;               ///< in the order of opening
  std::uint32_t generation = 0;  ///< os::fork_generation() when it was opened
  bool holds_data = true;        ///< false in a dry run: no bounds of memory, nothing to verify
  bool host_memory = false;      ///< its memory is the machine's: the host's facts bound it
  std::unique_ptr<DriverDevice> driver;
  MemoryPool pool{*this};
  StagingPieces staging{*this};
  CopyCounters copies;
  std::mutex peers_lock;
  std::map<const OpenDevice*, bool> peers;  ///< under peers_lock: whose memory queues of this device reach
  std::mutex compile_lock;                  ///< one compilation at a time
  std::atomic<Queue*> default_queue = nullptr;
  std::atomic<int> queue_count = 0;
  std::mutex queues_lock;
  std::vector<std::weak_ptr<QueueCore>> queues;  ///< under queues_lock

  /// DeviceError if the device is lost, or was opened by the parent of this forked process.
  void check() const {
    if (lost_.load(std::memory_order_relaxed) || forked()) refuse();
  }
  bool lost() const { return lost_; }
  bool forked() const;
  /// Frees and waits are pointless: the process is exiting, was forked, or the device is lost.
  bool gone() const noexcept;
  void lose(const std::string& reason) noexcept;

  /// Kernels that nobody can launch any more, kept until what was launched has ended.
  void retire(std::unique_ptr<LoadedKernel> kernel) noexcept;
  void drop_retired(bool wait) noexcept;
  /// Everything that is under way on the device's queues.
  std::vector<QueueUse> all_uses();

 private:
  [[noreturn]] void refuse() const;
  struct Retired {
    std::unique_ptr<LoadedKernel> kernel;
    std::vector<QueueUse> uses;
  };
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
/// True from the drain at exit on: frees do nothing any more.
bool exiting() noexcept;

}  // namespace tessera
