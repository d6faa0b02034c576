// SPDX-License-Identifier: Apache-2.0
// Kernels that together use all features of emitted text, for tests of the text and of compilers.
#pragma once

#include <string>
#include <vector>

#include "tessera/emit/c_emitter.h"
#include "tessera/ir/semantics.h"
#include "tessera/ir/value.h"
#include "tests/ir/traced.h"
#include "tests/matrix/matrix_kernels.h"

namespace tessera::test::zoo {

using namespace ir;
using test::block_kernel;
using test::in;
using test::map_kernel;
using test::out;

inline Function saxpy() {
  return map_kernel("saxpy", [] {
    const BufferRef x = in("x"), y = out("y");
    const Value a = scalar_param("a", DType::f32), i = global_id();
    y.store(i, a * x.load(i) + y.load(i));
  });
}
inline Function block_sum_kernel() {
  return block_kernel("block_sum", {256, 1, 1}, [] {
    const BufferRef x = in("x"), y = out("out");
    const Variable s(DType::f32, 0.0);
    for_(global_id(), x.size(), grid_size(), [&](Value i) { s.set(s.get() + x.load(i)); });
    const Value total = block_sum(s.get());
    if_(thread_id() == 0, [&] { y.store(block_id(), total); });
  });
}
inline Function tiled_product() {
  return block_kernel("tiled_product", {16, 16, 1}, [] {
    const std::int64_t tile = 16;
    const BufferRef a = in("a"), b = in("b"), c = out("c");
    const Value m = scalar_param("m", DType::index), n = scalar_param("n", DType::index),
                k = scalar_param("k", DType::index);
    const BufferRef as = shared(DType::f32, 256), bs = shared(DType::f32, 256);
    const Value tx = thread_id(0), ty = thread_id(1);
    const Value row = block_id(1) * tile + ty, column = block_id(0) * tile + tx;
    const Variable sum(DType::f32, 0.0);
    for_(0, (k + (tile - 1)) / tile, [&](Value t) {
      const Value ka = t * tile + tx, kb = t * tile + ty;
      as.store(ty * tile + tx, a.load_if(row < m && ka < k, row * k + ka, 0.0));
      bs.store(ty * tile + tx, b.load_if(kb < k && column < n, kb * n + column, 0.0));
      barrier();
      for_(0, tile, [&](Value j) { sum.set(fma(as.load(ty * tile + j), bs.load(j * tile + tx), sum.get())); });
      barrier();
    });
    if_(row < m && column < n, [&] { c.store(row * n + column, sum.get()); });
  });
}
inline Function softmax() {
  return block_kernel("softmax", {128, 1, 1}, [] {
    const BufferRef x = in("x"), y = out("y");
    const Value n = scalar_param("n", DType::index), base = block_id() * n;
    const Variable high(DType::f32, -1e30), sum(DType::f32, 0.0);
    for_(thread_id(), n, block_size(), [&](Value j) { high.set(max(high.get(), x.load(base + j))); });
    const Value top = block_max(high.get());
    for_(thread_id(), n, block_size(), [&](Value j) { sum.set(sum.get() + exp(x.load(base + j) - top)); });
    const Value total = block_sum(sum.get());
    for_(thread_id(), n, block_size(), [&](Value j) { y.store(base + j, exp(x.load(base + j) - top) / total); });
  });
}

/// All arithmetic operations of a dtype, and conversions to all other dtypes.
inline Function arithmetic(DType t) {
  return map_kernel("arithmetic_" + std::string(dtype_name(t)), [&] {
    const BufferRef x = in("x", t), y = out("y", t), flags = out("flags", DType::boolean);
    const Value i = global_id(), a = x.load(i), b = x.load(i + 1), s = scalar_param("s", t);
    std::int64_t k = 0;
    auto put = [&](Value v) { y.store(i * 100 + k++, v); };
    const bool half = t == DType::f16 || t == DType::bf16, real = is_float(t), logical = t == DType::boolean;
    put(select(flags.load(i), a, s));
    for (int o = 0; o < static_cast<int>(BinaryOp::count_); ++o) {
      const auto op = static_cast<BinaryOp>(o);
      const bool bits = op >= BinaryOp::and_ && op <= BinaryOp::xor_;
      if (real && (bits || op >= BinaryOp::shl)) continue;
      if (logical && !bits) continue;
      if (op == BinaryOp::mul_hi && dtype_size(t) < 4) continue;
      put(binary(op, a, b));
      if (!logical && !half) put(binary(op, a, Value(Builder::current().constant_of(t, std::int64_t{3}))));
    }
    for (int o = 0; o < static_cast<int>(UnaryOp::count_); ++o) {
      const auto op = static_cast<UnaryOp>(o);
      if (logical ? op != UnaryOp::not_ : real && op > UnaryOp::abs) continue;
      put(unary(op, a));
    }
    for (int o = 0; o < static_cast<int>(CompareOp::count_); ++o)
      flags.store(i * 10 + o, compare(static_cast<CompareOp>(o), a, b));
    for (DType to : storable_dtypes) out("to_" + std::string(dtype_name(to)), to).store(i, cast(to, a));
    if (is_int(t)) for_(a, b, x.load(i + 2), [&](Value c) { y.store(cast(DType::index, c), c); });
    if (real && !half)
      for (int o = 0; o < static_cast<int>(MathOp::count_); ++o) {
        const auto op = static_cast<MathOp>(o);
        put(op == MathOp::fma ? fma(a, b, s) : operand_count(op) == 2 ? math(op, a, b) : math(op, a));
      }
    if (!half && !logical) {
      const std::vector<DType> same = dtype_size(t) == 1   ? std::vector{DType::i8, DType::u8}
                                      : dtype_size(t) == 2 ? std::vector{DType::i16, DType::u16}
                                      : dtype_size(t) == 4 ? std::vector{DType::i32, DType::u32, DType::f32}
                                                           : std::vector{DType::i64, DType::u64, DType::f64};
      for (DType to : same) out("bits_" + std::string(dtype_name(to)), to).store(i, bitcast(to, a));
    }
  });
}
/// All subgroup, block and atomic operations of a dtype, in a block with a partial last subgroup.
inline Function together(DType t) {
  return block_kernel("together_" + std::string(dtype_name(t)), {20, 3, 1}, [&] {
    const BufferRef x = in("x", t), y = out("y", t);
    const Value a = x.load(global_id()), lane = lane_id();
    std::int64_t k = 0;
    auto put = [&](Value v) { y.store(global_id() * 50 + k++, v); };
    for (SubgroupOp op :
         {SubgroupOp::sum, SubgroupOp::min, SubgroupOp::max, SubgroupOp::inclusive_sum, SubgroupOp::exclusive_sum})
      put(subgroup(op, a));
    for (SubgroupOp op :
         {SubgroupOp::shuffle, SubgroupOp::shuffle_xor, SubgroupOp::shuffle_up, SubgroupOp::shuffle_down})
      put(subgroup(op, a, lane ^ 1));
    put(subgroup(SubgroupOp::broadcast, a, index_literal(0)));
    put(select(subgroup(SubgroupOp::any, a > 1) && subgroup(SubgroupOp::all, a > 2), a, a + 1));
    put(block_sum(a)), put(block_min(a)), put(block_max(a)), put(block_scan(a, false)), put(block_scan(a, true));
    if (is_int(t)) put(block_reduce(ReduceOp::and_, a)), put(block_reduce(ReduceOp::or_, a));
    put(cast(t, subgroup_id() + subgroup_size() + subgroup_count()));
    // Subgroups take different branches.
    if_(subgroup_id() == 1, [&] { y.store(global_id(), subgroup_sum(a)); });
    const Variable left(t, a);
    while_([&] { return subgroup(SubgroupOp::any, left.get() > 1); },
           [&] {
             const Value other = subgroup(SubgroupOp::shuffle_xor, left.get(), 1);
             left.set(select(other > 2, subgroup(SubgroupOp::exclusive_sum, left.get()), left.get() / 2));
           });
    put(left.get());
    const bool integers = t == DType::i32 || t == DType::u32 || t == DType::i64 || t == DType::u64;
    const bool atomics = integers || t == DType::f32 || t == DType::f64;
    if (!atomics) return;
    const BufferRef s = shared(t, 4);
    for (const BufferRef& m : {y, s}) {
      for (AtomicOp op : {AtomicOp::add, AtomicOp::min, AtomicOp::max, AtomicOp::exchange}) put(m.atomic(op, 0, a));
      if (integers)
        for (AtomicOp op : {AtomicOp::and_, AtomicOp::or_, AtomicOp::xor_}) put(m.atomic(op, 0, a));
      put(m.atomic_cas(1, a, a + 1));
      m.atomic(AtomicOp::add, 2, a);
    }
  });
}
inline Function odds_and_ends() {
  return block_kernel("odds and-ends", {64, 1, 1}, [] {
    const BufferRef x = in("float", DType::u32), y = out("exp", DType::i32), h = out("half", DType::f16),
                    g = out("tid_x", DType::bf16);
    const Value i = global_id();
    for (int k = 0; k < 3; ++k) y.store(i + k, dot4(static_cast<Dot4Signs>(k), x.load(i), x.load(i + 1), y.load(i)));
    const Value v = h.load_vector(i * 4, 4);
    h.store(i * 4, make_vector({extract(v, 3), extract(v, 2), extract(v, 1), extract(v, 0)}));
    g.store(i, extract(v, 1) * g.load(i));
    const BufferRef many = local_array(DType::boolean, 8);
    many.store(i % 8, true);
    while_([&] { return many.load(i % 8) && y.load(i) > 0; },
           [&] {
             y.store(i, y.load(i) - 1);
             if_(
                 y.load(i) == 3, [&] { many.store(i % 8, false); },
                 [&] {
                   print("at {}: {} \"%\"", {i, y.load(i)});
                 });
           });
    if_(block_uniform(x.load(0)) == 0, [&] { barrier(); });
    y.store(i, cast(DType::i32, block_count() + grid_size() + extent() + x.size()));
  });
}
/// Uses more shared memory than CUDA allows by default.
inline Function much_shared_memory() {
  return block_kernel("much_shared_memory", {32, 1, 1}, [] {
    const BufferRef a = shared(DType::f32, 10000), b = shared(DType::u8, 13), c = shared(DType::f64, 3000);
    a.store(thread_id(), 1.0), b.store(thread_id() % 13, literal(DType::u8, 1)),
        c.store(thread_id(), literal(DType::f64, 2));
    barrier();
    out("y").store(global_id(), a.load(0) + cast(DType::f32, b.load(1)) + cast(DType::f32, c.load(31)));
  });
}

/// A fragment product in a block with a partial last subgroup.
inline Function fragment_product(DType t, bool transposed) {
  return block_kernel("product_of_fragments_" + std::string(dtype_name(t)), {80, 1, 1},
                      [&] { matrix_product(t, 80, transposed); });
}

/// A fragment product in a block with full subgroups, which matrix units support.
inline Function full_fragment_product(DType t, bool transposed) {
  return block_kernel("product_of_full_fragments_" + std::string(dtype_name(t)) + (transposed ? "_transposed" : ""),
                      {128, 1, 1}, [&] { matrix_product(t, 128, transposed); });
}

inline std::vector<Function> all() {
  std::vector<Function> fns = {saxpy(), block_sum_kernel(), tiled_product(), softmax(), odds_and_ends()};
  fns.push_back(fragment_product(DType::bf16, true));
  for (DType t : storable_dtypes) fns.push_back(arithmetic(t));
  for (DType t : {DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::u32, DType::i64, DType::u64,
                  DType::f32, DType::f64})
    fns.push_back(together(t));
  return fns;
}

/// Emits all functions into one program.
/// Computes y = 2 x in groups of four elements, and declares that they are aligned.
inline Function doubled_vectors(DType t) {
  return map_kernel("doubled_vectors", [&] {
    Builder::current().set_aligned_vectors();
    const BufferRef x = in("x", t), y = out("y", t);
    const Value i = global_id() * 4, v = x.load_vector(i, 4);
    const auto twice = [&](std::uint32_t l) { return cast(t, extract(v, l) + extract(v, l)); };
    y.store(i, make_vector({twice(0), twice(1), twice(2), twice(3)}));
  });
}

inline emit::EmittedSource emitted(const std::vector<Function>& fns, const emit::Dialect& dialect, bool index64 = false,
                                   bool noalias = true, bool aligned = false) {
  emit::Target target = emit::target_of(dialect, index64);
  target.aligned_vectors = aligned;
  target.max_shared_bytes = 96 << 10;
  std::vector<Function> lowered;
  for (const Function& f : fns) lowered.push_back(emit::lower(f, target));
  std::vector<emit::EmitRequest> requests;
  for (const Function& f : lowered) requests.push_back({&f, noalias});
  return emit::emit_c(requests, dialect);
}

}  // namespace tessera::test::zoo
