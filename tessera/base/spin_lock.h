// SPDX-License-Identifier: Apache-2.0
// A lock that costs one exchange. Internal.
#pragma once

#include <atomic>
#include <thread>

namespace tessera {

/// For a few instructions, among threads that each have a core: who finds it taken for longer lets others run.
class SpinLock {
 public:
  void lock() noexcept {
    for (int tries = 0; taken_.exchange(true, std::memory_order_acquire); ++tries)
      while (taken_.load(std::memory_order_relaxed))
        if (++tries > 100) std::this_thread::yield();
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_ = false;
};

}  // namespace tessera
