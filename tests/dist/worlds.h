// SPDX-License-Identifier: Apache-2.0
// Runs a test on several ranks: on threads of this process, or on the processes of a launcher if one started this
// program (tests/dist/main.cpp).
#pragma once

#include <gtest/gtest.h>

#include "tessera/base/test_seed.h"
#include "tessera/dist/world.h"

namespace tessera::test {

/// The World of the processes that a launcher started; null: none.
inline dist::World* launched_world = nullptr;

/// The numbers of ranks to test.
inline std::vector<int> rank_counts() {
  if (launched_world != nullptr) return {launched_world->size()};
  return {1, 2, 3, 4};
}

/// Calls f(world) on each of n ranks.
inline void on_ranks(int n, const Callback<void(dist::World&)>& f) {
  if (launched_world != nullptr) return f(*launched_world);
  dist::threads(n, f);
}

/// Returns a random seed, the same on all ranks. TESSERA_TEST_SEED sets it.
inline unsigned shared_seed() {
  const auto seed = static_cast<unsigned>(test_seed());
  return launched_world == nullptr ? seed : static_cast<unsigned>(launched_world->gather(seed)[0]);
}

}  // namespace tessera::test
