// SPDX-License-Identifier: Apache-2.0
// Attention over pages of several sequences: compared with attention over one cache, and bit for bit between batches.
#include "tessera/ops/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tessera/array/functions.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight_blocks.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using ops::page_positions, ops::paged_attention, ops::paged_store, ops::PagedLayer, ops::PagedTokens;
using test::expect_throw;
using test::OnEveryDevice;

struct Case {
  std::int64_t heads, key_heads, head_size;
  DType cache = DType::f32;
  std::int64_t window = 0;
  float cap = 0;
  bool sinks = false;
};

class AttendsToPages : public OnEveryDevice {
 protected:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n)); }
  Array i32(const std::vector<std::int32_t>& v, Shape shape) {
    return Array::from(std::span<const std::int32_t>(v), std::move(shape), GetParam());
  }

  /// The pages of sequences with these lengths, in random order.
  struct Pages {
    std::int64_t count = 0, width = 1;
    std::vector<std::int32_t> tables;
  };
  Pages deal(const std::vector<std::int64_t>& lengths) {
    Pages pages;
    for (const std::int64_t n : lengths) {
      const std::int64_t own = (n + page_positions - 1) / page_positions;
      pages.count += own, pages.width = std::max(pages.width, own);
    }
    ++pages.count;  // a spare page
    std::vector<std::int32_t> order(static_cast<std::size_t>(pages.count));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::ranges::shuffle(order, random);
    std::size_t next = 0;
    for (const std::int64_t n : lengths)
      for (std::int64_t p = 0; p < pages.width; ++p)
        pages.tables.push_back(p * page_positions < n ? order[next++] : order.back());
    return pages;
  }

  /// Tokens [from, until) of a sequence in a step.
  struct Piece {
    std::size_t sequence;
    std::int64_t from, until;
  };
  /// Pieces of one token are single; longer pieces are groups, unless `single` is true.
  PagedTokens tokens_of(const Pages& pages, std::size_t sequences, const std::vector<Piece>& pieces, bool single) {
    std::vector<std::int32_t> of, at, groups;
    std::int32_t count = 0;
    std::int64_t singles = 0;
    for (const Piece& p : pieces) {
      for (std::int64_t t = p.from; t < p.until; ++t)
        of.push_back(static_cast<std::int32_t>(p.sequence)), at.push_back(static_cast<std::int32_t>(t));
      const auto length = static_cast<std::int32_t>(p.until - p.from);
      if (single || length == 1)
        singles += length;
      else
        for (std::int32_t done = 0; done < length; done += 16)
          groups.push_back(count + done), groups.push_back(std::min(16, length - done));
      count += length;
    }
    PagedTokens tokens{i32(pages.tables, {static_cast<std::int64_t>(sequences), pages.width}), i32(of, {count}),
                       i32(at, {count}), singles};
    if (!groups.empty()) tokens.groups = i32(groups, {static_cast<std::int64_t>(groups.size() / 2), 2});
    return tokens;
  }

  void check(const Case& c) {
    const float scale = 1 / std::sqrt(static_cast<float>(c.head_size));
    const std::vector<std::int64_t> lengths = {1, 1 + below(70), 64, 65 + below(100)};
    std::vector<Array> q, k, v;
    for (const std::int64_t n : lengths) {
      const auto made = [&](std::int64_t heads) {
        return Array::from(numbers(n * heads * c.head_size), Shape{n, heads, c.head_size});
      };
      q.push_back(made(c.heads)), k.push_back(made(c.key_heads)), v.push_back(made(c.key_heads));
    }
    std::optional<Array> sinks;
    if (c.sinks) sinks = Array::from(numbers(c.heads), Shape{c.heads}, GetParam());
    const Pages pages = deal(lengths);
    PagedLayer layer = PagedLayer::zeros(pages.count, c.key_heads, c.head_size, c.cache, GetParam());
    // What other sequences leave in pages must not matter.
    layer.keys.assign(Array::full(layer.keys.shape(), c.cache == DType::i8 ? 100 : 1e4, c.cache, GetParam()));
    const auto run = [&](const std::vector<Piece>& pieces, bool single) {
      const PagedTokens tokens = tokens_of(pages, lengths.size(), pieces, single);
      std::vector<Array> queries, keys, values;
      for (const Piece& p : pieces)
        for (auto [from, to] : {std::pair(&q, &queries), std::pair(&k, &keys), std::pair(&v, &values)})
          to->push_back((*from)[p.sequence].slice(0, p.from, p.until));
      paged_store(layer, concatenate(keys, 0), concatenate(values, 0), tokens);
      const Array all = paged_attention(concatenate(queries, 0), layer, tokens, scale, c.window, c.cap, sinks);
      std::vector<Array> of_piece;
      std::int64_t at = 0;
      for (const Piece& p : pieces)
        of_piece.push_back(all.slice(0, at, at + p.until - p.from).eval()), at += p.until - p.from;
      return of_piece;
    };
    std::vector<Piece> whole;
    for (std::size_t s = 0; s < lengths.size(); ++s) whole.push_back({s, 0, lengths[s]});
    const std::vector<Array> grouped = run(whole, false), single = run(whole, true);
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const Shape cache{c.key_heads, lengths[s], cache_row(c.head_size, c.cache)};
      Array keys = Array::zeros(cache, c.cache, GetParam()), values = Array::zeros(cache, c.cache, GetParam());
      cache_store(keys, k[s], 0), cache_store(values, v[s], 0);
      const Array expected = attention(q[s], keys, values, 0, scale, c.window, c.cap, sinks);
      // With matrix units, the reference rounds queries and weights to f16.
      EXPECT_LE(max(abs(grouped[s] - expected)).item<float>(), c.cache == DType::f16 ? 4e-3f : 2e-5f)
          << "sequence " << s;
      EXPECT_EQ(grouped[s].to_vector<float>(), single[s].to_vector<float>()) << "sequence " << s;
    }
    // Pieces of random lengths, together with tokens of other sequences.
    std::vector<std::int64_t> done(lengths.size());
    for (int steps = 0; steps < 6; ++steps) {
      std::vector<Piece> pieces;
      for (std::size_t s = 0; s < lengths.size(); ++s) {
        const std::int64_t begin = done[s] < lengths[s] ? done[s] : below(lengths[s]);
        const std::int64_t end = std::min(lengths[s], begin + 1 + below(steps % 2 == 0 ? 1 : 40));
        pieces.push_back({s, begin, end}), done[s] = end;
      }
      std::ranges::stable_sort(
          pieces, [](const Piece& a, const Piece& b) { return (a.until - a.from == 1) > (b.until - b.from == 1); });
      const std::vector<Array> got = run(pieces, false);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const Piece& p = pieces[i];
        EXPECT_EQ(got[i].to_vector<float>(), single[p.sequence].slice(0, p.from, p.until).to_vector<float>())
            << "sequence " << p.sequence << ", tokens " << p.from << " to " << p.until;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, AttendsToPages, ::testing::ValuesIn(testing::all_devices()), [](const auto& info) {
  return std::string(backend_name(info.param.backend)) + std::to_string(info.param.index);
});

