// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/queue/queue_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/device/driver.h"
#include "tessera/device/settings.h"

namespace tessera {

constinit thread_local const QueueCore::Inside* QueueCore::inside_ = nullptr;

void QueueCore::refuse_in_callback() const {
  fail<ArgumentError>({.operation = "queue of " + to_string(device_.device),
                       .wrong = "the callback of submit_native uses the queue that it submits work to",
                       .remedy = "Launch, copy and wait before or after submit_native; in the callback use only the "
                                 "vendor's API"});
}

std::unique_lock<std::mutex> QueueCore::held() {
  if (inside_ != nullptr && inside()) [[unlikely]]
    refuse_in_callback();
  return std::unique_lock(lock_);
}

QueueUse QueueCore::finish_submit() {
  const std::uint64_t sequence = submitted_.load(std::memory_order_relaxed);
  if (immediate_) {
    passed(sequence);
    return {};
  }
  QueueUse use{shared_from_this(), sequence, nullptr};
  if (settings().sync) {
    driver_->finish();
    passed(sequence);
    return {};
  }
  // If the device has a single queue, its order is sufficient. Most events would then never be used.
  if (device_.queue_count.load(std::memory_order_relaxed) > 1) {
    event_ = driver_->record();
    event_sequence_ = sequence;
    if (!event_) passed(sequence);
    use.event = event_;
  }
  return use;
}

void QueueCore::passed(std::uint64_t sequence) {
  std::uint64_t before = completed_.load(std::memory_order_relaxed);
  while (before < sequence && !completed_.compare_exchange_weak(before, sequence)) {}
  // The operations are sequentially consistent, like in `await`: at least one of the two threads sees the other's
  // write.
  if (awaiting_.load() == 0) [[likely]]
    return;
  const std::lock_guard hold(await_lock_);
  completed_more_.notify_all();
}

void QueueCore::await(std::uint64_t sequence) {
  if (inside()) refuse_in_callback();
  awaiting_.fetch_add(1);
  {
    std::unique_lock hold(await_lock_);
    completed_more_.wait(hold, [&] { return completed_.load() >= sequence; });
  }
  awaiting_.fetch_sub(1);
}

std::shared_ptr<DriverEvent> QueueCore::event_of(const QueueUse& use) {
  if (completed_.load(std::memory_order_acquire) >= use.sequence) return nullptr;
  if (use.event) return use.event;
  if (immediate_) {
    device_.check();  // throws in a forked child, where the parent's submitting threads don't exist
    await(use.sequence);
    return nullptr;
  }
  const auto hold = held();
  return newest_event(use.sequence);
}

std::shared_ptr<DriverEvent> QueueCore::newest_event(std::uint64_t sequence) {
  if (closed_ && device_.lost()) device_.check();
  if (closed_ || (event_ && event_sequence_ >= sequence)) return event_;
  try {
    const std::uint64_t upto = submitted_.load(std::memory_order_relaxed);
    event_ = driver_->record();
    event_sequence_ = upto;  // only if recording the event succeeded
    if (!event_) passed(event_sequence_);
  } catch (...) {
    rethrow();
  }
  return event_;
}

void QueueCore::record(QueueUse& use) noexcept {
  if (immediate_) return;
  try {
    use.event = event_of(use);
  } catch (...) {  // a later wait records the event
  }
}

void QueueCore::leave(std::shared_ptr<DriverEvent> event) noexcept {
  struct Left {
    std::mutex lock;
    std::vector<std::shared_ptr<DriverEvent>> events;
  };
  static constinit os::PerProcess<Left> left;
  if (!event) return;
  try {
    std::lock_guard hold(left->lock);
    left->events.push_back(event);
  } catch (...) {}
}

// Also called under the pool's lock and in callbacks, so it must not wait for a lock.
bool QueueCore::done(const QueueUse& use) noexcept {
  if (device_.gone()) return true;
  if (completed_.load(std::memory_order_acquire) >= use.sequence) return true;
  if (immediate_ || inside()) return false;
  try {
    std::shared_ptr<DriverEvent> event = use.event;
    if (!event) {
      const std::unique_lock hold(lock_, std::try_to_lock);
      if (!hold) return false;
      event = newest_event(use.sequence);
    }
    if (event) {
      if (!event->done()) return false;
      event->wait();  // returns immediately, but throws if the work failed
      passed(use.sequence);
    }
    return true;
  } catch (...) {  // a thread that waits gets the error
    return device_.gone();
  }
}

bool QueueCore::ended(const QueueUse& use) noexcept {
  if (completed_.load(std::memory_order_acquire) >= use.sequence || device_.gone()) return true;
  try {
    return use.event && use.event->done();
  } catch (...) {  // a thread that waits gets the error
    return true;
  }
}

void QueueCore::wait(const QueueUse& use) {
  const std::uint64_t faults = faults_.load(std::memory_order_acquire);
  if (completed_.load(std::memory_order_acquire) < use.sequence) {
    device_.check();
    const DriverCall call(device_, DriverCall::Kind::wait, newest_name());
    if (const auto event = event_of(use)) {
      try {
        event->wait();
      } catch (...) {
        throw_fault(faults, use);
      }
      passed(use.sequence);
    }
  }
  tell_fault();  // last, because another thread may have stored an error in the meantime
}

void QueueCore::wait_ended(const QueueUse& use) noexcept {
  std::uint64_t faults = faults_.load(std::memory_order_acquire);
  if (completed_.load(std::memory_order_acquire) >= use.sequence || device_.gone()) return;
  const DriverCall call(device_, DriverCall::Kind::wait, newest_name());
  const bool in_callback = inside();
  std::unique_lock hold(lock_, std::defer_lock);
  try {
    if (immediate_) {
      if (!in_callback) await(use.sequence);
      return;
    }
    std::shared_ptr<DriverEvent> event;
    bool known = false;
    try {
      if (!in_callback) event = event_of(use), known = true;
    } catch (...) {  // no event is available: wait for the whole queue below
    }
    if (known) {
      if (event) event->wait();
      return passed(use.sequence);
    }
    if (device_.gone()) return;
    if (!in_callback) hold.lock();
    faults = faults_.load(std::memory_order_relaxed);
    if (driver_) driver_->finish();
    passed(put_in());
  } catch (...) {
    if (!in_callback && !hold) hold.lock();
    // Another thread waited for the same work and has reported its error.
    if (faults_.load(std::memory_order_relaxed) != faults) return;
    keep_fault();  // before another thread can consider the work finished
    clear_fault(reach_of(use));
  }
}

std::exception_ptr QueueCore::failure_of(const QueueUse& use) noexcept {
  if (!use.event || use.sequence > faulty_up_to_.load(std::memory_order_acquire)) return nullptr;
  try {
    device_.check();
    use.event->wait();  // the event itself reports the error again
    return nullptr;
  } catch (...) {
    try {
      const auto hold = held();
      rethrow();
    } catch (...) {
      return std::current_exception();
    }
  }
}

void QueueCore::throw_fault(std::uint64_t faults, const QueueUse& use) {
  const auto hold = held();
  if (faults_.load(std::memory_order_relaxed) == faults) {
    clear_fault(reach_of(use));
  } else if (fault_since_ == faults) {  // the thread that cleared the error has stored the same one
    fault_ = nullptr;
    faulty_.store(false, std::memory_order_relaxed);
  }
  rethrow();
}

namespace {
/// Combines two errors into one. If memory is exhausted, returns the first error.
std::exception_ptr with_later(const std::exception_ptr& first, const std::exception_ptr& later) noexcept {
  const auto text = [](const std::exception_ptr& fault) -> std::string {
    try {
      std::rethrow_exception(fault);
    } catch (const std::exception& e) {
      return e.what();
    }
  };
  try {
    fail<KernelError>({.wrong = fmt::format("{}. Later error: {}", text(first), text(later))});
  } catch (const KernelError&) {
    return std::current_exception();
  } catch (...) {
    return first;
  }
}
}  // namespace

void QueueCore::keep_fault() noexcept {
  try {
    rethrow();
  } catch (...) {
    // A lost device is always reported. Otherwise, at most two errors are combined.
    if (device_.lost() || fault_since_ == of_several) return;
    fault_since_ = fault_ ? of_several : faults_.load(std::memory_order_relaxed);
    fault_ = fault_ ? with_later(fault_, std::current_exception()) : std::current_exception();
    faulty_.store(true, std::memory_order_release);
  }
}

void QueueCore::tell_fault() {
  if (!faulty_.load(std::memory_order_acquire)) [[likely]]
    return;
  device_.check();
  const auto hold = held();
  faulty_.store(false, std::memory_order_relaxed);
  fault_since_ = 0;
  if (const auto fault = std::exchange(fault_, nullptr)) std::rethrow_exception(fault);
}

void QueueCore::clear_fault(std::uint64_t upto) noexcept {
  // An error is reported once, to the first thread that waits. The queue is then empty. It can still be used unless the
  // device is lost.
  if (faulty_up_to_.load(std::memory_order_relaxed) < upto) faulty_up_to_.store(upto, std::memory_order_release);
  faults_.fetch_add(1, std::memory_order_release);
  event_.reset();
  event_sequence_ = 0;
  try {
    if (driver_) driver_->finish();
  } catch (...) {  // this error is the one that is being reported
  }
  passed(put_in());
}

void QueueCore::order_after(const QueueUse& use) {
  QueueCore& other = *use.queue;
  if (&other == this) return;
  const DriverCall call(device_, DriverCall::Kind::call, newest_name());
  const std::uint64_t faults = other.faults_.load(std::memory_order_acquire);
  // Don't hold the other queue's lock below, because two queues may wait for each other.
  const auto event = other.event_of(use);
  bool over = true;
  try {
    over = !event || event->done();
    if (event && over) event->wait();  // failed events are also done; only wait() throws the error
  } catch (...) {                      // an error of the other queue, possibly on another device
    other.throw_fault(faults, use);
  }
  if (over) return other.tell_fault();
  const auto hold = held();
  try {
    driver_->wait(*event);
  } catch (...) {
    rethrow();
  }
}

bool QueueCore::try_order_after(const QueueUse& use) noexcept {
  QueueCore& other = *use.queue;
  if (&other == this) return true;
  try {
    const auto event = other.event_of(use);
    if (!event || other.ended({use.queue, use.sequence, event})) return true;
    const auto hold = held();
    driver_->wait(*event);
    return true;
  } catch (...) {
    return device_.gone();  // if the device is gone, its memory is not used again
  }
}

QueueUse QueueCore::last_use() { return {shared_from_this(), submitted_.load(std::memory_order_relaxed), nullptr}; }

QueueUse QueueCore::recorded() {
  device_.check();
  if (inside()) refuse_in_callback();
  QueueUse use = last_use();
  if (immediate_ || (!adopted_ && completed_.load(std::memory_order_acquire) >= use.sequence)) return use;
  const auto hold = held();
  if (adopted_)  // requires a new event, because an existing one may not cover work that the owner enqueued directly
    submitted_.store(submitted_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  use.sequence = submitted_.load(std::memory_order_relaxed);
  use.event = newest_event(use.sequence);
  return use;
}

void* QueueCore::native_handle() {
  device_.check();
  const auto hold = held();
  void* handle = nullptr;
  driver_->with_native([&](void* native) { handle = native; });
  return handle;
}

void QueueCore::finish() {
  device_.check();
  const DriverCall call(device_, DriverCall::Kind::wait, newest_name());
  const QueueUse everything = last_use();
  wait(everything);
  if (immediate_) return;
  // Some drivers report errors only when the queue is empty.
  const auto hold = held();
  if (closed_) return;
  try {
    driver_->finish();
  } catch (...) {
    clear_fault(put_in());
    rethrow();
  }
}

void QueueCore::close() noexcept {
  try {
    const DriverCall call(device_, DriverCall::Kind::wait, newest_name());
    std::unique_lock hold(lock_, std::defer_lock);
    if (device_.gone()) {
      // Leak everything, because another thread of the parent or the driver may hold locks. If another thread of this
      // process is using the driver's queue, the destructor leaks it later.
      closed_ = true;
      if (!device_.forked() && !hold.try_lock()) return;
      static_cast<void>(driver_.release());
      leave(std::move(event_));
      return;
    }
    hold.lock();
    event_.reset();
    event_sequence_ = submitted_;
    bool under_way = adopted_;  // don't wait for work that the owner enqueued directly
    if (adopted_ && submitted_ != completed_) {
      try {
        event_ = driver_->record();  // covers all work that we enqueued
      } catch (...) {                // wait for all work instead
        under_way = false;
      }
    }
    try {
      if (!under_way) driver_->finish();
    } catch (...) {
      keep_fault();
    }
    closed_ = true;
    if (!event_) passed(submitted_);
    driver_.reset();
  } catch (...) {}
}

std::string QueueCore::recent_names() const {
  std::string names;
  const unsigned count = std::min<unsigned>(recent_at_, recent_.size());
  for (unsigned i = 0; i < count; ++i) {  // newest first
    names += (i == 0 ? "" : ", ") + *recent_[(recent_at_ - 1 - i) % recent_.size()];
  }
  return names.empty() ? "none" : names;
}

void QueueCore::rethrow() {
  const std::string asked = "queue of " + to_string(device_.device);
  const std::string last = "Latest work in this queue, newest first: " + recent_names();
  const auto with_names = [&](const std::exception& e) { return fmt::format("{}. {}", e.what(), last); };
  try {
    throw;
  } catch (const DeviceLost& e) {
    device_.mark_lost(with_names(e));
    device_.check();  // throws a DeviceLost with the remedy
    throw;
  } catch (const KernelError& e) {
    fail<KernelError>({.wrong = with_names(e)});
  } catch (const OutOfMemory& e) {
    fail<OutOfMemory>({.wrong = with_names(e)});
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail<OutOfMemory>({.operation = asked, .wrong = "out of host memory while queueing work", .remedy = last});
  } catch (const std::exception& e) {
    fail<DeviceError>({.operation = asked, .wrong = fmt::format("the driver failed: {}", e.what()), .remedy = last});
  }
}

}  // namespace tessera
