// SPDX-License-Identifier: Apache-2.0
// hiprtc, AMD's run-time compiler: finding and calling it. Needs no GPU. Used within this folder and by its tests.
#pragma once

#include <string>

#include "tessera/backend/rocm/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::rocm {

/// The files that may be opened in addition to the runtime.
std::vector<std::string> hiprtc_candidates();

class Hiprtc {
 public:
  /// Opens the file in TESSERA_HIPRTC_LIBRARY; otherwise libhiprtc of the runtime's major version, in the runtime's
  /// folder and by name; otherwise uses the runtime itself, which contains the compiler up to ROCm 5.2. Does not throw.
  static Hiprtc open(const os::Library& runtime, int major);

  bool usable() const { return library_.loaded() && missing_.empty(); }
  const std::string& reason() const { return reason_; }  ///< why it is not usable
  const std::string& file() const { return library_.file(); }

  /// Compiles `text` to a code object for an architecture ("gfx90a:sramecc+:xnack-"). If the text has errors, the image
  /// is not made and contains the log. Throws KernelError or OutOfMemory if the compiler itself fails.
  stream::Image compile(const std::string& text, const std::string& architecture) const;

 private:
  bool take(os::Library library);
  os::Library library_;
  std::string missing_, reason_;
  CompilerFunctions call_;
};

}  // namespace tessera::rocm
