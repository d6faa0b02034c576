// SPDX-License-Identifier: Apache-2.0
// Kernels that multiply by packed weights, and kernels that read the elements of packed weights.
#include "tessera/ops/packed_weight.h"

namespace tessera::ops {

ir::Value unsigned_byte(ir::Value word, bool upper) {
  return ir::cast(DType::f32, upper ? word >> word_literal(8) : word & word_literal(255));
}
ir::Value signed_byte(ir::Value word, bool upper) {
  return ir::cast(DType::f32, ir::bitcast(DType::i32, word << word_literal(upper ? 16 : 24)) >> 24);
}

WeightPart part_of(const PackedWeight& weight, ir::Value part, ir::Value lane) {
  const WeightLayout& f = weight.layout;
  WeightPart out{weight.numbers(part, lane), weight.scale(part, lane), {}, {}};
  if (f.minimum) out.minimum = weight.scale(part, lane, 1);
  if (f.factor == 32) {
    const ir::Value both = weight.factor(part, lane);
    out.scale = out.scale * unsigned_byte(both, false), out.minimum = out.minimum * unsigned_byte(both, true);
  } else if (f.factor == 16) {
    const ir::Value both = weight.factor(part, lane);
    out.second = out.scale * signed_byte(both, true), out.scale = out.scale * signed_byte(both, false);
  }
  return out;
}

void add_part(const WeightLayout& f, const WeightPart& w, const ir::BufferRef& x, const std::vector<ir::Value>& x_at,
              Sums& sums) {
  for (std::size_t t = 0; t < x_at.size(); ++t) {
    const ir::Value at = x_at[t], x_scale = ir::bitcast(DType::f32, x.load(at));
    const auto begin = [&](int which) { return ir::bitcast(DType::i32, x.load(at + which)); };
    // Uses two chains if there is no other work to overlap with, or if a part has two scales.
    const std::size_t chains = x_at.size() == 1 || f.factor == 16 ? 2 : 1;
    std::vector<ir::Value> dot(2, ir::literal(DType::i32, 0));
    if (f.offset != 0) dot[0] = begin(1);
    if (f.factor == 16) dot[1] = begin(2);
    for (std::size_t i = 0; i < 8; ++i) {
      ir::Value& chain = dot[f.factor == 16 ? i / 4 : i % chains];
      chain = ir::dot4(ir::Dot4Signs::unsigned_signed, w.words[i],
                       x.load(at + (static_cast<int>(activation_heading) + static_cast<int>(i))), chain);
    }
    const auto number = [](ir::Value v) { return ir::cast(DType::f32, v); };
    if (f.factor == 16)
      sums.add(t, ir::fma(number(dot[1]), w.second, number(dot[0]) * w.scale), x_scale);
    else
      sums.add(t, number(chains == 2 ? dot[0] + dot[1] : dot[0]), w.scale * x_scale);
    if (f.minimum) sums.add(t, w.minimum, ir::bitcast(DType::f32, x.load(at + 3)));
  }
}

// Like trace_quantise below, but the threads of one vector process a block of 32 together, so that loads and stores are
// contiguous.
static ir::Function trace_quantise_together(const QuantiseSpec& spec) {
  const int tokens = static_cast<int>(spec.tokens), lanes = static_cast<int>(spec.lanes), each = 32 / lanes;
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
    const ir::Value heading[] = {u32(scale), u32((spec.halves ? first : both) * -spec.offset),
                                 u32(spec.halves ? second * -spec.offset : ir::literal(DType::i32, 0)),
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
  const int tokens = static_cast<int>(spec.tokens);
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
  out.store(base + 1, ir::bitcast(DType::u32, (spec.halves ? sums[0] : sum) * -spec.offset));
  out.store(base + 2, ir::bitcast(DType::u32, spec.halves ? sums[1] * -spec.offset : zero));
  out.store(base + 3, ir::bitcast(DType::u32, scale * ir::cast(DType::f32, sum)));
  return builder.finish();
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

ir::Function trace_linear(const LinearSpec& spec) {
  const WeightFormat format = spec.weight.format;
  const std::uint32_t tokens = spec.tokens;
  const int group_rows = static_cast<int>(spec.weight.group), slices = static_cast<int>(spec.slices);
  std::string name = "linear_" + std::string(weight_format_name(format)) +
                     (tokens == 1 ? "_vector" : "_tile" + std::to_string(tokens));
  if (slices > 1) name += "_slices" + std::to_string(slices);
  ir::Builder builder(name, ir::KernelKind::block, {spec.weight.group, spec.slices, 1});
  ir::Builder::Scope scope(builder);
  const PackedWeight weight(spec.weight);
  const bool quantised = weight.layout.quantised();
  const auto x = ir::buffer_param("x", quantised ? DType::u32 : DType::f32, ir::Access::read);
  const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
  const ir::Value rows = ir::scalar_param("rows", DType::index);
  // A step along a row is a block of 32 columns if the weight is quantised, otherwise one column.
  const ir::Value steps = ir::scalar_param("steps", DType::index);
  const ir::Value count = ir::scalar_param("tokens", DType::index), tiles = ir::scalar_param("tiles", DType::index);

  const ir::Value lane = ir::thread_id(0), slice = slices > 1 ? ir::thread_id(1) : ir::index_literal(0);
  // Tiles of tokens vary fastest, so that each group of rows is read from memory only once.
  const ir::Value group = ir::block_id(0) / tiles, tile = ir::block_id(0) - group * tiles;
  const ir::Value first = tile * static_cast<int>(tokens), x_tile = tile * steps;
  const int x_step = quantised ? static_cast<int>(activation_words) : 1;
  const auto x_of = [&](ir::Value step, std::uint32_t t) {
    return (x_tile + step) * (static_cast<int>(tokens) * x_step) + static_cast<int>(t) * x_step;
  };

  Sums sums(tokens);
  if (quantised) {
    ir::for_(slice, steps, slices, [&](ir::Value b) {
      std::vector<ir::Value> x_at;
      for (std::uint32_t t = 0; t < tokens; ++t) x_at.push_back(x_of(b, t));
      add_part(weight.layout, part_of(weight, group * steps + b, lane), x, x_at, sums);
    });
  } else {
    // Several independent sums hide the latency.
    const int unroll = tokens == 1 ? 8 : tokens == 2 ? 4 : tokens == 4 ? 2 : 1;
    auto step = [&](ir::Value k, Sums& into, std::uint32_t chain) {
      const ir::Value w = weight.element(group * steps + k, lane);
      for (std::uint32_t t = 0; t < tokens; ++t) into.add(chain * tokens + t, w, x.load(x_of(k, t)));
    };
    Sums more(tokens * static_cast<std::uint32_t>(unroll - 1));
    ir::for_(slice * unroll, steps - (unroll - 1), slices * unroll, [&](ir::Value k) {
      step(k, sums, 0);
      for (int u = 1; u < unroll; ++u) step(k + u, more, static_cast<std::uint32_t>(u - 1));
    });
    if (unroll > 1) ir::for_(steps - steps % unroll + slice, steps, slices, [&](ir::Value k) { step(k, sums, 0); });
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (int u = 1; u < unroll; ++u)
        sums.of[t].set(sums.of[t].get() + more.of[static_cast<std::uint32_t>(u - 1) * tokens + t].get());
    }
  }

  const ir::Value row = group * group_rows + lane;
  ir::Value writes = row < rows;
  std::vector<ir::Value> result;
  for (std::uint32_t t = 0; t < tokens; ++t) result.push_back(sums.of[t].get());
  if (slices > 1) {
    const auto parts = ir::shared(DType::f32, std::uint64_t{spec.slices} * tokens * spec.weight.group);
    for (std::uint32_t t = 0; t < tokens; ++t)
      parts.store((slice * static_cast<int>(tokens) + static_cast<int>(t)) * group_rows + lane, result[t]);
    ir::barrier();
    writes = writes && slice == 0;
    ir::if_(writes, [&] {
      for (std::uint32_t t = 0; t < tokens; ++t) {
        ir::Value total = result[t];
        for (int s = 1; s < slices; ++s)
          total = total + parts.load((s * static_cast<int>(tokens) + static_cast<int>(t)) * group_rows + lane);
        ir::if_(first + static_cast<int>(t) < count,
                [&] { y.store((first + static_cast<int>(t)) * rows + row, total); });
      }
    });
    return builder.finish();
  }
  for (std::uint32_t t = 0; t < tokens; ++t) {
    auto store = [&] { ir::if_(writes, [&] { y.store((first + static_cast<int>(t)) * rows + row, result[t]); }); };
    if (t == 0)
      store();
    else
      ir::if_(first + static_cast<int>(t) < count, store);
  }
  return builder.finish();
}

// Returns rows of a packed weight as f32: the rows in `ids`, or all rows. Uses one thread per column.
ir::Function trace_gather(const GatherSpec& spec) {
  const bool all = spec.ids == DType::index;
  ir::Builder builder((all ? "dequantize_" : "embedding_rows_") + std::string(weight_format_name(spec.weight.format)),
                      ir::KernelKind::map);
  builder.set_exact();  // bit-identical to the values in the file
  ir::Builder::Scope scope(builder);
  const PackedWeight weight(spec.weight);
  const WeightLayout& f = weight.layout;
  const auto ids = all ? ir::BufferRef() : ir::buffer_param("ids", spec.ids, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
  const ir::Value rows = ir::scalar_param("rows", DType::index), columns = ir::scalar_param("columns", DType::index);
  const ir::Value k = ir::global_id(0), i = ir::global_id(1);
  const int group_rows = static_cast<int>(spec.weight.group);
  ir::Value named = i, inside;
  if (!all) {
    // The comparison has the width of the ids, so that a 64-bit id does not wrap into the valid range.
    const ir::Value id = ids.load(i);
    const DType wide = spec.ids == DType::u64 || spec.ids == DType::i64 ? spec.ids
                       : is_unsigned_int(spec.ids)                      ? DType::u32
                                                                        : DType::i32;
    const ir::Value full = ir::cast(wide, id);
    inside = full < ir::cast(wide, rows);
    if (is_signed_int(wide)) inside = inside && full >= 0;
    named = ir::select(inside, ir::cast(DType::index, full), ir::index_literal(0));
  }
  const ir::Value group = named / group_rows, lane = named % group_rows;
  ir::Value value;
  if (!f.quantised()) {
    value = weight.element(group * columns + k, lane);
  } else {
    const ir::Value part = group * (columns / 32) + k / 32, j = k % 32;
    ir::Value scale = weight.scale(part, lane), minimum;
    if (f.minimum) minimum = weight.scale(part, lane, 1);
    if (f.factor != 0) {
      const ir::Value both = weight.factor(part, lane);
      if (f.factor == 32)
        scale = scale * unsigned_byte(both, false), minimum = minimum * unsigned_byte(both, true);
      else
        scale = scale * ir::select(j < 16, signed_byte(both, false), signed_byte(both, true));
    }
    value = ir::cast(DType::f32, ir::bitcast(DType::i32, weight.number(part, j, lane)) - f.offset) * scale;
    if (f.minimum) value = value + minimum;
  }
  if (!all) value = ir::select(inside, value, ir::literal(DType::f32, 0));
  out.store(i * columns + k, value);
  return builder.finish();
}

}  // namespace tessera::ops
