// SPDX-License-Identifier: Apache-2.0
// Finds and calls hiprtc, AMD's run-time compiler. Needs no GPU. Used only in this folder and its tests.
#pragma once

#include <string>

#include "tessera/backend/rocm/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::rocm {

/// Returns the files that open() may open in addition to the runtime.
std::vector<std::string> hiprtc_candidates();

class Hiprtc {
 public:
  /// Opens the file in TESSERA_HIPRTC_LIBRARY if it is set. Otherwise opens the libhiprtc of the runtime's major
  /// version, first in the runtime's folder, then by name. If there is none, uses the runtime itself, which contains
  /// the compiler up to ROCm 5.2. Does not throw.
  static Hiprtc open(const os::Library& runtime, int major);

  bool usable() const { return library_.loaded() && missing_.empty(); }
  const std::string& reason() const { return reason_; }  ///< why hiprtc is not usable
  const std::string& file() const { return library_.file(); }

  /// Compiles `text` to a code object for an architecture ("gfx90a:sramecc+:xnack-"). If the text has errors, `made` is
  /// false in the result and the log contains the errors. Throws KernelError or OutOfMemory if the compiler itself
  /// fails.
  stream::Image compile(const std::string& text, const std::string& architecture) const;

 private:
  bool take(os::Library library);
  os::Library library_;
  std::string missing_, reason_;
  CompilerFunctions call_;
};

}  // namespace tessera::rocm
