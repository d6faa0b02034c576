// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/spin_lock.h"

#include <thread>

namespace tessera {

void SpinLock::yield() noexcept { std::this_thread::yield(); }

}  // namespace tessera
