// SPDX-License-Identifier: Apache-2.0
// Compares the declarations in dist/nccl.h with nccl.h, if it and the CUDA runtime's header are installed. RCCL has the
// same declarations.
#include <gtest/gtest.h>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#endif

#include "tessera/dist/nccl.h"
#include "tests/compilers/vendor_headers.h"

TEST(VendorHeaders, NcclDeclarationsMatch) {
#ifdef NCCL_MAJOR
  namespace ours = tessera::dist;
  using namespace tessera::dist;
  TESSERA_NCCL(TESSERA_SAME)
  static_assert(ncclSuccess == ours::nccl_success && ncclInProgress == ours::nccl_in_progress);
  static_assert(ncclChar == ours::nccl_char);
  static_assert(sizeof(ncclUniqueId) == sizeof(ours::NcclId));
  static_assert(offsetof(ncclConfig_t, magic) == offsetof(ours::NcclConfig, magic));
  static_assert(offsetof(ncclConfig_t, version) == offsetof(ours::NcclConfig, version));
  static_assert(offsetof(ncclConfig_t, blocking) == offsetof(ours::NcclConfig, blocking));
  const ncclConfig_t defaults = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(defaults.magic, ours::NcclConfig{}.magic);
  SUCCEED() << "compared with nccl.h of NCCL " << NCCL_MAJOR << "." << NCCL_MINOR;
#else
  GTEST_SKIP() << "passed by: nccl.h or cuda_runtime.h is not installed (cmake -DTESSERA_NCCL_HEADERS=FOLDER)";
#endif
}
