// SPDX-License-Identifier: Apache-2.0
// Products of matrices with matrix fragments. Factors are staged in shared memory. The rows of a stage begin at
// multiples of 16 bytes, and eight consecutive rows begin in different groups of four banks: a row has 40, 72 or
// 136 elements of 16 bits, or 20 or 36 of f32 (5, 9 or 17 such groups). Loads of fragments therefore have no bank
// conflicts. See pitch_of for rows of f32 across k.
#include "tessera/ops/fragment_kernels.h"

#include <algorithm>
#include <vector>

namespace tessera::ops {

namespace {

/// The distance between rows of a staged factor with `row` elements each. Rows of f32 across k are loaded one element
/// at a time: a subgroup of 32 loads 8 elements of each of 4 consecutive rows, and a subgroup of 64 loads 16 elements
/// of each of 4 rows that are 4 apart. 8 or 4 additional elements keep them in different banks.
int pitch_of(const ProductSpec& s, bool along_k, std::uint32_t row) {
  const auto bytes = static_cast<std::uint32_t>(dtype_size(s.a));
  const bool narrow = s.tx == 32 * s.workers_m * s.workers_n;
  return static_cast<int>(bytes == 4 && !along_k && narrow ? row + 8 : fragment_pitch(row, bytes));
}

}  // namespace

/// Computes the tile of a block with matrix fragments. Threads stage both factors in shared memory; elements
/// past the ends are 0. Each part of the tile belongs to a subgroup, which accumulates it in fragments. The sums are
/// stored through shared memory, one fragment of each part at a time, so that every thread can finish single elements.
/// Any subgroup width works: if there are fewer subgroups than parts, the parts are computed in several rounds.
void fragment_tile(const ProductSpec& s, const ProductOperand& a, const ProductOperand& b, const FragmentTile& t) {
  const auto& [m, n, k, m_tile, n_tile, finish, finish_vector] = t;
  const int side = ir::fragment_side, threads = static_cast<int>(s.tx), depth = static_cast<int>(s.bk);
  const int tm = static_cast<int>(s.tm), tn = static_cast<int>(s.tn), bm = static_cast<int>(s.block_m()),
            bn = static_cast<int>(s.block_n()), parts_n = static_cast<int>(s.workers_n),
            parts = static_cast<int>(s.workers_m) * parts_n;
  // The rows in shared memory are along k if the memory of the factor is contiguous along k.
  const bool a_along_k = s.a_unit_k || !s.a_unit_m, b_along_k = s.b_unit_k && !s.b_unit_n;
  const int a_pitch = pitch_of(s, a_along_k, a_along_k ? s.bk : s.block_m()),
            b_pitch = pitch_of(s, b_along_k, b_along_k ? s.bk : s.block_n());
  auto room = [](int rows, int row) { return static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(row); };
  const ir::BufferRef as = ir::shared(s.a, room(a_along_k ? bm : depth, a_pitch)),
                      bs = ir::shared(s.b, room(b_along_k ? bn : depth, b_pitch)),
                      cs = ir::shared(DType::f32, room(parts, side * side));
  const ir::Value me = ir::thread_id(0), row0 = m_tile * bm, column0 = n_tile * bn;
  auto stage = [&](const ir::BufferRef& to, const ProductOperand& from, bool along_k, ir::Value k0, ir::Value first,
                   ir::Value end, int width, int row_pitch) {
    const int row = along_k ? depth : width;
    ir::for_(me, width * depth, threads, [&](ir::Value e) {
      const ir::Value outer = first + (along_k ? e / row : e % row), kk = k0 + (along_k ? e % row : e / row);
      to.store(e / row * row_pitch + e % row, from.load_if(outer < end && kk < k, outer, kk));
    });
  };
  const ir::Value rounds = (ir::subgroup_count() + (parts - 1)) / ir::subgroup_count();
  ir::for_(0, rounds, [&](ir::Value round) {
    const ir::Value part = round * ir::subgroup_count() + ir::subgroup_id(), mine = part < parts;
    const ir::Value part_row = part / parts_n * (tm * side), part_column = part % parts_n * (tn * side);
    std::vector<ir::Fragment> left, right, sum;
    for (int i = 0; i < tm; ++i) left.emplace_back(ir::FragmentRole::left, s.a);
    for (int j = 0; j < tn; ++j) right.emplace_back(ir::FragmentRole::right, s.b);
    for (int f = 0; f < tm * tn; ++f) sum.emplace_back(ir::FragmentRole::accumulator, DType::f32);
    ir::if_(mine, [&] {
      for (const ir::Fragment& f : sum) f.fill(0.0);
    });
    ir::for_(0, k, depth, [&](ir::Value k0) {
      stage(as, a, a_along_k, k0, row0, m, bm, a_pitch);
      stage(bs, b, b_along_k, k0, column0, n, bn, b_pitch);
      ir::barrier();
      ir::if_(mine, [&] {
        for (int kk = 0; kk < depth; kk += side) {
          auto load = [&](const ir::Fragment& f, bool plain, const ir::BufferRef& from, ir::Value outer, bool along_k,
                          int row_pitch) {
            const ir::Value at = along_k ? outer * row_pitch + kk : outer + kk * row_pitch;
            plain ? f.load(from, at, row_pitch) : f.load_transposed(from, at, row_pitch);
          };
          for (int i = 0; i < tm; ++i)
            load(left[static_cast<std::size_t>(i)], a_along_k, as, part_row + i * side, a_along_k, a_pitch);
          for (int j = 0; j < tn; ++j)
            load(right[static_cast<std::size_t>(j)], !b_along_k, bs, part_column + j * side, b_along_k, b_pitch);
          for (int i = 0; i < tm; ++i)
            for (int j = 0; j < tn; ++j)
              sum[static_cast<std::size_t>(i * tn + j)].multiply_add(left[static_cast<std::size_t>(i)],
                                                                     right[static_cast<std::size_t>(j)]);
        }
      });
      ir::barrier();
    });
    for (int i = 0; i < tm; ++i)
      for (int j = 0; j < tn; ++j) {
        ir::if_(mine, [&] { sum[static_cast<std::size_t>(i * tn + j)].store(cs, part * (side * side), side); });
        ir::barrier();
        // The parts of a round are consecutive.
        const ir::Value first = round * ir::subgroup_count(),
                        here = ir::min(ir::subgroup_count(), ir::index_literal(parts) - first);
        ir::for_(me, here * (side * side), threads, [&](ir::Value e) {
          const ir::Value p = first + e / (side * side), in = e % (side * side);
          const ir::Value row = row0 + p / parts_n * (tm * side) + i * side + in / side,
                          column = column0 + p % parts_n * (tn * side) + j * side + in % side;
          ir::if_(row < m && column < n, [&] { finish(row, column, cs.load(p * (side * side) + in)); });
        });
        ir::barrier();
      }
  });
}

std::uint64_t fragment_shared_bytes(const ProductSpec& s) {
  const auto stage = [&](bool along_k, std::uint32_t tile) {
    return std::uint64_t{along_k ? tile : s.bk} *
           static_cast<std::uint64_t>(pitch_of(s, along_k, along_k ? s.bk : tile)) * dtype_size(s.a);
  };
  if (s.stages != 0)
    return s.stages * (stage(s.a_unit_k || !s.a_unit_m, s.block_m()) + stage(s.b_unit_k && !s.b_unit_n, s.block_n())) +
           4 * 16 * (std::uint64_t{s.tn} * 16 + 8) * s.workers_m * s.workers_n + 48;
  return std::max(stage(true, s.block_m()), stage(false, s.block_m())) +
         std::max(stage(true, s.block_n()), stage(false, s.block_n())) +
         1024 * std::uint64_t{s.workers_m} * s.workers_n + 48;
}

namespace {

constexpr int sums_pitch(const ProductSpec& s) { return static_cast<int>(s.tn) * 16 + 8; }

/// A factor in shared memory: `stages` stages of rows that are contiguous along k, or along the rows or columns of the
/// product.
struct StagedFactor {
  const ProductOperand& from;
  ir::Value first, end;  // first row or column of the tile, and the number of rows or columns of the factor
  bool along_k, whole_steps;
  int elements_of_copy;  // 16 bytes
  int width, depth, row, rows, pitch;
  ir::BufferRef memory;

