// SPDX-License-Identifier: Apache-2.0
// Implementation of a queue, which storages and kernels may reference after the Queue is destroyed. It counts submitted
// work and records an event only when one is needed. A lock serialises access to the driver's queue. For drivers that
// compute within the call, the lock may be held for long; completion is then determined by the counter alone, and only
// threads that submit to the same queue wait for the lock. Internal to device/.
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

#include "tessera/device/driver.h"
#include "tessera/device/selection/driver_call.h"
#include "tessera/device/selection/open_device.h"

namespace tessera {

/// Returns a permanent copy of a string, for the names of queued work.
const std::string& interned(std::string_view name);

class QueueCore : public std::enable_shared_from_this<QueueCore> {
 public:
  /// `adopted`: the driver's queue is owned by the caller, who may use it after `close`.
  QueueCore(OpenDevice& device, std::unique_ptr<DriverQueue> driver, bool adopted)
      : device_(device), driver_(std::move(driver)), adopted_(adopted), immediate_(driver_->immediate()) {}

  ~QueueCore() {
    if (!device_.gone()) return;
    static_cast<void>(driver_.release());  // in use by another thread during `close`
    leave(std::move(event_));
  }

  OpenDevice& device() { return device_; }

  /// Submits work with `put(DriverQueue&)`. `name` must stay valid for the process's lifetime; it appears in error
  /// messages.
  template <class F>
  QueueUse submit(const std::string& name, F&& put) {
    device_.check();
    return submit_checked(name, std::forward<F>(put));
  }
  /// Likewise; calls `note(QueueUse)` to update storages, also if `put` throws, since part of the work may be running.
  template <class F, class N>
  QueueUse submit(const std::string& name, F&& put, N&& note) {
    device_.check();  // don't record a use if nothing was tried
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
  /// For `Queue::submit_native`: `put` may destroy kernels and storages used by this queue; using this queue throws.
  /// Exceptions of `put` propagate unchanged, since they are not the driver's.
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

  /// Returns whether the work has finished successfully; false if that cannot be determined immediately. Does not
  /// block.
  bool done(const QueueUse& use) noexcept;
  /// Returns whether the work has ended, successfully or not, or the device is gone. Does not block.
  bool ended(const QueueUse& use) noexcept;
  /// Blocks until the work has ended; throws its error.
  void wait(const QueueUse& use);
  /// Blocks until the work has ended, without reading results: its error is kept for the next thread that waits.
  void wait_ended(const QueueUse& use) noexcept;
  /// Records an event for a use if possible. Without one, waiting for the use waits for all work queued by then.
  void record(QueueUse& use) noexcept;
  /// Makes later work on this queue start after `use`, which must be on a device of the same driver.
  void order_after(const QueueUse& use);
  /// Like order_after, but leaves errors of the other queue to threads that wait for it. Returns false if the order
  /// could not be established. May be called in a callback that holds the other queue's lock.
  bool try_order_after(const QueueUse& use) noexcept;
  /// Returns the error of work from `recorded` that has been waited for, even if it was reported before; null if none.
  std::exception_ptr failure_of(const QueueUse& use) noexcept;
  /// A use that covers all work so far.
  QueueUse last_use();
  /// Likewise, with its own event; for an adopted queue it includes work enqueued by others.
  QueueUse recorded();
  void* native_handle();
  void finish();
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  /// Leaks the event: in a forked child the driver's locks may be held by threads that do not exist there.
  static void leave(std::shared_ptr<DriverEvent> event) noexcept;
  void close() noexcept;  ///< finishes, if the queue is ours, and releases the driver's queue

 private:
  /// Submits to a device that was just checked.
  template <class F>
  QueueUse submit_checked(const std::string& name, F&& put) {
    const DriverCall call(device_, DriverCall::Kind::call, name);
    const auto hold = held();
    newest_.store(&name, std::memory_order_relaxed);
    recent_[recent_at_++ % recent_.size()] = &name;
    // Modified only under the lock. Incremented first, so that work that throws halfway is waited for, too.
    submitted_.store(submitted_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    try {
      put(*driver_);
      return finish_submit();
    } catch (...) {
      if (immediate_) passed(submitted_.load(std::memory_order_relaxed));
      rethrow();
    }
  }
  /// Marks that this thread is in a callback that holds the queue's lock. Callbacks may be nested.
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
  /// Number of submissions, without that of the running callback.
  std::uint64_t put_in() const { return submitted_.load(std::memory_order_relaxed) - (inside() ? 1 : 0); }
  [[noreturn]] void refuse_in_callback() const;
  std::unique_lock<std::mutex> held();  // locks; throws ArgumentError in a callback that holds the lock
  QueueUse finish_submit();             // under the lock
  void await(std::uint64_t sequence);   // for immediate queues: waits until `completed_` reaches `sequence`
  std::shared_ptr<DriverEvent> event_of(const QueueUse& use);
  std::shared_ptr<DriverEvent> newest_event(std::uint64_t sequence);  // covers at least `sequence`; under the lock
  void passed(std::uint64_t sequence);
  void clear_fault(std::uint64_t upto) noexcept;  // of work up to `upto`; under the lock
  /// Up to which work a wait for `use` can report errors; under the lock.
  std::uint64_t reach_of(const QueueUse& use) const { return use.event ? use.sequence : put_in(); }
  void keep_fault() noexcept;  // stores the current exception for the next thread that waits; under the lock
  void tell_fault();           // throws the stored error
  /// Rethrows the current exception, caught while waiting for `use`; `faults` is the value of `faults_` before the
  /// wait.
  [[noreturn]] void throw_fault(std::uint64_t faults, const QueueUse& use);
  [[noreturn]] void rethrow();  // rethrows the current exception with the names of recent launches; under the lock
  std::string recent_names() const;
  const std::string& newest_name() const { return *newest_.load(std::memory_order_relaxed); }

  OpenDevice& device_;
  std::unique_ptr<DriverQueue> driver_;
  const bool adopted_, immediate_;
  std::mutex lock_;  // held while work is submitted to the driver's queue
  std::atomic<std::uint64_t> submitted_ = 0, completed_ = 0;
  std::mutex await_lock_;
  std::condition_variable completed_more_;
  std::atomic<unsigned> awaiting_ = 0;  // number of threads waiting for `completed_more_`
  std::atomic<bool> closed_ = false;
  std::shared_ptr<DriverEvent> event_;  // the newest recorded event; covers work up to event_sequence_
  std::uint64_t event_sequence_ = 0;
  std::array<const std::string*, 8> recent_{};
  unsigned recent_at_ = 0;
  std::atomic<const std::string*> newest_ = &interned("none");
  std::exception_ptr fault_;       // stored error; under the lock
  std::uint64_t fault_since_ = 0;  // value of `faults_` when it was stored, or:
  static constexpr std::uint64_t of_several = ~std::uint64_t{0};
  std::atomic<bool> faulty_ = false;
  std::atomic<std::uint64_t> faults_ = 0;        // number of errors cleared so far
  std::atomic<std::uint64_t> faulty_up_to_ = 0;  // last work that one of these errors can belong to
  static constinit thread_local const Inside* inside_;
};

}  // namespace tessera
