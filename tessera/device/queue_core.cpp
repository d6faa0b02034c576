// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/queue_core.h"

#include <fmt/format.h>

#include <new>

#include "tessera/base/error.h"
#include "tessera/device/settings.h"

namespace tessera {

QueueUse QueueCore::finish_submit() {
  const std::uint64_t sequence = submitted_.load(std::memory_order_relaxed);
  QueueUse use{shared_from_this(), sequence, nullptr};
  if (settings().sync) {
    driver_->finish();
    passed(sequence);
    return {};
  }
  // With one queue on the device its order is enough, and most events would be recorded for nobody.
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
  while (before < sequence && !completed_.compare_exchange_weak(before, sequence, std::memory_order_release)) {}
}

std::shared_ptr<DriverEvent> QueueCore::event_of(const QueueUse& use) {
  if (completed_.load(std::memory_order_acquire) >= use.sequence) return nullptr;
  if (use.event) return use.event;
  std::unique_lock hold(lock_);
  if (closed_) return event_;
  try {
    if (!event_ || event_sequence_ < use.sequence) {
      const std::uint64_t upto = submitted_.load(std::memory_order_relaxed);
      event_ = driver_->record();
      event_sequence_ = upto;  // now, and not if recording failed
      if (!event_) passed(event_sequence_);
    }
  } catch (...) {
    rethrow();
  }
  return event_;
}

bool QueueCore::done(const QueueUse& use) {
  if (device_.lost()) return true;  // what failed has ended
  const auto event = event_of(use);
  if (!event) return true;
  if (!event->done()) return false;
  passed(use.sequence);
  return true;
}

void QueueCore::wait(const QueueUse& use) {
  if (completed_.load(std::memory_order_acquire) >= use.sequence) return;
  device_.check();
  const auto event = event_of(use);
  if (!event) return;
  try {
    event->wait();
  } catch (...) {
    std::unique_lock hold(lock_);
    clear_fault();
    rethrow();
  }
  passed(use.sequence);
}

void QueueCore::clear_fault() noexcept {
  // A fault is told once, to the first who waits; then the queue is empty and, unless the device is lost, usable.
  event_.reset();
  event_sequence_ = 0;
  try {
    if (driver_) driver_->finish();
  } catch (...) {  // the fault that is on its way already
  }
  passed(submitted_.load(std::memory_order_relaxed));
}

void QueueCore::order_after(const QueueUse& use) {
  if (use.queue.get() == this) return;
  const auto event = use.queue->event_of(use);  // its lock is not held below: two queues may wait for each other
  if (!event) return;
  try {
    if (event->done()) {
      event->wait();  // what failed is done too, and only this tells
      return;
    }
  } catch (...) {  // a fault of the other queue's, which may be another device's
    std::unique_lock theirs(use.queue->lock_);
    use.queue->rethrow();
  }
  std::unique_lock hold(lock_);
  try {
    driver_->wait(*event);
  } catch (...) {
    rethrow();
  }
}

QueueUse QueueCore::last_use() { return {shared_from_this(), submitted_.load(std::memory_order_relaxed), nullptr}; }

void* QueueCore::native_handle() {
  device_.check();
  std::unique_lock hold(lock_);
  void* handle = nullptr;
  driver_->with_native([&](void* native) { handle = native; });
  return handle;
}

void QueueCore::finish() {
  device_.check();
  const QueueUse everything = last_use();
  wait(everything);
  // Drivers may know of faults only when the queue is empty.
  std::unique_lock hold(lock_);
  if (closed_) return;
  try {
    driver_->finish();
  } catch (...) {
    clear_fault();
    rethrow();
  }
}

void QueueCore::close() noexcept {
  try {
    std::unique_lock hold(lock_, std::defer_lock);
    if (device_.gone()) {
      // Another thread of the parent, or the driver, may hold anything: leave it all as it is.
      closed_ = true;
      static_cast<void>(driver_.release());
      return;
    }
    hold.lock();
    try {
      if (adopted_ && submitted_ != completed_) {
        event_ = driver_->record();  // stands for all that was put in
        event_sequence_ = submitted_;
      } else {
        driver_->finish();
      }
    } catch (const DeviceError& e) {
      device_.lose(e.what());
    } catch (...) {  // what failed after nobody waited for it any more
    }
    closed_ = true;
    if (!adopted_) event_.reset();
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
  const std::string last = "Last put into this queue, newest first: " + recent_names();
  const auto with_names = [&](const std::exception& e) { return fmt::format("{}. {}", e.what(), last); };
  try {
    throw;
  } catch (const DeviceError& e) {
    device_.lose(with_names(e));
    device_.check();  // throws, with what to do
    throw;
  } catch (const KernelError& e) {
    fail<KernelError>({.wrong = with_names(e)});
  } catch (const OutOfMemory& e) {
    fail<OutOfMemory>({.wrong = with_names(e)});
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail<OutOfMemory>({.asked = asked, .wrong = "the host has no memory left to queue more work", .todo = last});
  } catch (const std::exception& e) {
    fail<DeviceError>({.asked = asked, .wrong = fmt::format("the driver failed: {}", e.what()), .todo = last});
  }
}

}  // namespace tessera
