// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Stores results of a kernel in the layout that a packed weight reads.
#pragma once

#include <array>

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// Stores rows of `columns` elements in the layout `layout`. A quantised layout requires a multiple of 32 columns, and
/// subgroups of at least input_lanes threads.
struct InputStore {
  InputLayout layout;
  ir::BufferRef out;
  ir::Value columns;

  /// Stores four consecutive elements of a token, starting at `column`, a multiple of 4. All threads of a subgroup must
  /// call it together. If the layout is quantised, input_lanes consecutive threads must have the same token and 32
  /// consecutive columns. An element is stored if its mask is true or invalid; a quantised layout uses only the first
  /// mask.
  void operator()(ir::Value token, ir::Value column, const std::array<ir::Value, 4>& v,
                  const std::array<ir::Value, 4>& exists = {}) const;
};

}  // namespace tessera::ops
