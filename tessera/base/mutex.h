// SPDX-License-Identifier: Apache-2.0
// A mutex for public headers, which do not include <mutex>. Internal.
#pragma once

#include <atomic>

namespace tessera::detail {

/// A mutex like std::mutex. Without contention, locking and unlocking take one atomic operation each.
class Mutex {
 public:
  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      wait_and_lock();
  }
  bool try_lock() noexcept {
    int expected = unlocked;
    return state_.compare_exchange_strong(expected, locked, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void unlock() noexcept {
    if (state_.exchange(unlocked, std::memory_order_release) == contended) [[unlikely]]
      wake_one();
  }

 private:
  // Drepper, "Futexes Are Tricky": `contended` means that a thread may be waiting.
  enum : int { unlocked, locked, contended };
  void wait_and_lock() noexcept;
  void wake_one() noexcept;

  std::atomic<int> state_ = unlocked;
};

/// Locks a mutex while it exists.
template <class M>
class [[nodiscard]] LockGuard {
 public:
  explicit LockGuard(M& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~LockGuard() { mutex_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  M& mutex_;
};

}  // namespace tessera::detail
