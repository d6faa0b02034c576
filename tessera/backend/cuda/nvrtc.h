// SPDX-License-Identifier: Apache-2.0
// NVRTC, NVIDIA's run-time compiler: finds a version that matches the driver, and calls it. Needs no GPU. Used within
// this folder and by its tests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/backend/cuda/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::cuda {

/// Folders that may contain NVIDIA's libraries other than the driver: the toolkit's folders and Python packages.
std::vector<std::filesystem::path> toolkit_folders();
/// The file in TESSERA_NVRTC_LIBRARY, otherwise the usual ones.
std::vector<std::string> nvrtc_candidates();

class Nvrtc {
 public:
  /// Opens the file in TESSERA_NVRTC_LIBRARY ("none": nothing). Otherwise tries the usual names, the toolkit's folders
  /// and Python packages: first a library whose major version is not later than the driver's (in thousands, as returned
  /// by cuDriverGetVersion), because the driver could not load the code of a later one; if there is none, the first
  /// that loads. Does not throw.
  static Nvrtc open(int driver_version);

  bool usable() const { return library_.loaded() && missing_.empty(); }
  const std::string& reason() const { return reason_; }  ///< why it is not usable
  std::string version() const;                           ///< "13.0"
  int major() const { return major_; }

  /// Returns the architecture to compile for on a device of this compute capability (86: 8.6): "sm_86" for machine
  /// code; "compute_120" for PTX, which the driver compiles, if the device is newer than the compiler. Empty if it
  /// supports neither.
  std::string architecture_for(int capability) const;
  const std::vector<int>& supported() const { return supported_; }  ///< compute capabilities, ascending

  /// Compiles `text` for an architecture as above. If the text has errors, the image is not made and contains the log.
  /// Throws KernelError or OutOfMemory if the compiler itself fails. `exact`: a * b + c is rounded twice. `verbose`:
  /// the log lists the registers of each kernel.
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
