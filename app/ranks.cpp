// SPDX-License-Identifier: Apache-2.0
#include "ranks.h"

#include <fmt/format.h>

#include <algorithm>

#include "terminal.h"
#include "tessera/base/log.h"

namespace tessera::app {
namespace {
dist::World* joined_world = nullptr;
}

int run_on_ranks(const std::function<int(dist::World&)>& run) {
  dist::World world;
  if (world.size() == 1) return run(world);
  joined_world = &world;
  mark_rank(fmt::format("[{}] ", world.rank()), world.first());
  if (!world.first()) logging::set_level(std::max(logging::level(), logging::Level::error));
  return run(world);
}

dist::World* ranks() { return joined_world; }
bool is_first_rank() { return joined_world == nullptr || joined_world->first(); }

}  // namespace tessera::app
