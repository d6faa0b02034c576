// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Kernels that select the largest elements of a row (top_k.h).
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// Each block selects the `k` largest of `threads * each` consecutive elements and keeps their order. Further launches
/// select among the results of all blocks, until one block is left.
struct TopKSpec {
  std::uint32_t threads = 512;
  bool pairs = false;   ///< the input has pairs of bits and index, as the output
  bool single = false;  ///< k is 1; the kernel has no parameter for it
  bool finite = false;  ///< with `single`: the result is that of finite_argmax
  static constexpr std::uint32_t each = 8;
  std::int64_t portion() const { return std::int64_t{threads} * each; }
  friend bool operator==(const TopKSpec&, const TopKSpec&) = default;
  std::size_t hash() const { return hash_of({threads, pairs, single, finite}); }
};
TopKSpec choose_top_k(const Tiles& tiles);
ir::Function trace_top_k(const TopKSpec& spec);

}  // namespace tessera::ops
