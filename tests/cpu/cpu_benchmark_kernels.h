// SPDX-License-Identifier: Apache-2.0
// Kernels for tests of generated code and for benchmarks/cpu_kernels: saxpy, softmax, matrix products with f32 and
// 8-bit weights, a histogram, edit distances, shortest paths, and a division.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/ir/value.h"

namespace tessera::test {

using namespace ir;

inline BufferRef in(const char* name, DType t = DType::f32) { return buffer_param(name, t, Access::read); }
inline BufferRef out(const char* name, DType t = DType::f32) { return buffer_param(name, t, Access::read_write); }

inline Function written(const char* name, KernelKind kind, std::array<std::uint32_t, 3> block,
                        const std::function<void()>& body) {
  Builder b(name, kind, block);
  Builder::Scope scope(b);
  body();
  return b.finish();
}

inline Function saxpy() {
  return written("saxpy", KernelKind::map, {1, 1, 1}, [] {
    auto x = in("x"), y = out("y");
    auto a = scalar_param("a", DType::f32);
    auto i = global_id();
    y.store(i, a * x.load(i) + y.load(i));
  });
}

// Softmax along rows, with one block per row.
inline Function softmax(std::uint32_t threads) {
  return written("softmax", KernelKind::block, {threads, 1, 1}, [=] {
    auto x = in("x"), y = out("y");
    auto n = scalar_param("n", DType::index);
    auto row = block_id() * n;
    Variable most(DType::f32, -1e30f), sum(DType::f32, 0.0f);
    for_(thread_id(), n, static_cast<int>(threads), [&](Value i) { most.set(max(most.get(), x.load(row + i))); });
    auto top = block_max(most.get());
    for_(thread_id(), n, static_cast<int>(threads), [&](Value i) {
      auto e = exp(x.load(row + i) - top);
      y.store(row + i, e);
      sum.set(sum.get() + e);
    });
    auto scale = 1.0f / block_sum(sum.get());
    for_(thread_id(), n, static_cast<int>(threads), [&](Value i) { y.store(row + i, y.load(row + i) * scale); });
  });
}

// A product of square matrices. n must be a multiple of the tile size.
inline Function tiled_product(std::uint32_t tile) {
  return written("tiled_product", KernelKind::block, {tile, tile, 1}, [=] {
    auto a = in("a"), b = in("b"), c = out("c");
    auto n = scalar_param("n", DType::index);
    auto s = shared(DType::f32, tile * tile), t = shared(DType::f32, tile * tile);
    auto x = thread_id(0), y = thread_id(1);
    auto row = block_id(1) * tile + y, column = block_id(0) * tile + x;
    Variable sum(DType::f32, 0.0f);
    for_(0, n, static_cast<int>(tile), [&](Value k) {
      s.store(y * tile + x, a.load(row * n + k + x));
      t.store(y * tile + x, b.load((k + y) * n + column));
      barrier();
      for_(0, static_cast<int>(tile),
           [&](Value q) { sum.set(sum.get() + s.load(y * tile + q) * t.load(q * tile + x)); });
      barrier();
    });
    c.store(row * n + column, sum.get());
  });
}

// A matrix product with register tiles. Each of 16x16 threads computes 4x4 elements of a 64x64 tile.
inline Function register_tiled_product() {
  return written("register_tiled_product", KernelKind::block, {16, 16, 1}, [] {
    auto a = in("a"), b = in("b"), c = out("c");
    auto n = scalar_param("n", DType::index);
    auto s = shared(DType::f32, 64 * 16), t = shared(DType::f32, 16 * 64);
    auto x = thread_id(0), y = thread_id(1);
    std::vector<Variable> sums;
    for (int i = 0; i < 16; ++i) sums.emplace_back(DType::f32, 0.0f);
    for_(0, n, 16, [&](Value k) {
      for (int i = 0; i < 4; ++i) {
        s.store((y + 16 * i) * 16 + x, a.load((block_id(1) * 64 + y + 16 * i) * n + k + x));
        t.store(y * 64 + x + 16 * i, b.load((k + y) * n + block_id(0) * 64 + x + 16 * i));
      }
      barrier();
      for_(0, 16, [&](Value q) {
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j)
            sums[std::size_t(4 * i + j)].set(sums[std::size_t(4 * i + j)].get() +
                                             s.load((y + 16 * i) * 16 + q) * t.load(q * 64 + x + 16 * j));
      });
      barrier();
    });
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j)
        c.store((block_id(1) * 64 + y + 16 * i) * n + block_id(0) * 64 + x + 16 * j,
                sums[std::size_t(4 * i + j)].get());
  });
}

