// SPDX-License-Identifier: Apache-2.0
// Shared parts of the kernel cache (device/launch/kernel_cache.h): common lines of the keys, and the image of a kernel
// that was emitted as C text. Used by the backends' folders only.
#pragma once

#include <string>
#include <string_view>

#include "tessera/device/driver.h"
#include "tessera/emit/c_emitter.h"

namespace tessera::backend {

/// "lowering: ...": the version of lowering and emission, which developers increment, and the build id.
std::string lowering_key();
/// The lines of DriverDevice::image_key for kernels emitted in this dialect within the device's limits.
std::string text_key(const emit::Dialect& dialect, const DeviceInfo& info);

/// A kernel in the form that a driver loads.
struct KernelImage {
  emit::EmittedKernel form;  ///< its entry, arguments and shape; without texts
  std::string program;
  bool is_text = false;  ///< `program` is input for the driver's compiler: PTX
};
std::string pack(const KernelImage& image);
KernelImage unpack(std::string_view bytes);  ///< throws FormatError

}  // namespace tessera::backend
