// SPDX-License-Identifier: Apache-2.0
// Block arrays as task arguments.
#include "tessera/task/block_array.h"

namespace tessera::detail {

void place_data(TaskPlacer& placer, const AccessedBlocks& a) {
  for (const Tile& t : a.array.tiles()) place_data(placer, Accessed{t.array(), a.mode});
}
void declare_access(TaskNode& node, BlockArray& a, Access mode) {
  a.tiles_ = std::make_shared<std::vector<Array>>(*a.tiles_);
  for (Array& t : *a.tiles_) declare_access(node, t, mode);
}

}  // namespace tessera::detail
