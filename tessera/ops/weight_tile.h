// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. What kernels have in common that multiply many tokens by a weight with matrix fragments.
#pragma once

#include <functional>
#include <span>

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// The number of rows of a weight that are interleaved.
inline constexpr int tile_group_rows = 32;

/// A block that computes some groups of rows for a tile of tokens, as LinearTileSpec describes it. Each subgroup has
/// tm x tn fragments of the result.
struct WeightTile {
  explicit WeightTile(const LinearTileSpec& spec);

  static int subgroups_of(const LinearTileSpec& s) { return static_cast<int>(s.workers_m * s.workers_n); }
  static std::string name_of(const LinearTileSpec& s);  ///< the end of the kernel's name
  static int threads_of(const LinearTileSpec& s) { return subgroups_of(s) * static_cast<int>(s.subgroup); }
  /// The bytes of shared memory that `store` uses.
  static std::uint64_t sums_bytes(const LinearTileSpec& spec);

  /// Declares the parameters `rows`, `steps`, `tokens` and `tiles`. Call it after the declaration of the buffers.
  void declare_sizes();
  /// Returns the number of group i of the block. Groups past the end are the last. If the product is gated, the second
  /// half of a block's groups are the partners of the first half.
  ir::Value group(ir::Value i) const;
  /// Calls `copy` for `count` numbers, which the threads of a slice divide among themselves.
  void for_each_chunk(int count, const std::function<void(ir::Value)>& copy) const;
  /// Adds the sums of all slices and stores the result. `sums` has tm x tn fragments. If there are `factors`, the sums
  /// of each token are multiplied by its element.
  void store(std::span<const ir::Fragment> sums, const ir::BufferRef& y,
             const std::optional<ir::BufferRef>& factors) const;

  int slices, stages, rows_of_block, tokens_of_block;
  int subgroups, threads;  ///< of a slice
  int tm, tn;
  ir::Value rows, steps, count, tiles;
  ir::Value slice, thread;           ///< the slice, and the number of the thread in it
  ir::Value first_row, first_token;  ///< of the subgroup's part, relative to the block
  ir::Value block, tile;             ///< numbers of the block's rows and of its tokens

 private:
  /// The sums of a worker, added over the slices. The worker, a row and a token of a fragment.
  ir::Value total(const ir::BufferRef& parts, ir::Value worker, ir::Value row, ir::Value token) const;
  void store_gated(std::span<const ir::Fragment> sums, const ir::BufferRef& parts, const ir::BufferRef& y,
                   const std::optional<ir::BufferRef>& factors) const;

  const LinearTileSpec spec_;
  int groups_, workers_n_;
};

/// The kernels and the bytes of shared memory of a block, for quantised weights and for weights of 16-bit floats.
ir::Function trace_quantised_tile(const LinearTileSpec& spec);
std::uint64_t quantised_tile_shared_bytes(const LinearTileSpec& spec);
ir::Function trace_half_tile(const LinearTileSpec& spec);
std::uint64_t half_tile_shared_bytes(const LinearTileSpec& spec);

}  // namespace tessera::ops