// The product of a matrix of 8-bit weights and a vector of 8-bit numbers. 16 rows of the matrix are interleaved word by
// word.
inline Function product_q8() {
  return written("product_q8", KernelKind::block, {16, 1, 1}, [] {
    auto w = in("w", DType::u32), x = in("x", DType::u32), scale = in("scale", DType::f16), x_scale = in("x_scale"),
         y = out("y");
    auto blocks = scalar_param("blocks", DType::index);
    Variable sum(DType::f32, 0.0f);
    for_(0, blocks, [&](Value b) {
      auto at = block_id() * blocks + b;
      Value s = literal(DType::i32, 0);
      for (int q = 0; q < 8; ++q)
        s = dot4(Dot4Signs::signed_signed, w.load((at * 8 + q) * 16 + thread_id()), x.load(b * 8 + q), s);
      sum.set(sum.get() +
              cast(DType::f32, s) * (cast(DType::f32, scale.load(at * 16 + thread_id())) * x_scale.load(b)));
    });
    y.store(global_id(), sum.get());
  });
}

/// Counts how often each byte occurs. Each block counts `share` bytes in shared memory and adds its counts to the
/// totals.
inline Function histogram() {
  return written("histogram", KernelKind::block, {256, 1, 1}, [] {
    auto x = in("x", DType::u8), counts = out("counts", DType::i32);
    auto share = scalar_param("share", DType::index);
    auto part = shared(DType::i32, 256);
    auto t = thread_id();
    part.store(t, 0);
    barrier();
    auto first = block_id() * share;
    for_(first + t, first + share, 256, [&](Value k) { part.atomic(AtomicOp::add, cast(DType::index, x.load(k)), 1); });
    barrier();
    counts.atomic(AtomicOp::add, t, part.load(t));
  });
}

/// Edit distances between pairs of words with at most `longest` letters. Each thread computes one pair, with a row of
/// the table in a local array.
inline Function levenshtein(std::uint32_t longest) {
  return written("levenshtein", KernelKind::map, {1, 1, 1}, [=] {
    auto a = in("a", DType::u8), b = in("b", DType::u8), a_length = in("a_length", DType::i32),
         b_length = in("b_length", DType::i32), distance = out("distance", DType::i32);
    auto row = local_array(DType::i32, longest + 1);
    auto p = global_id(), word = p * static_cast<int>(longest);
    auto rows = a_length.load(p), columns = b_length.load(p), zero = literal(DType::i32, 0),
         one = literal(DType::i32, 1);
    for_(zero, columns + 1, [&](Value j) { row.store(cast(DType::index, j), j); });
    for_(zero, rows, [&](Value i) {
      Variable diagonal(DType::i32, row.load(0));
      row.store(0, i + 1);
      auto letter = a.load(word + cast(DType::index, i));
      for_(zero, columns, [&](Value j) {
        auto at = cast(DType::index, j);
        auto up = row.load(at + 1);
        auto changed = diagonal.get() + select(letter != b.load(word + at), one, zero);
        row.store(at + 1, min(min(up, row.load(at)) + 1, changed));
        diagonal.set(up);
      });
    });
    distance.store(p, row.load(cast(DType::index, columns)));
  });
}

/// The phases of the tiled Floyd-Warshall algorithm, which are run for each tile on the diagonal.
enum class PathPhase : std::uint8_t { pivot, row, column, rest };

/// One phase of the Floyd-Warshall algorithm for the nodes of tile `k` on the diagonal. Each block computes one tile of
/// the phase.
inline Function shortest_paths(PathPhase phase, std::uint32_t tile) {
  return written("shortest_paths", KernelKind::block, {tile, tile, 1}, [=] {
    auto d = out("d", DType::i32);
    auto n = scalar_param("n", DType::index), k = scalar_param("k", DType::index);
    auto x = thread_id(0), y = thread_id(1), place = y * tile + x;
    auto element = [&](const Value& i, const Value& j) { return (i * tile + y) * n + j * tile + x; };
    auto other = [&](int dimension) { return block_id(dimension) + cast(DType::index, block_id(dimension) >= k); };
    auto i = phase == PathPhase::column || phase == PathPhase::rest ? other(1) : k;
    auto j = phase == PathPhase::row || phase == PathPhase::rest ? other(0) : k;
    auto left = shared(DType::i32, tile * tile), right = left;
    left.store(place, d.load(element(i, k)));
    if (phase != PathPhase::pivot) {
      right = shared(DType::i32, tile * tile);
      right.store(place, d.load(element(k, j)));
    }
    barrier();
    Variable best(DType::i32, d.load(element(i, j)));
    for_(0, static_cast<int>(tile), [&](Value q) {
      best.set(min(best.get(), left.load(y * tile + q) + right.load(q * tile + x)));
      if (phase == PathPhase::rest) return;
      barrier();
      (phase == PathPhase::column ? left : right).store(place, best.get());
      barrier();
    });
    d.store(element(i, j), best.get());
  });
}

inline Function divide_by_number() {
  return written("divide_by_number", KernelKind::map, {1, 1, 1}, [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    y.store(global_id(), x.load(global_id()) / scalar_param("divisor", DType::i32));
  });
}

}  // namespace tessera::test
