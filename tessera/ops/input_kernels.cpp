// SPDX-License-Identifier: Apache-2.0
// Kernels that convert activations to the layouts that packed weights read.
#include "tessera/ops/input_store.h"
#include "tessera/ops/packed_weight.h"

namespace tessera::ops {

namespace {

/// Returns `op` of the values of `lanes` consecutive lanes, a power of two.
ir::Value among(int lanes, ir::Value v, const std::function<ir::Value(ir::Value, ir::Value)>& op) {
  for (int other = lanes / 2; other > 0; other /= 2)
    v = op(v, ir::subgroup(ir::SubgroupOp::shuffle_xor, v, ir::index_literal(other)));
  return v;
}

}  // namespace

void InputStore::operator()(ir::Value token, ir::Value column, const std::array<ir::Value, 4>& v,
                            const std::array<ir::Value, 4>& exists) const {
  const int tile_tokens = static_cast<int>(layout.tokens);
  const ir::Value tile = tile_tokens == 1 ? token : token / tile_tokens,
                  in_tile = tile_tokens == 1 ? ir::index_literal(0) : token % tile_tokens;
  const auto guarded = [](ir::Value mask, const std::function<void()>& body) {
    mask.valid() ? ir::if_(mask, body) : body();
  };
  if (!layout.quantised) {
    for (int i = 0; i < 4; ++i)
      guarded(exists[static_cast<std::size_t>(i)], [&] {
        out.store((tile * columns + column + i) * tile_tokens + in_tile, v[static_cast<std::size_t>(i)]);
      });
    return;
  }
  const auto u32 = [](ir::Value value) { return ir::bitcast(DType::u32, value); };
  const int lanes = static_cast<int>(input_lanes);
  // Compares the numbers as integers, so that NaN is the largest.
  ir::Value bits = word_literal(0);
  for (const ir::Value& e : v) bits = ir::max(bits, u32(e) & word_literal(0x7fffffff));
  bits = among(lanes, bits, [](ir::Value a, ir::Value b) { return ir::max(a, b); });
  const ir::Value largest = ir::bitcast(DType::f32, bits), scale = largest / 127.0;
  const ir::Value inverse = ir::select(largest > 1e-35, 127.0 / largest, ir::literal(DType::f32, 0));
  ir::Value word = word_literal(0), sum = ir::literal(DType::i32, 0);
  for (std::size_t i = 0; i < 4; ++i) {
    const ir::Value q = ir::cast(DType::i32, ir::rint(v[i] * inverse));
    sum = sum + q;
    word = word | ((u32(q) & word_literal(255)) << word_literal(static_cast<std::uint32_t>(8 * i)));
  }
  const auto plus = [](ir::Value a, ir::Value b) { return a + b; };
  const ir::Value half = among(lanes / 2, sum, plus);  // of the 16 columns of this lane
  const ir::Value other = ir::subgroup(ir::SubgroupOp::shuffle_xor, half, ir::index_literal(lanes / 2));
  const ir::Value lane = column % 32 / 4, both = half + other, is_first = lane < lanes / 2;
  const ir::Value begin = layout.halves ? ir::select(is_first, half, other) : both;
  const ir::Value second =
      layout.halves ? ir::select(is_first, other, half) * -layout.offset : ir::literal(DType::i32, 0);
  const ir::Value heading[] = {u32(scale), u32(begin * -layout.offset), u32(second),
                               u32(scale * ir::cast(DType::f32, both))};
  ir::Value head = heading[3];
  for (int i = 3; i-- > 0;) head = ir::select(lane == i, heading[i], head);
  const ir::Value at =
      ((tile * (columns / 32) + column / 32) * tile_tokens + in_tile) * static_cast<int>(activation_words) + lane;
  guarded(exists[0], [&] {
    out.store(at + static_cast<int>(activation_heading), word);
    ir::if_(lane < static_cast<int>(activation_heading), [&] { out.store(at, head); });
  });
}

// Like trace_quantise below, but the threads of one vector process a block of 32 together, so that loads and stores are
// contiguous.
static ir::Function trace_quantise_together(const QuantiseSpec& spec) {
  const InputLayout& layout = spec.out;
  const int tokens = static_cast<int>(layout.tokens), lanes = static_cast<int>(spec.lanes), each = 32 / lanes;
  std::string name = "quantise_activations";
  if (tokens > 1) name += "_tile" + std::to_string(tokens);
  ir::Builder builder(name, ir::KernelKind::block, {spec.lanes, 1, 1});
  builder.set_exact();  // the product must be rounded before it is added
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::u8, ir::Access::read_write);
  const ir::Value steps = ir::scalar_param("steps", DType::index), count = ir::scalar_param("tokens", DType::index);
  const ir::Value lane = ir::thread_id(0), block = ir::block_id(0), tile = block / steps, step = block - tile * steps;
  const auto u32 = [](ir::Value v) { return ir::bitcast(DType::u32, v); };
  const auto i32 = [](ir::Value v) { return ir::bitcast(DType::i32, v); };
  ir::for_(0, tokens, [&](ir::Value t) {
    const ir::Value from = (ir::min(tile * tokens + t, count - 1) * steps + step) * 32 + lane,
                    to = (block * tokens + t) * static_cast<int>(4 * activation_words) + lane;
    std::vector<ir::Value> v;
    for (int i = 0; i < each; ++i) v.push_back(x.load(from + i * lanes));
    // Compares the numbers as integers, so that NaN is the largest.
    ir::Value bits = word_literal(0);
    for (const ir::Value& e : v) bits = ir::max(bits, u32(e) & word_literal(0x7fffffff));
    const ir::Value largest = ir::bitcast(DType::f32, ir::block_max(bits)), scale = largest / 127.0;
    const ir::Value inverse = ir::select(largest > 1e-35, 127.0 / largest, ir::literal(DType::f32, 0));
    // Adding 1.5 * 2^23 rounds to an integer, which is in the low bits of the sum.
    // low 16 bits: sum of the first 16 columns; high 16 bits: sum of the last 16
    ir::Value sum = ir::literal(DType::i32, 0);
    for (int i = 0; i < each; ++i) {
      const ir::Value q = u32(v[static_cast<std::size_t>(i)] * inverse + 12582912.0);
      out.store(to + (static_cast<int>(4 * activation_heading) + i * lanes),
                ir::cast(DType::u8, q & word_literal(255)));
      const ir::Value n = i32(q << word_literal(24)) >> 24;
      sum = sum + (i < each / 2 ? n : n << 16);
    }
    sum = ir::block_sum(sum);
    const ir::Value first = (sum << 16) >> 16, second = (sum - first) >> 16, both = first + second;
    const ir::Value heading[] = {u32(scale), u32((layout.halves ? first : both) * -layout.offset),
                                 u32(layout.halves ? second * -layout.offset : ir::literal(DType::i32, 0)),
                                 u32(scale * ir::cast(DType::f32, both))};
    for (int at = 0; at < static_cast<int>(4 * activation_heading); at += lanes) {
      const ir::Value word = (lane + at) / 4, byte = ir::cast(DType::u32, (lane + at) % 4) * word_literal(8);
      ir::Value w = heading[3];
      for (int i = 3; i-- > 0;) w = ir::select(word == i, heading[i], w);
      out.store(to + at, ir::cast(DType::u8, (w >> byte) & word_literal(255)));
    }
  });
  return builder.finish();
}

