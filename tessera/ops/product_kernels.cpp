// SPDX-License-Identifier: Apache-2.0
// Dense products: tiles of results in registers, operands read directly or staged in shared memory; and one block a
// result for products that are nearly vectors.
#include "tessera/ops/kernels.h"

namespace tessera::ops {

namespace {

// One operand: where its element (row or column `outer`, position k) lies, strides of 1 known while tracing.
struct Operand2 {
  ir::BufferRef memory;
  ir::Value base, outer_stride, k_stride;  // a stride that is not valid is 1
  ir::Value at(ir::Value outer, ir::Value k) const { return base + scaled(outer, outer_stride) + scaled(k, k_stride); }
  static ir::Value scaled(ir::Value v, ir::Value stride) { return stride.valid() ? v * stride : v; }
};

ir::Value multiply_add(DType sum, ir::Value a, ir::Value b, ir::Value c) {
  return is_float(sum) ? ir::fma(a, b, c) : a * b + c;
}

}  // namespace

ir::Function trace_product(const ProductSpec& s) {
  const bool dots = s.tx == 0;
  const std::uint32_t tx = dots ? s.ty : s.tx, ty = dots ? 1 : s.ty;
  std::string name = "matmul_" + std::string(dtype_name(s.a)) + (s.a == s.b ? "" : "_" + std::string(dtype_name(s.b)));
  name += dots ? "_dots"
               : "_" + std::to_string(ty * s.tm) + "x" + std::to_string(tx * s.tn) +
                     (s.stage_a   ? "_staged"
                      : s.stage_b ? "_staged_b"
                                  : "");
  ir::Builder builder(name, ir::KernelKind::block, {tx, ty, 1});
  ir::Builder::Scope scope(builder);
  Operand2 a{ir::buffer_param("a", s.a, ir::Access::read)}, b{ir::buffer_param("b", s.b, ir::Access::read)};
  const auto bias = s.bias ? ir::buffer_param("bias", s.sum, ir::Access::read) : ir::BufferRef();
  const auto out = ir::buffer_param("out", s.out, ir::Access::read_write);
  auto number = [](const char* n) { return ir::scalar_param(n, DType::index); };
  const ir::Value m = number("m"), n = number("n"), k = number("k"), m_tiles = number("m_tiles"),
                  n_tiles = number("n_tiles");
  // Strides of a along m and k, of b along n and k, then along the two batch dimensions.
  const ir::Value am = number("am"), ak = number("ak"), bn = number("bn"), bk = number("bk");
  const ir::Value inner_batch = number("inner_batch"), a1 = number("a1"), a0 = number("a0"), b1 = number("b1"),
                  b0 = number("b0");
  if (!s.a_unit_m) a.outer_stride = am;
  if (!s.a_unit_k) a.k_stride = ak;
  if (!s.b_unit_n) b.outer_stride = bn;
  if (!s.b_unit_k) b.k_stride = bk;

  // Rows vary fastest, so that the columns of b stay in the cache.
  const ir::Value tile = ir::block_id(0), m_tile = tile % m_tiles, n_tile = tile / m_tiles % n_tiles,
                  batch = tile / m_tiles / n_tiles;
  const ir::Value outer = batch / inner_batch, inner = batch % inner_batch;
  a.base = outer * a1 + inner * a0, b.base = outer * b1 + inner * b0;
  auto load = [&](const Operand2& from, ir::Value o, ir::Value kk, ir::Value exists) {
    return ir::cast(s.sum, load_at(from.memory, from.at(o, kk), exists));
  };
  auto finish = [&](ir::Value row, ir::Value column, ir::Value sum) {
    if (s.bias) sum = sum + bias.load(column);
    sum = activate(s.activation, sum);
    out.store((batch * m + row) * n + column, ir::cast(s.out, sum));
  };

  if (dots) {
    const ir::Value lane = ir::thread_id(0);
    const ir::Variable part(s.sum, 0);
    for_lanes(k, tx, lane, [&](ir::Value kk, ir::Value exists) {
      part.set(multiply_add(s.sum, load(a, m_tile, kk, exists), load(b, n_tile, kk, exists), part.get()));
    });
    const ir::Value sum = ir::block_sum(part.get());
    ir::if_(lane == 0, [&] { finish(m_tile, n_tile, sum); });
    return builder.finish();
  }

  const int bm = static_cast<int>(ty * s.tm), columns = static_cast<int>(tx * s.tn), depth = static_cast<int>(s.bk);
  const int tm = static_cast<int>(s.tm), tn = static_cast<int>(s.tn), x_step = static_cast<int>(tx),
            y_step = static_cast<int>(ty);
  const ir::Value x = ir::thread_id(0), y = ty > 1 ? ir::thread_id(1) : ir::index_literal(0);
  const ir::Value row0 = m_tile * bm, column0 = n_tile * columns;
  // Rows past the end are the last one again and are not written; columns past the end read as 0.
  std::vector<ir::Value> row, column, exists;
  for (int i = 0; i < tm; ++i) row.push_back(ir::min(row0 + y * tm + i, m - 1));
  for (int j = 0; j < tn; ++j) column.push_back(column0 + j * x_step + x), exists.push_back(column.back() < n);
  std::vector<ir::Variable> sum;
  for (int i = 0; i < tm * tn; ++i) sum.emplace_back(s.sum, 0);
  // One step along k. Values of a are read one by one where they are used: registers are full of sums.
  auto accumulate = [&](const std::function<ir::Value(int)>& a_value, const std::function<ir::Value(int)>& b_value) {
    std::vector<ir::Value> bv;
    for (int j = 0; j < tn; ++j) bv.push_back(b_value(j));
    for (int i = 0; i < tm; ++i) {
      const ir::Value av = a_value(i);
      for (int j = 0; j < tn; ++j) {
        const ir::Variable& v = sum[static_cast<std::size_t>(i * tn + j)];
        v.set(multiply_add(s.sum, av, bv[static_cast<std::size_t>(j)], v.get()));
      }
    }
  };

  const bool staged = s.stage_a || s.stage_b;
  if (!staged) {
    ir::for_(0, k, [&](ir::Value kk) {
      accumulate(
          [&](int i) { return load(a, row[static_cast<std::size_t>(i)], kk, {}); },
          [&](int j) { return load(b, column[static_cast<std::size_t>(j)], kk, exists[static_cast<std::size_t>(j)]); });
    });
  } else {
    // [k][row or column]
    const int a_pitch = bm + static_cast<int>(s.pad), b_pitch = columns + static_cast<int>(s.pad);
    const auto as = s.stage_a ? ir::shared(s.sum, static_cast<std::uint64_t>(depth * a_pitch)) : ir::BufferRef();
    const auto bs = s.stage_b ? ir::shared(s.sum, static_cast<std::uint64_t>(depth * b_pitch)) : ir::BufferRef();
    // Threads side by side read memory side by side: along k, or along rows or columns.
    auto stage = [&](const ir::BufferRef& to, const Operand2& from, bool along_k, ir::Value k0, ir::Value first,
                     ir::Value end, int width, int pitch) {
      auto copy = [&](ir::Value kk, ir::Value o) {
        to.store(kk * pitch + o, load(from, first + o, k0 + kk, k0 + kk < k && first + o < end));
      };
      if (along_k)
        ir::for_(y, width, y_step, [&](ir::Value o) {
          for (int at = 0; at < depth; at += x_step) copy(x + at, o);
        });
      else
        ir::for_(y, depth, y_step, [&](ir::Value kk) {
          for (int at = 0; at < width; at += x_step) {
            if (at + x_step <= width)
              copy(kk, x + at);
            else
              ir::if_(x < width - at, [&] { copy(kk, x + at); });
          }
        });
    };
    ir::for_(0, k, depth, [&](ir::Value k0) {
      if (s.stage_a) stage(as, a, s.a_unit_k, k0, row0, m, bm, a_pitch);
      if (s.stage_b) stage(bs, b, s.b_unit_k && !s.b_unit_n, k0, column0, n, columns, b_pitch);
      ir::barrier();
      // What is not staged may not be read past k.
      ir::for_(0, s.stage_a ? ir::index_literal(depth) : ir::min(k - k0, depth), [&](ir::Value kk) {
        accumulate(
            [&](int i) {
              return s.stage_a ? as.load(kk * a_pitch + y * tm + i)
                               : load(a, row[static_cast<std::size_t>(i)], k0 + kk, {});
            },
            [&](int j) { return bs.load(kk * b_pitch + j * x_step + x); });
      });
      ir::barrier();
    });
  }

  for (int i = 0; i < tm; ++i) {
    const ir::Value r = row0 + y * tm + i;
    ir::if_(r < m, [&] {
      for (int j = 0; j < tn; ++j) {
        const auto c = static_cast<std::size_t>(j);
        ir::if_(exists[c], [&] { finish(r, column[c], sum[static_cast<std::size_t>(i * tn + j)].get()); });
      }
    });
  }
  return builder.finish();
}

ProductSpec choose_product(const Tiles& tiles, ProductSpec s, std::int64_t m, std::int64_t n, std::int64_t k) {
  const bool along_k = s.a_unit_k && s.b_unit_k && !(s.b_unit_n && n > 4);
  if (along_k && k >= 16 && (m <= 4 || n <= 4)) {  // every result is a dot product of two runs of memory
    s.tx = 0, s.ty = k >= 1024 ? tiles.block : std::min(tiles.block, 64u);
    return s;
  }
  s.tx = 16;
  const std::uint32_t fit = n <= 16 ? 1 : n <= 32 ? 2 : 3;
  if (m <= 4) {  // b is read once, whatever its strides
    s.tm = m <= 1 ? 1 : m <= 2 ? 2 : 4, s.tn = fit;
    return s;
  }
  if (m <= 16 && n <= 16 && !tiles.vectors) {
    s.ty = 4, s.tm = 1, s.tn = 1, s.bk = 16, s.pad = 1, s.stage_a = s.stage_b = true;
    return s;
  }
  if (!tiles.vectors) {
    s.ty = 16, s.tm = 4, s.tn = 4, s.bk = 16, s.pad = 1, s.stage_a = s.stage_b = true;
    if (s.sum == DType::f64 || s.sum == DType::i64 || s.sum == DType::u64) s.tm = s.tn = 2;
    return s;
  }
  // A core's vectors: 24 sums and 3 values of b fill 27 of 32 registers, 12 and 3 fill 15 of 16.
  s.tm = tiles.tokens >= 8 ? 8 : 4, s.tn = fit;
  if (dtype_size(s.sum) == 8) s.tm = 4, s.tn = std::min(fit, 2u);
  // Many rows share what was gathered of b, or what lies so far apart that the second-level cache does not keep it.
  if (m > 16 && k > 16 && (!s.b_unit_n || k >= 1024)) s.ty = 8, s.bk = 64, s.stage_b = true;
  return s;
}

}  // namespace tessera::ops
