// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Kernels that combine several operations of a transformer layer, for GPUs.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// Adds two rows, normalises the sum and stores it in the layout of the next product. One block per token. Each thread
/// keeps `each` times four elements in registers.
struct AddNormSpec {
  bool adds = false;  ///< false: there is only one row, and no sum is stored
  std::uint32_t threads = 256, each = 4;
  InputLayout out = {};
  bool centres = false;  ///< the mean is subtracted before the sum is normalised
  friend bool operator==(const AddNormSpec&, const AddNormSpec&) = default;
  std::size_t hash() const { return hash_of({adds, threads, each, out.bits(), centres}); }
};
ir::Function trace_add_norm(const AddNormSpec& spec);
/// Returns std::nullopt if a row is too long for a block's registers, or cannot be stored in `out`.
std::optional<AddNormSpec> choose_add_norm(const Tiles& tiles, std::int64_t columns, bool adds, const InputLayout& out,
                                           bool centres = false);

/// Rotates queries and keys, and stores keys and values in a KV cache. One block per head and token.
struct RotateStoreSpec {
  RotarySpec rotary;  ///< x is ignored
  DType cache = DType::f16;
  bool rotates = true;  ///< false: `rotary` contributes only in_memory
  bool norms = false;   ///< queries and keys of each head are normalised before they are rotated
  bool biases = false;  ///< a bias is added first
  bool joined = true;   ///< a row has queries, keys and values one after the other; false: they are three arrays
  std::uint32_t head_size = 128, threads = 64;
  friend bool operator==(const RotateStoreSpec&, const RotateStoreSpec&) = default;
  std::size_t hash() const {
    return hash_of(
        {rotary.hash(), static_cast<std::uint64_t>(cache), rotates, norms, biases, joined, head_size, threads});
  }
};
ir::Function trace_rotate_store(const RotateStoreSpec& spec);

/// The parameters of a rotation, and its formula; rotary.cpp describes the table of frequencies.
struct RotaryParameters {
  explicit RotaryParameters(const RotarySpec& spec);
  /// Returns the rotated elements of pair `i`, which has the elements `u` and `v`, at a position.
  std::pair<ir::Value, ir::Value> rotate(ir::Value i, ir::Value position, ir::Value u, ir::Value v) const;
  const RotarySpec spec;
  ir::BufferRef turns, rest_turns, factors;
  ir::Value pairs, magnitude;
};

}  // namespace tessera::ops
