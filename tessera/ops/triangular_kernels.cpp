// SPDX-License-Identifier: Apache-2.0
// Kernels for one block of a triangular system or of a Cholesky factorisation. Both keep their results in shared
// memory, with one thread per column. Values that a thread needs from other threads are uniform, so only the first rows
// of a step must be exchanged.
#include <algorithm>
#include <functional>
#include <limits>

#include "tessera/ops/kernels.h"

namespace tessera::ops {

namespace {

/// Computes the sums of `tm` rows and `tn` columns per thread over k from 0 to `end`. A term is left(row, k), which is
/// uniform, times right(k, column).
std::vector<ir::Variable> products(DType t, int tm, int tn, ir::Value end,
                                   const std::function<ir::Value(int, ir::Value)>& left,
                                   const std::function<ir::Value(ir::Value, int)>& right) {
  std::vector<ir::Variable> sum;
  for (int i = 0; i < tm * tn; ++i) sum.emplace_back(t, 0);
  ir::for_(0, end, [&](ir::Value k) {
    std::vector<ir::Value> column;
    for (int j = 0; j < tn; ++j) column.push_back(right(k, j));
    for (int i = 0; i < tm; ++i) {
      const ir::Value row = left(i, k);
      for (int j = 0; j < tn; ++j) {
        const ir::Variable& v = sum[static_cast<std::size_t>(i * tn + j)];
        v.set(ir::fma(row, column[static_cast<std::size_t>(j)], v.get()));
      }
    }
  });
  return sum;
}

}  // namespace

ir::Function trace_solve(const SolveSpec& s) {
  const int tm = static_cast<int>(s.tm), tn = static_cast<int>(s.tn), lanes = static_cast<int>(s.lanes),
            columns = tn * lanes;
  ir::Builder builder("solve_" + std::string(dtype_name(s.dtype)) + (s.b_unit ? "" : "_strided"), ir::KernelKind::block,
                      {s.lanes, 1, 1});
  ir::Builder::Scope scope(builder);
  builder.set_index64();
  const auto t = ir::buffer_param("t", s.dtype, ir::Access::read);
  const auto b = ir::buffer_param("b", s.dtype, ir::Access::read_write);
  auto number = [](const char* n) { return ir::scalar_param(n, DType::index); };
  // The number of equations and of right-hand sides, the right-hand sides per block, and the offsets and strides of t
  // and b. If `unit` is not 0, the diagonal is assumed to be ones.
  const ir::Value n = number("n"), m = number("m"), share = number("share"), t_first = number("t_first"),
                  t_row = number("t_row"), t_column = number("t_column"), b_first = number("b_first"),
                  b_row = number("b_row"), unit = number("unit"),
                  b_column = s.b_unit ? ir::Value() : number("b_column");
  const ir::BufferRef x = ir::shared(s.dtype, static_cast<std::uint64_t>(s.size) * s.tn * s.lanes);
  const ir::Value lane = ir::thread_id(0), last = n - 1;
  const auto held = [&](ir::Value row, int j) { return row * columns + (j * lanes + lane); };
  // Rows past the end repeat the last row and are not stored.
  const auto t_at = [&](ir::Value row, ir::Value k) {
    return t.load(t_first + ir::min(row, last) * t_row + ir::min(k, last) * t_column);
  };
  const auto begin = ir::block_id(0) * share;
  ir::for_(begin, ir::min(begin + share, m), columns, [&](ir::Value column0) {
    const auto each = [&](const std::function<void(ir::Value, int, ir::Value, ir::Value)>& f) {
      const auto one = [&](ir::Value row, int j) {
        const ir::Value column = column0 + (j * lanes + lane);
        f(row, j, b_first + row * b_row + (s.b_unit ? column : column * b_column), column);
      };
      if (s.b_unit)
        ir::for_(0, n, [&](ir::Value row) {
          for (int j = 0; j < tn; ++j) one(row, j);
        });
      else  // the elements of a vector are in different cache lines, which the next steps reuse
        for (int j = 0; j < tn; ++j) ir::for_(0, n, [&](ir::Value row) { one(row, j); });
    };
    const ir::Value whole = column0 + columns <= m;
    ir::if_(
        whole, [&] { each([&](ir::Value row, int j, ir::Value at, ir::Value) { x.store(held(row, j), b.load(at)); }); },
        [&] {
          each([&](ir::Value row, int j, ir::Value at, ir::Value column) {
            x.store(held(row, j), load_at(b, at, column < m));
          });
        });
    ir::for_(n, (n + (tm - 1)) / tm * tm, [&](ir::Value row) {
      for (int j = 0; j < tn; ++j) x.store(held(row, j), 0);
    });
    ir::for_(0, n, tm, [&](ir::Value row0) {
      const auto sum = products(
          s.dtype, tm, tn, row0, [&](int i, ir::Value k) { return t_at(row0 + i, k); },
          [&](ir::Value k, int j) { return x.load(held(k, j)); });
      std::vector<ir::Value> found;  // solutions for the rows of this step
      for (int i = 0; i < tm; ++i) {
        const ir::Value row = row0 + i;
        std::vector<ir::Value> factor;
        for (int q = 0; q < i; ++q) factor.push_back(t_at(row, row0 + q));
        const ir::Value inverse =
            ir::literal(s.dtype, 1) / ir::select(unit != 0, ir::literal(s.dtype, 1), t_at(row, row));
        for (int j = 0; j < tn; ++j) {
          ir::Value v = x.load(held(row, j)) - sum[static_cast<std::size_t>(i * tn + j)].get();
          for (int q = 0; q < i; ++q)
            v = ir::fma(-factor[static_cast<std::size_t>(q)], found[static_cast<std::size_t>(q * tn + j)], v);
          v = v * inverse;
          found.push_back(v);
          x.store(held(row, j), v);
        }
      }
    });
    ir::if_(
        whole, [&] { each([&](ir::Value row, int j, ir::Value at, ir::Value) { b.store(at, x.load(held(row, j))); }); },
        [&] {
          each([&](ir::Value row, int j, ir::Value at, ir::Value column) {
            ir::if_(column < m, [&] { b.store(at, x.load(held(row, j))); });
          });
        });
  });
  return builder.finish();
}

SolveSpec choose_solve(const Tiles& tiles, DType dtype, bool b_unit) {
  SolveSpec s{dtype, std::min(tiles.block_limit, 32u), 4, 1, 64};
  if (tiles.vectors) {
    s.b_unit = b_unit;
    s.lanes = vector_lanes(tiles, dtype);
    s.tm = tiles.tokens >= 8 ? 8 : 4, s.tn = 2, s.size = 256;
  }
  while (std::uint64_t{s.size} * s.tn * s.lanes * dtype_size(dtype) > tiles.shared_bytes) s.size /= 2;
  return s;
}

ir::Function trace_cholesky(const CholeskySpec& s) {
  const int tm = static_cast<int>(s.tm), lanes = static_cast<int>(s.lanes), pitch = static_cast<int>(s.size);
  ir::Builder builder("cholesky_" + std::string(dtype_name(s.dtype)), ir::KernelKind::block, {s.lanes, 1, 1});
  ir::Builder::Scope scope(builder);
  builder.set_index64();
  const auto a = ir::buffer_param("a", s.dtype, ir::Access::read_write);
  const auto failure = ir::buffer_param("failure", DType::i32, ir::Access::read_write);
  auto number = [](const char* n) { return ir::scalar_param(n, DType::index); };
  const ir::Value n = number("n"), first = number("first"), row_stride = number("row_stride"),
                  column_stride = number("column_stride"), order = ir::scalar_param("order", DType::i32);
  // The upper triangle u with a = u^T u. Row k of u is column k of the lower triangle. Elements below the diagonal are
  // not used.
  const ir::BufferRef u = ir::shared(s.dtype, static_cast<std::uint64_t>(s.size) * s.size),
                      sums = ir::shared(s.dtype, static_cast<std::uint64_t>(s.tm) * s.lanes);
  const ir::Value lane = ir::thread_id(0), end = (n + (lanes - 1)) / lanes * lanes;
  const auto at = [&](ir::Value row, ir::Value column) { return row * pitch + column; };

  const auto each = [&](const std::function<void(ir::Value, ir::Value, ir::Value, ir::Value)>& f) {
    ir::for_(0, n, [&](ir::Value row) {
      ir::for_(row / lanes * lanes, end, lanes, [&](ir::Value column0) {
        const ir::Value column = column0 + lane, where = first + column * row_stride + row * column_stride,
                        exists = column >= row && column < n;
        ir::if_(
            column0 >= row && column0 + lanes <= n, [&] { f(row, column, where, {}); },
            [&] { f(row, column, where, exists); });
      });
    });
  };
  each([&](ir::Value row, ir::Value column, ir::Value where, ir::Value exists) {
    u.store(at(row, column), load_at(a, where, exists));
  });
  ir::for_(n, (n + (tm - 1)) / tm * tm, [&](ir::Value row) {
    ir::for_(0, end, lanes, [&](ir::Value column0) { u.store(at(row, column0 + lane), 0); });
  });
  // No barrier is needed here: until the first barrier, each thread reads only what it has written itself.

  const ir::Variable failed(DType::i32, 0);
  ir::for_(0, n, tm, [&](ir::Value row0) {
    const auto rows = [&](ir::Value column0, int tn) {
      return products(
          s.dtype, tm, tn, row0, [&](int i, ir::Value k) { return u.load(at(k, row0 + i)); },
          [&](ir::Value k, int j) { return u.load(at(k, column0 + (j * lanes) + lane)); });
    };
    // The remaining products for the columns that contain the diagonal.
    const ir::Value diagonal0 = row0 / lanes * lanes;
    {
      const auto sum = rows(diagonal0, 1);
      for (int i = 0; i < tm; ++i)
        sums.store(i * lanes + lane, u.load(at(row0 + i, diagonal0 + lane)) - sum[static_cast<std::size_t>(i)].get());
    }
    ir::barrier();
    // Every thread factorises the tm x tm block on the diagonal. This is redundant, but needs no communication.
    std::vector<std::vector<ir::Value>> factor(s.tm);
    std::vector<ir::Value> inverse;
    for (int q = 0; q < tm; ++q) {
      for (int r = q; r < tm; ++r) {
        ir::Value v = sums.load(q * lanes + (row0 - diagonal0 + r));
        for (int p = 0; p < q; ++p) {
          const auto& above = factor[static_cast<std::size_t>(p)];
          v = ir::fma(-above[static_cast<std::size_t>(q)], above[static_cast<std::size_t>(r)], v);
        }
        auto& mine = factor[static_cast<std::size_t>(q)];
        if (r == q) {
          mine.resize(s.tm);
          failed.set(ir::select(failed.get() == 0 && row0 + q < n && !(v > 0), ir::cast(DType::i32, row0 + (q + 1)),
                                failed.get()));
          v = ir::sqrt(ir::select(v > 0, v, ir::literal(s.dtype, std::numeric_limits<double>::quiet_NaN())));
          inverse.push_back(ir::literal(s.dtype, 1) / v);
          mine[static_cast<std::size_t>(q)] = v;
        } else {
          mine[static_cast<std::size_t>(r)] = v * inverse.back();
        }
      }
    }
    const auto substitute = [&](ir::Value column0, int tn, const std::function<ir::Value(int, int)>& rest) {
      std::vector<ir::Value> found;
      for (int i = 0; i < tm; ++i)
        for (int j = 0; j < tn; ++j) {
          ir::Value v = rest(i, j);
          for (int q = 0; q < i; ++q)
            v = ir::fma(-factor[static_cast<std::size_t>(q)][static_cast<std::size_t>(i)],
                        found[static_cast<std::size_t>(q * tn + j)], v);
          v = v * inverse[static_cast<std::size_t>(i)];
          found.push_back(v);
          u.store(at(row0 + i, column0 + (j * lanes) + lane), v);
        }
    };
    substitute(diagonal0, 1, [&](int i, int) { return sums.load(i * lanes + lane); });
    const auto columns = [&](ir::Value begin, ir::Value stop, int tn) {
      ir::for_(begin, stop, tn * lanes, [&](ir::Value column0) {
        const auto sum = rows(column0, tn);
        substitute(column0, tn, [&](int i, int j) {
          return u.load(at(row0 + i, column0 + (j * lanes) + lane)) - sum[static_cast<std::size_t>(i * tn + j)].get();
        });
      });
    };
    const int together = static_cast<int>(s.tn) * lanes;
    const ir::Value begin = diagonal0 + lanes, pairs = begin + (end - begin) / together * together;
    columns(begin, pairs, static_cast<int>(s.tn));
    if (s.tn > 1) columns(pairs, end, 1);
    ir::barrier();
  });

  each([&](ir::Value row, ir::Value column, ir::Value where, ir::Value exists) {
    const auto write = [&] { a.store(where, u.load(at(row, column))); };
    exists.valid() ? ir::if_(exists, write) : write();
  });
  ir::if_(lane == 0 && failed.get() != 0, [&] {  // only one thread accesses `failure`
    const ir::Value first = ir::index_literal(0);
    ir::if_(failure.load(first) == 0, [&] { failure.store(first, failed.get() + order); });
  });
  return builder.finish();
}

CholeskySpec choose_cholesky(const Tiles& tiles, DType dtype) {
  CholeskySpec s{dtype, std::min(tiles.block_limit, 32u), 4, 1, 64};
  if (tiles.vectors) {
    s.lanes = vector_lanes(tiles, dtype);
    s.tm = tiles.tokens >= 8 ? 8 : 4, s.tn = 2, s.size = 64;
  }
  const auto bytes = [&] { return (std::uint64_t{s.size} * s.size + s.tm * s.lanes) * dtype_size(dtype); };
  while (bytes() > tiles.shared_bytes) s.size -= s.lanes;
  return s;
}

}  // namespace tessera::ops
