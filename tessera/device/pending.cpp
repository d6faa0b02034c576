// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/pending.h"

#include <array>

#include "tessera/base/os/fork.h"

namespace tessera {

PendingBooks& PendingBooks::of(Device device) {
  // Devices that share an entry wait for each other a little, and nothing else.
  static constinit os::PerProcess<std::array<PendingBooks, 32>> all;
  return (*all)[(static_cast<std::size_t>(device.backend) * 4 + static_cast<std::size_t>(device.index)) % 32];
}

}  // namespace tessera
