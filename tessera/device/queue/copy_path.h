// SPDX-License-Identifier: Apache-2.0
// Selects direct copies between two devices or copies through the host. Some machines (with a translating IOMMU or PCIe
// Access Control Services) drop direct copies that the driver reports as completed, so each pair is tested first.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/device/device.h"

namespace tessera {

struct OpenDevice;

enum class CopyPath : std::uint8_t {
  direct,        ///< from one device's memory to the other's
  host,          ///< through the host: the driver does not support peer access
  disabled,      ///< through the host: TESSERA_PEER_COPIES=off
  failed_check,  ///< through the host: the test of direct copies failed
};
/// Describes the path: "direct", "through the host: the driver does not support peer access", ...
std::string_view to_string(CopyPath path);

/// Returns the path for copies to one device from another of the same backend. Opens both. The first call for a pair
/// tests each direction that the driver supports with a pattern of 64 KiB; if one fails, both use the host and a
/// warning is logged. Throws DeviceError if a device does not exist or was opened before a fork, DeviceLost if it is
/// lost.
CopyPath copy_path(Device to, Device from);
CopyPath copy_path(OpenDevice& to, OpenDevice& from);

}  // namespace tessera
