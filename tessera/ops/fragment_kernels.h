// SPDX-License-Identifier: Apache-2.0
// Internal to ops/: tiles of products that are computed with matrix fragments.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// An operand of a product. Loads the element at row or column `outer` and position `k`. A stride that is known to be 1
/// during tracing is represented by an invalid Value, so that no multiplication is recorded.
struct ProductOperand {
  ir::BufferRef memory;
  ir::Value base, outer_stride, k_stride;  // an invalid stride means 1
  // For images: returns the offset of the element, and whether the element exists (invalid if all elements exist).
  std::function<std::pair<ir::Value, ir::Value>(ir::Value outer, ir::Value k)> place = {};
  ir::Value load_if(ir::Value exists, ir::Value outer, ir::Value k) const {
    auto [at, inside] =
        place ? place(outer, k) : std::pair(base + scaled(outer, outer_stride) + scaled(k, k_stride), ir::Value());
    if (inside.valid()) exists = exists.valid() ? exists && inside : inside;
    return exists.valid() ? memory.load_if(exists, at, ir::literal(memory.dtype(), 0)) : memory.load(at);
  }
  static ir::Value scaled(ir::Value v, ir::Value stride) { return stride.valid() ? v * stride : v; }
};

/// A tile of the result of a product.
struct FragmentTile {
  ir::Value m, n, k, m_tile, n_tile;
  std::function<void(ir::Value row, ir::Value column, ir::Value sum)> finish;
  /// Stores four consecutive results of a row.
  std::function<void(ir::Value row, ir::Value column, std::span<const ir::Value> sums)> finish_vector;
};
/// Computes the tile of a block with any strides.
void fragment_tile(const ProductSpec& spec, const ProductOperand& a, const ProductOperand& b, const FragmentTile& tile);
/// Computes the tile of a block with `spec.stages` stages of asynchronous copies. Requires `spec.whole_vectors`, and
/// one subgroup for each part of the tile.
void pipelined_tile(const ProductSpec& spec, const ProductOperand& a, const ProductOperand& b,
                    const FragmentTile& tile);

}  // namespace tessera::ops
