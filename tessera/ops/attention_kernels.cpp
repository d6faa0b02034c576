// SPDX-License-Identifier: Apache-2.0
// Causal attention with online softmax. The state is a running maximum m of the scores, the sum l of exp(score - m),
// and the sum of the values weighted by exp(score - m). The two sums are rescaled whenever m grows (Milakov and
// Gimelshein 2018).
#include <algorithm>

#include "tessera/ops/cache_buffer.h"
#include "tessera/ops/input_store.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/online_softmax.h"

namespace tessera::ops {

namespace {

struct Parameters {
  ir::BufferRef q, out, sinks;
  CacheBuffer keys, values;
  ir::Value heads, group, tokens, past, scale, key_head, key_row, value_head, value_row;
  ir::Value window, cap;  // like the sinks, valid only if they are set in the specification
  explicit Parameters(const AttentionSpec& spec) {
    q = ir::buffer_param("q", DType::f32, ir::Access::read);
    keys = CacheBuffer("keys", "key_scales", spec.cache, spec.head_size);
    values = CacheBuffer("values", "value_scales", spec.cache, spec.head_size);
    out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
    auto number = [](const char* n) { return ir::scalar_param(n, DType::index); };
    heads = number("heads"), group = number("group"), tokens = number("tokens");
    past = PositionParameter("past", spec.in_memory).get();
    key_head = number("key_head"), key_row = number("key_row"), value_head = number("value_head"),
    value_row = number("value_row");
    scale = ir::scalar_param("scale", DType::f32);
    if (spec.window) window = number("window");
    if (spec.cap) cap = ir::scalar_param("cap", DType::f32);
    has_sinks = spec.sinks;
    if (has_sinks) sinks = ir::buffer_param("sinks", DType::f32, ir::Access::read);
  }
  /// Returns the sum of a head's weights, including that of its sink. `sum` belongs to the scores up to `largest`.
  ir::Value total(ir::Value sum, ir::Value largest, ir::Value head) const {
    return has_sinks ? with_sink(sum, largest, sinks.load(head)) : sum;
  }
  ir::Value capped(ir::Value score) const { return cap.valid() ? cap * ir::tanh(score / cap) : score; }
  /// Returns the first position that a token attends to if positions 0 to `seen` - 1 exist.
  ir::Value first_seen(ir::Value seen) const {
    return window.valid() ? ir::max(seen - window, ir::index_literal(0)) : ir::index_literal(0);
  }