  StagedFactor(const ProductSpec& s, DType dtype, const ProductOperand& operand, ir::Value begin, ir::Value extent,
               bool contiguous_along_k, std::uint32_t tile)
      : from(operand),
        first(begin),
        end(extent),
        along_k(contiguous_along_k),
        whole_steps(s.whole_steps),
        elements_of_copy(16 / static_cast<int>(dtype_size(dtype))),
        width(static_cast<int>(tile)),
        depth(static_cast<int>(s.bk)),
        row(along_k ? depth : width),
        rows(along_k ? width : depth),
        pitch(pitch_of(s, along_k, static_cast<std::uint32_t>(row))),
        memory(ir::shared(dtype, static_cast<std::uint64_t>(rows * pitch) * s.stages)) {}
  int stage() const { return rows * pitch; }

  /// Starts the copies of this thread for the steps k0, ... along k. Steps past the end are set to 0. Rows or columns
  /// past the end repeat others, and their results are not stored.
  void copy(ir::Value me, int threads, ir::Value slot, ir::Value k0, ir::Value k) const {
    const int per_row = row / elements_of_copy, all = rows * per_row;
    for (int at = 0; at < all; at += threads) {
      const ir::Value e = me + at;
      const auto one = [&] {
        const ir::Value r = e / per_row, c = e % per_row * elements_of_copy;
        const ir::Value outer = along_k ? ir::min(first + r, end - 1) : ir::min(first + c, end - elements_of_copy);
        const ir::Value kk = k0 + (along_k ? c : r), to = slot + r * pitch + c;
        const auto start = [&] {
          ir::copy_async(
              memory, to, from.memory,
              from.base + ProductOperand::scaled(outer, from.outer_stride) + ProductOperand::scaled(kk, from.k_stride),
              static_cast<std::uint32_t>(elements_of_copy));
        };
        if (whole_steps) return start();
        ir::if_(kk < k, start, [&] {
          for (int i = 0; i < elements_of_copy; ++i) memory.store(to + i, ir::literal(memory.dtype(), 0));
        });
      };
      at + threads <= all ? one() : ir::if_(e < all, one);
    }
  }
  void load(const ir::Fragment& f, bool left, ir::Value slot, ir::Value outer, int kk) const {
    const ir::Value at = slot + (along_k ? outer * pitch + kk : outer + kk * pitch);
    left == along_k ? f.load(memory, at, pitch) : f.load_transposed(memory, at, pitch);
  }
};

}  // namespace

void pipelined_tile(const ProductSpec& s, const ProductOperand& a, const ProductOperand& b, const FragmentTile& t) {
  const int side = ir::fragment_side, threads = static_cast<int>(s.tx), depth = static_cast<int>(s.bk);
  const int tm = static_cast<int>(s.tm), tn = static_cast<int>(s.tn), parts_n = static_cast<int>(s.workers_n),
            parts = static_cast<int>(s.workers_m) * parts_n, stages = static_cast<int>(s.stages);
  const ir::Value me = ir::thread_id(0), row0 = t.m_tile * static_cast<int>(s.block_m()),
                  column0 = t.n_tile * static_cast<int>(s.block_n());
  const StagedFactor as(s, s.a, a, row0, t.m, s.a_unit_k || !s.a_unit_m, s.block_m()),
      bs(s, s.b, b, column0, t.n, s.b_unit_k && !s.b_unit_n, s.block_n());
  const int pitch = sums_pitch(s), part_sums = side * pitch;
  const ir::BufferRef cs = ir::shared(DType::f32, static_cast<std::uint64_t>(parts * part_sums));
  const ir::Value steps = (t.k + (depth - 1)) / depth;
  const auto copy = [&](ir::Value step) {
    ir::if_(step < steps, [&] {
      const ir::Value slot = step % stages, k0 = step * depth;
      as.copy(me, threads, slot * as.stage(), k0, t.k);
      bs.copy(me, threads, slot * bs.stage(), k0, t.k);
    });
    ir::async_commit();
  };
  const ir::Value part = ir::subgroup_id(), part_row = part / parts_n * (tm * side),
                  part_column = part % parts_n * (tn * side);
  std::vector<ir::Fragment> left, right, sum;
  for (int i = 0; i < tm; ++i) left.emplace_back(ir::FragmentRole::left, s.a);
  for (int j = 0; j < tn; ++j) right.emplace_back(ir::FragmentRole::right, s.b);
  for (int f = 0; f < tm * tn; ++f) sum.emplace_back(ir::FragmentRole::accumulator, DType::f32);
  for (const ir::Fragment& f : sum) f.fill(0.0);
  for (int step = 0; step < stages - 1; ++step) copy(ir::index_literal(step));
  ir::for_(0, steps, [&](ir::Value step) {
    ir::async_wait(static_cast<std::uint32_t>(stages - 2));
    ir::barrier();
    copy(step + (stages - 1));  // to the stage that the previous step has read
    const ir::Value slot = step % stages, a_slot = slot * as.stage(), b_slot = slot * bs.stage();
    for (int kk = 0; kk < depth; kk += side) {
      for (int i = 0; i < tm; ++i) as.load(left[static_cast<std::size_t>(i)], true, a_slot, part_row + i * side, kk);
      for (int j = 0; j < tn; ++j)
        bs.load(right[static_cast<std::size_t>(j)], false, b_slot, part_column + j * side, kk);
      for (int i = 0; i < tm; ++i)
        for (int j = 0; j < tn; ++j)
          sum[static_cast<std::size_t>(i * tn + j)].multiply_add(left[static_cast<std::size_t>(i)],
                                                                 right[static_cast<std::size_t>(j)]);
    }
  });
  // The sums of a row of fragments are exchanged through shared memory, so that threads store consecutive results.
  for (int i = 0; i < tm; ++i) {
    for (int j = 0; j < tn; ++j)
      sum[static_cast<std::size_t>(i * tn + j)].store(cs, part * part_sums + j * side, pitch);
    ir::barrier();
    const int each = s.out_vectors ? 4 : 1, of_row = tn * side / each, of_part = side * of_row;
    ir::for_(me, parts * of_part, threads, [&](ir::Value e) {
      const ir::Value p = e / of_part, in = e % of_part, r = in / of_row, c = in % of_row * each;
      const ir::Value row = row0 + p / parts_n * (tm * side) + i * side + r,
                      column = column0 + p % parts_n * (tn * side) + c, at = p * part_sums + r * pitch + c;
      ir::if_(row < t.m && column < t.n, [&] {
        if (each == 1) return t.finish(row, column, cs.load(at));
        std::vector<ir::Value> sums;
        for (int x = 0; x < each; ++x) sums.push_back(cs.load(at + x));
        t.finish_vector(row, column, sums);
      });
    });
    if (i + 1 < tm) ir::barrier();
  }
}

}  // namespace tessera::ops
