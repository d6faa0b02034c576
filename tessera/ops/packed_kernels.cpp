// SPDX-License-Identifier: Apache-2.0
// Dense products with CPU vectors. A factor is packed if it is read often enough. Tiles of results are computed in
// registers, for blocks that stay in the caches (Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", 2008).
#include <algorithm>

#include "tessera/ops/kernels.h"

namespace tessera::ops {

ir::Function trace_pack(const PackSpec& s) {
  const int width = static_cast<int>(s.width), lanes = static_cast<int>(s.lanes);
  ir::Builder builder("pack_" + std::string(dtype_name(s.from)) + "_" + std::to_string(width), ir::KernelKind::block,
                      {s.lanes, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto from = ir::buffer_param("from", s.from, ir::Access::read);
  const auto to = ir::buffer_param("to", s.to, ir::Access::read_write);
  auto number = [](const char* n) { return ir::scalar_param(n, DType::index); };
  const ir::Value count = number("count"), k = number("k"), outer_stride = number("outer_stride"),
                  k_stride = number("k_stride"), panels = number("panels"), depth = number("depth"),
                  depths = number("depths"), inner_batch = number("inner_batch"), batch1 = number("batch1"),
                  batch0 = number("batch0");
  // A block packs `depth` steps along k of one panel, or of several panels that are read together. Panels vary fastest,
  // because adjacent panels share cache lines. `batch1` and `batch0` are the strides of the outer and inner batch
  // dimension.
  const int together = static_cast<int>(s.together());
  const ir::Value groups = (panels + (together - 1)) / together;
  const ir::Value block = ir::block_id(0), k0 = block / groups % depths * depth, batch = block / groups / depths,
                  k1 = ir::min(k0 + depth, k);
  const ir::Value base = batch / inner_batch * batch1 + batch % inner_batch * batch0;
  const ir::Value lane = ir::thread_id(0), first_panel = block % groups * together;
  auto copy = [&](ir::Value panel, ir::Value kk, int at, bool whole) {
    const ir::Value outer = panel * width + at + lane;
    // The offset is chosen so that step kk is at kk * width.
    const ir::Value out = (batch * k + k0) * (panels * width) + panel * ((k1 - k0) * width) - k0 * width;
    const ir::Value where = base + (s.unit_outer ? outer : outer * outer_stride) + (s.unit_k ? kk : kk * k_stride);
    to.store(out + kk * width + at + lane, ir::cast(s.to, load_at(from, where, whole ? ir::Value() : outer < count)));
  };
  auto all = [&](ir::Value here, bool whole) {
    // the elements of a vector are in different cache lines, which the next steps reuse
    if (s.unit_k && !s.unit_outer) {
      for (int at = 0; at < width; at += lanes)
        ir::for_(k0, k1, [&](ir::Value kk) { copy(first_panel, kk, at, whole); });
      return;
    }
    ir::for_(k0, k1, [&](ir::Value kk) {
      const auto panel = [&](ir::Value p) {
        for (int at = 0; at < width; at += lanes) copy(first_panel + p, kk, at, whole);
      };
      if (whole)
        for (int p = 0; p < together; ++p) panel(ir::index_literal(p));
      else
        ir::for_(0, here, panel);
    });
  };
  ir::if_((first_panel + together) * width <= count, [&] { all({}, true); },
          [&] { all(ir::min(ir::index_literal(together), panels - first_panel), false); });
  return builder.finish();
}

ir::Function trace_packed_product(const PackedSpec& s) {
  const int tm = static_cast<int>(s.tm), tn = static_cast<int>(s.tn), lanes = static_cast<int>(s.lanes),
            columns = tn * lanes;
  ir::Builder builder("matmul_" + std::string(dtype_name(s.out)) + "_" + std::to_string(tm) + "x" +
                          std::to_string(columns) +
                          (s.a_packed && s.b_packed ? "_packed"
                           : s.a_packed             ? "_packed_a"
                           : s.b_packed             ? "_packed_b"
                           : s.staged               ? "_staged"
                                                    : "") +
                          (s.batched ? "_batched" : "") + (s.update ? "_update" : "") + (s.lower ? "_lower" : "") +
                          (s.columns_first ? "_by_rows" : ""),
                      ir::KernelKind::block, {s.lanes, 1, 1});
  ir::Builder::Scope scope(builder);
  // In a small product, half of the overhead is extending indices to 64-bit addresses. No indices are in vectors here,
  // so 64-bit indices cost nothing.
  if (s.exact || s.update) builder.set_index64();
  const auto a = ir::buffer_param("a", s.a, ir::Access::read), b = ir::buffer_param("b", s.b, ir::Access::read);
  const auto bias = s.bias ? ir::buffer_param("bias", s.sum, ir::Access::read) : ir::BufferRef();
  const auto out = ir::buffer_param("out", s.out, ir::Access::read_write);
  auto number = [](const char* n) { return ir::scalar_param(n, DType::index); };
  // The order must match packed_product (product.cpp), which omits the arguments that a specification does not use.
  auto number_if = [&](bool used, const char* name) { return used ? number(name) : ir::index_literal(0); };
  const ir::Value m = number("m"), n = number("n"), k = number("k");
  // The panels of each factor in a block, and the steps along k that the block applies to all these panels at a time.
  const ir::Value block_rows = number_if(!s.whole, "block_rows"), block_columns = number_if(!s.whole, "block_columns"),
                  depth = number_if(!s.whole, "depth"),
                  row_blocks = number_if(!s.whole && (s.batched || !s.columns_first), "row_blocks");
  // The strides of rows and of steps along k.
  const ir::Value am = number_if(!s.a_packed && !s.a_unit_m, "am"), ak = number_if(!s.a_packed && !s.a_unit_k, "ak"),
                  bk = number_if(!s.b_packed && !s.b_unit_k, "bk"), bn = number_if(s.staged != 0 && !s.b_unit_n, "bn");
  // The batch dimensions: the extent of the inner one, and the strides of each factor.
  const ir::Value column_blocks = number_if(!s.whole && (s.batched || s.columns_first), "column_blocks"),
                  inner_batch = number_if(s.batched, "inner_batch"), a1 = number_if(s.batched, "a1"),
                  a0 = number_if(s.batched, "a0"), b1 = number_if(s.batched, "b1"), b0 = number_if(s.batched, "b0");
  // For updates: the offsets of the matrices, and the strides of c.
  const ir::Value a_first = number_if(s.update, "a_first"), b_first = number_if(s.update, "b_first"),
                  c_first = number_if(s.update, "c_first"), cm = number_if(s.update, "cm"),
                  cn = number_if(s.update && !s.c_unit, "cn");
  const ir::Value alpha = s.update ? ir::scalar_param("alpha", s.sum) : ir::Value(),
                  beta = s.update ? ir::scalar_param("beta", s.sum) : ir::Value();
  const ir::BufferRef staged = s.staged ? ir::shared(s.sum, s.staged) : ir::BufferRef();
  const ir::BufferRef sums = ir::shared(s.sum, (s.whole ? 1 : packed_tiles(s)) * s.tm * s.tn * s.lanes);

  const ir::Value lane = ir::thread_id(0), block = ir::block_id(0), none = ir::index_literal(0);
  const ir::Value m_panels = (m + (tm - 1)) / tm, n_panels = (n + (columns - 1)) / columns;
  ir::Value batch = s.batched ? block : none, m_first = none, n_first = none, active_rows = m_panels,
            active_columns = n_panels;
  if (!s.whole) {
    // Consecutive blocks use the same part of the larger factor.
    const ir::Value inner_blocks = s.columns_first ? column_blocks : row_blocks,
                    outer_blocks = s.columns_first ? row_blocks : column_blocks;
    batch = s.batched ? block / inner_blocks / outer_blocks : none;
    const ir::Value outer_block = s.batched ? block / inner_blocks % outer_blocks : block / inner_blocks,
                    inner_block = block % inner_blocks;
    m_first = (s.columns_first ? outer_block : inner_block) * block_rows;
    n_first = (s.columns_first ? inner_block : outer_block) * block_columns;
    active_rows = ir::min(block_rows, m_panels - m_first), active_columns = ir::min(block_columns, n_panels - n_first);
  }
  const ir::Value outer = s.batched ? batch / inner_batch : none, inner = s.batched ? batch % inner_batch : none;
  const ir::Value a_base = s.update ? a_first : outer * a1 + inner * a0,
                  b_base = s.update ? b_first : outer * b1 + inner * b0;
  // Stages a panel of the right factor in shared memory. Elements past its end are 0. Each thread stages only what it
  // reads itself, so no barrier is needed.
  const auto stage = [&](ir::Value column0, ir::Value k0, ir::Value k1) {
    const auto copy = [&](int j, ir::Value kk, bool whole) {
      const ir::Value column = column0 + (j * lanes + lane),
                      at = b_base + (s.b_unit_n ? column : column * bn) + (s.b_unit_k ? kk : kk * bk);
      staged.store((kk - k0) * columns + (j * lanes + lane),
                   ir::cast(s.sum, load_at(b, at, whole ? ir::Value() : column < n)));
    };
    const auto all = [&](bool whole) {
      if (!s.b_unit_n) {  // the elements of a vector are in different cache lines, which the next steps reuse
        for (int j = 0; j < tn; ++j) ir::for_(k0, k1, [&](ir::Value kk) { copy(j, kk, whole); });
      } else {
        ir::for_(k0, k1, [&](ir::Value kk) {
          for (int j = 0; j < tn; ++j) copy(j, kk, whole);
        });
      }
    };
    ir::if_(
        column0 + columns <= n, [&] { all(true); }, [&] { all(false); });
  };

  const auto along = [&](ir::Value k0, ir::Value k1) {
    // Each pair of a row panel and a column panel of the block is a tile. The right panel stays in the L1 cache.
    const ir::Value last = s.whole ? ir::Value() : k1 >= k;
    // The offset of a packed panel, chosen so that step kk is at kk times the width of the panel.
    const auto panel_of = [&](ir::Value base, ir::Value panels, ir::Value panel, int width) {
      if (s.whole) return base + panel * (k * width);
      return base + k0 * (panels * width) + panel * ((k1 - k0) * width) - k0 * width;
    };
    ir::for_(0, active_columns, [&](ir::Value np) {
      const ir::Value column0 = (n_first + np) * columns,
                      b_panel = s.b_packed ? panel_of(b_base, n_panels, n_first + np, columns) : b_base + column0,
                      b_step = s.b_packed ? ir::index_literal(columns) : bk;
      // For a lower triangle, the first tile is the tile on the diagonal.
      const ir::Value mp_first = s.lower ? ir::max(none, column0 / tm - m_first) : none;
      if (s.staged) ir::if_(mp_first < active_rows, [&] { stage(column0, k0, k1); });
      ir::for_(mp_first, active_rows, [&](ir::Value mp) {
        const ir::Value panel = m_first + mp, row0 = panel * tm;
        // If there is only one step along k, sums are not kept, and all tiles use the same memory.
        const ir::Value tile = s.whole ? none : ir::select(depth < k, np * block_rows + mp, none) * (tm * columns);
        auto at = [&](int i, int j) { return tile + (i * columns + j * lanes) + lane; };
        std::vector<ir::Variable> sum;
        for (int i = 0; i < tm * tn; ++i) sum.emplace_back(s.sum, 0);
        auto each = [&](auto&& f) {
          for (int i = 0; i < tm; ++i)
            for (int j = 0; j < tn; ++j) f(i, j, sum[static_cast<std::size_t>(i * tn + j)]);
        };
        if (!s.whole)
          ir::if_(k0 > 0, [&] { each([&](int i, int j, const ir::Variable& v) { v.set(sums.load(at(i, j))); }); });
        std::vector<ir::Value> row;
        if (!s.a_packed)  // rows past the end repeat the last row and are not stored
          for (int i = 0; i < tm; ++i) {
            const ir::Value r = s.exact ? row0 + i : ir::min(row0 + i, m - 1);
            row.push_back(a_base + (s.a_unit_m ? r : r * am));
          }
        const ir::Value a_panel = panel_of(a_base, m_panels, panel, tm);
        ir::for_(k0, k1, [&](ir::Value kk) {
          std::vector<ir::Value> right;
          for (int j = 0; j < tn; ++j)
            right.push_back(s.staged ? staged.load((kk - k0) * columns + (j * lanes + lane))
                                     : ir::cast(s.sum, load_at(b, b_panel + kk * b_step + (j * lanes + lane), {})));
          for (int i = 0; i < tm; ++i) {
            const ir::Value where =
                s.a_packed ? a_panel + kk * tm + i : row[static_cast<std::size_t>(i)] + (s.a_unit_k ? kk : kk * ak);
            const ir::Value left = ir::cast(s.sum, load_at(a, where, {}));
            for (int j = 0; j < tn; ++j) {
              const ir::Variable& v = sum[static_cast<std::size_t>(i * tn + j)];
              v.set(is_float(s.sum) ? ir::fma(left, right[static_cast<std::size_t>(j)], v.get())
                                    : left * right[static_cast<std::size_t>(j)] + v.get());
            }
          }
        });
        auto finish = [&](ir::Value row, ir::Value column, ir::Value v) {
          if (s.update) {
            const ir::Value at = c_first + row * cm + (s.c_unit ? column : column * cn);
            return out.store(at, ir::cast(s.out, updated(ir::cast(s.sum, out.load(at)), v, alpha, beta)));
          }
          if (s.bias) v = v + bias.load(column);
          out.store((batch * m + row) * n + column, ir::cast(s.out, activate(s.activation, v)));
        };
        auto edge = [&] {  // each thread reads only what it has stored itself
          ir::for_(0, ir::min(ir::index_literal(tm), m - row0), [&](ir::Value i) {
            for (int j = 0; j < tn; ++j) {
              const ir::Value column = column0 + j * lanes + lane;
              ir::if_(s.lower ? column <= row0 + i : column < n,
                      [&] { finish(row0 + i, column, sums.load(tile + i * columns + j * lanes + lane)); });
            }
          });
        };
        auto rest = [&] {
          each([&](int i, int j, const ir::Variable& v) { sums.store(at(i, j), v.get()); });
          if (s.whole)
            edge();
          else
            ir::if_(last, edge);
        };
        // the code of these functions is too long to be emitted twice
        if (s.activation == Activation::silu || s.activation == Activation::gelu) {
          rest();
          return;
        }
        const auto store = [&] {
          each([&](int i, int j, const ir::Variable& v) { finish(row0 + i, column0 + j * lanes + lane, v.get()); });
        };
        if (s.exact) {
          store();
          return;
        }
        ir::Value inside = row0 + tm <= m && column0 + columns <= n;
        if (s.lower) inside = inside && column0 + (columns - 1) <= row0;
        ir::if_(s.whole ? inside : last && inside, store, rest);
      });
    });
  };
  if (s.whole)
    along(none, k);
  else
    ir::for_(0, k, depth, [&](ir::Value k0) { along(k0, ir::min(k0 + depth, k)); });
  return builder.finish();
}

PackedPlan choose_packed(const Tiles& tiles, const ProductSpec& s, std::int64_t m, std::int64_t n, std::int64_t k,
                         std::int64_t batch) {
  PackedPlan plan;
  PackedSpec& p = plan.spec;
  p.sum = s.sum, p.out = s.out, p.bias = s.bias, p.activation = s.activation, p.batched = batch > 1;
  const std::uint64_t size = dtype_size(s.sum);
  // With 32 registers, 8 rows of 3 vectors need 24 registers for sums and 3 for b. With 16 registers, 4 rows need 12
  // and 3. Fewer vectors per row are used if the last panel then has fewer unused columns. A step along k is limited
  // either by multiplications (two per cycle, with a latency of four cycles) or by loads.
  const bool wide = tiles.tokens >= 8;
  p.tm = wide ? 8 : 4;
  // A factor is packed if its panels are read often enough, unless vectors can be loaded directly from its memory.
  const auto near = [&](std::int64_t count) { return count * k * static_cast<std::int64_t>(size) <= 65536; };
  const std::int64_t m_panels = ceil_div(m, p.tm);
  const auto packs_b = [&](std::int64_t columns) {
    if (s.b_packed) return false;
    const bool few = m_panels < 4 || (m_panels == 4 && k <= 256);  // a panel stays in the L1 cache
    return !(s.b_unit_n && s.b == s.sum && n % columns == 0 && (near(n) || few));
  };
  // Updates of tiles allocate nothing: each block packs what it needs. For f64 this is faster up to larger sizes.
  const bool tile = s.update && std::max(m, n) * k * static_cast<std::int64_t>(size) <= std::int64_t{1}
                                                                                            << (size == 8 ? 24 : 20);
  const std::uint32_t most_lanes = vector_lanes(tiles, s.sum);
  double least = 1e300;
  for (std::uint32_t lanes = most_lanes; lanes == most_lanes || (lanes >= 4 && lanes * 2 == most_lanes); lanes /= 2)
    for (std::uint32_t tn = 1; tn <= 3; ++tn) {
      const double step = std::max({p.tm * tn / 2.0, 4.0, (p.tm + tn) / 2.0}) + 0.2;
      double cost = step * static_cast<double>(ceil_div(n, tn * lanes) * m_panels * k * batch);
      if (packs_b(tn * lanes)) cost += 2000 + static_cast<double>(n * k);  // packed by a separate launch
      if (cost < least * 0.999) least = cost, p.tn = tn, p.lanes = lanes;
    }
  const std::int64_t columns = p.tn * p.lanes, n_panels = ceil_div(n, columns);
  // A block that computes all rows also packs the right factor itself. No other block reads these panels, and they stay
  // in the caches of its core.
  const bool all_rows = wide && !s.update && m_panels * p.tm <= 128 && tiles.shared_bytes >= 2 * 98304;
  const bool staged = (tile || all_rows) && packs_b(columns);
  p.b_packed = s.b_packed || (!staged && packs_b(columns));
  const bool runs = s.a_unit_k && s.a == s.sum;  // each row of a tile is read in memory order
  p.a_packed = !tile && (runs ? n_panels > 4 && !near(m) : n_panels >= 4);
  plan.pack_a = {s.a, s.sum, p.tm, p.tm, s.a_unit_m, s.a_unit_k};
  plan.pack_b = {s.b, s.sum, p.tn * p.lanes, p.lanes, s.b_unit_n, s.b_unit_k};
  p.a = p.a_packed ? s.sum : s.a, p.b = p.b_packed ? s.sum : s.b;
  p.a_unit_m = s.a_unit_m && !p.a_packed, p.a_unit_k = s.a_unit_k && !p.a_packed;

  // A panel of b should stay in the L1 cache while tiles advance through the rows. With wide vectors the L2 cache is as
  // fast, and it is more important to store sums less often.
  const auto rows_of = [&](std::uint64_t bytes) { return static_cast<std::int64_t>(bytes / (size * columns)); };
  // If a panel of a tile fits in the L2 cache, it is staged in one step, so that no sums are stored.
  const bool deep =
      staged && tile && wide && tiles.shared_bytes >= 2 * 98304 && k > rows_of(36864) * 3 / 2 && k <= rows_of(98304);
  const std::int64_t fits = deep ? k : rows_of(staged && tile && wide ? 36864 : wide ? 98304 : 24576);
  plan.depth = k <= fits * 3 / 2 ? k : ceil_div(k, ceil_div(k, fits));
  // If the data that a block reads along k does not fit in the L2 cache (2 MiB on CPUs with wide vectors), larger
  // blocks are better, because they read the data fewer times.
  if (wide && !(staged && tile)) p.sums_bytes = 128 << 10;
  const std::int64_t block = (128 + static_cast<std::int64_t>(p.sums_bytes / (128 * size))) * k * size;
  if (block > 3 << 19 && !(staged && tile)) p.sums_bytes = 256 << 10;
  if (staged) {
    p.staged = static_cast<std::uint32_t>((deep ? k : fits * 3 / 2) * columns);
    p.b_unit_k = s.b_unit_k && !s.b_unit_n, p.b_unit_n = s.b_unit_n;
  }
  const std::uint64_t room = tiles.shared_bytes - std::min(tiles.shared_bytes, p.staged * size);
  p.sums_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(p.sums_bytes, room));
  p.update = s.update, p.lower = s.lower, p.c_unit = s.c_unit;
  const auto most_tiles = static_cast<std::int64_t>(packed_tiles(p));
  plan.block_rows = std::min({m_panels, std::max<std::int64_t>(1, 128 / p.tm), most_tiles});
  plan.block_columns = std::clamp<std::int64_t>(most_tiles / plan.block_rows, 1, n_panels);
  if (tile && plan.depth == k) {  // no sums are stored, so panels are staged for as many rows as fit in the L2 cache
    plan.block_rows = std::min<std::int64_t>(m_panels, std::max<std::int64_t>(1, 256 / p.tm));
    plan.block_columns = n_panels;
  }
  // Uses at least four blocks per thread to balance the load, or eight if blocks share no data. Blocks should not be
  // shorter than a few microseconds.
  const std::int64_t wanted = (staged && !tile ? 8 : 4) * static_cast<std::int64_t>(tiles.compute_units);
  const auto blocks = [&] {
    return ceil_div(m_panels, plan.block_rows) * ceil_div(n_panels, plan.block_columns) * batch;
  };
  while (tiles.compute_units > 1 && blocks() < wanted &&
         plan.block_rows * plan.block_columns * p.tm * columns * k > 1 << 18) {
    if (plan.block_columns == 1 ||
        (!p.staged && plan.block_rows > 1 && plan.block_rows * p.tm >= plan.block_columns * columns))
      plan.block_rows = ceil_div(plan.block_rows, 2);
    else
      plan.block_columns = ceil_div(plan.block_columns, 2);
    if (plan.block_rows * plan.block_columns == 1) break;
  }
  p.whole = plan.depth == k && blocks() == batch;
  // Consecutive blocks read the same part of one factor and all of the other factor. The other factor comes from the L2
  // cache if it fits there; otherwise it is read from memory each time.
  const auto read = [&](std::int64_t count, std::int64_t times) {
    const double bytes = static_cast<double>(count * k) * static_cast<double>(size);
    return bytes <= 1 << 20 ? bytes : bytes * static_cast<double>(times);
  };
  p.columns_first = !p.whole && !p.update &&
                    read(m, 1) + read(n, ceil_div(m_panels, plan.block_rows)) <
                        read(n, 1) + read(m, ceil_div(n_panels, plan.block_columns));
  p.exact = p.whole && !p.lower && m % p.tm == 0 && n % columns == 0;
  return plan;
}

}  // namespace tessera::ops
