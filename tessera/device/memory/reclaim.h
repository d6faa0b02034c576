// SPDX-License-Identifier: Apache-2.0
// Hook for freeing memory whose contents can be restored. Internal to the library.
#pragma once

#include <cstdint>

#include "tessera/device/device.h"

namespace tessera {

/// Called before OutOfMemory is thrown for `bytes` on a device. Frees storages on that device whose contents can be
/// restored, and returns whether it freed any. Runs on the allocating thread, which may hold arbitrary locks.
using ReclaimMemory = bool (*)(Device device, std::uint64_t bytes);
/// Sets the hook of this process; null removes it.
void set_reclaim_memory(ReclaimMemory ask) noexcept;

}  // namespace tessera
