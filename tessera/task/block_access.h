// SPDX-License-Identifier: Apache-2.0
// Block arrays from tiles that algorithms have computed. Internal.
#pragma once

#include <utility>
#include <vector>

#include "tessera/task/block_array.h"

namespace tessera {

/// Makes a block array of tiles that others have computed.
struct BlockArrayAccess {
  static BlockArray of(Shape shape, Shape tile, DType dtype, std::vector<Array> tiles) {
    BlockArray out = BlockArray::layout(std::move(shape), std::move(tile), dtype);
    *out.tiles_ = std::move(tiles);
    return out;
  }
};

}  // namespace tessera
