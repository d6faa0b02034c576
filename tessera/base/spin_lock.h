// SPDX-License-Identifier: Apache-2.0
// A lock that costs one atomic exchange if it is uncontended. Internal.
#pragma once

#include <atomic>

namespace tessera {

/// For critical sections of a few instructions between threads that each run on their own core. Yields after about 100
/// spins.
class SpinLock {
 public:
  void lock() noexcept {
    for (int tries = 0; taken_.exchange(true, std::memory_order_acquire); ++tries)
      while (taken_.load(std::memory_order_relaxed))
        if (++tries > 100) yield();
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  static void yield() noexcept;
  std::atomic<bool> taken_ = false;
};

}  // namespace tessera
