// SPDX-License-Identifier: Apache-2.0
// Memory that its keeper can do without. Internal to the library.
#pragma once

#include <cstdint>

#include "tessera/device/device.h"

namespace tessera {

/// Asked when a device has no memory for `bytes`, before that is an OutOfMemory: frees storages there that can be had
/// again, and says whether one went. Called by the thread that wants memory, whatever locks that holds.
using ReclaimMemory = bool (*)(Device device, std::uint64_t bytes);
/// One for the process; null: nobody.
void set_reclaim_memory(ReclaimMemory ask) noexcept;

}  // namespace tessera
