// SPDX-License-Identifier: Apache-2.0
// Implementation of a queue. Storages and kernels may refer to it after the Queue is destroyed. It counts submitted
// work and records an event only if one is needed. A lock serialises access to the driver's queue. Drivers that compute
// within the call may hold this lock for a long time. Completion is then determined from the counter, so that only
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

/// Returns a copy of the string that is never freed. Used for names of queued work.
const std::string& interned(std::string_view name);

class QueueCore : public std::enable_shared_from_this<QueueCore> {
 public:
  /// `adopted`: the caller owns the driver's queue and may use it after `close`.
  QueueCore(OpenDevice& device, std::unique_ptr<DriverQueue> driver, bool adopted)
      : device_(device), driver_(std::move(driver)), adopted_(adopted), immediate_(driver_->immediate()) {}

  ~QueueCore() {
    if (!device_.gone()) return;
    static_cast<void>(driver_.release());  // another thread used it during `close`
    leave(std::move(event_));
  }

  OpenDevice& device() { return device_; }
  /// True if all work has finished when it has been submitted.
  bool immediate() const { return immediate_; }

  /// Submits work with `put(DriverQueue&)`. `name` appears in error messages and must stay valid for the process's
  /// lifetime.
  template <class F>
  QueueUse submit(const std::string& name, F&& put) {
    device_.check();
    return submit_checked(name, std::forward<F>(put));
  }
  /// Like the function above, but calls `note(QueueUse)` to update storages. `note` is also called if `put` throws,
  /// because part of the work may be running.
  template <class F, class N>
  QueueUse submit(const std::string& name, F&& put, N&& note) {
    device_.check();  // throws before a use is recorded
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
  /// For `Queue::submit_native`. `put` may destroy kernels and storages used by this queue, but it throws if it uses
  /// the queue. Exceptions of `put` propagate unchanged, because they are not errors of the driver.
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

  /// Returns true if the work has finished successfully, false if that cannot be determined immediately. Does not
  /// block.
  bool done(const QueueUse& use) noexcept;
  /// Returns true if the work has ended, successfully or with an error, or if the device is gone. Does not block.
  bool ended(const QueueUse& use) noexcept;
  /// Blocks until the work has ended. Throws its error.
  void wait(const QueueUse& use);
  /// Blocks until the work has ended, without throwing. An error is stored for the next thread that waits.
  void wait_ended(const QueueUse& use) noexcept;
  /// Records an event for a use if possible. Without an event, waiting for the use also waits for work that was queued
  /// later.
  void record(QueueUse& use) noexcept;
  /// Makes later work on this queue wait for `use`, which must be on a device of the same driver.
  void order_after(const QueueUse& use);
  /// Like order_after, but does not report errors of the other queue. They are reported to threads that wait for that
  /// queue. Returns false if the order could not be established. May be called in a callback that holds the other
  /// queue's lock.
  bool try_order_after(const QueueUse& use) noexcept;
  /// Returns the error of work covered by a use from recorded(), or null if there is none. The caller must have waited
  /// for the work. Also returns errors that were already reported.
  std::exception_ptr failure_of(const QueueUse& use) noexcept;
  /// Returns a use that covers all work enqueued so far.
  QueueUse last_use();
  /// Like last_use(), but the use has its own event. On an adopted queue it also covers work that the owner enqueued
  /// directly.
  QueueUse recorded();
  void* native_handle();
  void finish();
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  /// Leaks the event. In a forked child, the driver's locks may be held by threads that do not exist there.
  static void leave(std::shared_ptr<DriverEvent> event) noexcept;
  void close() noexcept;  ///< waits for all work unless the queue is adopted, then releases the driver's queue

 private:
  /// Submits work without calling device_.check().
  template <class F>
  QueueUse submit_checked(const std::string& name, F&& put) {
    const DriverCall call(device_, DriverCall::Kind::call, name);
    const auto hold = held();
    newest_.store(&name, std::memory_order_relaxed);
    recent_[recent_at_++ % recent_.size()] = &name;
    // Written only under the lock. Incremented before `put`, so that partly submitted work is also waited for if `put`
    // throws.
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
  /// Number of submissions, not counting the running callback.
  std::uint64_t put_in() const { return submitted_.load(std::memory_order_relaxed) - (inside() ? 1 : 0); }
  [[noreturn]] void refuse_in_callback() const;
  std::unique_lock<std::mutex> held();  // locks; throws ArgumentError in a callback that holds the lock
  QueueUse finish_submit();             // under the lock
  void await(std::uint64_t sequence);   // for immediate queues: blocks until `completed_` reaches `sequence`
  std::shared_ptr<DriverEvent> event_of(const QueueUse& use);
  std::shared_ptr<DriverEvent> newest_event(std::uint64_t sequence);  // covers at least `sequence`; under the lock
  void passed(std::uint64_t sequence);
  void clear_fault(std::uint64_t upto) noexcept;  // clears the error of work up to `upto`; under the lock
  /// Returns the number of the last operation whose error a wait for `use` can report. Called under the lock.
  std::uint64_t reach_of(const QueueUse& use) const { return use.event ? use.sequence : put_in(); }
  void keep_fault() noexcept;  // stores the current exception for the next thread that waits; under the lock
  void tell_fault();           // throws the stored error
  /// Rethrows the current exception, which was caught while waiting for `use`. `faults` is the value of `faults_`
  /// before the wait.
  [[noreturn]] void throw_fault(std::uint64_t faults, const QueueUse& use);
  // Rethrows the current exception, with the names of recent launches in the message; under the lock.
  [[noreturn]] void rethrow();
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
  std::exception_ptr fault_;       // the stored error; guarded by the lock
  std::uint64_t fault_since_ = 0;  // value of `faults_` when `fault_` was stored, or `of_several`
  static constexpr std::uint64_t of_several = ~std::uint64_t{0};
  std::atomic<bool> faulty_ = false;
  std::atomic<std::uint64_t> faults_ = 0;        // number of errors cleared so far
  std::atomic<std::uint64_t> faulty_up_to_ = 0;  // number of the last operation that may have failed
  static constinit thread_local const Inside* inside_;
};

}  // namespace tessera
