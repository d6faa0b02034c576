// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/mutex.h"

namespace tessera::detail {

void Mutex::wait_and_lock() noexcept {
  while (state_.exchange(contended, std::memory_order_acquire) != unlocked)
    state_.wait(contended, std::memory_order_relaxed);
}

void Mutex::wake_one() noexcept { state_.notify_one(); }

}  // namespace tessera::detail
