// SPDX-License-Identifier: Apache-2.0
// Compares the declarations in dist/mpi_api.h with mpi.h of Open MPI, if it is installed.
#include <gtest/gtest.h>

#include <type_traits>

#define OMPI_SKIP_MPICXX 1
#if __has_include(<mpi.h>)
#include <mpi.h>
#endif

#ifdef OPEN_MPI
#include "tests/compilers/vendor_headers_mpi.h"
#endif

TEST(VendorHeaders, OpenMpiDeclarationsMatch) {
#ifdef OPEN_MPI
  static_assert(tessera::test::mpi_functions_match<void*>());
  static_assert(tessera::test::mpi_constants_match(tessera::dist::open_mpi_constants));
  // Handles are the addresses of these objects.
  using Communicator = std::remove_pointer_t<MPI_Comm>;
  static_assert(sizeof(decltype(ompi_mpi_comm_world)*) == sizeof(Communicator*));
  static_assert(sizeof(decltype(ompi_mpi_comm_null)*) == sizeof(decltype(ompi_mpi_byte)*));
  static_assert(sizeof(decltype(ompi_mpi_errors_return)*) == sizeof(MPI_Errhandler));
  SUCCEED() << "compared with mpi.h of Open MPI " << OMPI_MAJOR_VERSION << "." << OMPI_MINOR_VERSION;
#else
  GTEST_SKIP() << "passed by: mpi.h of Open MPI is not installed (libopenmpi-dev; "
                  "cmake -DTESSERA_OPENMPI_HEADERS=FOLDER)";
#endif
}