TEST_P(AttendsToPages, ResultsDoNotDependOnTheBatch) {
  check({5, 1, 80, DType::f16});
  check({2, 1, 128, DType::f32, 70, 5, true});
  check({4, 2, 64, DType::i8, 30, 5, true});
  if (compiles_slowly()) return;
  check({2, 1, 256, DType::f16});
  check({2, 1, 512, DType::f16});
  check({4, 2, 64});
  check({4, 4, 20});
  check({8, 2, 64, DType::f16, 30, 0, true});
}

// Numbers of a cache of i8 are those of Q8_0, within one step if rounding is a tie. Attention over them, compared with
// a double-precision one, is as exact as over other caches.
TEST_P(AttendsToPages, CachesOfI8HoldTheNumbersOfQ8_0) {
  constexpr std::int64_t length = 90, size = 64;
  const Shape shape{length, 1, size};
  std::vector<float> k = numbers(length * size), v = numbers(length * size);
  for (std::size_t i = 0; i < 64; ++i) k[i] = 0;  // blocks of zeros
  const std::vector<float> q = numbers(length * size);
  const auto rounded = [](const std::vector<float>& x) {
    std::vector<double> out;
    for (std::size_t at = 0; at < x.size(); at += 32) {
      std::array<float, 32> block;
      dequantize(quantize_q8_0(std::span<const float, 32>(x.data() + at, 32)), block);
      out.insert(out.end(), block.begin(), block.end());
    }
    return out;
  };
  const std::vector<double> keys = rounded(k), values = rounded(v);
  const Array on_device[] = {Array::from(k, shape, GetParam()), Array::from(v, shape, GetParam())};
  Array cache[2];
  for (std::size_t i = 0; i < 2; ++i) {
    cache[i] = Array::zeros({1, length + 3, cache_row(size, DType::i8)}, DType::i8, GetParam());
    EXPECT_EQ(cache[i].bytes(), static_cast<std::uint64_t>(length + 3) * 2 * 34);
    cache_store(cache[i], on_device[i].slice(0, 0, 40), 0),
        cache_store(cache[i], on_device[i].slice(0, 40, length), 40);
  }
  for (const std::int64_t tokens : {length, std::int64_t{1}}) {  // kernels for many tokens and for one
    const std::int64_t past = length - tokens;
    const auto begin = q.begin() + past * size;
    const Array queries = Array::from(std::vector<float>(begin, q.end()), Shape{tokens, 1, size}, GetParam());
    const std::vector<float> got = attention(queries, cache[0], cache[1], past, 0.125f).to_vector<float>();
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<double> weights, expected(size);
      double total = 0;
      for (std::int64_t j = 0; j <= past + t; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < size; ++d)
          score += static_cast<double>(q[static_cast<std::size_t>((past + t) * size + d)]) *
                   keys[static_cast<std::size_t>(j * size + d)];
        weights.push_back(std::exp(score * 0.125)), total += weights.back();
      }
      for (std::size_t j = 0; j < weights.size(); ++j)
        for (std::size_t d = 0; d < size; ++d) expected[d] += weights[j] / total * values[j * size + d];
      for (std::size_t d = 0; d < size; ++d)
        ASSERT_NEAR(got[static_cast<std::size_t>(t) * size + d], expected[d], 1e-3) << "token " << t << " at " << d;
    }
  }
  expect_throw<ShapeError>([&] { cache_row(80, DType::i8); }, {"80", "q8_0", "32", "f16"});
  expect_throw<DtypeError>([&] { cache_row(64, DType::i16); }, {"i16", "f16", "i8"});
}