 private:
  bool has_sinks = false;
};

// One block per query (one head of one token). The scores of a tile of positions are stored in shared memory, because
// every thread needs all of them for its elements of the values.
void one_query(const AttentionSpec& spec) {
  const Parameters p(spec);
  const bool along_head = spec.form == AttentionSpec::vectors;
  const int threads = static_cast<int>(spec.threads), head_size = static_cast<int>(spec.head_size);
  const int tile = along_head ? 4 * threads : threads, parts = (head_size + threads - 1) / threads;
  const ir::Value lane = ir::thread_id(), token = ir::block_id(0) / p.heads, head = ir::block_id(0) % p.heads,
                  key_head = head / p.group;
  const ir::Value q_row = ir::block_id(0) * head_size, k_base = key_head * p.key_head, v_base = key_head * p.value_head;
  const ir::Value seen = p.past + token + 1;
  // A thread computes elements lane, lane + threads, ... of the head. In the last part, some threads have no element.
  auto element = [&](int part) { return lane + part * threads; };
  auto exists = [&](int part) { return (part + 1) * threads <= head_size ? ir::Value() : element(part) < head_size; };
  auto block = [&](int part) { return CacheBuffer::block_of(part * threads, threads); };

  std::vector<ir::Value> q;
  if (along_head)
    for (int i = 0; i < parts; ++i) q.push_back(load_at(p.q, q_row + element(i), exists(i)) * p.scale);
  std::vector<ir::Variable> sums;
  for (int i = 0; i < parts; ++i) sums.emplace_back(DType::f32, 0.0f);
  const ir::Variable largest(DType::f32, ir::literal(DType::f32, -infinity)), weight(DType::f32, 0.0f);
  const auto scores = ir::shared(DType::f32, static_cast<std::uint64_t>(tile));

  ir::for_(p.first_seen(seen), seen, tile, [&](ir::Value base) {
    const ir::Value count = ir::min(seen - base, tile);
    std::vector<ir::Value> mine;  // scores of the positions of this thread in the tile: lane, lane + threads, ...
    if (along_head) {
      ir::for_(0, count, [&](ir::Value j) {
        ir::Value part = ir::literal(DType::f32, 0);
        for (int i = 0; i < parts; ++i)
          part = ir::fma(q[static_cast<std::size_t>(i)],
                         p.keys.load(k_base + (base + j) * p.key_row, element(i), exists(i), block(i)), part);
        const ir::Value score = ir::block_sum(part);
        ir::if_(lane == 0, [&] { scores.store(j, score); });
      });
      ir::barrier();
      for (int i = 0; i < tile; i += threads) {
        const ir::Value none = ir::literal(DType::f32, -infinity), is = lane + i < count;
        const ir::Value score = scores.load_if(is, lane + i, none);
        mine.push_back(spec.cap ? ir::select(is, p.capped(score), none) : score);
      }
    } else {
      const ir::Variable score(DType::f32, ir::literal(DType::f32, -infinity));
      ir::if_(lane < count, [&] {
        const ir::Variable sum(DType::f32, 0.0f);
        const ir::Value row = k_base + (base + lane) * p.key_row;
        ir::for_(0, head_size,
                 [&](ir::Value d) { sum.set(ir::fma(p.q.load(q_row + d), p.keys.load(row, d), sum.get())); });
        score.set(p.capped(sum.get() * p.scale));
      });
      mine.push_back(score.get());
    }
    ir::Value top = mine[0];
    for (std::size_t i = 1; i < mine.size(); ++i) top = ir::max(top, mine[i]);
    const ir::Value before = largest.get(), now = ir::max(before, ir::block_max(top));
    // While all scores are -inf, the shift is 0, so that exp(-inf - 0) keeps all sums at 0.
    const ir::Value shift = shift_of(now);
    const ir::Value shrink = ir::exp(before - shift);
    ir::Value part = ir::literal(DType::f32, 0);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const ir::Value e = ir::exp(mine[i] - shift);
      scores.store(lane + static_cast<int>(i) * threads, e);
      part = part + e;
    }
    weight.set(ir::fma(weight.get(), shrink, ir::block_sum(part)));
    largest.set(now);
    ir::barrier();
    for (const ir::Variable& sum : sums) sum.set(sum.get() * shrink);
    ir::for_(0, count, [&](ir::Value j) {
      const ir::Value e = scores.load(j);
      for (int i = 0; i < parts; ++i) {
        const ir::Variable& sum = sums[static_cast<std::size_t>(i)];
        sum.set(
            ir::fma(e, p.values.load(v_base + (base + j) * p.value_row, element(i), exists(i), block(i)), sum.get()));
      }
    });
    ir::barrier();
  });

