// SPDX-License-Identifier: Apache-2.0
// Access to the fake driver, for fake libraries that queue work on its streams.
#pragma once

#include <string>

#include "tests/drivers/outside.h"

namespace tessera::fake {

/// The driver's library, which is already loaded. `variable` is the environment variable with its file name.
class PairedDriver {
 public:
  explicit PairedDriver(const char* variable, const char* current_device);
  int current_device() const;  ///< -1 if no device is current on this thread
  int device_of(void* stream) const { return device_(stream); }
  int breach(const std::string& text, int code) const { return breach_(text.c_str()), code; }
  OutsideSubmit* submit = nullptr;

 private:
  int (*current_)(int*) = nullptr;
  OutsideDevice* device_ = nullptr;
  OutsideBreach* breach_ = nullptr;
};

}  // namespace tessera::fake
