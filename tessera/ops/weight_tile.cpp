// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/weight_tile.h"

#include <algorithm>
#include <array>

#include "tessera/ops/input_store.h"

namespace tessera::ops {

namespace {
constexpr int side = ir::fragment_side, sums_pitch = side + 1, sums_size = side * sums_pitch;
}  // namespace

WeightTile::WeightTile(const LinearTileSpec& s)
    : slices(static_cast<int>(s.slices)),
      stages(static_cast<int>(s.stages)),
      rows_of_block(static_cast<int>(s.groups) * tile_group_rows),
      tokens_of_block(static_cast<int>(s.tokens)),
      subgroups(subgroups_of(s)),
      threads(threads_of(s)),
      tm(rows_of_block / side / static_cast<int>(s.workers_m)),
      tn(tokens_of_block / side / static_cast<int>(s.workers_n)),
      spec_(s),
      groups_(static_cast<int>(s.groups)),
      workers_n_(static_cast<int>(s.workers_n)) {}

std::string WeightTile::name_of(const LinearTileSpec& s) {
  return "_fragments" + std::to_string(s.tokens) + "_rows" + std::to_string(s.groups * tile_group_rows) + "_slices" +
         std::to_string(s.slices) + (s.gated ? std::string("_") + gate_name(s.gate) + "_gate" : "");
}

std::uint64_t WeightTile::sums_bytes(const LinearTileSpec& s) {
  const std::uint64_t workers = std::uint64_t{s.workers_m} * s.workers_n,
                      gated =
                          s.gated ? workers / 2 * side * (std::uint64_t{s.groups} * tile_group_rows / s.workers_m) : 0;
  return 4 * (s.slices * workers * sums_size + gated) + 32;
}

void WeightTile::declare_sizes() {
  rows = ir::scalar_param("rows", DType::index), steps = ir::scalar_param("steps", DType::index);
  count = ir::scalar_param("tokens", DType::index), tiles = ir::scalar_param("tiles", DType::index);
  // Tiles of tokens vary fastest, so that each group of rows is read from memory only once.
  block = ir::block_id(0) / tiles, tile = ir::block_id(0) - block * tiles;
  slice = ir::subgroup_id() / subgroups, thread = ir::thread_id(0) % threads;
  const ir::Value worker = ir::subgroup_id() % subgroups;
  first_row = worker / workers_n_ * (tm * side), first_token = worker % workers_n_ * (tn * side);
}

ir::Value WeightTile::group(ir::Value i) const {
  if (spec_.gated) {
    const int half = groups_ / 2;
    const ir::Value pairs = rows / (2 * tile_group_rows);
    return ir::min(block * half + i % half, pairs - 1) + i / half * pairs;
  }
  return ir::min(block * groups_ + i, (rows + (tile_group_rows - 1)) / tile_group_rows - 1);
}

void WeightTile::for_each_chunk(int all, const std::function<void(ir::Value)>& copy) const {
  for (int at = 0; at < all; at += threads) {
    const ir::Value e = thread + at;
    at + threads <= all ? copy(e) : ir::if_(e < all, [&] { copy(e); });
  }
}

ir::Value WeightTile::total(const ir::BufferRef& parts, ir::Value worker, ir::Value row, ir::Value token) const {
  const auto part = [&](int of) {
    return parts.load((worker + of * subgroups) * sums_size + row * sums_pitch + token);
  };
  ir::Value sum = part(0);
  for (int of = 1; of < slices; ++of) sum = sum + part(of);
  return sum;
}

void WeightTile::store(std::span<const ir::Fragment> sums, const ir::BufferRef& y,
                       const std::optional<ir::BufferRef>& factors) const {
  const ir::BufferRef parts = ir::shared(DType::f32, static_cast<std::uint64_t>(slices * subgroups * sums_size));
  if (spec_.gated) return store_gated(sums, parts, y, factors);
  for (int i = 0; i < tm; ++i)
    for (int j = 0; j < tn; ++j) {
      if (i + j > 0) ir::barrier();
      sums[static_cast<std::size_t>(i * tn + j)].store(parts, ir::subgroup_id() * sums_size, sums_pitch);
      ir::barrier();
      ir::for_(ir::thread_id(0), subgroups * side * side, slices * threads, [&](ir::Value e) {
        const ir::Value worker = e / (side * side), t = e % (side * side) / side, r = e % side,
                        row = block * rows_of_block + worker / workers_n_ * (tm * side) + i * side + r,
                        token = tile * tokens_of_block + worker % workers_n_ * (tn * side) + j * side + t;
        ir::if_(row < rows && token < count, [&] {
          const ir::Value sum = total(parts, worker, r, t);
          y.store(token * rows + row, factors ? sum * factors->load(token) : sum);
        });
      });
    }
}

// The first half of the workers has gates. Their results are exchanged through shared memory, so that consecutive
// threads have consecutive rows of a token, which are columns of the result.
void WeightTile::store_gated(std::span<const ir::Fragment> sums, const ir::BufferRef& parts, const ir::BufferRef& y,
                             const std::optional<ir::BufferRef>& factors) const {
  const int pairs = subgroups / 2, rows_of_worker = tm * side, all = slices * threads, each = 4;
  const ir::BufferRef results = ir::shared(DType::f32, static_cast<std::uint64_t>(pairs * side * rows_of_worker));
  const ir::Value columns = rows / 2;
  const InputStore store{spec_.out, y, columns};
  for (int j = 0; j < tn; ++j) {
    for (int i = 0; i < tm; ++i) {
      if (i + j > 0) ir::barrier();
      sums[static_cast<std::size_t>(i * tn + j)].store(parts, ir::subgroup_id() * sums_size, sums_pitch);
      ir::barrier();
      ir::for_(ir::thread_id(0), pairs * side * side, all, [&](ir::Value e) {
        const ir::Value worker = e / (side * side), t = e % (side * side) / side, r = e % side,
                        token = tile * tokens_of_block + worker % workers_n_ * (tn * side) + j * side + t;
        const ir::Value factor = factors ? factors->load(ir::min(token, count - 1)) : ir::Value();
        const auto scaled = [&](ir::Value sum) { return factor.valid() ? sum * factor : sum; };
        results.store(
            (worker * side + t) * rows_of_worker + i * side + r,
            gated_value(spec_.gate, scaled(total(parts, worker, r, t)), scaled(total(parts, worker + pairs, r, t))));
      });
    }
    ir::barrier();
    // All threads store together, because quantising exchanges values within subgroups.
    const int stores = pairs * side * rows_of_worker / each;
    for (int begin = 0; begin < stores; begin += all) {
      const ir::Value e = ir::thread_id(0) + begin, at = ir::min(e, stores - 1) * each,
                      worker = at / (side * rows_of_worker), t = at / rows_of_worker % side, r = at % rows_of_worker,
                      column = block * (rows_of_block / 2) + worker / workers_n_ * rows_of_worker + r,
                      token = tile * tokens_of_block + worker % workers_n_ * (tn * side) + j * side + t;
      std::array<ir::Value, 4> v;
      for (int i = 0; i < each; ++i) v[static_cast<std::size_t>(i)] = results.load(at + i);
      ir::Value exists = e < stores && column < columns;
      if (spec_.out.tokens == 1) exists = exists && token < count;  // tiles are padded with tokens past the end
      store(token, column, v, {exists, exists, exists, exists});
    }
  }
}

ir::Function trace_linear_tile(const LinearTileSpec& s) {
  return layout_of(s.weight.format).quantised() ? trace_quantised_tile(s) : trace_half_tile(s);
}

std::optional<LinearTileSpec> choose_linear_tile(const Tiles& tiles, const WeightSpec& weight, std::int64_t rows,
                                                 std::int64_t columns, std::int64_t tokens, bool gated) {
  // Threads with a few sums each compute fewer tokens as fast. Copies that are not asynchronous request fewer bytes.
  const std::int64_t least_tokens = tiles.async_copies ? 5 : 32;
  constexpr std::int64_t few_tokens = 64;
  const std::uint32_t least_groups = gated ? 2 : 1;
  const WeightLayout& f = layout_of(weight.format);
  const bool units = f.quantised()              ? tiles.matrix_i8
                     : f.element == DType::f16  ? tiles.matrix_f16
                     : f.element == DType::bf16 ? tiles.matrix_bf16
                                                : false;
  if (!units || weight.group != tile_group_rows || tokens < least_tokens) return std::nullopt;
  if (tiles.subgroup != 32 && tiles.subgroup != 64) return std::nullopt;
  if (!f.quantised() && columns % 8 != 0) return std::nullopt;  // activations are copied by 16 bytes
  if (f.codebook) return std::nullopt;
  const std::int64_t wanted = std::max<std::int64_t>(1, std::int64_t{tiles.compute_units} * 3 / 4);
  LinearTileSpec s{weight};
  s.subgroup = tiles.subgroup;
  s.gated = gated;
  if (!f.quantised()) s.terms = f.element == DType::f16 ? 2 : 3;
  const auto blocks = [&] {
    return ceil_div(rows, std::int64_t{tile_group_rows} * s.groups) * ceil_div(tokens, s.tokens);
  };
  const auto fits = [&] {
    return s.slices * static_cast<std::uint32_t>(WeightTile::threads_of(s)) <= tiles.block_limit &&
           (f.quantised() ? quantised_tile_shared_bytes(s) : half_tile_shared_bytes(s)) <= tiles.shared_bytes;
  };
  if (tokens > few_tokens) {
    constexpr std::uint32_t threads = 256;
    s.workers_m = 2, s.workers_n = threads / s.subgroup / 2;
    // The largest tiles that leave enough blocks, or else the smallest ones that fit.
    std::optional<LinearTileSpec> smallest;
    for (const std::uint32_t most : {128u, 64u})
      for (const std::uint32_t groups : {4u, 2u}) {
        s.tokens = most, s.groups = groups;
        if (!fits()) continue;
        if (blocks() >= wanted) return s;
        smallest = s;
      }
    if (smallest) return smallest;
  }
  // Few tokens: each subgroup computes all of them for one group of rows. The sums of 64 tokens need the registers of
  // twice as many threads.
  s.workers_n = 1;
  for (s.tokens = 16; s.tokens < tokens && s.tokens < few_tokens;) s.tokens *= 2;
  for (; s.tokens >= 16; s.tokens /= 2)
    for (s.groups = 4; s.groups >= least_groups; s.groups /= 2) {
      const std::uint32_t threads = s.tokens > 32 ? 256 : 512;
      s.workers_m = s.groups;
      for (s.slices = threads / s.subgroup / s.groups; s.slices >= 1; s.slices /= 2)
        if (fits() && (blocks() >= wanted || s.groups == least_groups)) return s;
    }
  return std::nullopt;
}

}  // namespace tessera::ops
