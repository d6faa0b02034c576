// SPDX-License-Identifier: Apache-2.0
// Products with packed weights, and reading their elements back.
#include "tessera/ops/kernels.h"

namespace tessera::ops {

namespace {

DType value_dtype(WeightFormat f) {
  return f == WeightFormat::f32 ? DType::f32 : f == WeightFormat::f16 ? DType::f16 : DType::u32;
}

ir::Value word_literal(std::uint32_t bits) { return ir::literal(DType::u32, bits); }

// One thread's part of a product: the sums of `tokens` tokens with one row, over its slice of the columns.
struct Sums {
  std::vector<ir::Variable> of;
  explicit Sums(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) of.emplace_back(DType::f32, 0.0f);
  }
  void add(std::size_t i, ir::Value a, ir::Value b) { of[i].set(ir::fma(a, b, of[i].get())); }
};

}  // namespace

// Activations in blocks of 32 integers of 8 bits with one scale. Threads are blocks. A NaN goes into the scale, so that
// it is not lost; an infinity makes an infinite scale times 0, a NaN as well.
ir::Function trace_quantise(const int&) {
  ir::Builder builder("quantise_activations", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::u32, ir::Access::read_write);
  const ir::Value id = ir::global_id();
  std::vector<ir::Value> v;
  for (int i = 0; i < 32; ++i) v.push_back(x.load(id * 32 + i));
  ir::Value largest = ir::literal(DType::f32, 0);
  for (const ir::Value& e : v) {
    const ir::Value a = ir::abs(e);
    largest = ir::select(a > largest || e != e, a, largest);
  }
  const ir::Value scale = largest / 127.0;
  // Scales below the smallest normal number are as good as 0, and their inverse would not be finite.
  const ir::Value inverse = ir::select(largest > 1e-35, 127.0 / largest, ir::literal(DType::f32, 0));
  const ir::Value base = id * static_cast<int>(activation_words);
  ir::Value sum = ir::literal(DType::i32, 0);
  for (int w = 0; w < 8; ++w) {
    ir::Value word = word_literal(0);
    for (int i = 0; i < 4; ++i) {
      const ir::Value q = ir::cast(DType::i32, ir::rint(v[static_cast<std::size_t>(4 * w + i)] * inverse));
      sum = sum + q;
      word =
          word | ((ir::bitcast(DType::u32, q) & word_literal(255)) << word_literal(static_cast<std::uint32_t>(8 * i)));
    }
    out.store(base + (2 + w), word);
  }
  out.store(base, ir::bitcast(DType::u32, scale));
  out.store(base + 1, ir::bitcast(DType::u32, sum));
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
  const bool quantised = is_quantised(format);
  const auto weights = ir::buffer_param("weights", value_dtype(format), ir::Access::read);
  const auto scales = quantised ? ir::buffer_param("scales", spec.weight.scale, ir::Access::read) : ir::BufferRef();
  const auto x = ir::buffer_param("x", quantised ? DType::u32 : DType::f32, ir::Access::read);
  const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
  const ir::Value rows = ir::scalar_param("rows", DType::index);
  // Steps along a row: blocks of 32, or columns.
  const ir::Value steps = ir::scalar_param("steps", DType::index);
  const ir::Value count = ir::scalar_param("tokens", DType::index), tiles = ir::scalar_param("tiles", DType::index);

  const ir::Value lane = ir::thread_id(0), slice = slices > 1 ? ir::thread_id(1) : ir::index_literal(0);
  // Tiles of tokens vary fastest, so that a group of rows is read from memory once.
  const ir::Value group = ir::block_id(0) / tiles, first = (ir::block_id(0) - group * tiles) * static_cast<int>(tokens);
  const int x_step = quantised ? static_cast<int>(activation_words) : 1;
  std::vector<ir::Value> x_row;
  for (std::uint32_t t = 0; t < tokens; ++t)
    x_row.push_back((t == 0 ? first : ir::min(first + static_cast<int>(t), count - 1)) * (steps * x_step));

  Sums sums(tokens);
  if (quantised) {
    const bool q8 = format == WeightFormat::q8_0;
    const int words = q8 ? 8 : 4, bias = q8 ? 128 : 8;
    ir::for_(slice, steps, slices, [&](ir::Value b) {
      const ir::Value block = group * steps + b;
      std::vector<ir::Value> w;  // in the order of x: words of 4 unsigned bytes
      for (int i = 0; i < words; ++i) w.push_back(weights.load((block * words + i) * group_rows + lane));
      if (!q8) {
        const ir::Value low = word_literal(0x0f0f0f0f);
        for (int i = 0; i < 4; ++i) {
          const ir::Value both = w[static_cast<std::size_t>(i)];
          w[static_cast<std::size_t>(i)] = both & low;
          w.push_back((both >> word_literal(4)) & low);
        }
      }
      const ir::Value scale = load_at(scales, block * group_rows + lane, {});
      for (std::uint32_t t = 0; t < tokens; ++t) {
        const ir::Value at = x_row[t] + b * x_step;
        const ir::Value x_scale = ir::bitcast(DType::f32, x.load(at)), sum = ir::bitcast(DType::i32, x.load(at + 1));
        // Two chains where there is no other work to overlap with.
        const std::size_t chains = tokens == 1 ? 2 : 1;
        std::vector<ir::Value> dot = {sum * -bias, ir::literal(DType::i32, 0)};
        for (std::size_t i = 0; i < 8; ++i)
          dot[i % chains] =
              ir::dot4(ir::Dot4Signs::unsigned_signed, w[i], x.load(at + (2 + static_cast<int>(i))), dot[i % chains]);
        sums.add(t, ir::cast(DType::f32, chains == 2 ? dot[0] + dot[1] : dot[0]), scale * x_scale);
      }
    });
  } else {
    // Independent sums hide the latency of one.
    const int unroll = tokens == 1 ? 8 : tokens == 2 ? 4 : tokens == 4 ? 2 : 1;
    auto step = [&](ir::Value k, Sums& into, std::uint32_t chain) {
      const ir::Value w = load_at(weights, (group * steps + k) * group_rows + lane, {});
      for (std::uint32_t t = 0; t < tokens; ++t) into.add(chain * tokens + t, w, x.load(x_row[t] + k));
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

// Rows of a packed weight as f32: those named by `ids`, or all of them. Threads are columns.
ir::Function trace_gather(const GatherSpec& spec) {
  const WeightFormat format = spec.weight.format;
  const bool quantised = is_quantised(format), all = spec.ids == DType::index;
  ir::Builder builder((all ? "dequantize_" : "embedding_rows_") + std::string(weight_format_name(format)),
                      ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto weights = ir::buffer_param("weights", value_dtype(format), ir::Access::read);
  const auto scales = quantised ? ir::buffer_param("scales", spec.weight.scale, ir::Access::read) : ir::BufferRef();
  const auto ids = all ? ir::BufferRef() : ir::buffer_param("ids", spec.ids, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
  const ir::Value rows = ir::scalar_param("rows", DType::index), columns = ir::scalar_param("columns", DType::index);
  const ir::Value k = ir::global_id(0), i = ir::global_id(1);
  const int group_rows = static_cast<int>(spec.weight.group);
  ir::Value named = i, inside;
  if (!all) {
    // Compared in the ids' own width: a 64-bit id must not wrap into range.
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
  if (!quantised) {
    value = load_at(weights, (group * columns + k) * group_rows + lane, {});
  } else {
    const ir::Value block = group * (columns / 32) + k / 32, j = k % 32;
    const ir::Value scale = load_at(scales, block * group_rows + lane, {});
    ir::Value word, shift;
    if (format == WeightFormat::q8_0) {
      word = weights.load((block * 8 + j / 4) * group_rows + lane);
      shift = j % 4 * 8;
    } else {
      word = weights.load((block * 4 + j % 16 / 4) * group_rows + lane);
      shift = j % 4 * 8 + j / 16 * 4;
    }
    const bool q8 = format == WeightFormat::q8_0;
    const ir::Value number = (word >> ir::cast(DType::u32, shift)) & word_literal(q8 ? 255 : 15);
    value = ir::cast(DType::f32, ir::bitcast(DType::i32, number) - (q8 ? 128 : 8)) * scale;
  }
  if (!all) value = ir::select(inside, value, ir::literal(DType::f32, 0));
  out.store(i * columns + k, value);
  return builder.finish();
}

}  // namespace tessera::ops
