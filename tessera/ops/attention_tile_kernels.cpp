// SPDX-License-Identifier: Apache-2.0
// Attention of many queries with matrix fragments, without scores in memory (FlashAttention-2, Dao 2023). A block has
// 64 queries, 16 for each of four subgroups, and reads tiles of keys and values in two stages. The scores of a tile
// are f32. Their exponentials, at most 1, are rounded to the dtype of the values and multiplied by them.
//
// Queries in f32 are divided by the largest magnitude of their row and rounded to the dtype of the keys, so that
// neither they nor the scores overflow.
#include "tessera/ops/attention_tile.h"

namespace tessera::ops {

std::uint64_t attention_tile_shared_bytes(const AttentionTileSpec& s) {
  using namespace attention_tile;
  const std::uint64_t pitch = fragment_pitch(s.head_size);
  return 2 * pitch * (attention_tile_rows + std::uint64_t{2} * stages * s.keys) + 4 * attention_tile_rows + 64;
}

ir::Function trace_attention_tile(const AttentionTileSpec& s) {
  using namespace attention_tile;
  const int head_size = static_cast<int>(s.head_size), keys_of_tile = static_cast<int>(s.keys),
            of_head = head_size / side, of_tile = keys_of_tile / side;
  const int threads = static_cast<int>(s.subgroup) * subgroups, queries = attention_tile_rows;
  const int pitch = static_cast<int>(fragment_pitch(s.head_size)), stage = keys_of_tile * pitch;
  ir::Builder builder("attention_tile_" + std::string(dtype_name(s.cache)), ir::KernelKind::block,
                      {static_cast<std::uint32_t>(threads), 1, 1});
  builder.set_min_blocks(head_size <= 128 ? 2 : 1);
  builder.set_aligned_vectors();
  ir::Builder::Scope scope(builder);
  HeadRows q("q", s.query, ir::Access::read), k("k", s.cache, ir::Access::read), v("v", s.cache, ir::Access::read),
      out("out", s.out, ir::Access::read_write);
  const ir::BufferRef logs = s.logs ? ir::buffer_param("logs", DType::f32, ir::Access::read_write) : ir::BufferRef();
  const ir::Value heads = number("heads"), group = number("group"), tokens = number("tokens"), keys = number("keys");
  const ir::Value past = PositionParameter("past", s.in_memory).get();
  q.add_strides("q"), k.add_strides("k"), v.add_strides("v"), out.add_strides("out");
  const ir::Value scale = ir::scalar_param("scale", DType::f32);
  const ir::Value window = s.window ? number("window") : ir::Value(),
                  cap = s.cap ? ir::scalar_param("cap", DType::f32) : ir::Value();
  const ir::BufferRef sinks = s.sinks ? ir::buffer_param("sinks", DType::f32, ir::Access::read) : ir::BufferRef();

  // The tiles of the last queries have most keys, so they start first.
  const ir::Value tiles = (tokens + (queries - 1)) / queries, head = ir::block_id(0) % heads,
                  batch = ir::block_id(0) / heads / tiles,
                  first = (tiles - 1 - ir::block_id(0) / heads % tiles) * queries;
  const ir::Value me = ir::thread_id(0), subgroup = ir::subgroup_id(), k_base = k.at(batch, head / group),
                  v_base = v.at(batch, head / group);
  const ir::Value end = s.causal ? ir::min(keys, past + ir::min(first + queries, tokens)) : keys;
  const ir::Value begin = s.window ? ir::max(past + first + 1 - window, ir::index_literal(0)) : ir::index_literal(0);

  const ir::BufferRef qs = ir::shared(s.cache, static_cast<std::uint64_t>(queries * pitch)),
                      ks = ir::shared(s.cache, static_cast<std::uint64_t>(stages * stage)),
                      vs = ir::shared(s.cache, static_cast<std::uint64_t>(stages * stage)),
                      largest_q = ir::shared(DType::f32, static_cast<std::uint64_t>(queries));
  const auto copy = [&](ir::Value base) {
    ir::if_(base < end, [&] {
      const ir::Value slot = base / keys_of_tile % stages * stage;
      for_each_piece(me, threads, keys_of_tile, head_size, [&](ir::Value r, ir::Value c) {
        // Rows past the end repeat the last one; their weights are 0.
        const ir::Value from = ir::min(base + r, end - 1), to = slot + r * pitch + c;
        copy_piece(ks, to, k, k_base + from * k.row + c);
        copy_piece(vs, to, v, v_base + from * v.row + c);
      });
    });
    ir::async_commit();
  };
  copy(begin);

  // Each subgroup converts its own queries.
  ir::for_(0, side, [&](ir::Value i) {
    const ir::Value r = subgroup * side + i, row = q.at(batch, head) + ir::min(first + r, tokens - 1) * q.row;
    const bool scaled = s.query != s.cache;
    ir::Value most = float_literal(1);
    if (scaled) {
      const ir::Variable largest(DType::f32, 0.0f);
      ir::for_(ir::lane_id(), head_size, ir::subgroup_size(), [&](ir::Value d) {
        largest.set(ir::max(largest.get(), ir::abs(ir::cast(DType::f32, q.memory.load(row + d)))));
      });
      const ir::Value found = ir::subgroup_max(largest.get());
      most = ir::select(found > 0.0f, found, float_literal(1));
    }
    ir::for_(ir::lane_id(), head_size, ir::subgroup_size(), [&](ir::Value d) {
      const ir::Value x = q.memory.load(row + d);
      qs.store(r * pitch + d, scaled ? ir::cast(s.cache, ir::cast(DType::f32, x) / most) : x);
    });
    ir::if_(ir::lane_id() == 0, [&] { largest_q.store(r, most); });
  });
  ir::barrier();

  const bool keeps_q = head_size <= 128;  // in registers
  std::vector<ir::Fragment> left, sums, scores;
  for (int d = 0; d < (keeps_q ? of_head : 1); ++d) left.emplace_back(ir::FragmentRole::left, s.cache);
  const auto load_q = [&](std::size_t to, int d) { left[to].load(qs, subgroup * (side * pitch) + d * side, pitch); };
  if (keeps_q)
    for (int d = 0; d < of_head; ++d) load_q(static_cast<std::size_t>(d), d);
  for (int d = 0; d < of_head; ++d) sums.emplace_back(ir::FragmentRole::accumulator, DType::f32);
  for (int j = 0; j < of_tile; ++j) scores.emplace_back(ir::FragmentRole::accumulator, DType::f32);
  const ir::Fragment weights(ir::FragmentRole::left, s.cache), right(ir::FragmentRole::right, s.cache),
      row_maxima(ir::FragmentRole::accumulator, DType::f32), totals(ir::FragmentRole::accumulator, DType::f32);
  for (const ir::Fragment& f : sums) f.fill(0.0);
  totals.fill(0.0);
  // Scores are powers of two: a row's factor contains the scale, its largest query and log2(e). With a cap, log2(e) is
  // applied after it.
  const ir::FragmentRows factor, highest, row_numbers, shrink;
  ir::FragmentRows::for_each([&](ir::Value slot, ir::Value row) {
    const ir::Value by = largest_q.load(subgroup * side + row) * scale;
    factor.set_at(slot, s.cap ? by : by * float_literal(log2_e));
    highest.set_at(slot, float_literal(minus_infinity));
  });
  const auto shift = [](ir::Value value) {  // 0 while all scores are -inf, so that exp2(-inf - 0) keeps all sums at 0
    return ir::select(value == float_literal(minus_infinity), float_literal(0), value);
  };

  const ir::Value first_position = past + first + subgroup * side;  // the position of the subgroup's first query
  ir::for_(begin, end, keys_of_tile, [&](ir::Value base) {
    copy(base + keys_of_tile);
    ir::async_wait(1);
    ir::barrier();
    const ir::Value slot = base / keys_of_tile % stages * stage;
    for (const ir::Fragment& f : scores) f.fill(0.0);
    for (int d = 0; d < of_head; ++d) {
      if (!keeps_q) load_q(0, d);
      for (int j = 0; j < of_tile; ++j) {
        right.load_transposed(ks, slot + j * side * pitch + d * side, pitch);
        scores[static_cast<std::size_t>(j)].multiply_add(left[keeps_q ? static_cast<std::size_t>(d) : 0], right);
      }
    }
    ir::for_each_element([&](const ir::FragmentElement& e) {
      const ir::Value by = factor.get(e);
      ir::Value most;
      for (std::size_t j = 0; j < scores.size(); ++j) {
        ir::Value x = scores[j].get(e.k) * by;
        if (s.cap) x = cap * ir::tanh(x / cap) * float_literal(log2_e);
        scores[j].set(e.k, x);
        most = j == 0 ? x : ir::max(most, x);
      }
      row_maxima.set(e.k, most);
    });
    // Only tiles at the ends of the range have keys that a query does not see.
    ir::Value partial = base + keys_of_tile > (s.causal ? ir::min(first_position + 1, keys) : keys);
    if (s.window) partial = partial || base + window <= first_position + (side - 1);
    ir::if_(partial, [&] {
      ir::for_each_element([&](const ir::FragmentElement& e) {
        ir::Value most;
        for (int j = 0; j < of_tile; ++j) {
          const ir::Value position = base + j * side + e.column;
          ir::Value sees = position < keys;
          if (s.causal) sees = sees && position <= first_position + e.row;
          if (s.window) sees = sees && position + window > first_position + e.row;
          const ir::Fragment& f = scores[static_cast<std::size_t>(j)];
          const ir::Value x = ir::select(sees, f.get(e.k), float_literal(minus_infinity));
          f.set(e.k, x);
          most = j == 0 ? x : ir::max(most, x);
        }
        row_maxima.set(e.k, most);
      });
    });
    row_numbers.reduce(ir::ReduceOp::max, row_maxima);
    ir::FragmentRows::for_each([&](ir::Value at, ir::Value) {
      const ir::Value before = highest.at(at), next = ir::max(before, row_numbers.at(at));
      shrink.set_at(at, ir::exp2(before - shift(next)));
      highest.set_at(at, next);
      row_numbers.set_at(at, shift(next));
    });
    ir::for_each_element([&](const ir::FragmentElement& e) {
      const ir::Value by = shrink.get(e), from = row_numbers.get(e);
      ir::Value total = totals.get(e.k) * by;
      for (const ir::Fragment& f : scores) {
        const ir::Value x = ir::exp2(f.get(e.k) - from);
        f.set(e.k, x);
        total = total + x;
      }
      totals.set(e.k, total);
      for (const ir::Fragment& f : sums) f.set(e.k, f.get(e.k) * by);
    });
    for (int j = 0; j < of_tile; ++j) {
      weights.convert(scores[static_cast<std::size_t>(j)]);
      for (int d = 0; d < of_head; ++d) {
        right.load(vs, slot + j * side * pitch + d * side, pitch);
        sums[static_cast<std::size_t>(d)].multiply_add(weights, right);
      }
    }
    ir::barrier();  // before the stage is copied to again
  });

  row_numbers.reduce(ir::ReduceOp::sum, totals);
  ir::for_each_element([&](const ir::FragmentElement& e) {
    ir::Value total = row_numbers.get(e);
    if (s.sinks) total = total + ir::exp2(sinks.load(head) * float_literal(log2_e) - shift(highest.get(e)));
    const ir::Value token = first + subgroup * side + e.row, row = out.at(batch, head) + token * out.row + e.column,
                    none = total == 0.0f, by = ir::select(none, float_literal(0), 1 / total);
    ir::if_(token < tokens, [&] {
      if (s.logs)
        ir::if_(e.column == 0, [&] {  // one lane of each row
          logs.store((batch * heads + head) * tokens + token,
                     ir::select(none, float_literal(-minus_infinity),
                                (highest.get(e) + ir::log2(total)) * float_literal(1 / log2_e)));
        });
      for (int d = 0; d < of_head; ++d)
        out.memory.store(row + d * side, ir::cast(s.out, sums[static_cast<std::size_t>(d)].get(e.k) * by));
    });
  });
  return builder.finish();
}

std::optional<AttentionTileSpec> choose_attention_tile(const Tiles& tiles, DType query, DType cache,
                                                       std::int64_t head_size, std::int64_t queries) {
  using namespace attention_tile;
  const bool units = cache == DType::f16 ? tiles.matrix_f16 : cache == DType::bf16 && tiles.matrix_bf16;
  if (!units || tiles.subgroup < 2 || queries < side || head_size % side != 0 || head_size > 256) return std::nullopt;
  if (query != DType::f32 && query != cache) return std::nullopt;
  AttentionTileSpec s;
  s.query = query, s.cache = cache, s.head_size = static_cast<std::uint32_t>(head_size), s.subgroup = tiles.subgroup;
  if (s.subgroup * subgroups > tiles.block_limit) return std::nullopt;
  for (s.keys = 64; s.keys >= side; s.keys /= 2)
    if (attention_tile_shared_bytes(s) <= tiles.shared_bytes) return s;
  return std::nullopt;
}

}  // namespace tessera::ops
