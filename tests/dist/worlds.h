// SPDX-License-Identifier: Apache-2.0
// Runs a test on several ranks: on threads of this process, or on the processes of a launcher if one started this
// program (tests/dist/main.cpp). With TESSERA_TEST_DEVICES (the name of a backend), threads use its devices in turn.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tessera/base/test_seed.h"
#include "tessera/device/context.h"
#include "tessera/dist/world.h"

namespace tessera::test {

/// The World of the processes that a launcher started; null: none.
inline dist::World* launched_world = nullptr;

/// The numbers of ranks to test.
inline std::vector<int> rank_counts() {
  if (launched_world != nullptr) return {launched_world->size()};
  if (std::getenv("TESSERA_TEST_DEVICES") != nullptr) return {2, 3};  // fake GPUs are slow
  return {1, 2, 3, 4};
}

/// The device on which a rank creates arrays.
inline Device device_of(int rank) {
  const char* backend = std::getenv("TESSERA_TEST_DEVICES");
  if (backend == nullptr || launched_world != nullptr) return current_device();
  const Backend one = parse_device(backend).backend;
  return {one, rank % static_cast<int>(std::ranges::count(devices(), one, &Device::backend))};
}

/// Calls f(world) on each of n ranks.
inline void on_ranks(int n, const Callback<void(dist::World&)>& f) {
  if (launched_world != nullptr) return f(*launched_world);
  dist::threads(n, [&](dist::World& world) {
    const DeviceScope scope(device_of(world.rank()));
    f(world);
  });
}

/// Returns a random seed, the same on all ranks. TESSERA_TEST_SEED sets it.
inline unsigned shared_seed() {
  const auto seed = static_cast<unsigned>(test_seed());
  return launched_world == nullptr ? seed : static_cast<unsigned>(launched_world->gather(seed)[0]);
}

}  // namespace tessera::test
