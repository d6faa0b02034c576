// SPDX-License-Identifier: Apache-2.0
// What backends share of kernels that are kept on disk (device/launch/kernel_cache.h): what their keys name, and the
// image of a kernel that was C text. Used by the backends' folders only.
#pragma once

#include <string>
#include <string_view>

#include "tessera/device/driver.h"
#include "tessera/emit/c_emitter.h"

namespace tessera::backend {

/// "lowering: ...": how kernels are lowered and emitted: the version that people raise, and the build that does it.
std::string lowering_key();
/// The lines of DriverDevice::image_key for kernels that are emitted in this dialect within these limits.
std::string text_key(const emit::Dialect& dialect, const DeviceInfo& info);

/// A kernel as a driver loads it.
struct KernelImage {
  emit::EmittedKernel form;  ///< its entry, arguments and shape; without texts
  std::string program;
  bool is_text = false;  ///< `program` is what the driver's compiler gets: PTX
};
std::string pack(const KernelImage& image);
KernelImage unpack(std::string_view bytes);  ///< FormatError

}  // namespace tessera::backend
