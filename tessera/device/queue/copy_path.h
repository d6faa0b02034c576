// SPDX-License-Identifier: Apache-2.0
// Whether copies between two devices go directly or through the host. Some machines (an IOMMU that translates, PCIe
// Access Control Services) drop direct copies that the driver reports as done, so each pair is tested before it is
// used.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/device/device.h"

namespace tessera {

struct OpenDevice;

enum class CopyPath : std::uint8_t {
  direct,        ///< from one device's memory to the other's
  host,          ///< through the host: the driver gives no access
  disabled,      ///< through the host: TESSERA_PEER_COPIES=off
  failed_check,  ///< through the host: a direct copy of a pattern did not arrive
};
/// "direct", "through the host: the driver gives no access", ...
std::string_view to_string(CopyPath path);

/// How copies to one device from another of the same backend go. Opens both. The first call for a pair copies a pattern
/// of 64 KiB each way that the driver offers and compares it; if one way fails, both go through the host, with one
/// warning. Throws DeviceError if a device does not exist or belongs to the parent of this process, DeviceLost if it is
/// lost.
CopyPath copy_path(Device to, Device from);
CopyPath copy_path(OpenDevice& to, OpenDevice& from);

}  // namespace tessera
