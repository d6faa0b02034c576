// SPDX-License-Identifier: Apache-2.0
// Kernels that multiply by packed weights, and kernels that read the elements of packed weights.
#include "tessera/ops/input_store.h"
#include "tessera/ops/packed_weight.h"

namespace tessera::ops {

namespace {

// Bits of a factor word as a number.
ir::Value unsigned_bits(ir::Value word, std::uint32_t first, std::uint32_t count) {
  const ir::Value shifted = first == 0 ? word : word >> word_literal(first);
  return ir::cast(DType::f32, first + count == 16 ? shifted : shifted & word_literal((1u << count) - 1));
}
ir::Value signed_byte(ir::Value word, bool upper) {
  return ir::cast(DType::f32, ir::bitcast(DType::i32, word << word_literal(upper ? 16 : 24)) >> 24);
}

/// The bits of 32 values, lowest first, from the bits of their codes.
std::array<ir::Value, 8> value_bits(Codes codes, ir::Value a, ir::Value b, ir::Value c, ir::Value d) {
  if (codes == Codes::iq4_nl) return iq4_nl_circuit(a, b, c, d);
  const std::array<ir::Value, 5> five = e2m1_circuit(a, b, c, d);
  const ir::Value zero = word_literal(0);
  return {five[0], five[1], five[2], five[3], five[4], zero, zero, zero};
}

}  // namespace

std::vector<ir::Value> PackedWeight::numbers(ir::Value part, ir::Value lane) const {
  if (layout.codebook) return codebook_numbers(*this, part, lane);
  std::vector<ir::Value> w;
  for (int i = 0; i < static_cast<int>(layout.bits); ++i) w.push_back(word(part, i, lane));
  if (layout.bits == 8) return w;
  if (layout.codes != Codes::none) return bytes_of_bits(value_bits(layout.codes, w[0], w[1], w[2], w[3]));
  std::vector<ir::Value> out;
  const auto shifted = [](ir::Value v, int left) {
    if (left == 0) return v;
    return left > 0 ? v << word_literal(static_cast<std::uint32_t>(left))
                    : v >> word_literal(static_cast<std::uint32_t>(-left));
  };
  if (layout.bits <= 3) {
    for (int i = 0; i < 8; ++i) {
      const ir::Value low = shifted(w[static_cast<std::size_t>(i / 4)], -2 * (i % 4)) & word_literal(0x03030303);
      out.push_back(layout.bits == 2 ? low : low | (shifted(w[2], 2 - i) & word_literal(0x04040404)));
    }
    return out;
  }
  const ir::Value low = word_literal(0x0f0f0f0f);
  for (std::size_t i = 0; i < 8; ++i) out.push_back(i < 4 ? w[i] & low : (w[i - 4] >> word_literal(4)) & low);
  for (int i = 0; i < 8; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (layout.bits == 5) out[at] = out[at] | (shifted(w[4], 4 - i) & word_literal(0x10101010));
    if (layout.bits == 6) out[at] = out[at] | (shifted(w[4 + at / 4], 4 - 2 * (i % 4)) & word_literal(0x30303030));
  }
  return out;
}

ir::Value PackedWeight::number(ir::Value part, ir::Value j, ir::Value lane) const {
  if (layout.codebook) return codebook_number(*this, part, j, lane);
  const auto bits_of = [&](ir::Value from, ir::Value shift, std::uint32_t mask) {
    return (from >> ir::cast(DType::u32, shift)) & word_literal(mask);
  };
  const ir::Value byte = j % 4 * 8;
  if (layout.codes != Codes::none) {
    const auto bit = [&](int i) {
      return word(part, ir::index_literal(i), lane) >> ir::cast(DType::u32, byte + j / 4);
    };
    const auto bits = value_bits(layout.codes, bit(0), bit(1), bit(2), bit(3));
    ir::Value out = bits[0] & word_literal(1);
    for (std::uint32_t i = 1; i < 8; ++i) out = out | (bits[i] & word_literal(1)) << word_literal(i);
    return out;
  }
  if (layout.bits == 8) return bits_of(word(part, j / 4, lane), byte, 255);
  if (layout.bits <= 3) {
    const ir::Value pair = bits_of(word(part, j / 16, lane), byte + j / 4 % 4 * 2, 3);
    if (layout.bits == 2) return pair;
    return pair | bits_of(word(part, ir::index_literal(2), lane), byte + j / 4, 1) << 2;
  }
  const ir::Value low = bits_of(word(part, j % 16 / 4, lane), byte + j / 16 * 4, 15);
  if (layout.bits == 5) return low | bits_of(word(part, ir::index_literal(4), lane), byte + j / 4, 1) << 4;
  if (layout.bits == 6) return low | bits_of(word(part, j / 16 + 4, lane), byte + j / 4 % 4 * 2, 3) << 4;
  return low;
}

WeightPart scaled_part(const WeightLayout& f, std::vector<ir::Value> words, ir::Value scale, ir::Value minimum,
                       ir::Value factor) {
  WeightPart out{std::move(words), scale, {}, minimum, {}};
  if (f.has_two_minimums()) {
    out.scale = scale * unsigned_bits(factor, 0, 4), out.minimum = minimum * unsigned_bits(factor, 4, 4);
    out.second = scale * unsigned_bits(factor, 8, 4), out.second_minimum = minimum * unsigned_bits(factor, 12, 4);
  } else if (f.factor == 32 && f.minimum) {
    out.scale = scale * unsigned_bits(factor, 0, 8), out.minimum = minimum * unsigned_bits(factor, 8, 8);
  } else if (f.factor != 0) {
    out.scale = scale * signed_byte(factor, false);
    if (f.factor == 16) out.second = scale * signed_byte(factor, true);
  }
  return out;
}

WeightPart scales_of(const PackedWeight& weight, ir::Value part, ir::Value lane) {
  const WeightLayout& f = weight.layout;
  if (f.codebook) return codebook_scales(weight, part, lane);
  const ir::Value scale = weight.scale(part, lane), minimum = f.minimum ? weight.scale(part, lane, 1) : ir::Value();
  return scaled_part(f, {}, scale, minimum, f.factor != 0 ? weight.factor(part, lane) : ir::Value());
}

WeightPart part_of(const PackedWeight& weight, ir::Value part, ir::Value lane) {
  std::vector<ir::Value> words = weight.numbers(part, lane);
  WeightPart out = scales_of(weight, part, lane);
  out.words = std::move(words);
  return out;
}

void add_part(const WeightSpec& weight, const WeightPart& w, const ir::BufferRef& x, const std::vector<ir::Value>& x_at,
              Sums& sums, std::size_t first) {
  const WeightLayout& f = layout_of(weight.format);
  // Signed bytes: numbers without their offset, or numbers that are below 128. The mask tells the compiler so.
  const bool without_offset = weight.symmetric && f.offset == 128;
  std::vector<ir::Value> words = w.words;
  if (weight.symmetric)
    for (ir::Value& v : words) v = without_offset ? v ^ word_literal(0x80808080) : v & word_literal(0x7f7f7f7f);
  const auto signs = weight.symmetric ? ir::Dot4Signs::signed_symmetric : ir::Dot4Signs::unsigned_signed;
  for (std::size_t t = 0; t < x_at.size(); ++t) {
    const ir::Value at = x_at[t], x_scale = ir::bitcast(DType::f32, x.load(at));
    const auto begin = [&](int which) { return ir::bitcast(DType::i32, x.load(at + which)); };
    // Uses two chains if there is no other work to overlap with, or if a part has two scales.
    const std::size_t chains = x_at.size() == 1 || f.factor == 16 ? 2 : 1;
    std::vector<ir::Value> dot(2, ir::literal(DType::i32, 0));
    if (f.offset != 0 && !without_offset) {
      dot[0] = begin(1);
      if (f.factor == 16) dot[1] = begin(2);
    }
    for (std::size_t i = 0; i < 8; ++i) {
      ir::Value& chain = dot[f.factor == 16 ? i / 4 : i % chains];
      chain =
          ir::dot4(signs, words[i], x.load(at + (static_cast<int>(activation_heading) + static_cast<int>(i))), chain);
    }
    const auto number = [](ir::Value v) { return ir::cast(DType::f32, v); };
    if (f.factor == 16)
      sums.add(first + t, ir::fma(number(dot[1]), w.second, number(dot[0]) * w.scale), x_scale);
    else
      sums.add(first + t, number(chains == 2 ? dot[0] + dot[1] : dot[0]), w.scale * x_scale);
    if (f.has_two_minimums())
      sums.add(first + t, ir::fma(number(begin(2)), w.second_minimum, number(begin(1)) * w.minimum), x_scale);
    else if (f.minimum)
      sums.add(first + t, w.minimum, ir::bitcast(DType::f32, x.load(at + 3)));
  }
}

const char* gate_name(Gate gate) { return gate == Gate::silu ? "silu" : gate == Gate::gelu ? "gelu" : "clamped_silu"; }

ir::Value gated_value(Gate gate, ir::Value g, ir::Value up) {
  if (gate == Gate::silu) return activate(Activation::silu, g) * up;
  if (gate == Gate::clamped_silu) {
    g = ir::min(g, clamped_silu_limit), up = ir::max(ir::min(up, clamped_silu_limit), -clamped_silu_limit);
    return g / (1 + ir::exp(g * -clamped_silu_slope)) * (up + 1);
  }
  const ir::Value inner = g * (g * g * 0.044715 + 1) * 0.7978845608028654;  // sqrt(2 / pi)
  return g * (ir::tanh(inner) + 1) * 0.5 * up;
}

ir::Function trace_linear(const LinearSpec& spec) {
  const WeightFormat format = spec.weight.format;
  const std::uint32_t tokens = spec.tokens;
  const int group_rows = static_cast<int>(spec.weight.group), slices = static_cast<int>(spec.slices);
  std::string name = "linear_" + std::string(weight_format_name(format)) +
                     (tokens == 1 ? "_vector" : "_tile" + std::to_string(tokens));
  if (spec.experts) name += "_experts";
  if (slices > 1) name += "_slices" + std::to_string(slices);
  if (spec.gated) name += std::string("_") + gate_name(spec.gate) + "_gate";
  ir::Builder builder(name, ir::KernelKind::block, {spec.weight.group, spec.slices, 1});
  // Twice the sums need more registers. One block of this size requests enough bytes.
  if (spec.gated && (!layout_of(format).quantised() || tokens > 2)) builder.set_min_blocks(1);
  ir::Builder::Scope scope(builder);
  const PackedWeight weight(spec.weight);
  const bool quantised = weight.layout.quantised();
  const auto x = ir::buffer_param("x", quantised ? DType::u32 : DType::f32, ir::Access::read);
  const auto y =
      ir::buffer_param("y", spec.gated && spec.out.quantised ? DType::u32 : DType::f32, ir::Access::read_write);
  const ir::Value rows = ir::scalar_param("rows", DType::index);
  // A step along a row is a block of 32 columns if the weight is quantised, otherwise one column.
  const ir::Value steps = ir::scalar_param("steps", DType::index);
  const ir::Value count = ir::scalar_param("tokens", DType::index), tiles = ir::scalar_param("tiles", DType::index);
  const auto ids = spec.experts ? ir::buffer_param("ids", DType::i32, ir::Access::read) : ir::BufferRef();
  const ir::Value shared = spec.experts ? ir::scalar_param("shared", DType::index) : ir::Value();

  const ir::Value lane = ir::thread_id(0), slice = slices > 1 ? ir::thread_id(1) : ir::index_literal(0);
  // Tiles of tokens vary fastest, so that each group of rows is read from memory only once.
  const ir::Value group = ir::block_id(0) / tiles, tile = ir::block_id(0) - group * tiles;
  const ir::Value first = tile * static_cast<int>(tokens), x_tile = (spec.experts ? tile / shared : tile) * steps;
  const int x_step = quantised ? static_cast<int>(activation_words) : 1;
  const auto x_of = [&](ir::Value step, std::uint32_t t) {
    return (x_tile + step) * (static_cast<int>(tokens) * x_step) + static_cast<int>(t) * x_step;
  };
  // A gated product also computes the row that is half of the rows further down. Its sums follow those of the gate.
  std::vector<ir::Value> groups = {spec.experts ? ir::cast(DType::index, ids.load(tile)) * (rows / group_rows) + group
                                                : group};
  if (spec.gated) groups.push_back(group + rows / (2 * group_rows));
  const auto results = static_cast<std::uint32_t>(groups.size()) * tokens;

  Sums sums(results);
  if (quantised) {
    // On GPUs, a thread loads two parts of its row, or one of each row, before it uses them.
    const int together = slices > 1 && results == 1 ? 2 : 1;
    const auto add_parts = [&](ir::Value first_part, int count) {
      std::vector<WeightPart> parts;
      for (int u = 0; u < count; ++u)
        for (const ir::Value& g : groups) parts.push_back(part_of(weight, g * steps + first_part + u * slices, lane));
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto u = static_cast<int>(i / groups.size());
        std::vector<ir::Value> x_at;
        for (std::uint32_t t = 0; t < tokens; ++t) x_at.push_back(x_of(first_part + u * slices, t));
        add_part(spec.weight, parts[i], x, x_at, sums, i % groups.size() * tokens);
      }
    };
    ir::for_(slice, steps - (together - 1) * slices, together * slices, [&](ir::Value b) { add_parts(b, together); });
    if (together > 1) {
      const ir::Value own = (steps - slice + (slices - 1)) / slices;  // the number of parts of this slice
      ir::for_(slice + own / together * (together * slices), steps, slices, [&](ir::Value b) { add_parts(b, 1); });
    }
  } else {
    // Several independent sums hide the latency. GPUs load more elements before they use them.
    const bool gpu_vector = slices > 1 && tokens == 1;
    const int chains = gpu_vector ? 4 : tokens == 1 ? 8 : tokens == 2 ? 4 : tokens == 4 ? 2 : 1;
    const int unroll = gpu_vector ? 16 : chains;
    auto step = [&](ir::Value k, Sums& into, std::uint32_t chain) {
      for (std::uint32_t i = 0; i < groups.size(); ++i) {
        const ir::Value w = weight.element(groups[i] * steps + k, lane);
        for (std::uint32_t t = 0; t < tokens; ++t) into.add(chain * results + i * tokens + t, w, x.load(x_of(k, t)));
      }
    };
    Sums more(results * static_cast<std::uint32_t>(chains - 1));
    ir::for_(slice * unroll, steps - (unroll - 1), slices * unroll, [&](ir::Value k) {
      for (int u = 0; u < unroll; ++u) {
        const int chain = u % chains;
        step(k + u, chain == 0 ? sums : more, static_cast<std::uint32_t>(std::max(chain - 1, 0)));
      }
    });
    if (unroll > 1) ir::for_(steps - steps % unroll + slice, steps, slices, [&](ir::Value k) { step(k, sums, 0); });
    for (std::uint32_t i = 0; i < results; ++i) {
      for (int u = 1; u < chains; ++u)
        sums.of[i].set(sums.of[i].get() + more.of[static_cast<std::uint32_t>(u - 1) * results + i].get());
    }
  }

