// SPDX-License-Identifier: Apache-2.0
// `tessera-probe`: loads the driver of one backend and prints its devices as JSON. The library runs this as a separate
// process, so that a driver that crashes or hangs does not affect the program. Example: tessera-probe opencl
// /etc/OpenCL/vendors/pocl.icd
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tessera/device/discovery/probe.h"

int main(int argc, char** argv) {
  try {
    return tessera::probe_main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tessera-probe: error: %s\n", e.what());
    return 2;
  }
}