TEST_P(AttendsToPages, TokensWithTheLastPositionAttendToTheWholeSequence) {
  const std::vector<std::int64_t> lengths = {1, 20, 65 + below(40)};
  const std::int64_t heads = 2, size = 16, count = lengths[0] + lengths[1] + lengths[2];
  const auto made = [&] { return Array::from(numbers(count * heads * size), Shape{count, heads, size}); };
  const Array q = made(), k = made(), v = made();
  const Pages pages = deal(lengths);
  for (const bool single : {false, true}) {
    const PagedTokens stored =
        tokens_of(pages, lengths.size(), {{0, 0, lengths[0]}, {1, 0, lengths[1]}, {2, 0, lengths[2]}}, single);
    std::vector<std::int32_t> last;
    for (const std::int64_t n : lengths)
      last.insert(last.end(), static_cast<std::size_t>(n), static_cast<std::int32_t>(n - 1));
    PagedTokens seen = stored;
    seen.positions = i32(last, {count}), seen.equal_positions = true;
    PagedLayer layer = PagedLayer::zeros(pages.count, heads, size, DType::f32, GetParam());
    paged_store(layer, k, v, stored);
    const Array got = paged_attention(q, layer, seen, 0.25f);
    std::int64_t at = 0;
    for (const std::int64_t n : lengths) {
      const auto part = [&](const Array& x) {  // (1, heads, tokens, size)
        return x.slice(0, at, at + n).permute({1, 0, 2}).copy().reshape({1, heads, n, size});
      };
      const Array want = scaled_dot_product_attention(part(q), part(k), part(v), {.scale = 0.25});
      EXPECT_LE(max(abs(part(got) - want)).item<float>(), 2e-5f) << "a sequence of " << n << " tokens";
      at += n;
    }
  }
}

