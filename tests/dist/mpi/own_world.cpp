// SPDX-License-Identifier: Apache-2.0
// A program that initialises MPI itself and passes its communicator, as docs/machines.md shows. It is linked with one
// of the implementations, and declares what it uses, because the tests need no headers of MPI.
#include <cstdio>

#include "tessera/dist/world.h"

#ifdef OPEN_MPI
extern "C" char ompi_mpi_comm_world[];
#define MPI_COMM_WORLD static_cast<void*>(ompi_mpi_comm_world)
#else
#define MPI_COMM_WORLD 0x44000000
#endif
#define MPI_THREAD_MULTIPLE 3
extern "C" int MPI_Init_thread(int* count, char*** arguments, int required, int* provided);
extern "C" int MPI_Finalize();

using namespace tessera;

int main(int argc, char** argv) {
  int provided = 0;
  // clang-format off
MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
float total = 0;
{
  dist::World world{dist::MpiCommunicator(MPI_COMM_WORLD)};
  total = dist::all_reduce(world, Array::full({}, world.rank())).item<float>();
}
MPI_Finalize();
  // clang-format on
  if (total == 3) return 0;  // on three ranks
  std::fprintf(stderr, "the sum is %g instead of 3\n", static_cast<double>(total));
  return 1;
}
