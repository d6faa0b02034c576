// SPDX-License-Identifier: Apache-2.0
// A queue's inside, which storages and kernels may refer to longer than the Queue lives. Counts what was put into the
// driver's queue and records an event only when somebody has to wait. The lock is the turn at the driver's queue. Where
// the driver computes within the call, a turn may take long, and the count alone tells what has ended: nobody but who
// puts work into that very queue waits for its turn. Internal to device/.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "tessera/device/selection/driver_call.h"
#include "tessera/device/selection/open_device.h"

namespace tessera {

/// The same text for good, for what names work in a queue.
const std::string& interned(std::string_view name);

class QueueCore : public std::enable_shared_from_this<QueueCore> {
 public:
  /// `adopted`: the driver's queue is somebody else's, who goes on using it after `close`.
  QueueCore(OpenDevice& device, std::unique_ptr<DriverQueue> driver, bool adopted)
      : device_(device), driver_(std::move(driver)), adopted_(adopted), immediate_(driver_->immediate()) {}

  ~QueueCore() {
    if (!device_.gone()) return;
    static_cast<void>(driver_.release());  // what `close` found in use
    leave(std::move(event_));
  }

  OpenDevice& device() { return device_; }

  /// Puts work into the queue: `put(DriverQueue&)`. `name` must stay valid for good; it is what a fault later names.
  template <class F>
  QueueUse submit(const std::string& name, F&& put) {
    device_.check();
    return submit_checked(name, std::forward<F>(put));
  }
  /// The same; `note(QueueUse)` tells the storages, also of work that throws half way: part of it may be under way.
  template <class F, class N>
  QueueUse submit(const std::string& name, F&& put, N&& note) {
    device_.check();  // what was never tried is not noted
    QueueUse use;
    try {
      use = submit_checked(name, std::forward<F>(put));
    } catch (...) {
      note(last_use());
      throw;
    }
    note(use);
    return use;
  }
  /// For `Queue::submit_native`: what `put` calls may drop kernels and storages that this queue used, and an attempt to
  /// use this queue throws. What `put` throws is not the driver's: it passes unchanged.
  template <class N>
  void submit_native(const std::string& name, const std::function<void(void*)>& put, N&& note) {
    std::exception_ptr thrown;
    submit(
        name,
        [&](DriverQueue& driver) {
          const Inside inside(this);
          driver.with_native([&](void* native) {
            try {
              const UserCodeScope ours;
              put(native);
            } catch (...) {
              thrown = std::current_exception();
            }
          });
        },
        std::forward<N>(note));
    if (thrown) std::rethrow_exception(thrown);
  }

  /// Whether the work has ended and nobody need be told how; false if that cannot be said at once. Waits for nothing.
  bool done(const QueueUse& use) noexcept;
  /// Whether the work has ended, however it did; also if the device is gone. Waits for nothing.
  bool ended(const QueueUse& use) noexcept;
  /// The host waits; throws what the work failed with.
  void wait(const QueueUse& use);
  /// Waits for the end only, on behalf of nobody who reads results: what failed is told to the next who waits.
  void wait_ended(const QueueUse& use) noexcept;
  /// Gives a use an event of its own, if one can be had: else whoever waits for it waits for all that was queued by
  /// then.
  void record(QueueUse& use) noexcept;
  /// Work put into this queue from now on starts after `use`, which is of a device of this driver.
  void order_after(const QueueUse& use);
  /// The same on behalf of nobody who could be told: what the other queue failed with is left to who waits for it.
  /// False if the order could not be made; so it may be in a callback that holds the other queue's lock.
  bool try_order_after(const QueueUse& use) noexcept;
  /// What work of `recorded` that has been waited for failed with, though somebody else was told before; null: nothing.
  std::exception_ptr failure_of(const QueueUse& use) noexcept;
  /// Everything so far.
  QueueUse last_use();
  /// The same with an event of its own; of an adopted queue also what others put in.
  QueueUse recorded();
  void* native_handle();
  void finish();
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  /// Never destroys the event: in a child of fork the driver's locks may be held by threads that do not exist there.
  static void leave(std::shared_ptr<DriverEvent> event) noexcept;
  void close() noexcept;  ///< finishes, if it is ours, and gives up the driver's queue

