// SPDX-License-Identifier: Apache-2.0
// One rank of a job, which mpi_test starts with mpirun. usage: mpi_ranks MODE. Errors are printed, and the exit code is
// then 3.
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/dist/launcher.h"
#include "tessera/dist/mpi_transport.h"
#include "tests/dist/mpi/transport_checks.h"

namespace {

using namespace tessera;

/// Prints the files that are mapped into this process.
void print_libraries() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find('/') != line.npos) std::puts(line.substr(line.find('/')).c_str());
}

void run(const std::string& mode) {
  const auto launch = dist::find_launch();
  if (!launch) {
    print_libraries();
    std::puts("no launcher");
    return;
  }
  const auto print_error = [](auto&& call) {
    try {
      call();
    } catch (const Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
  };
  if (mode == "twice") print_error([] { dist::adopt_mpi(0); });
  const auto transport = dist::open_mpi(*launch);
  std::printf("rank %d of %d, local %d of %d: %s\n", transport->rank(), transport->size(), launch->local_rank,
              launch->local_size, transport->name().c_str());
  std::fflush(stdout);
  if (mode == "libraries") print_libraries();
  if (mode == "check") test::check_transport(*transport, true);
  if (mode == "twice") print_error([&] { dist::open_mpi(*launch); });
  if (mode == "abort" && transport->rank() == 0) transport->abort(7);
  if (mode == "leave" && transport->rank() == 0) {
    transport->close(false);
    throw std::runtime_error("rank 0 leaves");
  }
  if (mode == "leave" || mode == "abort") {  // waits for a message that never comes
    dist::Transfer receive;
    std::byte memory[1];
    transport->receive(receive, 0, 0, memory);
    while (!transport->test(receive)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  transport->close(true);
  std::puts("closed");
}

}  // namespace

int main(int count, char** arguments) {
  try {
    run(count > 1 ? arguments[1] : "");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
  }
}
