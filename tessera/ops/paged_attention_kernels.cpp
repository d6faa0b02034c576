// SPDX-License-Identifier: Apache-2.0
// Causal attention with online softmax (Milakov and Gimelshein 2018) over pages of 64 positions. Both kernels compute
// the same numbers in the same order for each query, so that its result does not depend on other tokens:
// - scores are sums over the head, in its order; keys are stored transposed, so that adjacent threads can have adjacent
//   positions;
// - the maximum is that of all positions of a page, after which the sums are rescaled once;
// - the sums of the weights, and of the weighted values, are computed in the order of positions.
#include "tessera/ops/cache_buffer.h"
#include "tessera/ops/kernels.h"
#include "tessera/ops/online_softmax.h"
#include "tessera/ops/paged_attention.h"

namespace tessera::ops {

namespace {

constexpr int page = page_positions;
constexpr int converted_positions = 32;  // of keys and values for groups of tokens, at a time

struct Parameters {
  ir::BufferRef q, out, tables, positions;
  CacheBuffer keys, values;
  ir::Value heads, group, width, scale, window, cap;
  int head_size;

  explicit Parameters(const PagedAttentionSpec& spec) : head_size(static_cast<int>(spec.head_size)) {
    q = ir::buffer_param("q", DType::f32, ir::Access::read);
    keys = CacheBuffer("keys", "key_scales", spec.cache, spec.head_size);
    values = CacheBuffer("values", "value_scales", spec.cache, spec.head_size);
    out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
    tables = ir::buffer_param("tables", DType::i32, ir::Access::read);
    sequences = ir::buffer_param("sequences", DType::i32, ir::Access::read);
    positions = ir::buffer_param("positions", DType::i32, ir::Access::read);
    heads = ir::scalar_param("heads", DType::index), group = ir::scalar_param("group", DType::index);
    width = ir::scalar_param("width", DType::index);
    scale = ir::scalar_param("scale", DType::f32);
    if (spec.window) window = ir::scalar_param("window", DType::index);
    if (spec.cap) cap = ir::scalar_param("cap", DType::f32);
    has_sinks = spec.sinks;
    if (has_sinks) sinks = ir::buffer_param("sinks", DType::f32, ir::Access::read);
  }
  /// Returns the sum of a head's weights, including that of its sink. `sum` belongs to the scores up to `largest`.
  ir::Value total(ir::Value sum, ir::Value largest, ir::Value head) const {
    return has_sinks ? with_sink(sum, largest, sinks.load(head)) : sum;
  }
  ir::Value number(const ir::BufferRef& from, ir::Value at) const { return ir::cast(DType::index, from.load(at)); }
  ir::Value table_of(ir::Value token) const { return number(sequences, token) * width; }
  /// The first element of a head in the page of position `base`, of keys and of values.
  ir::Value head_of_page(ir::Value table, ir::Value base, ir::Value key_head) const {
    return (number(tables, table + base / page) * (heads / group) + key_head) * (keys.row() * page);
  }
  /// The first position of the page that contains the first position that a token at `position` attends to.
  ir::Value first_page(ir::Value position) const {
    if (!window.valid()) return ir::index_literal(0);
    return ir::max(position + 1 - window, ir::index_literal(0)) / page * page;
  }
  /// Returns the score, or -inf if a token at `position` does not attend to `other`.
  ir::Value visible(ir::Value score, ir::Value other, ir::Value position) const {
    ir::Value sees = other <= position;
    if (window.valid()) sees = sees & (other + window > position);
    return ir::select(sees, cap.valid() ? cap * ir::tanh(score / cap) : score, ir::literal(DType::f32, -infinity));
  }