 private:
  /// On a device that has just been checked.
  template <class F>
  QueueUse submit_checked(const std::string& name, F&& put) {
    const DriverCall call(device_, DriverCall::Kind::call, name);
    const auto hold = held();
    newest_.store(&name, std::memory_order_relaxed);
    recent_[recent_at_++ % recent_.size()] = &name;
    // Changed under the lock only. Before: work that throws half way is waited for too.
    submitted_.store(submitted_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    try {
      put(*driver_);
      return finish_submit();
    } catch (...) {
      if (immediate_) passed(submitted_.load(std::memory_order_relaxed));
      rethrow();
    }
  }
  /// This thread is in a callback that holds the queue's lock; such callbacks may stand in each other.
  struct Inside {
    explicit Inside(QueueCore* queue) : core(queue), before(std::exchange(inside_, this)) {}
    ~Inside() { inside_ = before; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    QueueCore* const core;
    const Inside* const before;
  };
  bool inside() const {
    const Inside* i = inside_;
    while (i != nullptr && i->core != this) i = i->before;
    return i != nullptr;
  }
  /// All that was put in, but for what the callback is about to.
  std::uint64_t put_in() const { return submitted_.load(std::memory_order_relaxed) - (inside() ? 1 : 0); }
  [[noreturn]] void refuse_in_callback() const;
  std::unique_lock<std::mutex> held();  // the lock; ArgumentError in a callback that has it
  QueueUse finish_submit();             // under the lock
  void await(std::uint64_t sequence);   // of an immediate queue: until `completed_` says so
  std::shared_ptr<DriverEvent> event_of(const QueueUse& use);
  std::shared_ptr<DriverEvent> newest_event(std::uint64_t sequence);  // not before it; under the lock
  void passed(std::uint64_t sequence);
  void clear_fault(std::uint64_t upto) noexcept;  // of work up to that; under the lock
  /// What who waits for it may be told of; under the lock.
  std::uint64_t reach_of(const QueueUse& use) const { return use.event ? use.sequence : put_in(); }
  void keep_fault() noexcept;  // the exception being handled, for the next who waits; under the lock
  void tell_fault();           // throws what was kept
  /// The exception being handled, seen by waiting for `use`; `faults_` before that.
  [[noreturn]] void throw_fault(std::uint64_t faults, const QueueUse& use);
  [[noreturn]] void rethrow();  // the exception being handled, with the names of the last launches; under the lock
  std::string recent_names() const;
  const std::string& newest_name() const { return *newest_.load(std::memory_order_relaxed); }

  OpenDevice& device_;
  std::unique_ptr<DriverQueue> driver_;
  const bool adopted_, immediate_;
  std::mutex lock_;  // held while work is put into the driver's queue: a turn
  std::atomic<std::uint64_t> submitted_ = 0, completed_ = 0;
  std::mutex await_lock_;
  std::condition_variable completed_more_;
  std::atomic<unsigned> awaiting_ = 0;  // threads for whom `completed_more_` is told
  std::atomic<bool> closed_ = false;
  std::shared_ptr<DriverEvent> event_;  // the newest recorded, after event_sequence_
  std::uint64_t event_sequence_ = 0;
  std::array<const std::string*, 8> recent_{};
  unsigned recent_at_ = 0;
  std::atomic<const std::string*> newest_ = &interned("none");
  std::exception_ptr fault_;       // kept; under the lock
  std::uint64_t fault_since_ = 0;  // `faults_` when it was kept, or:
  static constexpr std::uint64_t of_several = ~std::uint64_t{0};
  std::atomic<bool> faulty_ = false;
  std::atomic<std::uint64_t> faults_ = 0;        // cleared so far
  std::atomic<std::uint64_t> faulty_up_to_ = 0;  // nothing behind it is what failed of these
  static constinit thread_local const Inside* inside_;
};

}  // namespace tessera
