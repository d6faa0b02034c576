/* SPDX-License-Identifier: Apache-2.0 */
/* A C program that initialises MPI itself and passes its communicator. usage: own_mpi serialized|funneled. With
   funneled, the communicator must be rejected. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef OPEN_MPI
typedef void* Communicator;
extern char ompi_mpi_comm_world[], ompi_mpi_byte[];
#define WORLD ((Communicator)ompi_mpi_comm_world)
#define BYTE ((Communicator)ompi_mpi_byte)
#else
typedef int Communicator;
#define WORLD 0x44000000
#define BYTE 0x4c00010d
#endif
int MPI_Init_thread(int* count, char*** arguments, int required, int* provided);
int MPI_Comm_rank(Communicator communicator, int* rank);
int MPI_Comm_split(Communicator communicator, int colour, int key, Communicator* part);
int MPI_Type_size(Communicator type, int* size);
int MPI_Finalize(void);

/* Returns 0 if all checks passed. */
int check_adopted(uintptr_t communicator);

int main(int count, char** arguments) {
  int provided = 0, rank = 0, failed = 0, size = 0;
  const int level = count > 1 && strcmp(arguments[1], "serialized") == 0 ? 2 : 1;
  MPI_Init_thread(&count, &arguments, level, &provided);
  if (provided < level) return 4;
  MPI_Comm_rank(WORLD, &rank);
  MPI_Type_size(BYTE, &size); /* with Open MPI, the program then has a copy of the handle */
  if (size != 1) return 5;
  failed = check_adopted((uintptr_t)WORLD);
  /* All ranks in the reverse order. */
  if (!failed) {
    Communicator part;
    MPI_Comm_split(WORLD, 0, -rank, &part);
    failed = check_adopted((uintptr_t)part);
  }
  MPI_Finalize();
  if (level == 1) return failed != 3;
  if (!failed) puts("finalised by the program");
  return failed;
}
