// SPDX-License-Identifier: Apache-2.0
// Helpers for the kernel cache (device/launch/kernel_cache.h): the lines that all cache keys contain, and the cached
// image of a kernel that was emitted as C text. Used only in tessera/backend.
#pragma once

#include <string>
#include <string_view>

#include "tessera/device/driver.h"
#include "tessera/emit/c_emitter.h"

namespace tessera::backend {

/// Returns the line "lowering: ..." of a cache key. It contains the build id, and the version of lowering and emission
/// that developers increment by hand.
std::string lowering_key();
/// Returns the lines of DriverDevice::image_key that depend on the dialect and the device's limits.
std::string text_key(const emit::Dialect& dialect, const DeviceInfo& info);

/// A kernel in the form that a driver loads.
struct KernelImage {
  emit::EmittedKernel form;  ///< entry, arguments and shape; its texts are not stored
  std::string program;
  bool is_text = false;  ///< `program` is PTX, which the driver compiles
  std::string ptx;       ///< the PTX from which the driver has compiled `program`; otherwise empty
};
std::string pack(const KernelImage& image);
KernelImage unpack(std::string_view bytes);  ///< throws FormatError

}  // namespace tessera::backend
