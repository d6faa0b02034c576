// SPDX-License-Identifier: Apache-2.0
// The gradient of attention with matrix fragments, without scores in memory (FlashAttention-2, Dao 2023). With scores
// S = scale q k^T, weights P = exp(S - logs) and the adjoint g of the result,
//
//   dv = P^T g,  T = P * (g v^T - along),  dq = scale T k,  dk = scale T^T q,
//
// where `along` is the dot product of each row of g and of the result. One kernel computes dq, another dk and dv; both
// compute S and P again. A block holds 64 rows of one pair of operands in registers, 16 for each of four subgroups, and
// reads tiles of the other pair in two stages:
//
//   kernel      rows    tiles   heads
//   dq          q, g    k, v    one
//   dk and dv   k, v    q, g    all that share the key head, one after the other
//
// Sums are f32. P and T are rounded to the dtype of the operands. For f16, they are first multiplied by powers of two:
// P by 2^14, and T by 2^(14 - n), where |g v^T - along| is less than 2^n for the query (dq), or for all queries that
// attend to keys of the block (dk). So neither overflows, and rounding errors are relative for elements of at least
// 2^-28 of these bounds.
#include <cmath>

#include "tessera/ops/attention_tile.h"

namespace tessera::ops {

namespace {

std::uint64_t shared_elements(const AttentionGradientSpec& s) {  // of each of the two operands
  using namespace attention_tile;
  return fragment_pitch(s.head_size) * std::max<std::uint64_t>(stages * s.tile, attention_tile_rows);
}
std::uint64_t shared_bytes(const AttentionGradientSpec& s) {
  using namespace attention_tile;
  return 2 * 2 * shared_elements(s) + (s.keys ? 2 * 4 * stages * s.tile : 0) + 256;
}

}  // namespace

ir::Function trace_attention_gradient(const AttentionGradientSpec& s) {
  using namespace attention_tile;
  const int head_size = static_cast<int>(s.head_size), tile = static_cast<int>(s.tile), of_head = head_size / side;
  const int threads = static_cast<int>(s.subgroup) * subgroups, pitch = static_cast<int>(fragment_pitch(s.head_size));
  const bool scaled = s.dtype == DType::f16;
  const double shift = scaled ? 14 : 0;  // the exponent of the factor of P
  ir::Builder builder(
      (s.keys ? "attention_key_gradient_" : "attention_query_gradient_") + std::string(dtype_name(s.dtype)),
      ir::KernelKind::block, {static_cast<std::uint32_t>(threads), 1, 1});
  builder.set_min_blocks(2);
  builder.set_aligned_vectors();
  ir::Builder::Scope scope(builder);
  HeadRows q("q", s.dtype, ir::Access::read), k("k", s.dtype, ir::Access::read), v("v", s.dtype, ir::Access::read),
      g("g", s.dtype, ir::Access::read);
  const auto per_query = [](const char* name) { return ir::buffer_param(name, DType::f32, ir::Access::read); };
  const ir::BufferRef logs = per_query("logs"), along = per_query("along"),
                      exponents = scaled ? per_query("exponents") : ir::BufferRef(),
                      out = ir::buffer_param(s.keys ? "dk" : "dq", s.dtype, ir::Access::read_write),
                      out_v = s.keys ? ir::buffer_param("dv", s.dtype, ir::Access::read_write) : ir::BufferRef();
  const ir::Value heads = number("heads"), group = number("group"), tokens = number("tokens"), keys = number("keys");
  for (const auto& [rows, name] : {std::pair{&q, "q"}, {&k, "k"}, {&v, "v"}, {&g, "g"}}) rows->add_strides(name);
  const ir::Value factor = ir::scalar_param("factor", DType::f32);  // log2(e) times the scale of the scores

  // The rows of the block. Blocks with most work start first: with a causal mask, the last queries and the first keys.
  const ir::Value zero = ir::index_literal(0), me = ir::thread_id(0), subgroup = ir::subgroup_id();
  const ir::Value all = s.keys ? keys : tokens, out_heads = s.keys ? heads / group : heads,
                  blocks = (all + (attention_tile_rows - 1)) / attention_tile_rows,
                  out_head = ir::block_id(0) % out_heads, batch = ir::block_id(0) / out_heads / blocks,
                  block = ir::block_id(0) / out_heads % blocks,
                  first = (s.keys ? block : blocks - 1 - block) * attention_tile_rows,
                  first_of_subgroup = first + subgroup * side;
  const ir::Value first_head = s.keys ? out_head * group : out_head, key_head = s.keys ? out_head : out_head / group,
                  heads_of_block = s.keys ? group : ir::index_literal(1);
  // The tiles that the block reads of each head. Of the two operands of min, reports use the first, which depends on
  // parameters only.
  const ir::Value end = s.keys || !s.causal ? (s.keys ? tokens : keys) : ir::min(keys, first + attention_tile_rows),
                  end_tile = (end + (tile - 1)) / tile, first_tile = s.keys && s.causal ? first / tile : zero,
                  tiles = s.keys && s.causal ? ir::min(end_tile, end_tile - first_tile) : end_tile;

  const HeadRows &row1 = s.keys ? k : q, &row2 = s.keys ? v : g, &tile1 = s.keys ? q : k, &tile2 = s.keys ? g : v;
  const ir::BufferRef shared1 = ir::shared(s.dtype, shared_elements(s)),
                      shared2 = ir::shared(s.dtype, shared_elements(s));
  const auto shared_numbers = [&] {
    return s.keys ? ir::shared(DType::f32, static_cast<std::uint64_t>(stages * tile)) : ir::BufferRef();
  };
  const ir::BufferRef shared_logs = shared_numbers(), shared_along = shared_numbers();

  std::vector<ir::Fragment> left1, left2, sums, sums_v;
  const auto make = [](std::vector<ir::Fragment>& fragments, int n, ir::FragmentRole role, DType dtype) {
    for (int i = 0; i < n; ++i) fragments.emplace_back(role, dtype);
  };
  make(left1, of_head, ir::FragmentRole::left, s.dtype), make(left2, of_head, ir::FragmentRole::left, s.dtype);
  make(sums, of_head, ir::FragmentRole::accumulator, DType::f32);
  if (s.keys) make(sums_v, of_head, ir::FragmentRole::accumulator, DType::f32);
  const ir::Fragment scores(ir::FragmentRole::accumulator, DType::f32),
      slopes(ir::FragmentRole::accumulator, DType::f32), left(ir::FragmentRole::left, s.dtype),
      right(ir::FragmentRole::right, s.dtype);
  {
    const ir::Value from1 = row1.at(batch, s.keys ? key_head : first_head),
                    from2 = row2.at(batch, s.keys ? key_head : first_head);
    for_each_piece(me, threads, attention_tile_rows, head_size, [&](ir::Value r, ir::Value c) {
      const ir::Value from = ir::min(first + r, all - 1), to = r * pitch + c;
      copy_piece(shared1, to, row1, from1 + from * row1.row + c);
      copy_piece(shared2, to, row2, from2 + from * row2.row + c);
    });
    ir::async_commit();
    ir::async_wait(0);
    ir::barrier();
    for (int d = 0; d < of_head; ++d) {
      const ir::Value at = subgroup * (side * pitch) + d * side;
      left1[static_cast<std::size_t>(d)].load(shared1, at, pitch);
      left2[static_cast<std::size_t>(d)].load(shared2, at, pitch);
    }
    ir::barrier();  // before tiles are copied to the same memory
  }
  for (const auto* fragments : {&sums, &sums_v})
    for (const ir::Fragment& f : *fragments) f.fill(0.0);

  const auto numbers_at = [&](ir::Value head) { return (batch * heads + head) * tokens; };
  const auto copy = [&](ir::Value h, ir::Value i) {  // tile i of head h
    const ir::Value base = (first_tile + i) * tile;
    ir::if_(h < heads_of_block && base < end, [&] {
      const ir::Value stage = (h * tiles + i) % stages, head = s.keys ? first_head + h : key_head,
                      from1 = tile1.at(batch, head), from2 = tile2.at(batch, head);
      for_each_piece(me, threads, tile, head_size, [&](ir::Value r, ir::Value c) {
        // Rows past the end repeat the last one; their weights are 0.
        const ir::Value from = ir::min(base + r, end - 1), to = stage * (tile * pitch) + r * pitch + c;
        copy_piece(shared1, to, tile1, from1 + from * tile1.row + c);
        copy_piece(shared2, to, tile2, from2 + from * tile2.row + c);
      });
      if (s.keys)
        ir::if_(me < tile, [&] {
          const ir::Value from = numbers_at(head) + ir::min(base + me, end - 1), to = stage * tile + me;
          ir::copy_async(shared_logs, to, logs, from, 1);
          ir::copy_async(shared_along, to, along, from, 1);
        });
    });
    ir::async_commit();
  };
  copy(zero, zero);

  // Weights are powers of two: exp2(score * factor - log).
  const auto shifted = [&](ir::Value log) { return log * float_literal(log2_e) - float_literal(shift); };
  const ir::FragmentRows row_logs, row_along;
  ir::Value exponent = float_literal(0);  // of the block
  if (!s.keys) {
    ir::FragmentRows::for_each([&](ir::Value slot, ir::Value row) {
      const ir::Value at = numbers_at(first_head) + ir::min(first_of_subgroup + row, tokens - 1),
                      log = shifted(logs.load(at));
      row_logs.set_at(slot, scaled ? log + exponents.load(at) : log);
      row_along.set_at(slot, along.load(at));
    });
  } else if (scaled) {
    const ir::Variable most(DType::f32, minus_infinity);
    ir::for_(0, group, [&](ir::Value h) {
      ir::for_(first_tile * tile + me, tokens, threads,
               [&](ir::Value t) { most.set(ir::max(most.get(), exponents.load(numbers_at(first_head + h) + t))); });
    });
    exponent = ir::block_max(most.get());
  }
  const ir::Value shrink = ir::exp2(-exponent);

  const auto each_tile = [&](ir::Value h, ir::Value i) {
    const ir::Value last = i + 1 >= tiles;
    copy(ir::select(last, h + 1, h), ir::select(last, zero, i + 1));
    ir::async_wait(1);
    ir::barrier();
    const ir::Value stage = (h * tiles + i) % stages, base = (first_tile + i) * tile;
    ir::for_(0, tile, side, [&](ir::Value j) {  // one fragment of the tile at a time
      // Only fragments at the ends of the range have pairs of a query and a key that it does not see.
      const ir::Value rest = end - base - j, ahead = base + j - first;
      ir::Value partial = rest < side;
      if (s.causal) partial = partial || (s.keys ? ahead < attention_tile_rows : ahead >= 0);
      const auto at = [&](int d) { return stage * (tile * pitch) + j * pitch + d * side; };
      const auto multiply = [&](const ir::Fragment& to, const std::vector<ir::Fragment>& rows, ir::BufferRef columns) {
        to.fill(0.0);
        for (int d = 0; d < of_head; ++d) {
          right.load_transposed(columns, at(d), pitch);
          to.multiply_add(rows[static_cast<std::size_t>(d)], right);
        }
      };
      const auto add_products = [&](const std::vector<ir::Fragment>& to, ir::BufferRef rows) {
        left.convert(scores);
        for (int d = 0; d < of_head; ++d) {
          right.load(rows, at(d), pitch);
          to[static_cast<std::size_t>(d)].multiply_add(left, right);
        }
      };
      const auto of_column = [&](ir::BufferRef numbers, const ir::FragmentElement& e) {
        return numbers.load(stage * tile + j + e.column);
      };
      multiply(scores, left1, shared1);
      if (!s.keys) multiply(slopes, left2, shared2);
      ir::for_each_element([&](const ir::FragmentElement& e) {
        const ir::Value log = s.keys ? shifted(of_column(shared_logs, e)) : row_logs.get(e);
        scores.set(e.k, ir::exp2(scores.get(e.k) * factor - log));
      });
      ir::if_(partial, [&] {
        ir::for_each_element([&](const ir::FragmentElement& e) {
          ir::Value sees = e.column < rest;
          const ir::Value row = subgroup * side + e.row, column = ahead + e.column;
          if (s.causal) sees = sees && (s.keys ? column >= row : column <= row);
          scores.set(e.k, ir::select(sees, scores.get(e.k), float_literal(0)));
        });
      });
      // In the gradient of keys, the slopes are computed last, because their registers are not free earlier.
      if (s.keys) add_products(sums_v, shared2), multiply(slopes, left2, shared2);
      ir::for_each_element([&](const ir::FragmentElement& e) {
        const ir::Value slope = slopes.get(e.k) - (s.keys ? of_column(shared_along, e) : row_along.get(e));
        scores.set(e.k, scores.get(e.k) * (s.keys && scaled ? slope * shrink : slope));
      });
      add_products(sums, shared1);
    });
    ir::barrier();  // before the stage is copied to again
  };
  const auto each_head = [&](ir::Value h) { ir::for_(0, tiles, [&](ir::Value i) { each_tile(h, i); }); };
  s.keys ? ir::for_(0, group, each_head) : each_head(zero);

  ir::for_each_element([&](const ir::FragmentElement& e) {
    const ir::Value row = first_of_subgroup + e.row;
    ir::if_(row < all, [&] {
      const ir::Value at = ((batch * out_heads + out_head) * all + row) * head_size + e.column;
      const ir::Value unscale = s.keys || !scaled ? 1 / shrink : ir::exp2(exponents.load(numbers_at(first_head) + row)),
                      by = factor * float_literal(std::exp2(-shift) / log2_e) * unscale;
      for (int d = 0; d < of_head; ++d) {
        out.store(at + d * side, ir::cast(s.dtype, sums[static_cast<std::size_t>(d)].get(e.k) * by));
        if (s.keys)
          out_v.store(at + d * side, ir::cast(s.dtype, sums_v[static_cast<std::size_t>(d)].get(e.k) *
                                                           float_literal(std::exp2(-shift))));
      }
    });
  });
  return builder.finish();
}

std::optional<AttentionGradientSpec> choose_attention_gradient(const Tiles& tiles, DType dtype, std::int64_t head_size,
                                                               std::int64_t queries, bool keys) {
  if (!choose_attention_tile(tiles, dtype, dtype, head_size, queries) || head_size > 128) return std::nullopt;
  AttentionGradientSpec s{dtype, static_cast<std::uint32_t>(head_size), tiles.subgroup};
  s.keys = keys;
  for (s.tile = 64; s.tile >= attention_tile::side; s.tile /= 2)
    if (shared_bytes(s) <= tiles.shared_bytes) return s;
  return std::nullopt;
}

}  // namespace tessera::ops
