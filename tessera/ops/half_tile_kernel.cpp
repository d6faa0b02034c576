// SPDX-License-Identifier: Apache-2.0
// Products of many tokens with a weight of 16-bit floats, using matrix fragments. Activations are f32, represented by
// sums of 16-bit floats (trace_round_rows). A block is divided into slices like that of a quantised weight. An infinite
// weight results in NaN, because the last terms of an activation can be 0.
//
// Columns of the weight are 40, 72 or 136 elements apart in shared memory, and rows of activations 24 or 40: an odd
// number of 16 bytes, so loads of fragments have no bank conflicts.
#include <limits>
#include <vector>

#include "tessera/ops/packed_weight.h"
#include "tessera/ops/weight_tile.h"

namespace tessera::ops {

namespace {

constexpr int side = ir::fragment_side, of_copy = 8;  // elements of 16 bytes

/// Sizes in a slice, in elements.
struct TileSizes {
  int tokens, terms, depth;  // `depth` columns in a step
  int row, w_pitch, w_size;  // of the weight, whose rows are contiguous
  int x_pitch, x_size;       // of the activations, whose columns are contiguous

  explicit TileSizes(const LinearTileSpec& s)
      : tokens(static_cast<int>(s.tokens)),
        terms(static_cast<int>(s.terms)),
        depth(s.slices == 1 ? 2 * side : side),
        row(static_cast<int>(s.groups) * tile_group_rows),
        w_pitch(row + of_copy),
        w_size(depth * w_pitch),
        x_pitch(depth + of_copy),
        x_size(terms * tokens * x_pitch) {}
};

}  // namespace

std::uint64_t half_tile_shared_bytes(const LinearTileSpec& s) {
  const TileSizes z(s);
  return std::uint64_t{2} * s.slices * s.stages * static_cast<std::uint64_t>(z.w_size + z.x_size) +
         WeightTile::sums_bytes(s) + 32;
}

ir::Function trace_half_tile(const LinearTileSpec& s) {
  const TileSizes z(s);
  const DType t = layout_of(s.weight.format).element;
  WeightTile in(s);
  const int stages = in.stages, tm = in.tm, tn = in.tn;
  ir::Builder builder("linear_" + std::string(weight_format_name(s.weight.format)) + WeightTile::name_of(s),
                      ir::KernelKind::block, {static_cast<std::uint32_t>(in.slices * in.threads), 1, 1});
  builder.set_min_blocks(1);
  builder.set_aligned_vectors();
  ir::Builder::Scope scope(builder);
  const PackedWeight weight(s.weight);
  const auto x = ir::buffer_param("x", t, ir::Access::read);
  std::optional<ir::BufferRef> factors;
  if (t == DType::f16) factors = ir::buffer_param("factors", DType::f32, ir::Access::read);
  const auto y = ir::buffer_param("y", s.gated && s.out.quantised ? DType::u32 : DType::f32, ir::Access::read_write);
  in.declare_sizes();
  const ir::Value columns = in.steps;
  const auto room = [&](int size) { return static_cast<std::uint64_t>(in.slices * stages * size); };
  const ir::BufferRef ws = ir::shared(t, room(z.w_size)), xs = ir::shared(t, room(z.x_size));

  // Columns past the end are 0.
  const ir::Value rounds = (columns + (in.slices * z.depth - 1)) / (in.slices * z.depth);
  const auto copy = [&](ir::Value step) {
    ir::if_(step < rounds, [&] {
      const ir::Value slot = in.slice * stages + step % stages, first = (step * in.slices + in.slice) * z.depth;
      const auto start = [&](const ir::BufferRef& to, ir::Value at, const ir::BufferRef& from, ir::Value index,
                             ir::Value exists) {
        ir::if_(
            exists, [&] { ir::copy_async(to, at, from, index, of_copy); },
            [&] {
              for (int i = 0; i < of_copy; ++i) to.store(at + i, ir::literal(t, 0));
            });
      };
      const int of_column = z.row / of_copy, of_group = tile_group_rows / of_copy, of_token = z.depth / of_copy;
      in.for_each_chunk(z.depth * of_column, [&](ir::Value e) {
        const ir::Value k = e / of_column, c = e % of_column, column = first + k,
                        from = (in.group(c / of_group) * columns + column) * tile_group_rows + c % of_group * of_copy;
        start(ws, slot * z.w_size + k * z.w_pitch + c * of_copy, weight.words, from, column < columns);
      });
      in.for_each_chunk(z.terms * z.tokens * of_token, [&](ir::Value e) {
        const ir::Value r = e / of_token, column = first + e % of_token * of_copy, term = r / z.tokens,
                        token = ir::min(in.tile * z.tokens + r % z.tokens, in.count - 1);
        start(xs, slot * z.x_size + r * z.x_pitch + e % of_token * of_copy, x,
              (term * in.count + token) * columns + column, column < columns);
      });
    });
    ir::async_commit();
  };

  std::vector<ir::Fragment> left, sums;
  for (int i = 0; i < tm; ++i) left.emplace_back(ir::FragmentRole::left, t);
  for (int i = 0; i < tm * tn; ++i) sums.emplace_back(ir::FragmentRole::accumulator, DType::f32);
  for (const ir::Fragment& sum : sums) sum.fill(0.0);
  const ir::Fragment right(ir::FragmentRole::right, t);
  for (int step = 0; step < stages - 1; ++step) copy(ir::index_literal(step));
  ir::for_(0, rounds, [&](ir::Value step) {
    ir::async_wait(static_cast<std::uint32_t>(stages - 2));
    ir::barrier();
    copy(step + (stages - 1));  // to the stage that the previous step has read
    const ir::Value slot = in.slice * stages + step % stages;
    for (int k = 0; k < z.depth; k += side) {
      for (int i = 0; i < tm; ++i)
        left[static_cast<std::size_t>(i)].load_transposed(
            ws, slot * z.w_size + (in.first_row + (k * z.w_pitch + i * side)), z.w_pitch);
      for (int j = 0; j < tn; ++j)
        for (int term = 0; term < z.terms; ++term) {
          right.load_transposed(xs, slot * z.x_size + (in.first_token + (term * z.tokens + j * side)) * z.x_pitch + k,
                                z.x_pitch);
          for (int i = 0; i < tm; ++i)
            sums[static_cast<std::size_t>(i * tn + j)].multiply_add(left[static_cast<std::size_t>(i)], right);
        }
    }
  });
  in.store(sums, y, factors);
  return builder.finish();
}

// A block rounds a row. The bits of magnitudes are compared as integers, so that NaN is the largest.
ir::Function trace_round_rows(const RoundSpec& spec) {
  ir::Builder builder("round_rows_" + std::string(dtype_name(spec.out)) + "_" + std::to_string(spec.terms),
                      ir::KernelKind::block, {spec.threads, 1, 1});
  builder.set_exact();  // what the first terms leave is computed without contraction
  ir::Builder::Scope scope(builder);
  const bool scaled = spec.out == DType::f16;
  const auto x = ir::buffer_param("x", DType::f32, ir::Access::read),
             out = ir::buffer_param("out", spec.out, ir::Access::read_write);
  const auto factors = scaled ? ir::buffer_param("factors", DType::f32, ir::Access::read_write) : ir::BufferRef();
  const ir::Value columns = ir::scalar_param("columns", DType::index), count = ir::scalar_param("tokens", DType::index);
  const ir::Value token = ir::block_id(0), from = token * columns, threads = ir::index_literal(spec.threads);
  const auto real = [](double v) { return ir::literal(DType::f32, v); };
  constexpr ir::Unroll together{4};  // loads that start before the first of them is used
  ir::Value factor;
  if (scaled) {
    const ir::Variable most(DType::u32, 0);
    ir::for_(
        ir::thread_id(0), columns, threads,
        [&](ir::Value c) {
          most.set(ir::max(most.get(), ir::bitcast(DType::u32, x.load(from + c)) & word_literal(0x7fffffff)));
        },
        together);
    const ir::Value size = ir::bitcast(DType::f32, ir::block_max(most.get()));
    factor = ir::select(size > real(2e-34) && size < real(std::numeric_limits<double>::infinity()),
                        size * real(1.0 / 16384), real(1));
    ir::if_(ir::thread_id(0) == 0, [&] { factors.store(token, factor); });
  }
  ir::for_(
      ir::thread_id(0), columns, threads,
      [&](ir::Value c) {
        ir::Value left = x.load(from + c);
        if (scaled) left = left / factor;
        for (std::uint32_t term = 0; term < spec.terms; ++term) {
          const ir::Value rounded = ir::cast(spec.out, left), value = ir::cast(DType::f32, rounded);
          out.store((count * static_cast<int>(term) + token) * columns + c, rounded);
          // Nothing is left of an infinity.
          left = ir::select(ir::abs(value) < real(std::numeric_limits<double>::infinity()), left - value, real(0));
        }
      },
      together);
  return builder.finish();
}

}  // namespace tessera::ops
