// SPDX-License-Identifier: Apache-2.0
// Block arrays as task arguments.
#include "tessera/task/block_access.h"

namespace tessera::detail {

void place_data(TaskPlacer& placer, const AccessedBlocks& a) {
  for (const Tile& t : a.array.tiles()) place_data(placer, Accessed{t.array(), a.mode});
}
void declare_access(TaskNode& node, BlockArray& a, Access mode) {
  a.tiles_ = std::make_shared<std::vector<Array>>(*a.tiles_);
  for (Array& t : *a.tiles_) declare_access(node, t, mode);
}

using BlocksOnRanks = RankArgument<AccessedBlocks>;

const std::shared_ptr<RankMessages>* BlocksOnRanks::messages(const AccessedBlocks& a) {
  const auto& ranks = BlockArrayAccess::ranks(a.array);
  return ranks ? &ranks->shared_messages() : nullptr;
}
void BlocksOnRanks::plan(RankPlan& plan, const AccessedBlocks& a, Access) {
  for (const Tile& t : a.array.tiles()) plan.use(t.ranked(), a.mode, true, BlockArrayAccess::tile(a.array, t.index()));
}
AccessedBlocks BlocksOnRanks::local(RankPlan& plan, const AccessedBlocks& a, Access) {
  std::vector<Array> tiles;
  for (const Tile& t : a.array.tiles()) tiles.push_back(plan.array(t.ranked(), a.mode, t.local()));
  return {BlockArrayAccess::of(a.array.shape(), a.array.tile_shape(), a.array.dtype(), std::move(tiles)), a.mode};
}

}  // namespace tessera::detail
