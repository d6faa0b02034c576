// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. The kernel of sparse_row_product.
#pragma once

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// Multiplies one row by a matrix in the layout of SparseRowWeight. A block has `lanes` threads, and each thread
/// computes `vectors` results.
struct SparseRowSpec {
  std::uint32_t lanes = 16, vectors = 16;  ///< lanes must be a power of two
  std::uint32_t words = 1;                 ///< for at most 32 * lanes * words inputs
  bool bias = false;
  Activation activation = Activation::none;
  std::uint32_t columns() const { return lanes * vectors; }
  std::uint32_t most_inputs() const { return 32 * lanes * words; }
  friend bool operator==(const SparseRowSpec&, const SparseRowSpec&) = default;
  std::size_t hash() const { return hash_of({lanes, vectors, words, bias, static_cast<std::uint64_t>(activation)}); }
};
ir::Function trace_sparse_row(const SparseRowSpec& spec);
SparseRowSpec choose_sparse_row(const Tiles& tiles, std::int64_t outputs, std::int64_t inputs);

}  // namespace tessera::ops
