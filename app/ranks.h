// SPDX-License-Identifier: Apache-2.0
// The processes that a launcher (mpirun) started together.
#pragma once

#include <functional>

#include "tessera/dist/world.h"

namespace tessera::app {

/// Joins the processes that a launcher started, if any, while it calls `run`, and returns its result. All but the first
/// rank print only errors, which are preceded by the number of the rank.
int run_on_ranks(const std::function<int(dist::World& world)>& run);
/// Returns the ranks that were joined; null: this process is alone.
dist::World* ranks();
/// True for the rank that writes files and prints results.
bool is_first_rank();

}  // namespace tessera::app
