// SPDX-License-Identifier: Apache-2.0
// NVIDIA's run-time compiler: found, fitted to the driver, and called. Needs no GPU. Used within this folder and by its
// tests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/backend/cuda/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::cuda {

/// Where NVIDIA's libraries beside the driver may lie: in the toolkit's folders and in Python's packages.
std::vector<std::filesystem::path> toolkit_folders();
/// The file that TESSERA_NVRTC_LIBRARY names, else the usual ones.
std::vector<std::string> nvrtc_candidates();

class Nvrtc {
 public:
  /// Opens the file that TESSERA_NVRTC_LIBRARY names (none if that is "none"); else the first that loads and is not of
  /// a later major version than the driver (in thousands, as cuDriverGetVersion tells), which could not load what it
  /// makes; else the first that loads. Tried are the usual names, the toolkit's folders and Python's packages. Does not
  /// throw.
  static Nvrtc open(int driver_version);

  bool usable() const { return library_.loaded() && missing_.empty(); }
  const std::string& reason() const { return reason_; }  ///< why it is not usable
  std::string version() const;                           ///< "13.0"
  int major() const { return major_; }

  /// How kernels for a device of this compute capability (86: 8.6) are made; "sm_86" for code, "compute_120" for PTX
  /// that the driver compiles, where the device is newer than the compiler. Empty if it cannot.
  std::string architecture_for(int capability) const;
  const std::vector<int>& supported() const { return supported_; }  ///< compute capabilities, ascending

  /// `text` for an architecture as above; not made, with the log, if there is something wrong with the text.
  /// KernelError or OutOfMemory if the compiler itself fails. `exact`: a * b + c is rounded twice. `verbose`: the log
  /// tells the registers of each kernel.
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
