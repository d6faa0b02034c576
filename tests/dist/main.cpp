// SPDX-License-Identifier: Apache-2.0
// The main program of tests of ranks. If a launcher started it, all tests use the launcher's ranks, and only the first
// rank reports passed tests.
#include <optional>

#include "tests/dist/worlds.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::optional<tessera::dist::World> world(std::in_place);
  if (world->size() > 1) {
    tessera::test::launched_world = &*world;
    if (!world->first())
      delete ::testing::UnitTest::GetInstance()->listeners().Release(
          ::testing::UnitTest::GetInstance()->listeners().default_result_printer());
  }
  const int status = RUN_ALL_TESTS();
  return status;
}
