// SPDX-License-Identifier: Apache-2.0
// Internal to ops/. Loops of kernels over the elements of a row, for norms, softmax and losses.
#pragma once

#include <functional>
#include <vector>

#include "tessera/ops/kernels.h"

namespace tessera::ops {

/// The dtype in which rows of this dtype are computed.
constexpr DType row_dtype(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// An element of a row. If `exists` is an invalid Value, the element certainly exists.
struct RowElement {
  ir::Value column;  ///< its index in the row
  ir::Value offset;  ///< its index in the memory of an array of rows
  ir::Value exists;
};
using RowChunk = std::vector<RowElement>;

/// Distributes the row of a block (or of a thread, if the specification has no threads) over the threads.
class RowLoop {
 public:
  RowLoop(const RowSpec& spec, ir::Value columns);

  ir::Value columns() const { return columns_; }
  ir::Value row() const { return row_; }  ///< the number of the row
  /// The index of an element of the row in the memory of an array of rows.
  ir::Value offset(ir::Value column) const { return base_ + (stride_.valid() ? column * stride_ : column); }
  DType dtype() const { return row_dtype(spec_.x); }
  bool held() const { return spec_.held; }
  bool online() const { return !held() && spec_.each > 1; }

  /// Calls `body` for chunks of RowSpec::each elements of each thread. If the row is held, there is a single chunk, and
  /// no loop surrounds it.
  void for_each(const std::function<void(const RowChunk&)>& body) const;
  /// Stores a value for each element of a chunk that exists.
  void store(const ir::BufferRef& out, const RowChunk& chunk, const std::vector<ir::Value>& values) const;
  /// Stores one value for the row.
  void store_once(const ir::BufferRef& out, ir::Value value) const;
  /// Combine the values of the threads of a row.
  ir::Value sum(ir::Value part) const { return by_thread() ? part : ir::block_sum(part); }
  ir::Value max(ir::Value part) const { return by_thread() ? part : ir::block_max(part); }

 private:
  bool by_thread() const { return spec_.threads == 0; }

  const RowSpec spec_;
  ir::Value columns_, row_, base_, stride_;
};

/// The elements of a row in its compute dtype. A held row is loaded once; other rows are loaded in each loop.
class RowValues {
 public:
  /// `past_end` is the value of elements that do not exist.
  RowValues(const RowLoop& loop, const ir::BufferRef& memory, double past_end = 0);
  std::vector<ir::Value> operator()(const RowChunk& chunk) const;

 private:
  const ir::BufferRef memory_;
  const double past_end_;
  std::vector<ir::Value> held_;
};

/// Loads the elements of a vector that is indexed by column, such as a weight, in its compute dtype.
std::vector<ir::Value> load_columns(const ir::BufferRef& memory, const RowChunk& chunk);

/// The sum over a row of exp(x - shift), where shift is the maximum of the row, or 0 if all elements are -infinity.
struct RowExponentials {
  ir::Value shift, sum;
  std::vector<ir::Value> held;  ///< exp(x - shift), if the row is held

  /// Returns exp(x - shift) for a chunk of the row.
  std::vector<ir::Value> of(const RowValues& x, const RowChunk& chunk) const;
};
/// Computes the sum of exponentials of a row. `x` must have -infinity past the end. On GPUs, long rows are read once:
/// when the maximum increases, the sum is rescaled (Milakov and Gimelshein 2018). `visit` is called once for each
/// element.
RowExponentials sum_exponentials(const RowLoop& loop, const RowValues& x,
                                 const std::function<void(const RowChunk&, const std::vector<ir::Value>&)>& visit = {});

}  // namespace tessera::ops
