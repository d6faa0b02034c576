// SPDX-License-Identifier: Apache-2.0
// Compares the declarations in dist/mpi_api.h with mpi_abi.h, the header of MPI 5's standard ABI, if it is installed.
#include <gtest/gtest.h>

#if __has_include(<mpi_abi.h>)
#include <mpi_abi.h>

#include "tests/compilers/vendor_headers_mpi.h"
#endif

TEST(VendorHeaders, MpiAbiDeclarationsMatch) {
#if __has_include(<mpi_abi.h>)
  static_assert(tessera::test::mpi_functions_match<void*>());
  static_assert(tessera::test::mpi_constants_match(tessera::dist::standard_constants));
  static_assert(tessera::test::Same<int(int*, int*), decltype(::MPI_Abi_get_version)>::value);
  EXPECT_TRUE(tessera::test::mpi_handles_match(tessera::dist::standard_handles));
#else
  GTEST_SKIP() << "passed by: mpi_abi.h is not installed (MPI 5; cmake -DTESSERA_MPI_ABI_HEADERS=FOLDER)";
#endif
}
