// SPDX-License-Identifier: Apache-2.0
// A library with MPI's symbols that claims to be MPICH. MPI_Init_thread hangs, or exits if FAKE_MPI=exit.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "tessera/dist/mpi_api.h"

namespace {
int start() {
  const char* const what = std::getenv("FAKE_MPI");
  if (what != nullptr && std::string_view(what) == "exit") std::exit(5);
  std::this_thread::sleep_for(std::chrono::seconds(60));
  return 0;
}
}  // namespace

// All functions fail except MPI_Init_thread.
#define TESSERA_FAKE(member, symbol, ...) \
  extern "C" int symbol() { return std::string_view(#symbol) == "MPI_Init_thread" ? start() : 1; }
TESSERA_MPI(TESSERA_FAKE)

extern "C" int MPI_Get_version(int* version, int* subversion) {
  *version = 3, *subversion = 1;
  return 0;
}
extern "C" int MPI_Get_library_version(char* text, int* length) {
  std::strcpy(text, "MPICH Version:\t0.0\nfake");
  *length = 23;
  return 0;
}
