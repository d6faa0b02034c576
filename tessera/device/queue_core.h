// SPDX-License-Identifier: Apache-2.0
// A queue's inside, which storages and kernels may refer to longer than the Queue lives. Counts what was put into the
// driver's queue and records an event only when somebody has to wait. Internal to device/.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "tessera/device/open_device.h"

namespace tessera {

class QueueCore : public std::enable_shared_from_this<QueueCore> {
 public:
  /// `adopted`: the driver's queue is somebody else's, who goes on using it after `close`.
  QueueCore(OpenDevice& device, std::unique_ptr<DriverQueue> driver, bool adopted)
      : device_(device), driver_(std::move(driver)), adopted_(adopted) {}

  OpenDevice& device() { return device_; }

  /// Puts work into the queue: `put(DriverQueue&)`. `name` must stay valid for good; it is what a fault later names.
  template <class F>
  QueueUse submit(const std::string& name, F&& put) {
    device_.check();
    std::unique_lock hold(lock_);
    recent_[recent_at_++ % recent_.size()] = &name;
    submitted_.fetch_add(1, std::memory_order_relaxed);  // before: work that throws half way is waited for too
    try {
      put(*driver_);
      return finish_submit();
    } catch (...) {
      rethrow();
    }
  }

  bool done(const QueueUse& use);
  /// The host waits; throws what the work failed with.
  void wait(const QueueUse& use);
  /// Gives a use an event of its own: else whoever waits for it waits for all that was queued by then.
  void record(QueueUse& use) { use.event = event_of(use); }
  /// Work put into this queue from now on starts after `use`, which is of a device of this driver.
  void order_after(const QueueUse& use);
  /// Everything so far.
  QueueUse last_use();
  void* native_handle();
  void finish();
  void close() noexcept;  ///< finishes, if it is ours, and gives the driver's queue up

 private:
  QueueUse finish_submit();  // under the lock
  std::shared_ptr<DriverEvent> event_of(const QueueUse& use);
  void passed(std::uint64_t sequence);
  void clear_fault() noexcept;  // under the lock
  [[noreturn]] void rethrow();  // the exception being handled, with the names of the last launches; under the lock
  std::string recent_names() const;

  OpenDevice& device_;
  std::unique_ptr<DriverQueue> driver_;
  const bool adopted_;
  std::mutex lock_;  // held while work is put into the driver's queue
  std::atomic<std::uint64_t> submitted_ = 0, completed_ = 0;
  std::atomic<bool> closed_ = false;
  std::shared_ptr<DriverEvent> event_;  // the newest recorded, after event_sequence_
  std::uint64_t event_sequence_ = 0;
  std::array<const std::string*, 8> recent_{};
  unsigned recent_at_ = 0;
};

}  // namespace tessera