// Quantises activations in blocks of 32 8-bit integers with one scale, using one thread per block. NaN propagates
// through the scale. An infinity becomes an infinite scale times 0, which is also NaN.
ir::Function trace_quantise(const QuantiseSpec& spec) {
  if (spec.lanes != 0) return trace_quantise_together(spec);
  const InputLayout& layout = spec.out;
  const int tokens = static_cast<int>(layout.tokens);
  std::string name = "quantise_activations";
  if (tokens > 1) name += "_tile" + std::to_string(tokens);
  ir::Builder builder(name, ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::u32, ir::Access::read_write);
  const ir::Value id = ir::global_id();
  ir::Value from = id;
  if (tokens > 1) {
    const ir::Value steps = ir::scalar_param("steps", DType::index), count = ir::scalar_param("tokens", DType::index);
    const ir::Value row = id / tokens, tile = row / steps;
    from = ir::min(tile * tokens + id % tokens, count - 1) * steps + (row - tile * steps);
  }
  std::vector<ir::Value> v;
  for (int i = 0; i < 32; ++i) v.push_back(x.load(from * 32 + i));
  ir::Value largest = ir::literal(DType::f32, 0);
  for (const ir::Value& e : v) {
    const ir::Value a = ir::abs(e);
    largest = ir::select(a > largest || e != e, a, largest);
  }
  const ir::Value scale = largest / 127.0;
  // If the largest number is so small that the inverse of the scale would not be finite, all numbers become 0.
  const ir::Value inverse = ir::select(largest > 1e-35, 127.0 / largest, ir::literal(DType::f32, 0));
  const ir::Value base = id * static_cast<int>(activation_words);
  const ir::Value zero = ir::literal(DType::i32, 0);
  ir::Value sums[] = {zero, zero};  // of 16 columns each
  for (int w = 0; w < 8; ++w) {
    ir::Value word = word_literal(0);
    for (int i = 0; i < 4; ++i) {
      const ir::Value q = ir::cast(DType::i32, ir::rint(v[static_cast<std::size_t>(4 * w + i)] * inverse));
      sums[w / 4] = sums[w / 4] + q;
      word =
          word | ((ir::bitcast(DType::u32, q) & word_literal(255)) << word_literal(static_cast<std::uint32_t>(8 * i)));
    }
    out.store(base + (static_cast<int>(activation_heading) + w), word);
  }
  const ir::Value sum = sums[0] + sums[1];
  out.store(base, ir::bitcast(DType::u32, scale));
  out.store(base + 1, ir::bitcast(DType::u32, (layout.halves ? sums[0] : sum) * -layout.offset));
  out.store(base + 2, ir::bitcast(DType::u32, layout.halves ? sums[1] * -layout.offset : zero));
  out.store(base + 3, ir::bitcast(DType::u32, scale * ir::cast(DType::f32, sum)));
  return builder.finish();
}

