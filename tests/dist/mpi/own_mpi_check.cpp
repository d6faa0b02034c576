// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <exception>

#include "tessera/dist/mpi_transport.h"
#include "tests/dist/mpi/transport_checks.h"

extern "C" int check_adopted(std::uintptr_t communicator) {
  try {
    const auto transport = tessera::dist::adopt_mpi(communicator);
    tessera::test::check_transport(*transport, false);
    transport->close(true);
    std::printf("rank %d of %d: %s\n", transport->rank(), transport->size(), transport->name().c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
  }
}
