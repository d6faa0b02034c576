// SPDX-License-Identifier: Apache-2.0
// AMD's run-time compiler: found, and called. Needs no GPU. Used within this folder and by its tests.
#pragma once

#include <string>

#include "tessera/backend/rocm/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::rocm {

/// The files that may be opened beside the runtime.
std::vector<std::string> hiprtc_candidates();

class Hiprtc {
 public:
  /// Opens the file that TESSERA_HIPRTC_LIBRARY names; else libhiprtc of the runtime's major version, by name and
  /// beside the runtime; else the runtime itself, which holds the compiler up to ROCm 5.2. Does not throw.
  static Hiprtc open(const os::Library& runtime, int major);

  bool usable() const { return library_.loaded() && missing_.empty(); }
  const std::string& reason() const { return reason_; }  ///< why it is not usable
  const std::string& file() const { return library_.file(); }

  /// A code object of `text` for an architecture ("gfx90a:sramecc+:xnack-"); not made, with the log, if there is
  /// something wrong with the text. KernelError or OutOfMemory if the compiler itself fails.
  stream::Image compile(const std::string& text, const std::string& architecture) const;

 private:
  bool take(os::Library library);
  os::Library library_;
  std::string missing_, reason_;
  CompilerFunctions call_;
};

}  // namespace tessera::rocm
