// SPDX-License-Identifier: Apache-2.0
// Products of many tokens with a quantised weight, using matrix fragments of i8. A block computes some groups of rows
// for a tile of tokens. Its subgroups are divided into slices, which divide the columns among themselves and add their
// sums at the end; few tokens need many slices, so that enough bytes are requested at once. In each step, a slice
//
// 1. waits until the packed weight and the activations have been copied to shared memory, and starts the copies of a
//    later step;
// 2. unpacks the weight: a thread writes the 32 numbers of one part of a row as signed bytes;
// 3. multiplies fragments. A product of 32 columns has one scale per row (two in formats with a factor for 16 columns)
//    and one per token.
//
// Rows of fragments are an odd number of 16 bytes apart (12, 20, 36 or 68 words), so loads have no bank conflicts.
#include <vector>

#include "tessera/ops/packed_weight.h"
#include "tessera/ops/weight_tile.h"

namespace tessera::ops {

namespace {

constexpr int side = ir::fragment_side, group_rows = tile_group_rows, words_of_copy = 4;

/// Sizes in a slice, in words unless stated otherwise.
struct TileSizes {
  const WeightLayout& f;
  int groups, tokens, rows, threads, parts;  // `parts` of 32 columns in a step
  int part_words;                            // unpacked words of a part. If it has two scales, halves are padded with 0
  int pitch;                                 // unpacked words between rows
  int row_scales;                            // scales and minimums of a part of a row, f32
  int raw_words;                             // packed words of a step
  int raw_scales, raw_factors;               // packed scales and minimums, and factors, of a step, in elements
  int x_words;                               // activations of a step

