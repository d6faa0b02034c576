// SPDX-License-Identifier: Apache-2.0
#include "tests/drivers/vendors/paired_driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace tessera::fake {

PairedDriver::PairedDriver(const char* variable, const char* current_device) {
  const char* const file = std::getenv(variable);
  void* const driver = file != nullptr ? dlopen(file, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  const auto take = [&]<class F>(F*& to, const char* name) {
    to = driver != nullptr ? reinterpret_cast<F*>(dlsym(driver, name)) : nullptr;
    if (to == nullptr) {
      std::fprintf(stderr, "fake library: the driver of %s is not a fake, or not loaded\n", variable);
      std::_Exit(87);
    }
  };
  take(current_, current_device);
  take(device_, "tessera_fake_outside_device");
  take(submit, "tessera_fake_outside_submit");
  take(breach_, "tessera_fake_outside_breach");
}

int PairedDriver::current_device() const {
  int device = -1;
  return current_(&device) == 0 ? device : -1;
}

}  // namespace tessera::fake