  const ir::Value row = group * group_rows + lane;
  ir::Value writes = row < rows;
  std::vector<ir::Value> result;
  for (const ir::Variable& sum : sums.of) result.push_back(sum.get());
  if (slices > 1) {
    const auto parts = ir::shared(DType::f32, std::uint64_t{spec.slices} * results * spec.weight.group);
    const auto at = [&](ir::Operand s, ir::Operand i) {
      return (s * static_cast<int>(results) + i) * group_rows + lane;
    };
    for (std::uint32_t i = 0; i < results; ++i) parts.store(at(slice, static_cast<int>(i)), result[i]);
    ir::barrier();
    const auto total = [&](ir::Value own, ir::Operand i) {
      for (int s = own.valid() ? 1 : 0; s < slices; ++s) {
        const ir::Value part = parts.load(at(ir::index_literal(s), i));
        own = own.valid() ? own + part : part;
      }
      return own;
    };
    if (spec.gated) {
      // Each slice adds the sums of one row of one token; then the first slices combine gates with their partners.
      const int all = static_cast<int>(results), each = static_cast<int>(tokens);
      const ir::Value mine = total({}, slice % all), token = slice % each;
      ir::barrier();
      parts.store(slice * group_rows + lane, mine);
      ir::barrier();
      std::array<ir::Value, 4> v;
      for (int i = 0; i < 4; ++i) {
        const ir::Value from = lane % static_cast<int>(input_lanes) * 4 + i;
        v[static_cast<std::size_t>(i)] = gated_value(spec.gate, parts.load(token * group_rows + from),
                                                     parts.load((token + each) * group_rows + from));
      }
      const InputStore store{spec.out, y, rows / 2};
      const ir::Value stores = (slice < each) && (lane < static_cast<int>(input_lanes));
      store(first + token, group * group_rows + lane % static_cast<int>(input_lanes) * 4, v,
            {stores, stores, stores, stores});
      return builder.finish();
    }
    writes = writes && slice == 0;
    ir::if_(writes, [&] {
      for (std::uint32_t t = 0; t < tokens; ++t) {
        const ir::Value sum = total(result[t], static_cast<int>(t));
        ir::if_(first + static_cast<int>(t) < count, [&] { y.store((first + static_cast<int>(t)) * rows + row, sum); });
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

// Returns rows of a packed weight as f32: the rows in `ids`. Uses one thread per column.
ir::Function trace_gather(const GatherSpec& spec) {
  ir::Builder builder("embedding_rows_" + std::string(weight_format_name(spec.weight.format)), ir::KernelKind::map);
  builder.set_exact();  // bit-identical to the values in the file
  ir::Builder::Scope scope(builder);
  const PackedWeight weight(spec.weight);
  const WeightLayout& f = weight.layout;
  const auto ids = ir::buffer_param("ids", spec.ids, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
  const ir::Value rows = ir::scalar_param("rows", DType::index), columns = ir::scalar_param("columns", DType::index);
  const ir::Value k = ir::global_id(0), i = ir::global_id(1);
  const int group_rows = static_cast<int>(spec.weight.group);
  // The comparison has the width of the ids, so that a 64-bit id does not wrap into the valid range.
  const ir::Value id = ids.load(i);
  const DType wide = spec.ids == DType::u64 || spec.ids == DType::i64 ? spec.ids
                     : is_unsigned_int(spec.ids)                      ? DType::u32
                                                                      : DType::i32;
  const ir::Value full = ir::cast(wide, id);
  ir::Value inside = full < ir::cast(wide, rows);
  if (is_signed_int(wide)) inside = inside && full >= 0;
  const ir::Value named = ir::select(inside, ir::cast(DType::index, full), ir::index_literal(0));
  const ir::Value group = named / group_rows, lane = named % group_rows;
  ir::Value value;
  if (!f.quantised()) {
    value = weight.element(group * columns + k, lane);
  } else {
    const ir::Value part = group * (columns / 32) + k / 32, j = k % 32;
    const WeightPart scales = scales_of(weight, part, lane);
    const auto of_half = [&](ir::Value first, ir::Value second) {
      return second.valid() ? ir::select(j < 16, first, second) : first;
    };
    const ir::Value scale = of_half(scales.scale, scales.second),
                    minimum = of_half(scales.minimum, scales.second_minimum);
    value = ir::cast(DType::f32, ir::bitcast(DType::i32, weight.number(part, j, lane)) - f.offset) * scale;
    if (f.minimum) value = value + minimum;
  }
  out.store(i * columns + k, ir::select(inside, value, ir::literal(DType::f32, 0)));
  return builder.finish();
}

// Each thread converts 32 columns of its row. They are written through shared memory, so that adjacent threads write
// adjacent columns.
ir::Function trace_dequantise(const DequantiseSpec& spec) {
  const int group_rows = static_cast<int>(spec.weight.group), slices = static_cast<int>(spec.slices);
  ir::Builder builder("dequantize_" + std::string(weight_format_name(spec.weight.format)), ir::KernelKind::block,
                      {spec.weight.group, spec.slices, 1});
  builder.set_exact();  // bit-identical to the values in the file
  ir::Builder::Scope scope(builder);
  const PackedWeight weight(spec.weight);
  const WeightLayout& f = weight.layout;
  const auto out = ir::buffer_param("out", spec.out, ir::Access::read_write);
  const ir::Value rows = ir::scalar_param("rows", DType::index), columns = ir::scalar_param("columns", DType::index);
  const ir::Value lane = ir::thread_id(0), slice = ir::thread_id(1);
  const ir::Value chunks = (columns + (32 * slices - 1)) / (32 * slices), group = ir::block_id(0) / chunks;
  const ir::Value first = ir::block_id(0) % chunks * (32 * slices), part = first / 32 + slice;
  const int pitch = 32 * slices + 2;  // rows of shared memory begin in different banks
  const auto values = ir::shared(spec.out, static_cast<std::uint64_t>(group_rows) * static_cast<std::uint64_t>(pitch));
  const auto store = [&](int j, ir::Value value) {
    values.store(lane * pitch + slice * 32 + j, ir::cast(spec.out, value));
  };
  if (!f.quantised()) {
    for (int j = 0; j < 32; ++j) {
      const ir::Value column = ir::min(part * 32 + j, columns - 1);
      store(j, weight.element(group * columns + column, lane));
    }
  } else {
    const ir::Value parts = columns / 32;
    const WeightPart w = part_of(weight, group * parts + ir::min(part, parts - 1), lane);
    for (int j = 0; j < 32; ++j) {
      const ir::Value byte =
          (w.words[static_cast<std::size_t>(j / 4)] >> word_literal(static_cast<std::uint32_t>(j % 4 * 8))) &
          word_literal(255);
      const bool second = f.factor == 16 && j >= 16;
      const ir::Value scale = second ? w.second : w.scale;
      const ir::Value value = ir::cast(DType::f32, ir::bitcast(DType::i32, byte) - f.offset) * scale;
      store(j, f.minimum ? value + (f.has_two_minimums() && second ? w.second_minimum : w.minimum) : value);
    }
  }
  ir::barrier();
  const ir::Value thread = slice * group_rows + lane;
  ir::for_(0, group_rows, [&](ir::Value r) {
    const ir::Value row = group * group_rows + r;
    for (int begin = 0; begin < 32 * slices; begin += group_rows * slices) {
      const ir::Value column = first + begin + thread;
      ir::if_(row < rows && column < columns,
              [&] { out.store(row * columns + column, values.load(r * pitch + begin + thread)); });
    }
  });
  return builder.finish();
}

}  // namespace tessera::ops