  const ir::Value total = p.total(weight.get(), largest.get(), head);
  for (int i = 0; i < parts; ++i) {
    auto store = [&] { p.out.store(q_row + element(i), sums[static_cast<std::size_t>(i)].get() / total); };
    if (exists(i).valid())
      ir::if_(exists(i), store);
    else
      store();
  }
}

// One thread per query. The tokens of a block are adjacent, so that each element of a key or value is loaded once and
// multiplied by a vector of tokens. Each thread has a column of shared memory for its query and its sums.
void many_queries(const AttentionSpec& spec) {
  const Parameters p(spec);
  constexpr int positions = 8;
  const int threads = static_cast<int>(spec.threads), head_size = static_cast<int>(spec.head_size);
  const ir::Value lane = ir::thread_id(), head = ir::block_id(0) % p.heads, first = ir::block_id(0) / p.heads * threads;
  const ir::Value key_head = head / p.group, k_base = key_head * p.key_head, v_base = key_head * p.value_head;
  // Threads past the last token repeat the work for the last token and store nothing.
  const ir::Value token = ir::min(first + lane, p.tokens - 1), row = (token * p.heads + head) * head_size;
  const ir::Value seen = p.past + token + 1, seen_by_any = p.past + ir::min(first + threads, p.tokens);
  const auto q = ir::shared(DType::f32, spec.head_size * spec.threads),
             sums = ir::shared(DType::f32, spec.head_size * spec.threads);
  ir::for_(0, head_size, [&](ir::Value d) {
    q.store(d * threads + lane, p.q.load(row + d) * p.scale);
    sums.store(d * threads + lane, 0.0f);
  });
  // The threads of a block convert keys and values together, because all of them read both.
  const bool converted = spec.converted;
  const auto room = [&] { return converted ? ir::shared(DType::f32, positions * spec.head_size) : ir::BufferRef(); };
  const ir::BufferRef keys = room(), values = room();
  const auto convert = [&](const CacheBuffer& from, const ir::BufferRef& to, const std::vector<ir::Value>& rows) {
    for (int j = 0; j < positions; ++j)
      from.convert(rows[static_cast<std::size_t>(j)], to, ir::index_literal(j * head_size), spec.threads, lane);
  };
  const ir::Variable largest(DType::f32, ir::literal(DType::f32, -infinity)), weight(DType::f32, 0.0f);
  ir::for_(p.first_seen(p.past + first + 1), seen_by_any, positions, [&](ir::Value base) {
    std::vector<ir::Value> k_row, v_row;
    std::vector<ir::Variable> score;
    for (int j = 0; j < positions; ++j) {
      const ir::Value at = j == 0 ? base : ir::min(base + j, seen_by_any - 1);
      k_row.push_back(k_base + at * p.key_row), v_row.push_back(v_base + at * p.value_row);
      score.emplace_back(DType::f32, 0.0f);
    }
    if (converted) {
      convert(p.keys, keys, k_row), convert(p.values, values, v_row);
      ir::barrier();
    }
    const auto key = [&](std::size_t j, ir::Value d) {
      return converted ? keys.load(static_cast<int>(j) * head_size + d) : p.keys.load(k_row[j], d);
    };
    const auto value = [&](std::size_t j, ir::Value d) {
      return converted ? values.load(static_cast<int>(j) * head_size + d) : p.values.load(v_row[j], d);
    };
    ir::for_(0, head_size, [&](ir::Value d) {
      const ir::Value element = q.load(d * threads + lane);
      for (std::size_t j = 0; j < positions; ++j) score[j].set(ir::fma(element, key(j, d), score[j].get()));
    });
    std::vector<ir::Value> e;
    ir::Value now = largest.get();
    for (int j = 0; j < positions; ++j) {
      ir::Value sees = base + j < seen;
      if (spec.window) sees = sees & (base + j >= seen - p.window);
      e.push_back(
          ir::select(sees, p.capped(score[static_cast<std::size_t>(j)].get()), ir::literal(DType::f32, -infinity)));
      now = ir::max(now, e.back());
    }
    const ir::Value shift = shift_of(now);
    const ir::Value shrink = ir::exp(largest.get() - shift);
    ir::Value part = weight.get() * shrink;
    for (ir::Value& v : e) v = ir::exp(v - shift), part = part + v;
    weight.set(part);
    largest.set(now);
    ir::for_(0, head_size, [&](ir::Value d) {
      const ir::Value at = d * threads + lane;
      ir::Value sum = sums.load(at) * shrink;
      for (std::size_t j = 0; j < positions; ++j) sum = ir::fma(e[j], value(j, d), sum);
      sums.store(at, sum);
    });
    if (converted) ir::barrier();
  });
  const ir::Value inverse = 1 / p.total(weight.get(), largest.get(), head);
  ir::if_(first + lane < p.tokens, [&] {
    ir::for_(0, head_size, [&](ir::Value d) { p.out.store(row + d, sums.load(d * threads + lane) * inverse); });
  });
}

constexpr int row_lanes = 16;               // lanes that read a row of a key or value together
constexpr std::int64_t shortest_part = 64;  // positions

// One block per part of the positions, for a few queries with the same key head, so that their keys and values are read
// once. The lanes form slots of 16, which read one row at a time and need no barrier. Each slot has its own state.
void part_of_positions(const AttentionSpec& spec) {
  const Parameters p(spec);
  const auto work = spec.whole ? ir::BufferRef() : ir::buffer_param("work", DType::f32, ir::Access::read_write);
  const ir::Value parts = spec.whole ? ir::index_literal(1) : ir::scalar_param("parts", DType::index);
  const int threads = static_cast<int>(spec.threads), slots = threads / row_lanes;
  const int head_size = static_cast<int>(spec.head_size), queries = static_cast<int>(spec.queries);
  const int each = (head_size + row_lanes - 1) / row_lanes;  // elements of a row per lane
  const int together = queries * each <= 32 ? 4 : 2;         // rows that a slot loads before it uses them
  const ir::Value lane = ir::thread_id(0), slot = lane / row_lanes, in_row = lane % row_lanes;
  const ir::Value chunks = (p.group + (queries - 1)) / queries, key_heads = p.heads / p.group;
  const ir::Value part = ir::block_id(1), pair = ir::block_id(0) / chunks, chunk = ir::block_id(0) % chunks;
  const ir::Value token = pair / key_heads, key_head = pair % key_heads;
  const ir::Value k_base = key_head * p.key_head, v_base = key_head * p.value_head;
  const ir::Value seen = p.past + token + 1, first = p.first_seen(seen);
  const int step = slots * together;
  const ir::Value length =
      ir::max(((seen - first + parts - 1) / parts + (step - 1)) / step * step, ir::index_literal(shortest_part));
  const ir::Value begin = first + part * length, end = ir::min(begin + length, seen);
  auto element = [&](int e) { return in_row + e * row_lanes; };
  auto exists = [&](int e) { return (e + 1) * row_lanes <= head_size ? ir::Value() : element(e) < head_size; };
  auto in_group = [&](int i) { return chunk * queries + i; };
  // Queries past the last one repeat its work and store nothing.
  auto head_of = [&](int i) { return key_head * p.group + ir::min(in_group(i), p.group - 1); };
  auto row_of = [&](int i) { return token * p.heads + head_of(i); };

  const auto at = [each](int i, int e) { return static_cast<std::size_t>(i * each + e); };
  std::vector<ir::Value> q;
  std::vector<ir::Variable> sums, largest, weight;
  for (int i = 0; i < queries; ++i) {
    for (int e = 0; e < each; ++e) {
      q.push_back(load_at(p.q, row_of(i) * head_size + element(e), exists(e)) * p.scale);
      sums.emplace_back(DType::f32, 0.0f);
    }
    largest.emplace_back(DType::f32, ir::literal(DType::f32, -infinity));
    weight.emplace_back(DType::f32, 0.0f);
  }
  ir::for_(begin, end, step, [&](ir::Value base) {
    std::vector<ir::Value> keys, values, is;
    for (int u = 0; u < together; ++u) {
      const ir::Value position = base + slot + u * slots, row = ir::min(position, end - 1);
      is.push_back(position < end);
      for (int e = 0; e < each; ++e)
        keys.push_back(p.keys.load(k_base + row * p.key_row, element(e), exists(e),
                                   CacheBuffer::block_of(e * row_lanes, row_lanes)));
      for (int e = 0; e < each; ++e)
        values.push_back(p.values.load(v_base + row * p.value_row, element(e), exists(e),
                                       CacheBuffer::block_of(e * row_lanes, row_lanes)));
    }
    for (int i = 0; i < queries; ++i) {
      const ir::Variable &top = largest[static_cast<std::size_t>(i)], &total = weight[static_cast<std::size_t>(i)];
      std::vector<ir::Value> scores;
      ir::Value now = top.get();
      for (int u = 0; u < together; ++u) {
        ir::Value score = q[at(i, 0)] * keys[at(u, 0)];
        for (int e = 1; e < each; ++e) score = ir::fma(q[at(i, e)], keys[at(u, e)], score);
        for (int other = row_lanes / 2; other > 0; other /= 2)
          score = score + ir::subgroup(ir::SubgroupOp::shuffle_xor, score, ir::index_literal(other));
        scores.push_back(
            ir::select(is[static_cast<std::size_t>(u)], p.capped(score), ir::literal(DType::f32, -infinity)));
        now = ir::max(now, scores.back());
      }
      const ir::Value shift = shift_of(now), shrink = ir::exp(top.get() - shift);
      ir::Value all = total.get() * shrink;
      for (ir::Value& s : scores) s = ir::exp(s - shift), all = all + s;
      for (int e = 0; e < each; ++e) {
        const ir::Variable& sum = sums[at(i, e)];
        ir::Value v = sum.get() * shrink;
        for (int u = 0; u < together; ++u) v = ir::fma(scores[static_cast<std::size_t>(u)], values[at(u, e)], v);
        sum.set(v);
      }
      total.set(all), top.set(now);
    }
  });

  // Combines the states of the slots.
  const auto room = [](int count) { return ir::shared(DType::f32, static_cast<std::uint64_t>(count)); };
  const auto tops = room(slots * queries), totals = room(slots * queries), partial = room(slots * queries * head_size);
  for (int i = 0; i < queries; ++i) {
    const ir::Value state = slot * queries + i;
    ir::if_(in_row == 0, [&] {
      tops.store(state, largest[static_cast<std::size_t>(i)].get());
      totals.store(state, weight[static_cast<std::size_t>(i)].get());
    });
    for (int e = 0; e < each; ++e) {
      const auto store = [&] { partial.store(state * head_size + element(e), sums[at(i, e)].get()); };
      exists(e).valid() ? ir::if_(exists(e), store) : store();
    }
  }
  ir::barrier();
  for (int i = 0; i < queries; ++i) {
    ir::Value top = tops.load(i);
    for (int s = 1; s < slots; ++s) top = ir::max(top, tops.load(s * queries + i));
    const ir::Value shift = shift_of(top);
    std::vector<ir::Value> factors;
    ir::Value total = ir::literal(DType::f32, 0);
    for (int s = 0; s < slots; ++s) {
      factors.push_back(ir::exp(tops.load(s * queries + i) - shift));
      total = ir::fma(factors.back(), totals.load(s * queries + i), total);
    }
    total = p.total(total, top, head_of(i));
    ir::if_(in_group(i) < p.group, [&] {
      const ir::Value to = spec.whole ? row_of(i) * head_size : (row_of(i) * parts + part) * (head_size + 2);
      for_lanes(ir::index_literal(head_size), spec.threads, lane, [&](ir::Value d, ir::Value is) {
        const auto store = [&] {
          ir::Value sum = ir::literal(DType::f32, 0);
          for (int s = 0; s < slots; ++s)
            sum = ir::fma(factors[static_cast<std::size_t>(s)], partial.load((s * queries + i) * head_size + d), sum);
          if (spec.whole)
            p.out.store(to + d, sum / total);
          else
            work.store(to + d, sum);
        };
        is.valid() ? ir::if_(is, store) : store();
      });
      if (!spec.whole)
        ir::if_(lane == 0, [&] { work.store(to + head_size, top), work.store(to + (head_size + 1), total); });
    });
  }
}

}  // namespace