  explicit TileSizes(const LinearTileSpec& s)
      : f(layout_of(s.weight.format)),
        groups(static_cast<int>(s.groups)),
        tokens(static_cast<int>(s.tokens)),
        rows(groups * group_rows),
        threads(WeightTile::threads_of(s)),
        parts(threads / rows),
        part_words(f.factor == 16 ? 16 : 8),
        pitch(parts * part_words + 4),
        row_scales(static_cast<int>(f.part_scales())),
        raw_words(parts * groups * static_cast<int>(f.bits) * group_rows),
        raw_scales(parts * groups * static_cast<int>(f.scales()) * group_rows),
        raw_factors(f.factor == 0 ? 0 : parts * groups * group_rows),
        x_words(parts * tokens * static_cast<int>(activation_words)) {}
};

ir::Value signed_bytes(const WeightLayout& f, ir::Value w) {
  if (f.offset == 0) return w;
  // Subtracts the offset from each byte. The highest bits are computed separately, so that no byte borrows from the
  // next one.
  const auto offset = static_cast<std::uint32_t>(f.offset);
  const ir::Value high = word_literal(0x80808080), low = word_literal((offset & 127) * 0x01010101u);
  return ((w | high) - low) ^ ((offset < 128 ? w ^ high : w) & high);
}

}  // namespace

std::uint64_t quantised_tile_shared_bytes(const LinearTileSpec& s) {
  const TileSizes z(s);
  const int stage =
      4 * (z.raw_words + z.x_words) + static_cast<int>(dtype_size(s.weight.scale)) * z.raw_scales + 2 * z.raw_factors;
  const int slice = static_cast<int>(s.stages) * stage + 4 * z.rows * (z.pitch + z.parts * z.row_scales);
  return static_cast<std::uint64_t>(static_cast<int>(s.slices) * slice) + WeightTile::sums_bytes(s) + 96;
}

ir::Function trace_quantised_tile(const LinearTileSpec& s) {
  const TileSizes z(s);
  const WeightLayout& f = z.f;
  WeightTile in(s);
  const int slices = in.slices, stages = in.stages, tm = in.tm, tn = in.tn, all_threads = slices * z.threads;
  ir::Builder builder("linear_" + std::string(weight_format_name(s.weight.format)) + WeightTile::name_of(s),
                      ir::KernelKind::block, {static_cast<std::uint32_t>(all_threads), 1, 1});
  builder.set_min_blocks(1);
  builder.set_aligned_vectors();
  ir::Builder::Scope scope(builder);
  const PackedWeight weight(s.weight);
  const auto x = ir::buffer_param("x", DType::u32, ir::Access::read);
  const auto y = ir::buffer_param("y", s.gated && s.out.quantised ? DType::u32 : DType::f32, ir::Access::read_write);
  in.declare_sizes();
  const ir::Value steps = in.steps, slice = in.slice;

  const auto room = [](int words) { return static_cast<std::uint64_t>(words); };
  const ir::BufferRef raw = ir::shared(DType::u32, room(slices * stages * z.raw_words)),
                      xs = ir::shared(DType::u32, room(slices * stages * z.x_words)),
                      numbers = ir::shared(DType::u32, room(slices * z.rows * z.pitch)),
                      scales = ir::shared(DType::f32, room(slices * z.rows * z.parts * z.row_scales));
  PackedWeight staged = weight;
  staged.words = raw;
  staged.scales = ir::shared(s.weight.scale, room(slices * stages * z.raw_scales));
  if (f.factor != 0) staged.factors = ir::shared(DType::u16, room(slices * stages * z.raw_factors));

  // The parts of a step of a slice are consecutive, and so are the slices. Parts past the end are copies of the last
  // one, multiplied by zeros.
  const auto first_part = [&](ir::Value step) { return (step * slices + slice) * z.parts; };
  const ir::Value rounds = (steps + (slices * z.parts - 1)) / (slices * z.parts);
  const auto copy = [&](ir::Value step) {
    ir::if_(step < rounds, [&] {
      const ir::Value slot = slice * stages + step % stages, first = first_part(step);
      // `each` elements of 16 bytes. A row of the stage is a part of a group, and has `width` elements.
      const auto stage = [&](const ir::BufferRef& to, const ir::BufferRef& from, int each, int width,
                             const std::function<ir::Value(ir::Value)>& row_of) {
        const int per_row = width / each;
        in.for_each_chunk(z.parts * z.groups * per_row, [&](ir::Value e) {
          const ir::Value r = e / per_row, c = e % per_row * each,
                          part = in.group(r % z.groups) * steps + ir::min(first + r / z.groups, steps - 1);
          ir::copy_async(to, slot * (z.parts * z.groups * width) + r * width + c, from, row_of(part) * width + c,
                         static_cast<std::uint32_t>(each));
        });
      };
      const auto itself = [](ir::Value part) { return part; };
      const auto of_16_bytes = [](DType t) { return 16 / static_cast<int>(dtype_size(t)); };
      stage(raw, weight.words, words_of_copy, static_cast<int>(f.bits) * group_rows, itself);
      stage(staged.scales, weight.scales, of_16_bytes(s.weight.scale), static_cast<int>(f.scales()) * group_rows,
            [&](ir::Value part) { return f.parts() == 1 ? part : part / static_cast<int>(f.parts()); });
      if (f.factor != 0) stage(staged.factors, weight.factors, of_16_bytes(DType::u16), group_rows, itself);
      const int part_words = z.tokens * static_cast<int>(activation_words), per_part = part_words / words_of_copy;
      in.for_each_chunk(z.parts * per_part, [&](ir::Value e) {
        const ir::Value part = first + e / per_part, to = slot * z.x_words + e * words_of_copy,
                        from = (in.tile * steps + part) * part_words + e % per_part * words_of_copy;
        ir::if_(
            part < steps, [&] { ir::copy_async(xs, to, x, from, words_of_copy); },
            [&] {
              for (int i = 0; i < words_of_copy; ++i) xs.store(to + i, word_literal(0));
            });
      });
    });
    ir::async_commit();
  };

  const auto scale_at = [&](ir::Value row, ir::Value part, int which) {
    return ((slice * z.row_scales + which) * z.parts + part) * z.rows + row;
  };
  const auto unpack = [&](ir::Value slot, ir::Value step) {
    const ir::Value row = in.thread % z.rows, part = in.thread / z.rows, lane = row % group_rows,
                    at = slot * (z.parts * z.groups) + part * z.groups + row / group_rows;
    // Each part has its own copy. An infinity of a part past the end must not become NaN.
    const ir::Value exists = first_part(step) + part < steps;
    const auto scale = [&](int which) {
      return load_at(staged.scales, (at * static_cast<int>(f.scales()) + which) * group_rows + lane, exists);
    };
    WeightPart w = scaled_part(f, staged.numbers(at, lane), scale(0), f.minimum ? scale(1) : ir::Value(),
                               f.factor != 0 ? staged.factor(at, lane) : ir::Value());
    const ir::Value to = (slice * z.rows + row) * z.pitch + part * z.part_words;
    for (int i = 0; i < 8; ++i) {
      const int half = f.factor == 16 ? i / 4 * 8 : 0;
      numbers.store(to + (half + i), signed_bytes(f, w.words[static_cast<std::size_t>(i)]));
    }
    int which = 0;
    for (const ir::Value* v : w.numbers(f)) scales.store(scale_at(row, part, which++), *v);
  };
  if (f.factor == 16)  // words 4 to 11 of each part remain 0
    ir::for_(ir::thread_id(0), slices * z.rows * z.pitch, all_threads,
             [&](ir::Value e) { numbers.store(e, word_literal(0)); });

  const int halves = f.factor == 16 ? 2 : 1, minimums = f.minimum ? halves : 0;
  std::vector<ir::Fragment> left, products, sums;
  std::vector<ir::FragmentRows> row_scales, row_minimums;
  for (int i = 0; i < tm * halves; ++i) {
    left.emplace_back(ir::FragmentRole::left, DType::i8);
    products.emplace_back(ir::FragmentRole::accumulator, DType::f32);
    row_scales.emplace_back();
  }
  for (int i = 0; i < tm * minimums; ++i) row_minimums.emplace_back();
  for (int i = 0; i < tm * tn; ++i) sums.emplace_back(ir::FragmentRole::accumulator, DType::f32);
  for (const ir::Fragment& sum : sums) sum.fill(0.0);
  const ir::Fragment right(ir::FragmentRole::right, DType::i8);
  const auto multiply = [&](ir::Value slot, int part) {
    const ir::Value which = ir::index_literal(part);
    for (int i = 0; i < tm; ++i) {
      const ir::Value row = in.first_row + i * side;
      for (int h = 0; h < halves; ++h)
        left[static_cast<std::size_t>(i * halves + h)].load(
            numbers, (slice * z.rows + row) * z.pitch + (part * z.part_words + h * 8), z.pitch);
      ir::FragmentRows::for_each([&](ir::Value at, ir::Value r) {
        for (int h = 0; h < halves; ++h)
          row_scales[static_cast<std::size_t>(i * halves + h)].set_at(at, scales.load(scale_at(row + r, which, h)));
        for (int h = 0; h < minimums; ++h)
          row_minimums[static_cast<std::size_t>(i * minimums + h)].set_at(
              at, scales.load(scale_at(row + r, which, halves + h)));
      });
    }
    for (int j = 0; j < tn; ++j) {
      const int words = static_cast<int>(activation_words);
      const ir::Value tokens_at = slot * z.x_words + (part * z.tokens + in.first_token + j * side) * words;
      right.load_transposed(xs, tokens_at + static_cast<int>(activation_heading), words);
      for (std::size_t i = 0; i < products.size(); ++i) products[i].multiply(left[i], right);
      ir::for_each_element([&](const ir::FragmentElement& e) {
        const ir::Value at = tokens_at + e.column * words, x_scale = ir::bitcast(DType::f32, xs.load(at)),
                        x_sum = minimums == 1 ? ir::bitcast(DType::f32, xs.load(at + 3)) : ir::Value();
        const auto x_sum_of_half = [&](int half) {
          return ir::cast(DType::f32, ir::bitcast(DType::i32, xs.load(at + (1 + half))));
        };
        for (int i = 0; i < tm; ++i) {
          const ir::Fragment& sum = sums[static_cast<std::size_t>(i * tn + j)];
          const auto first = static_cast<std::size_t>(i * halves);
          ir::Value total = sum.get(e.k);
          if (halves == 2) {
            const ir::Value both = ir::fma(products[first + 1].get(e.k), row_scales[first + 1].get(e),
                                           products[first].get(e.k) * row_scales[first].get(e));
            total = ir::fma(both, x_scale, total);
          } else {
            total = ir::fma(products[first].get(e.k), row_scales[first].get(e) * x_scale, total);
          }
          const auto minimum = static_cast<std::size_t>(i * minimums);
          if (minimums == 1)
            total = ir::fma(row_minimums[minimum].get(e), x_sum, total);
          else if (minimums == 2)
            total = ir::fma(ir::fma(row_minimums[minimum + 1].get(e), x_sum_of_half(1),
                                    row_minimums[minimum].get(e) * x_sum_of_half(0)),
                            x_scale, total);
          sum.set(e.k, total);
        }
      });
    }
  };

  for (int step = 0; step < stages - 1; ++step) copy(ir::index_literal(step));
  ir::for_(0, rounds, [&](ir::Value step) {
    ir::async_wait(static_cast<std::uint32_t>(stages - 2));
    ir::barrier();              // the copies are visible, and the previous step has been multiplied
    copy(step + (stages - 1));  // to the stage of the previous step
    const ir::Value slot = slice * stages + step % stages;
    unpack(slot, step);
    ir::barrier();
    for (int part = 0; part < z.parts; ++part) multiply(slot, part);
  });

  in.store(sums, y, std::nullopt);
  return builder.finish();
}

}  // namespace tessera::ops
