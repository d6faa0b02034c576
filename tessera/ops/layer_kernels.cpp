// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/layer_kernels.h"

#include <bit>

#include "tessera/ops/input_store.h"

namespace tessera::ops {

std::optional<AddNormSpec> choose_add_norm(const Tiles& tiles, std::int64_t columns, bool adds, const InputLayout& out,
                                           bool centres) {
  constexpr std::int64_t most_each = 8;
  if (columns % (out.quantised ? 32 : 4) != 0 || (out.quantised && tiles.subgroup < input_lanes)) return {};
  AddNormSpec s{adds, 32, 1, out, centres};
  while (s.threads < 256 && s.threads * 4 < columns) s.threads *= 2;
  while (s.threads < 1024 && s.threads * 4 * most_each < columns) s.threads *= 2;
  const std::int64_t each = ceil_div(columns, s.threads * 4);
  if (s.threads > tiles.block_limit || each > most_each) return {};
  s.each = static_cast<std::uint32_t>(each);
  return s;
}

ir::Function trace_add_norm(const AddNormSpec& spec) {
  const int tile = static_cast<int>(spec.out.tokens);
  std::string name = spec.adds ? "add_rms_norm" : "rms_norm";
  if (spec.centres) name += "_centred";
  name += spec.out.quantised ? "_quantise" : "_rows";
  if (tile > 1) name += "_tile" + std::to_string(tile);
  ir::Builder builder(name, ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto y = spec.adds ? ir::buffer_param("y", DType::f32, ir::Access::read) : ir::BufferRef();
  const auto sum = spec.adds ? ir::buffer_param("sum", DType::f32, ir::Access::read_write) : ir::BufferRef();
  const auto weight = ir::buffer_param("weight", DType::f32, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.out.quantised ? DType::u32 : DType::f32, ir::Access::read_write);
  const ir::Value columns = ir::scalar_param("columns", DType::index), count = ir::scalar_param("tokens", DType::index),
                  epsilon = ir::scalar_param("epsilon", DType::f32);
  // The blocks that pad the last tile repeat the work for the last token.
  const ir::Value token = ir::block_id(0), row = (tile == 1 ? token : ir::min(token, count - 1)) * columns;
  const int step = static_cast<int>(spec.threads) * 4;
  const ir::Value lane = ir::thread_id() * 4;
  std::vector<ir::Value> column, exists, v;
  for (int s = 0; s < static_cast<int>(spec.each); ++s) {
    column.push_back(lane + s * step), exists.push_back(column.back() < columns);
    for (int i = 0; i < 4; ++i) v.push_back(load_at(x, row + column.back() + i, exists.back()));
  }
  // Short rows leave registers for the weights, so that all loads are requested together.
  const auto weight_at = [&](std::size_t i) {
    return load_at(weight, column[i / 4] + static_cast<int>(i % 4), exists[i / 4]);
  };
  std::vector<ir::Value> weights;
  for (std::size_t i = 0; i < v.size() && spec.each <= 4; ++i) weights.push_back(weight_at(i));
  if (spec.adds) {
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = v[i] + load_at(y, row + column[i / 4] + static_cast<int>(i % 4), exists[i / 4]);
    for (std::size_t s = 0; s < column.size(); ++s)
      ir::if_(tile == 1 ? exists[s] : exists[s] && token < count, [&] {
        for (std::size_t i = 0; i < 4; ++i) sum.store(row + column[s] + static_cast<int>(i), v[4 * s + i]);
      });
  }
  if (spec.centres) {
    ir::Value total = v[0];
    for (std::size_t i = 1; i < v.size(); ++i) total = total + v[i];
    const ir::Value mean = ir::block_sum(total) / ir::cast(DType::f32, columns);
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = ir::select(exists[i / 4], v[i] - mean, ir::literal(DType::f32, 0));
  }
  ir::Value squares = v[0] * v[0];
  for (std::size_t i = 1; i < v.size(); ++i) squares = ir::fma(v[i], v[i], squares);
  const ir::Value scale = 1 / ir::sqrt(ir::block_sum(squares) / ir::cast(DType::f32, columns) + epsilon);
  const InputStore store{spec.out, out, columns};
  for (std::size_t s = 0; s < column.size(); ++s) {
    std::array<ir::Value, 4> n;
    for (std::size_t i = 0; i < 4; ++i)
      n[i] = v[4 * s + i] * scale * (weights.empty() ? weight_at(4 * s + i) : weights[4 * s + i]);
    store(token, column[s], n, {exists[s], exists[s], exists[s], exists[s]});
  }
  return builder.finish();
}

// Each thread has one pair of elements, or one element that is not rotated.
ir::Function trace_rotate_store(const RotateStoreSpec& spec) {
  const RotarySpec& r = spec.rotary;
  const bool adjacent = r.pairs == RotaryPairs::adjacent;
  ir::Builder builder(spec.norms ? "norm_rotate_store" : "rotate_store", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto f32 = [](const char* name) { return ir::buffer_param(name, DType::f32, ir::Access::read); };
  const auto q = f32("q"), k = spec.joined ? q : f32("k"), v = spec.joined ? q : f32("v");
  const auto out = ir::buffer_param("out", DType::f32, ir::Access::read_write),
             keys = ir::buffer_param("keys", spec.cache, ir::Access::read_write),
             values = ir::buffer_param("values", spec.cache, ir::Access::read_write);
  const auto rotary = spec.rotates ? std::optional<RotaryParameters>(r) : std::nullopt;
  const auto query_norm = spec.norms ? f32("query_norm") : ir::BufferRef(),
             key_norm = spec.norms ? f32("key_norm") : ir::BufferRef();
  const ir::Value epsilon = spec.norms ? ir::scalar_param("epsilon", DType::f32) : ir::Value();
  const auto bias = spec.biases ? f32("bias") : ir::BufferRef();
  const auto number = [](const char* name) { return ir::scalar_param(name, DType::index); };
  const ir::Value heads = number("heads"), key_heads = number("key_heads");
  const PositionParameter first_position("first_position", r.in_memory);
  const ir::Value q_token = number("q_token_stride"), k_token = spec.joined ? q_token : number("k_token_stride"),
                  v_token = spec.joined ? q_token : number("v_token_stride");
  const ir::Value keys_head = number("keys_head_stride"), keys_row = number("keys_row_stride"),
                  values_head = number("values_head_stride"), values_row = number("values_row_stride");

  const int size = static_cast<int>(spec.head_size);
  const ir::Value lane = ir::thread_id(), row = ir::block_id(0);
  const ir::Value token = row / (heads + 2 * key_heads), head = row % (heads + 2 * key_heads);
  const ir::Value key_head = head - heads, value_head = key_head - key_heads;
  const ir::Value is_query = head < heads, is_value = value_head >= 0, is_key = !(is_query || is_value);
  const ir::Value pairs = spec.rotates ? rotary->pairs : ir::index_literal(0);
  const ir::Value in_pair = lane < pairs, exists = lane < size - pairs;
  const ir::Value first = ir::select(in_pair, adjacent ? 2 * lane : lane, lane + pairs),
                  second = adjacent ? 2 * lane + 1 : lane + pairs;
  const ir::Value position = first_position.get() + token;
  const ir::Value zero = ir::literal(DType::f32, 0);
  const auto read = [&](ir::Value element, ir::Value mask) {
    ir::Value x;
    if (spec.joined) {
      x = q.load_if(mask, token * q_token + head * size + element, zero);
    } else {
      const ir::Value of_value = v.load_if(is_value && mask, token * v_token + value_head * size + element, zero);
      const ir::Value of_key = k.load_if(is_key && mask, token * k_token + key_head * size + element, of_value);
      x = q.load_if(is_query && mask, token * q_token + head * size + element, of_key);
    }
    return spec.biases ? x + bias.load_if(mask, head * size + element, zero) : x;
  };
  ir::Value a = read(first, exists), b = read(second, in_pair);
  if (spec.norms) {
    const ir::Value scale = 1 / ir::sqrt(ir::block_sum(ir::fma(a, a, b * b)) / static_cast<double>(size) + epsilon);
    const auto normalised = [&](ir::Value x, ir::Value element, ir::Value mask) {
      const ir::Value one = ir::literal(DType::f32, 1);
      const ir::Value weight =
          query_norm.load_if(is_query && mask, element, key_norm.load_if(is_key && mask, element, one));
      return ir::select(is_value, x, x * scale * weight);
    };
    a = normalised(a, first, exists), b = normalised(b, second, in_pair);
  }
  if (spec.rotates) {
    const auto [u, w] = rotary->rotate(ir::min(lane, pairs - 1), position, a, b);
    const ir::Value turned = in_pair && !is_value;
    a = ir::select(turned, u, a), b = ir::select(turned, w, b);
  }
  const auto store = [&](const ir::BufferRef& to, ir::Value base) {
    ir::if_(exists, [&] { to.store(base + first, ir::cast(to.dtype(), a)); });
    if (spec.rotates) ir::if_(in_pair, [&] { to.store(base + second, ir::cast(to.dtype(), b)); });
  };
  ir::if_(
      is_query, [&] { store(out, (token * heads + head) * size); },
      [&] {
        ir::if_(
            is_key, [&] { store(keys, key_head * keys_head + position * keys_row); },
            [&] { store(values, value_head * values_head + position * values_row); });
      });
  return builder.finish();
}

}  // namespace tessera::ops