 private:
  ir::BufferRef sequences, sinks;
  bool has_sinks = false;
};

// One block for one token and a few heads with the same key head. Threads are positions in the scores, and elements of
// the head in the sums.
void single_tokens(const PagedAttentionSpec& spec) {
  const Parameters p(spec);
  const int threads = static_cast<int>(spec.threads), queries = static_cast<int>(spec.queries);
  const int each = page / threads, parts = (p.head_size + threads - 1) / threads;
  const ir::Value lane = ir::thread_id(), chunks = (p.group + (queries - 1)) / queries, key_heads = p.heads / p.group;
  const ir::Value chunk = ir::block_id(0) % chunks, pair = ir::block_id(0) / chunks;
  const ir::Value key_head = pair % key_heads, token = pair / key_heads;
  const ir::Value position = p.number(p.positions, token), table = p.table_of(token);
  // Queries past the last one repeat its work and store nothing.
  std::vector<ir::Value> heads, rows;
  for (int i = 0; i < queries; ++i) {
    heads.push_back(key_head * p.group + ir::min(chunk * queries + i, p.group - 1));
    rows.push_back((token * p.heads + heads.back()) * p.head_size);
  }
  const auto element = [&](int part) { return lane + part * threads; };
  const auto exists = [&](int part) {
    return (part + 1) * threads <= p.head_size ? ir::Value() : element(part) < p.head_size;
  };
  const auto at = [](int i, int count, int n) { return static_cast<std::size_t>(i * count + n); };

  std::vector<ir::Variable> largest, total, sums;
  for (int i = 0; i < queries; ++i) {
    largest.emplace_back(DType::f32, ir::literal(DType::f32, -infinity)), total.emplace_back(DType::f32, 0.0f);
    for (int part = 0; part < parts; ++part) sums.emplace_back(DType::f32, 0.0f);
  }
  const auto weights = ir::shared(DType::f32, static_cast<std::uint64_t>(queries) * page);
  ir::for_(p.first_page(position), position + 1, page, [&](ir::Value base) {
    const ir::Value head = p.head_of_page(table, base, key_head);
    std::vector<ir::Variable> scores;
    for (int n = 0; n < queries * each; ++n) scores.emplace_back(DType::f32, 0.0f);
    ir::for_(0, p.head_size, [&](ir::Value d) {
      std::vector<ir::Value> keys;
      for (int u = 0; u < each; ++u) keys.push_back(p.keys.load_transposed(head, d, u * threads + lane));
      for (int i = 0; i < queries; ++i) {
        const ir::Value q = p.q.load(rows[static_cast<std::size_t>(i)] + d) * p.scale;
        for (int u = 0; u < each; ++u)
          scores[at(i, each, u)].set(ir::fma(q, keys[static_cast<std::size_t>(u)], scores[at(i, each, u)].get()));
      }
    });
    for (int i = 0; i < queries; ++i) {
      std::vector<ir::Value> seen;
      for (int u = 0; u < each; ++u)
        seen.push_back(p.visible(scores[at(i, each, u)].get(), base + u * threads + lane, position));
      ir::Value top = seen[0];
      for (std::size_t u = 1; u < seen.size(); ++u) top = ir::max(top, seen[u]);
      const ir::Variable& most = largest[static_cast<std::size_t>(i)];
      const ir::Value before = most.get(), now = ir::max(before, ir::block_max(top));
      const ir::Value shift = shift_of(now), shrink = ir::exp(before - shift);
      for (int u = 0; u < each; ++u)
        weights.store(i * page + u * threads + lane, ir::exp(seen[static_cast<std::size_t>(u)] - shift));
      const ir::Variable& sum = total[static_cast<std::size_t>(i)];
      sum.set(sum.get() * shrink);
      for (int part = 0; part < parts; ++part) sums[at(i, parts, part)].set(sums[at(i, parts, part)].get() * shrink);
      most.set(now);
    }
    ir::barrier();
    ir::for_(0, ir::min(position + 1 - base, page), [&](ir::Value j) {
      std::vector<ir::Value> values;
      for (int part = 0; part < parts; ++part)
        values.push_back(p.values.load(head + j * p.values.row(), element(part), exists(part),
                                       CacheBuffer::block_of(part * threads, threads)));
      for (int i = 0; i < queries; ++i) {
        const ir::Value e = weights.load(i * page + j);
        const ir::Variable& sum = total[static_cast<std::size_t>(i)];
        sum.set(sum.get() + e);
        for (int part = 0; part < parts; ++part)
          sums[at(i, parts, part)].set(
              ir::fma(e, values[static_cast<std::size_t>(part)], sums[at(i, parts, part)].get()));
      }
    });
    ir::barrier();
  });
  for (int i = 0; i < queries; ++i) {
    const auto query = static_cast<std::size_t>(i);
    const ir::Value weight = p.total(total[query].get(), largest[query].get(), heads[query]);
    for (int part = 0; part < parts; ++part) {
      const ir::Value is = chunk * queries + i < p.group;
      ir::if_(exists(part).valid() ? is & exists(part) : is,
              [&] { p.out.store(rows[query] + element(part), sums[at(i, parts, part)].get() / weight); });
    }
  }
}

// One block for a group of tokens and a head; threads are tokens. Each thread has a column of shared memory for its
// query, its sums and its scores. Keys and values are converted to f32 once for all threads, a part of a page at a
// time.
void groups_of_tokens(const PagedAttentionSpec& spec) {
  const Parameters p(spec);
  const auto groups = ir::buffer_param("groups", DType::i32, ir::Access::read);
  constexpr int together = 8, part = converted_positions;  // `together`: sums in registers
  const int threads = static_cast<int>(spec.threads), head_size = p.head_size;
  const int step = head_size % together == 0 ? together : 1;
  const ir::Value lane = ir::thread_id(), head = ir::block_id(0) % p.heads, group = ir::block_id(0) / p.heads;
  const ir::Value first = p.number(groups, 2 * group), count = p.number(groups, 2 * group + 1);
  const ir::Value key_head = head / p.group, start = p.number(p.positions, first), table = p.table_of(first);
  // Threads past the last token repeat the work for the last token and store nothing.
  const ir::Value in_group = ir::min(lane, count - 1);
  const ir::Value position = spec.equal ? start : start + in_group, last = spec.equal ? start : start + count - 1;
  const ir::Value row = ((first + in_group) * p.heads + head) * head_size;

  const auto column = [&](int elements) {
    return ir::shared(DType::f32, static_cast<std::uint64_t>(elements) * spec.threads);
  };
  const auto q = column(head_size), sums = column(head_size), weights = column(page);
  const auto room = ir::shared(DType::f32, static_cast<std::uint64_t>(part) * spec.head_size);
  ir::for_(0, head_size, [&](ir::Value d) {
    q.store(d * threads + lane, p.q.load(row + d) * p.scale);
    sums.store(d * threads + lane, 0.0f);
  });
  const ir::Variable largest(DType::f32, ir::literal(DType::f32, -infinity)), total(DType::f32, 0.0f);
  ir::for_(p.first_page(start), last + 1, page, [&](ir::Value base) {
    const ir::Value from = p.head_of_page(table, base, key_head), used = ir::min(last + 1 - base, page);
    const ir::Variable top(DType::f32, largest.get());
    ir::for_(0, used, part, [&](ir::Value begin) {
      ir::for_(0, head_size, [&](ir::Value d) {  // (head size, 32)
        for_lanes(ir::index_literal(part), spec.threads, lane, [&](ir::Value j, ir::Value exists) {
          const auto copy = [&] { room.store(d * part + j, p.keys.load_transposed(from, d, begin + j)); };
          exists.valid() ? ir::if_(exists, copy) : copy();
        });
      });
      ir::barrier();
      ir::for_(0, part, together, [&](ir::Value j) {
        std::vector<ir::Variable> scores;
        for (int u = 0; u < together; ++u) scores.emplace_back(DType::f32, 0.0f);
        ir::for_(0, head_size, [&](ir::Value d) {
          const ir::Value element = q.load(d * threads + lane);
          for (int u = 0; u < together; ++u) {
            const ir::Variable& score = scores[static_cast<std::size_t>(u)];
            score.set(ir::fma(element, room.load(d * part + j + u), score.get()));
          }
        });
        for (int u = 0; u < together; ++u) {
          const ir::Value in_page = begin + j + u;
          const ir::Value score = p.visible(scores[static_cast<std::size_t>(u)].get(), base + in_page, position);
          weights.store(in_page * threads + lane, score);
          top.set(ir::max(top.get(), score));
        }
      });
      ir::barrier();
    });
    const ir::Value now = top.get(), shift = shift_of(now), shrink = ir::exp(largest.get() - shift);
    largest.set(now);
    total.set(total.get() * shrink);
    ir::for_(0, used, [&](ir::Value j) {
      const ir::Value e = ir::exp(weights.load(j * threads + lane) - shift);
      weights.store(j * threads + lane, e);
      total.set(total.get() + e);
    });
    ir::for_(0, head_size,
             [&](ir::Value d) { sums.store(d * threads + lane, sums.load(d * threads + lane) * shrink); });
    ir::for_(0, used, part, [&](ir::Value begin) {
      const ir::Value end = ir::min(used - begin, part);
      ir::for_(0, end, [&](ir::Value j) {  // (32, head size)
        p.values.convert(from + (begin + j) * p.values.row(), room, j * head_size, spec.threads, lane);
      });
      ir::barrier();
      ir::for_(0, head_size, step, [&](ir::Value d) {
        std::vector<ir::Variable> parts;
        for (int u = 0; u < step; ++u) parts.emplace_back(DType::f32, sums.load((d + u) * threads + lane));
        ir::for_(0, end, [&](ir::Value j) {
          const ir::Value e = weights.load((begin + j) * threads + lane);
          for (int u = 0; u < step; ++u) {
            const ir::Variable& sum = parts[static_cast<std::size_t>(u)];
            sum.set(ir::fma(e, room.load(j * head_size + d + u), sum.get()));
          }
        });
        for (int u = 0; u < step; ++u) sums.store((d + u) * threads + lane, parts[static_cast<std::size_t>(u)].get());
      });
      ir::barrier();
    });
  });
  const ir::Value weight = p.total(total.get(), largest.get(), head);
  ir::if_(lane < count, [&] {
    ir::for_(0, head_size, [&](ir::Value d) { p.out.store(row + d, sums.load(d * threads + lane) / weight); });
  });
}

}  // namespace

ir::Function trace_paged_attention(const PagedAttentionSpec& spec) {
  ir::Builder builder(spec.groups ? "paged_attention_groups" : "paged_attention", ir::KernelKind::block,
                      {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  spec.groups ? groups_of_tokens(spec) : single_tokens(spec);
  return builder.finish();
}

// The launch dimensions are: elements of a head, or its blocks of 32 in a cache of i8; heads; tokens.
ir::Function trace_paged_store(const PagedStoreSpec& spec) {
  ir::Builder builder("paged_store", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto rows = ir::buffer_param("rows", spec.rows, ir::Access::read);
  const auto pages = ir::buffer_param("pages", spec.cache, ir::Access::read_write);
  const bool quantised = spec.cache == DType::i8;
  const auto tables = ir::buffer_param("tables", DType::i32, ir::Access::read);
  const auto sequences = ir::buffer_param("sequences", DType::i32, ir::Access::read);
  const auto positions = ir::buffer_param("positions", DType::i32, ir::Access::read);
  const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
  const ir::Value width = number("width"), token_stride = number("token_stride"), head_stride = number("head_stride");
  const ir::Value i = ir::global_id(0), head = ir::global_id(1), token = ir::global_id(2);
  const auto index = [](ir::Value v) { return ir::cast(DType::index, v); };
  const ir::Value position = index(positions.load(token)), table = index(sequences.load(token)) * width;
  const ir::Value at = index(tables.load(table + position / page)) * ir::extent(1) + head, in_page = position % page;
  const ir::Value from = token * token_stride + head * head_stride;
  if (quantised) {
    const ir::Value blocks = ir::extent(0), size = blocks * cache_block, row = size + blocks * 2;
    const ir::Value begin = at * row * page;  // of the head in the page
    std::vector<ir::Value> values;
    for (int n = 0; n < cache_block; ++n) values.push_back(load_at(rows, from + i * cache_block + n, {}));
    const RoundedBlock block(values);
    for (int n = 0; n < cache_block; ++n)
      pages.store(spec.transposed ? begin + (i * cache_block + n) * page + in_page
                                  : begin + in_page * row + i * cache_block + n,
                  block.numbers[static_cast<std::size_t>(n)]);
    const ir::Value scale =
        spec.transposed ? begin + size * page + (i * page + in_page) * 2 : begin + in_page * row + size + i * 2;
    for (int n = 0; n < 2; ++n) pages.store(scale + n, block.scale[n]);
    return builder.finish();
  }
  const ir::Value element =
      spec.transposed ? (at * ir::extent(0) + i) * page + in_page : (at * page + in_page) * ir::extent(0) + i;
  pages.store(element, ir::cast(spec.cache, load_at(rows, from + i, {})));
  return builder.finish();
}

bool can_group_tokens(const Tiles& tiles, std::int64_t head_size) {
  const auto size = static_cast<std::uint64_t>(head_size);
  const std::uint64_t columns = (2 * size + page) * most_grouped_tokens, room = converted_positions * size;
  return tiles.block_limit >= most_grouped_tokens && (columns + room) * sizeof(float) <= tiles.shared_bytes;
}

PagedAttentionSpec choose_paged_attention(const Tiles& tiles, DType cache, std::int64_t head_size, std::int64_t group,
                                          bool groups) {
  PagedAttentionSpec s{groups, cache, static_cast<std::uint32_t>(head_size)};
  if (groups) {
    s.threads = most_grouped_tokens;
  } else {
    s.threads = std::min(tiles.block_limit, tiles.vectors ? 16u : 64u);
    s.queries = group >= 4 && head_size <= 128 ? 4u : group >= 2 && head_size <= 256 ? 2u : 1u;
  }
  return s;
}

}  // namespace tessera::ops
