// SPDX-License-Identifier: Apache-2.0
// to_string for device information and for the enumerations. This is a separate header because the library itself does
// not need these functions.
#pragma once

#include "tessera/base/dtype.h"
#include "tessera/base/enum_name.h"
#include "tessera/device/device.h"
#include "tessera/device/memory/storage.h"

namespace tessera {

inline std::string to_string(DType dtype) { return std::string(dtype_name(dtype)); }          ///< "f32"
inline std::string to_string(Backend backend) { return std::string(backend_name(backend)); }  ///< "cuda"
inline std::string to_string(DeviceKind kind) { return std::string(kind_name(kind)); }        ///< "discrete GPU"
/// One line: "cuda:0 (NVIDIA A100): discrete GPU, verified, 40 GiB".
std::string to_string(const DeviceInfo& info);
/// One line for the backend and one for each of its devices.
std::string to_string(const BackendReport& report);
/// One line: "1.50 MiB live, 2 MiB cached, 4 MiB at most; no limit; 3 allocations, 12 reuses".
std::string to_string(const MemoryStats& stats);

}  // namespace tessera
