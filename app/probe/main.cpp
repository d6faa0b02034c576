// SPDX-License-Identifier: Apache-2.0
// `tessera-probe`: loads one backend's driver, lists its devices, and prints JSON. The library starts it so that a
// driver that crashes or hangs does not affect the program. Manually: tessera-probe opencl /etc/OpenCL/vendors/pocl.icd
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
