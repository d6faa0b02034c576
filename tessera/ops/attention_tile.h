// SPDX-License-Identifier: Apache-2.0
// Internal to the kernels of attention with matrix fragments: constants and parameters that they share.
#pragma once

#include <limits>

#include "tessera/ops/kernels.h"

namespace tessera::ops::attention_tile {

/// A block has four subgroups, each with 16 of its rows. It copies tiles of other rows to shared memory in two stages.
inline constexpr int side = ir::fragment_side, subgroups = attention_tile_rows / side, stages = 2;
inline constexpr double minus_infinity = -std::numeric_limits<double>::infinity(), log2_e = 1.4426950408889634;

inline ir::Value float_literal(double v) { return ir::literal(DType::f32, v); }
inline ir::Value number(const char* name) { return ir::scalar_param(name, DType::index); }

/// A buffer (batch, heads, tokens, size) with contiguous rows, and its strides.
struct HeadRows {
  ir::BufferRef memory;
  ir::Value batch, head, row;
  HeadRows(const char* name, DType dtype, ir::Access access) : memory(ir::buffer_param(name, dtype, access)) {}
  void add_strides(const std::string& name) {
    batch = number((name + "_batch").c_str()), head = number((name + "_head").c_str());
    row = number((name + "_row").c_str());
  }
  /// Returns the position of the first row of a head.
  ir::Value at(ir::Value b, ir::Value h) const { return b * batch + h * head; }
};

/// Calls `body(row, column)` for each piece of 8 elements that the calling thread copies of `rows` rows.
template <class F>
void for_each_piece(ir::Value thread, int threads, int rows, int head_size, F&& body) {
  constexpr int elements = 8;
  const int per_row = head_size / elements, all = rows * per_row;
  for (int at = 0; at < all; at += threads) {
    const ir::Value e = thread + at;
    const auto one = [&] { body(e / per_row, e % per_row * elements); };
    at + threads <= all ? one() : ir::if_(e < all, one);
  }
}
/// Starts copying such a piece.
inline void copy_piece(ir::BufferRef to, ir::Value at, const HeadRows& rows, ir::Value from) {
  ir::copy_async(to, at, rows.memory, from, 8);
}

}  // namespace tessera::ops::attention_tile