// One block per query. Each thread has four elements of the result, for some of the parts, which it loads before it
// uses them.
ir::Function trace_attention_combine(const AttentionCombineSpec& spec) {
  constexpr int together = 4, elements = 4;
  const int head_size = static_cast<int>(spec.head_size), length = head_size + 2;
  const int slices = static_cast<int>(spec.slices), lanes = (head_size + elements - 1) / elements;
  ir::Builder builder(spec.out.quantised ? "attention_combine_quantise" : "attention_combine", ir::KernelKind::block,
                      {static_cast<std::uint32_t>(lanes), spec.slices, 1});
  ir::Builder::Scope scope(builder);
  const auto work = ir::buffer_param("work", DType::f32, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.out.quantised ? DType::u32 : DType::f32, ir::Access::read_write);
  const ir::Value parts = ir::scalar_param("parts", DType::index), heads = ir::scalar_param("heads", DType::index),
                  tokens = ir::scalar_param("tokens", DType::index);
  const auto sinks = spec.sinks ? ir::buffer_param("sinks", DType::f32, ir::Access::read) : ir::BufferRef();
  const ir::Value lane = ir::thread_id(0), slice = ir::thread_id(1);
  const ir::Value token = ir::block_id(0) / heads, head = ir::block_id(0) % heads;
  // The blocks that pad the last tile repeat the work for the last token.
  const ir::Value base = (ir::min(token, tokens - 1) * heads + head) * parts * length;
  const ir::Value infinite = ir::literal(DType::f32, -infinity), zero = ir::literal(DType::f32, 0);
  const auto exists = [&](int e) {
    return lanes * elements == head_size ? ir::Value() : lane * elements + e < head_size;
  };

  const ir::Variable top(DType::f32, infinite), total(DType::f32, 0.0f);
  std::vector<ir::Variable> sums;
  for (int e = 0; e < elements; ++e) sums.emplace_back(DType::f32, 0.0f);
  ir::for_(slice, parts, slices * together, [&](ir::Value first) {
    std::vector<ir::Value> tops, totals, values;
    for (int u = 0; u < together; ++u) {
      const ir::Value part = first + u * slices, is = part < parts, state = base + part * length;
      tops.push_back(work.load_if(is, state + head_size, infinite));
      totals.push_back(work.load_if(is, state + (head_size + 1), zero));
      for (int e = 0; e < elements; ++e)
        values.push_back(load_at(work, state + lane * elements + e, exists(e).valid() ? is && exists(e) : is));
    }
    ir::Value now = top.get();
    for (const ir::Value& t : tops) now = ir::max(now, t);
    const ir::Value shift = shift_of(now), shrink = ir::exp(top.get() - shift);
    ir::Value all = total.get() * shrink;
    for (std::size_t u = 0; u < tops.size(); ++u)
      tops[u] = ir::exp(tops[u] - shift), all = ir::fma(tops[u], totals[u], all);
    for (std::size_t e = 0; e < elements; ++e) {
      ir::Value v = sums[e].get() * shrink;
      for (std::size_t u = 0; u < tops.size(); ++u) v = ir::fma(tops[u], values[u * elements + e], v);
      sums[e].set(v);
    }
    total.set(all), top.set(now);
  });

  // Every slice combines the states of all slices; the first one stores the result.
  const auto room = [&](int count) { return ir::shared(DType::f32, static_cast<std::uint64_t>(count * slices)); };
  const auto slice_tops = room(1), slice_totals = room(1), slice_sums = room(lanes * elements);
  ir::if_(lane == 0, [&] { slice_tops.store(slice, top.get()), slice_totals.store(slice, total.get()); });
  for (int e = 0; e < elements; ++e)
    slice_sums.store((slice * elements + e) * lanes + lane, sums[static_cast<std::size_t>(e)].get());
  ir::barrier();
  ir::Value highest = slice_tops.load(0);
  for (int s = 1; s < slices; ++s) highest = ir::max(highest, slice_tops.load(s));
  const ir::Value shift = shift_of(highest);
  ir::Value weight = zero;
  std::array<ir::Value, elements> v = {zero, zero, zero, zero}, stores;
  for (int s = 0; s < slices; ++s) {
    const ir::Value factor = ir::exp(slice_tops.load(s) - shift);
    weight = ir::fma(factor, slice_totals.load(s), weight);
    for (int e = 0; e < elements; ++e) {
      ir::Value& sum = v[static_cast<std::size_t>(e)];
      sum = ir::fma(factor, slice_sums.load((s * elements + e) * lanes + lane), sum);
    }
  }
  if (spec.sinks) weight = with_sink(weight, highest, sinks.load(head));
  for (int e = 0; e < elements; ++e) {
    v[static_cast<std::size_t>(e)] = v[static_cast<std::size_t>(e)] / weight;
    stores[static_cast<std::size_t>(e)] = exists(e).valid() ? slice == 0 && exists(e) : slice == 0;
  }
  InputStore{spec.out, out, heads * head_size}(token, head * head_size + lane * elements, v, stores);
  return builder.finish();
}

