// SPDX-License-Identifier: Apache-2.0
// Finds a version of NVRTC, NVIDIA's run-time compiler, that matches the driver, and compiles with it. Needs no GPU.
// Used only in this folder and its tests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/backend/cuda/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::cuda {

/// Returns the folders of the CUDA toolkit and of Python packages, which may contain NVIDIA's libraries.
std::vector<std::filesystem::path> toolkit_folders();
/// Returns the files to try: the file in TESSERA_NVRTC_LIBRARY if it is set, otherwise the usual ones.
std::vector<std::string> nvrtc_candidates();

class Nvrtc {
 public:
  /// Opens the file in TESSERA_NVRTC_LIBRARY if it is set ("none": opens no library). Otherwise tries the usual names,
  /// the toolkit's folders and Python packages. Prefers the first library that is not from a later CUDA major version
  /// than the driver, because the driver cannot load code from a later version. If there is none, opens the first
  /// library that loads. `driver_version` is the value of cuDriverGetVersion. Does not throw.
  static Nvrtc open(int driver_version);

  bool usable() const { return library_.loaded() && missing_.empty(); }
  const std::string& reason() const { return reason_; }  ///< why NVRTC is not usable
  std::string version() const;                           ///< "13.0"
  int major() const { return major_; }

  /// Returns the architecture to compile for on a device of this compute capability (86 means 8.6). This is usually
  /// "sm_86" or similar, for which NVRTC generates machine code. If the device is newer than NVRTC, it is "compute_120"
  /// or similar, for which NVRTC generates PTX that the driver compiles. Returns an empty string if NVRTC supports
  /// neither.
  std::string architecture_for(int capability) const;
  const std::vector<int>& supported() const { return supported_; }  ///< compute capabilities, ascending

  /// Compiles `text` for an architecture that architecture_for() returned. If the text has errors, `made` is false in
  /// the result and the log contains the errors. If `exact` is true, a * b + c is rounded twice. If `verbose` is true,
  /// the log lists the register usage of each kernel. Throws KernelError or OutOfMemory if the compiler itself fails.
  stream::Image compile(const std::string& text, const std::string& architecture, bool exact,
                        bool verbose = false) const;

 private:
  bool take(os::Library library);
  os::Library library_;
  std::string missing_, reason_;
  CompilerFunctions call_;
  int major_ = 0, minor_ = 0;
  std::vector<int> supported_;
};

}  // namespace tessera::cuda
