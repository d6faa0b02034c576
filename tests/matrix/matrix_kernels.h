// SPDX-License-Identifier: Apache-2.0
// A matrix product of any size with fragments, and its error bounds. Used by tests of the interpreter, of lowering and
// of emitted text.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/ir/value.h"

namespace tessera::ir {  // so that IR names take precedence over those of the kernel language

/// The number of columns and rows of c that a block of `matrix_product` computes.
inline constexpr std::int64_t product_columns = 64, product_rows = fragment_side;

/// The body of a block kernel of `threads` threads for c = a b + start. The sizes are m x k, k x n (or n x k if
/// transposed) and m x n. A block stages its part of a and b in shared memory, and its subgroups process the tiles
/// alternately.
inline void matrix_product(DType t, std::int64_t threads, bool transposed) {
  constexpr std::int64_t side = fragment_side, tiles = product_columns / side;
  constexpr std::int64_t a_stride = 24, b_stride = 72, a_begin = 5, b_begin = 3;  // rows wider than a matrix
  const BufferRef a = buffer_param("a", t, Access::read), b = buffer_param("b", t, Access::read),
                  c = buffer_param("c", DType::f32, Access::read_write);
  const Value m = scalar_param("m", DType::index), n = scalar_param("n", DType::index),
              k = scalar_param("k", DType::index);
  const BufferRef as = shared(t, a_begin + side * a_stride), bs = shared(t, b_begin + product_columns * b_stride),
                  cs = shared(DType::f32, side * product_columns);
  const Fragment left(FragmentRole::left, t), right(FragmentRole::right, t), sum(FragmentRole::accumulator, DType::f32);
  const Value me = thread_id(), row0 = block_id(1) * side, column0 = block_id(0) * product_columns;
  const Value rounds = (subgroup_count() + (tiles - 1)) / subgroup_count();
  for_(me, side * product_columns, threads, [&](Value e) {
    const Value row = row0 + e / product_columns, column = column0 + e % product_columns;
    cs.store(e, c.load_if(row < m && column < n, row * n + column, 0.0));
  });
  barrier();
  for_(0, rounds, [&](Value round) {
    const Value tile = round * subgroup_count() + subgroup_id(), mine = tile < tiles;
    if_(mine, [&] { sum.load(cs, tile * side, product_columns); });
    for_(0, k, side, [&](Value k0) {
      for_(me, side * side, threads, [&](Value e) {
        const Value row = row0 + e / side, at = k0 + e % side;
        as.store(e / side * a_stride + e % side + a_begin, a.load_if(row < m && at < k, row * k + at, 0.0));
      });
      for_(me, side * product_columns, threads, [&](Value e) {
        const Value at = transposed ? k0 + e % side : k0 + e / product_columns;
        const Value column = transposed ? e / side : e % product_columns;
        const Value inside = at < k && column0 + column < n;
        const Value from = transposed ? (column0 + column) * k + at : at * n + column0 + column;
        const Value to = transposed ? column * b_stride + e % side : e / product_columns * b_stride + column;
        bs.store(to + b_begin, b.load_if(inside, from, 0.0));
      });
      barrier();
      if_(mine, [&] {
        left.load(as, a_begin, a_stride);
        if (transposed)
          right.load_transposed(bs, tile * (side * b_stride) + b_begin, b_stride);
        else
          right.load(bs, tile * side + b_begin, b_stride);
        sum.multiply_add(left, right);
      });
      barrier();
    });
    if_(mine, [&] { sum.store(cs, tile * side, product_columns); });
  });
  barrier();
  for_(me, side * product_columns, threads, [&](Value e) {
    const Value row = row0 + e / product_columns, column = column0 + e % product_columns;
    if_(row < m && column < n, [&] { c.store(row * n + column, cs.load(e)); });
  });
}

/// The product on the host, computed in double, with the maximum error of each element for f32 sums in any order. The
/// bound is (k + 1) / 2^24 times the sum of absolute values, doubled (Higham, Accuracy and Stability of Numerical
/// Algorithms, 4.2). `rounding` is the relative error of a product of two factors that a device rounds.
struct ExactProduct {
  std::vector<double> value, bound;
  template <class T>
  ExactProduct(const std::vector<T>& a, const std::vector<T>& b, const std::vector<float>& start, std::size_t m,
               std::size_t n, std::size_t k, bool transposed, double rounding = 0)
      : value(m * n), bound(m * n) {
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double sum = start[i * n + j], absolute = std::fabs(sum);
        for (std::size_t p = 0; p < k; ++p) {
          const double x = static_cast<float>(a[i * k + p]),
                       y = static_cast<float>(b[transposed ? j * k + p : p * n + j]);
          sum += x * y, absolute += std::fabs(x * y);
        }
        value[i * n + j] = sum, bound[i * n + j] = (2 * static_cast<double>(k + 1) * 0x1p-24 + rounding) * absolute;
      }
  }
};

}  // namespace tessera::ir