AttentionCombineSpec choose_attention_combine(std::int64_t head_size) {
  AttentionCombineSpec s{static_cast<std::uint32_t>(head_size)};
  const std::uint32_t lanes = (s.head_size + 3) / 4;
  while (2 * s.slices * lanes <= 128) s.slices *= 2;
  return s;
}

std::int64_t attention_parts(const AttentionSpec& spec, std::int64_t tokens, std::int64_t heads, std::int64_t group,
                             std::int64_t capacity) {
  constexpr std::int64_t wanted_blocks = 264;  // two for each multiprocessor of a large GPU
  const std::int64_t chunks = (group + spec.queries - 1) / spec.queries, blocks = tokens * (heads / group) * chunks;
  return std::clamp<std::int64_t>((wanted_blocks + blocks - 1) / blocks, 1,
                                  std::max<std::int64_t>(1, capacity / shortest_part));
}

ir::Function trace_attention(const AttentionSpec& spec) {
  constexpr const char* names[] = {"attention_vectors", "attention_positions", "attention_tokens", "attention_parts"};
  ir::Builder builder(names[spec.form], ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  if (spec.form == AttentionSpec::parts) {
    builder.set_min_blocks(2);  // the state of several queries needs many registers
    part_of_positions(spec);
  } else if (spec.form == AttentionSpec::tokens)
    many_queries(spec);
  else
    one_query(spec);
  return builder.finish();
}

AttentionSpec choose_attention(const Tiles& tiles, DType cache, std::int64_t head_size, std::int64_t tokens,
                               std::int64_t group) {
  AttentionSpec s{AttentionSpec::vectors, cache, static_cast<std::uint32_t>(head_size),
                  std::min(tiles.block_limit, 16u)};
  if (tokens >= 8) {
    s.form = AttentionSpec::tokens, s.converted = tiles.vectors && cache != DType::f32;
    // Queries and sums are in shared memory.
    const auto bytes = [&] { return 2 * sizeof(float) * s.head_size * s.threads; };
    while (s.threads > 1 && bytes() > tiles.shared_bytes) s.threads /= 2;
  } else if (!tiles.vectors && tiles.subgroup >= row_lanes && tiles.block_limit >= 128)
    s.form = AttentionSpec::parts, s.threads = 128,
    s.queries = std::min(group >= 4   ? 4u
                         : group >= 2 ? 2u
                                      : 1u,
                         head_size > 256   ? 1u
                         : head_size > 128 ? 2u
                                           : 4u);
  else if (!tiles.vectors)
    s.form = AttentionSpec::positions, s.threads = std::min(tiles.block_limit, 64u);
  return s;
}

}  // namespace tessera::ops
