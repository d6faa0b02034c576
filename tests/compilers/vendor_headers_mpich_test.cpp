// SPDX-License-Identifier: Apache-2.0
// Compares the declarations in dist/mpi_api.h with mpi.h of MPICH, if it is installed.
#include <gtest/gtest.h>

#define MPICH_SKIP_MPICXX 1
#if __has_include(<mpi.h>)
#include <mpi.h>
#endif

#ifdef MPICH_VERSION
#include "tests/compilers/vendor_headers_mpi.h"
#endif

TEST(VendorHeaders, MpichDeclarationsMatch) {
#ifdef MPICH_VERSION
  static_assert(tessera::test::mpi_functions_match<int>());
  static_assert(tessera::test::mpi_constants_match(tessera::dist::mpich_constants));
  EXPECT_TRUE(tessera::test::mpi_handles_match(tessera::dist::mpich_handles));
  SUCCEED() << "compared with mpi.h of MPICH " << MPICH_VERSION;
#else
  GTEST_SKIP() << "passed by: mpi.h of MPICH is not installed (libmpich-dev; cmake -DTESSERA_MPICH_HEADERS=FOLDER)";
#endif
}