// Each thread converts four consecutive elements of a token.
ir::Function trace_convert_rows(const ConvertSpec& spec) {
  const int tokens = static_cast<int>(spec.out.tokens);
  std::string name = spec.out.quantised ? "quantise_rows" : "tile_rows";
  if (tokens > 1) name += "_tile" + std::to_string(tokens);
  ir::Builder builder(name, ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.out.quantised ? DType::u32 : DType::f32, ir::Access::read_write);
  const ir::Value columns = ir::scalar_param("columns", DType::index), count = ir::scalar_param("tokens", DType::index);
  const ir::Value element = (ir::block_id(0) * static_cast<int>(spec.threads) + ir::thread_id(0)) * 4;
  const ir::Value token = element / columns, column = element - token * columns;
  const ir::Value exists = token < (count + (tokens - 1)) / tokens * tokens;
  std::array<ir::Value, 4> v;
  for (int i = 0; i < 4; ++i)
    v[static_cast<std::size_t>(i)] = load_at(x, ir::min(token, count - 1) * columns + column + i, exists);
  InputStore{spec.out, out, columns}(token, column, v, {exists, exists, exists, exists});
  return builder.finish();
}

std::optional<ConvertSpec> choose_convert_rows(const Tiles& tiles, std::int64_t columns, const InputLayout& out) {
  if (tiles.vectors || columns % (out.quantised ? 32 : 4) != 0) return {};
  if (out.quantised && tiles.subgroup < input_lanes) return {};
  return ConvertSpec{out, std::min(tiles.block_limit, 256u)};
}

// One thread per column and tile.
ir::Function trace_tile_activations(const std::uint32_t& tokens) {
  ir::Builder builder("tile_activations_" + std::to_string(tokens), ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
  const ir::Value columns = ir::scalar_param("columns", DType::index), count = ir::scalar_param("tokens", DType::index);
  const ir::Value k = ir::global_id(0), tile = ir::global_id(1);
  const int n = static_cast<int>(tokens);
  for (int t = 0; t < n; ++t)
    out.store((tile * columns + k) * n + t, x.load(ir::min(tile * n + t, count - 1) * columns + k));
  return builder.finish();
}

}  // namespace tessera::ops
