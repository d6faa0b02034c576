// SPDX-License-Identifier: Apache-2.0
// Selects direct copies between two devices or copies through the host. Some machines lose the data of direct copies
// although the driver reports success (IOMMU with address translation, PCIe Access Control Services). Each pair of
// devices is therefore tested first.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/device/device.h"

namespace tessera {

struct OpenDevice;

enum class CopyPath : std::uint8_t {
  direct,        ///< from the memory of one device to the memory of the other
  host,          ///< through the host: the driver does not support peer access
  disabled,      ///< through the host: TESSERA_PEER_COPIES=off
  failed_check,  ///< through the host: the test of direct copies failed
};
/// Describes the path: "direct", "through the host: the driver does not support peer access", ...
std::string_view to_string(CopyPath path);

/// Returns the path for copies from one device to another one of the same backend. Opens both devices. The first call
/// for a pair copies a pattern of 64 KiB in each direction that the driver supports. If one of these tests fails, both
/// directions use the host, and a warning is logged. Throws DeviceError if a device does not exist or was opened before
/// a fork, DeviceLost if it is lost.
CopyPath copy_path(Device to, Device from);
CopyPath copy_path(OpenDevice& to, OpenDevice& from);

}  // namespace tessera