TEST_P(AttendsToPages, RotaryTakesAPositionForEachToken) {
  const Array x = Array::from(numbers(5 * 2 * 16), Shape{5, 2, 16});
  const std::vector<std::int32_t> positions = {7, 0, 1000, 3, 3};
  const Rotary how{.dimensions = 8};
  const Array all = rotary(x, Position::each(i32(positions, {5})), how);
  for (std::int64_t t = 0; t < 5; ++t)
    EXPECT_EQ(all.slice(0, t, t + 1).to_vector<float>(),
              rotary(x.slice(0, t, t + 1), positions[static_cast<std::size_t>(t)], how).to_vector<float>());
  expect_throw<ShapeError>([&] { rotary(x, Position::each(i32({1, 2}, {2})), how); }, {"one position for each token"});
  const Position each = Position::each(i32({1, 2, 3, 4, 5}, {5}));
  Array cache = Array::zeros({2, 8, 16}, DType::f16, GetParam());
  expect_throw<ArgumentError>([&] { cache_store(cache, x, each); }, {"cache_store", "consecutive"});
  expect_throw<ArgumentError>([&] { attention(x, cache, cache, each, 1); }, {"attention", "consecutive"});
}

TEST_P(AttendsToPages, OperandsThatDoNotMatchThrow) {
  const Pages pages = deal({3});
  const PagedTokens tokens = tokens_of(pages, 1, {{0, 0, 3}}, true);
  PagedLayer layer = PagedLayer::zeros(pages.count, 1, 8, DType::f16, GetParam());
  const Array q = Array::from(numbers(3 * 2 * 8), Shape{3, 2, 8}), row = q.slice(1, 0, 1);
  paged_store(layer, row, row, tokens);
  expect_throw<ShapeError>([&] { paged_store(layer, q, q, tokens); }, {"paged_store", "numbers of heads"});
  expect_throw<ShapeError>([&] { paged_attention(q.slice(0, 0, 2), layer, tokens, 1); }, {"one position for each"});
  expect_throw<ShapeError>([&] { paged_attention(q.slice(2, 0, 4), layer, tokens, 1); }, {"head size"});
  expect_throw<ArgumentError>([&] { paged_attention(q, layer, tokens, 1, -1); }, {"window"});
  const Array sinks = Array::ones({2});
  expect_throw<ShapeError>([&] { paged_attention(q, layer, tokens, 1, 0, 0, sinks.slice(0, 0, 1)); }, {"sink"});
  expect_throw<DtypeError>([&] { paged_attention(q, layer, tokens, 1, 0, 0, sinks.astype(DType::f16)); }, {"sinks"});
  PagedTokens fewer = tokens;
  fewer.single = 2;
  expect_throw<ShapeError>([&] { paged_attention(q, layer, fewer, 1); }, {"single, or in a group"});
  PagedTokens wide = tokens;
  wide.positions = tokens.positions.astype(DType::i64);
  expect_throw<ShapeError>([&] { paged_attention(q, layer, wide, 1); }, {"contiguous i32"});
}

}  // namespace
}  // namespace tessera
