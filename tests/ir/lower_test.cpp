// SPDX-License-Identifier: Apache-2.0
// Lowering keeps the meaning: each capability is switched off, and what comes out is interpreted, with all checks, and
// compared with the kernel as written.
#include "tests/ir/interpreter_helpers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/emit/lower.h"

namespace tessera::ir {
namespace {

using namespace test;
using emit::lower;
using emit::Target;

Target everything() { return {.bf16_convert = true, .vectors = true}; }
Target nothing() {
  return {.f16_convert = false,
          .dot4 = false,
          .expand_math = true,
          .atomic_f32 = false,
          .subgroup_width = 1,
          .block_operations = false};
}

bool holds(const Function& fn, auto predicate) {
  for (const Block& b : fn.blocks)
    for (NodeId id : b)
      if (predicate(fn[id])) return true;
  return false;
}
bool has_dtype(const Function& fn, DType t) {
  for (std::size_t i = 1; i < fn.nodes.size(); ++i) {
    const Node& n = fn.nodes[i];
    if (!is_effect(n.op) && n.type.dtype == t) return true;
  }
  return std::ranges::any_of(fn.params, [&](const Param& p) { return p.dtype == t; });
}

InterpreterOptions checked(std::uint32_t width = 32) {
  InterpreterOptions o;
  o.checks = true;
  o.subgroup_width = width;
  return o;
}

std::vector<Target> targets() {
  std::vector<Target> all = {everything(), nothing(), {}};
  Target t = everything();
  t.index64 = true, all.push_back(t);
  t = everything(), t.guard_map = false, all.push_back(t);
  t = everything(), t.vectors = false, all.push_back(t);
  t = everything(), t.f16_convert = false, all.push_back(t);
  t = everything(), t.bf16_convert = false, all.push_back(t);
  t = everything(), t.dot4 = false, all.push_back(t);
  t = everything(), t.atomic_f32 = false, all.push_back(t);
  t = everything(), t.block_operations = false, all.push_back(t);
  t = nothing(), t.index64 = true, t.vectors = true, all.push_back(t);
  return all;
}

TEST(lower, leaves_no_index_and_no_vectors_and_is_canonical) {
  const Function fn = map_kernel("f", [] {
    const BufferRef x = in("x"), y = out("y");
    const Value n = scalar_param("n", DType::index);
    const Value v = x.load_vector(global_id() * 4, 4);
    y.store(global_id() * 4, make_vector({extract(v, 3), extract(v, 2), extract(v, 1), extract(v, 0)}));
    for_(0, n, [&](Value i) { y.store(i, x.load(i + y.size())); });
  });
  for (const Target& t : targets()) {
    const Function low = lower(fn, t);
    EXPECT_FALSE(has_dtype(low, DType::index));
    EXPECT_EQ(low.index64, t.index64);
    if (!t.vectors) {
      EXPECT_FALSE(holds(low, [](const Node& n) { return n.type.lanes > 1; }));
    }
    EXPECT_EQ(to_text(canonicalise(low)), to_text(low));
    EXPECT_EQ(hash_of(low), hash_of(lower(fn, t)));
  }
}

TEST(lower, a_map_kernel_is_guarded_in_the_dimensions_that_it_uses) {
  const Function one = map_kernel("one", [] { out("y").store(global_id(), 1.0); });
  const Function three = map_kernel(
      "three", [] { out("y").store((global_id(2) * extent(1) + global_id(1)) * extent(0) + global_id(0), 1.0); });
  auto guarded = [](const Function& fn) {
    const Function low = lower(fn, everything());
    std::array<bool, 3> used{};
    EXPECT_EQ(low[low.blocks[0].back()].op, Op::if_);
    for (NodeId id : low.blocks[0]) {
      const Node& n = low[id];
      if (n.op == Op::compare) used[low[n.args[1]].imm] = true;
    }
    return used;
  };
  EXPECT_EQ(guarded(one), (std::array<bool, 3>{true, false, false}));
  EXPECT_EQ(guarded(three), (std::array<bool, 3>{true, true, true}));
}

TEST(lower, vectors_of_every_length) {
  std::mt19937_64 rng(test_seed());
  for (std::uint8_t lanes : {2, 3, 4}) {
    const Function fn = map_kernel("vectors", [&] {
      const BufferRef x = in("x"), y = out("y"), h = out("h", DType::f16), b = out("b", DType::boolean);
      const Value i = global_id();
      const Value v = x.load_vector(i * lanes, lanes), w = x.load_vector(i * lanes + 1, lanes);
      const Value s = select(extract(v, 0) < 0, v, w);
      y.store(i * lanes, s);
      const Value old = h.load_vector(i * lanes, lanes);
      const Value turned = lanes == 2 ? make_vector({extract(old, 1), extract(old, 0)})
                           : lanes == 3
                               ? make_vector({extract(old, 1), extract(old, 2), extract(old, 0)})
                               : make_vector({extract(old, 1), extract(old, 2), extract(old, 3), extract(old, 0)});
      h.store(i * lanes, select(extract(s, lanes - 1u) > 0, old, turned));
      const Value flags = b.load_vector(i * lanes, lanes);
      b.store(i * lanes, !extract(flags, 1));
    });
    const std::size_t n = 50;
    const auto x = random_floats(n * lanes + 1, rng);
    std::vector<std::uint16_t> h(n * lanes);
    std::vector<std::uint8_t> b(n * lanes);
    for (auto& v : h) v = static_cast<std::uint16_t>(rng());
    for (auto& v : b) v = rng() & 1;
    std::vector<float> first_y;
    std::vector<std::uint16_t> first_h;
    std::vector<std::uint8_t> first_b;
    auto go = [&](const Function& f) {
      std::vector<float> xs = x, y(n * lanes, -9);
      auto hs = h;
      auto bs = b;
      run(f, {n, 1, 1}, {arg(xs), arg(y), arg(hs), arg(bs)}, checked());
      if (first_y.empty()) first_y = y, first_h = hs, first_b = bs;
      EXPECT_EQ(y, first_y);
      EXPECT_EQ(hs, first_h);
      EXPECT_EQ(bs, first_b);
    };
    go(fn);
    for (const Target& t : targets()) go(lower(fn, t));
  }
}

TEST(lower, sixteen_bit_floats_by_integers_are_exact) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const Function fn = map_kernel("convert", [&] {
      const BufferRef h = in("h", type), f = out("f"), g = in("g"), back = out("back", type);
      f.store(global_id(), cast(DType::f32, h.load(global_id())));
      back.store(global_id(), g.load(global_id()));
    });
    Target t = everything();
    t.f16_convert = t.bf16_convert = false;
    const Function low = lower(fn, t);
    EXPECT_FALSE(has_dtype(low, type));
    std::vector<std::uint16_t> h(65536), back(65536);
    std::vector<float> f(65536), g(65536);
    std::mt19937_64 rng(test_seed());
    for (std::size_t i = 0; i < h.size(); ++i) {
      h[i] = static_cast<std::uint16_t>(i);
      g[i] = std::bit_cast<float>(static_cast<std::uint32_t>(rng()));
      // Half of them near the values of f16, on ties and beside them.
      if (i % 2)
        g[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(half_value(static_cast<std::uint16_t>(rng()))) +
                                    0x1000u + static_cast<std::uint32_t>(rng() % 3) - 1u);
      if (i % 64 == 2) g[i] = std::ldexp(static_cast<float>(rng() % 4096) + 0.5f * static_cast<float>(rng() % 3), -25);
    }
    run(low, {65536, 1, 1}, {arg(h), arg(f), arg(g), arg(back)}, checked());
    for (std::size_t i = 0; i < h.size(); ++i) {
      const float right = type == DType::f16 ? half_value(h[i]) : bfloat16_value(h[i]);
      if (std::isnan(right)) {
        ASSERT_TRUE(std::isnan(f[i])) << h[i];
        continue;
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(f[i]), std::bit_cast<std::uint32_t>(right)) << h[i];
      ASSERT_EQ(back[i], type == DType::f16 ? half_bits(g[i]) : bfloat16_bits(g[i])) << g[i];
    }
  }
}

TEST(lower, selects_bits_and_shared_memory_of_sixteen_bit_floats) {
  const Function fn = block_kernel("halves", {32, 1, 1}, [] {
    const BufferRef x = in("x", DType::f16), y = out("y", DType::bf16);
    const Value a = scalar_param("a", DType::f16);
    const BufferRef s = shared(DType::f16, 32);
    const Value v = x.load(global_id());
    s.store(thread_id(), select(bitcast(DType::u16, v) > 0x4000, v, a));
    barrier();
    y.store(global_id(),
            s.load_if(thread_id() > 3, (thread_id() + 31) % 32, cast(DType::f16, literal(DType::f32, 1.5))) * 2.0);
  });
  std::vector<std::uint16_t> x(96), right(96);
  std::mt19937_64 rng(test_seed());
  for (auto& v : x) v = half_bits(static_cast<float>(rng() % 1000) / 100);
  run(fn, {3, 1, 1}, {arg(x), arg(right), {nullptr, 0, half_bits(-3.25f)}}, checked());
  for (const Target& t : targets()) {
    std::vector<std::uint16_t> y(96, 0xdead);
    run(lower(fn, t), {3, 1, 1}, {arg(x), arg(y), {nullptr, 0, half_bits(-3.25f)}}, checked());
    EXPECT_EQ(y, right);
  }
}

TEST(lower, dot4_of_all_signs) {
  const Function fn = map_kernel("dot", [] {
    const BufferRef a = in("a", DType::u32), b = in("b", DType::u32), c = out("c", DType::i32);
    const Value i = global_id();
    for (int k = 0; k < 3; ++k)
      c.store(i * 3 + k, dot4(static_cast<Dot4Signs>(k), a.load(i), b.load(i), c.load(i * 3 + k)));
  });
  Target t = everything();
  t.dot4 = false;
  const Function low = lower(fn, t);
  EXPECT_FALSE(holds(low, [](const Node& n) { return n.op == Op::dot4; }));
  std::mt19937_64 rng(test_seed());
  std::vector<std::uint32_t> a(1000), b(1000);
  for (auto& v : a) v = static_cast<std::uint32_t>(rng());
  for (auto& v : b) v = static_cast<std::uint32_t>(rng());
  a[0] = b[0] = 0xffffffff, a[1] = b[1] = 0x80808080, a[2] = 0x7f7f7f7f, b[2] = 0x80808080;
  std::vector<std::int32_t> c(3000);
  for (auto& v : c) v = static_cast<std::int32_t>(rng());
  auto right = c, got = c;
  run(fn, {1000, 1, 1}, {arg(a), arg(b), arg(right)});
  run(low, {1000, 1, 1}, {arg(a), arg(b), arg(got)});
  EXPECT_EQ(got, right);
}

TEST(lower, subgroups_of_one_lane) {
  const Function fn = block_kernel("lanes", {8, 3, 2}, [] {
    const BufferRef x = in("x", DType::i32), y = out("y", DType::i32);
    const Value i = (thread_id(2) * 3 + thread_id(1)) * 8 + thread_id(0);
    const Value v = x.load(block_id() * 48 + i);
    std::vector<Value> results;
    for (SubgroupOp op :
         {SubgroupOp::sum, SubgroupOp::min, SubgroupOp::max, SubgroupOp::inclusive_sum, SubgroupOp::exclusive_sum})
      results.push_back(subgroup(op, v));
    for (SubgroupOp op : {SubgroupOp::broadcast, SubgroupOp::shuffle, SubgroupOp::shuffle_xor, SubgroupOp::shuffle_up,
                          SubgroupOp::shuffle_down})
      results.push_back(
          subgroup(op, v, index_literal(op == SubgroupOp::broadcast || op == SubgroupOp::shuffle ? 0 : 1)));
    results.push_back(cast(DType::i32, subgroup(SubgroupOp::any, v > 0)));
    results.push_back(cast(DType::i32, subgroup(SubgroupOp::all, v > 0)));
    for (const Value& index : {lane_id(), subgroup_id(), subgroup_size(), subgroup_count()})
      results.push_back(cast(DType::i32, index));
    int k = 0;
    for (const Value& r : results) y.store((block_id() * 48 + i) * 16 + k++, r);
  });
  std::mt19937_64 rng(test_seed());
  std::vector<std::int32_t> x(96), right(96 * 16), got(96 * 16, -1);
  for (auto& v : x) v = static_cast<std::int32_t>(rng() % 21) - 10;
  Target t = everything();
  t.subgroup_width = 1;
  const Function low = lower(fn, t);
  EXPECT_FALSE(holds(low, [](const Node& n) { return n.op == Op::subgroup; }));
  run(fn, {2, 1, 1}, {arg(x), arg(right)}, checked(1));
  run(low, {2, 1, 1}, {arg(x), arg(got)}, checked(1));
  EXPECT_EQ(got, right);
}

// The checks find no race and no read of uninitialised memory in the expansion, at any width and block size.
TEST(lower, block_operations_from_shared_memory_and_subgroups) {
  std::mt19937_64 rng(test_seed());
  for (std::array<std::uint32_t, 3> block :
       {std::array<std::uint32_t, 3>{1, 1, 1}, {3, 1, 1}, {64, 1, 1}, {10, 7, 1}, {5, 5, 5}, {256, 1, 1}}) {
    const std::uint32_t t = block[0] * block[1] * block[2];
    const Function fn = block_kernel("collect", block, [&] {
      const BufferRef x = in("x", DType::i32), y = out("y", DType::i32), f = out("f");
      const Value rounds = scalar_param("rounds", DType::index);
      const Value i = (thread_id(2) * block[1] + thread_id(1)) * block[0] + thread_id(0);
      const Variable v(DType::i32, x.load(block_id() * t + i));
      const Variable r(DType::f32, cast(DType::f32, v.get()));
      for_(0, rounds, [&](Value k) {
        v.set(v.get() + block_sum(v.get()) - block_scan(v.get(), true) + block_min(v.get()));
        if_(k % 2 == 0,
            [&] { v.set(block_max(v.get()) ^ block_reduce(ReduceOp::or_, v.get()) ^ block_scan(v.get(), false)); });
        if_(block_reduce(ReduceOp::and_, v.get() > -1000000),
            [&] { v.set(v.get() + block_reduce(ReduceOp::and_, v.get())); });
        r.set(r.get() + block_max(r.get()) * 0.5 + block_min(r.get()));
      });
      y.store(block_id() * t + i, v.get());
      f.store(block_id() * t + i, r.get());
    });
    std::vector<std::int32_t> x(t * 2);
    for (auto& v : x) v = static_cast<std::int32_t>(rng() % 100);
    std::vector<std::int32_t> right(x.size());
    std::vector<float> right_f(x.size());
    run(fn, {2, 1, 1}, {arg(x), arg(right), arg(right_f), index_arg(3)}, checked());
    for (std::uint32_t width : {0u, 1u})
      for (std::uint32_t interpreted : {1u, 8u, 32u, 64u}) {
        Target target = everything();
        target.block_operations = false;
        target.subgroup_width = width;
        const Function low = lower(fn, target);
        EXPECT_FALSE(holds(low, [](const Node& n) { return n.op == Op::block_reduce || n.op == Op::block_scan; }));
        std::vector<std::int32_t> y(x.size(), -1);
        std::vector<float> f(x.size(), -1);
        run(low, {2, 1, 1}, {arg(x), arg(y), arg(f), index_arg(3)}, checked(interpreted));
        EXPECT_EQ(y, right) << t << " threads, subgroups " << width << " of " << interpreted;
        EXPECT_EQ(f, right_f) << t << " threads, subgroups " << width << " of " << interpreted;
      }
  }
}

TEST(lower, float_atomics_by_compare_and_swap_also_in_conditions) {
  const Function fn = block_kernel("atomics", {32, 1, 1}, [] {
    const BufferRef x = in("x"), y = out("y"), z = out("z");
    const BufferRef s = shared(DType::f32, 1);
    const Value v = x.load(global_id());
    if_(thread_id() == 0, [&] { s.store(0, 0.0); });
    barrier();
    s.atomic(AtomicOp::add, 0, v);
    y.atomic(AtomicOp::min, 0, v);
    y.atomic(AtomicOp::max, 1, v);
    barrier();
    if_(thread_id() == 0, [&] { y.atomic(AtomicOp::add, 2, s.load(0)); });
    // The old value of an atomic decides whether a loop goes on.
    while_([&] { return z.atomic(AtomicOp::add, global_id(), literal(DType::f32, 1)) < 5; },
           [&] { z.atomic(AtomicOp::add, 64 + global_id(), literal(DType::f32, 2)); });
  });
  Target t = everything();
  t.atomic_f32 = false;
  const Function low = lower(fn, t);
  EXPECT_FALSE(holds(low, [](const Node& n) { return n.op == Op::atomic && n.kind<AtomicOp>() != AtomicOp::cas; }));
  std::mt19937_64 rng(test_seed());
  auto x = random_floats(64, rng);
  for (auto& v : x) v = std::rint(v * 64) / 64;  // sums are exact in any order
  std::vector<float> right = {9, -9, 0}, got = right, z(128, 0), w(128, 0);
  run(fn, {2, 1, 1}, {arg(x), arg(right), arg(z)});
  run(low, {2, 1, 1}, {arg(x), arg(got), arg(w)});
  EXPECT_EQ(got, right);
  EXPECT_EQ(z, w);
  EXPECT_EQ(w[0], 6);
}

TEST(lower, loops_conditions_and_early_returns) {
  const Function fn = map_kernel("control", [] {
    const BufferRef x = in("x", DType::i32), y = out("y", DType::i32);
    const Value i = global_id();
    if_(x.load(i) < 0, [&] { return_(); });
    const Variable v(DType::i32, x.load(i));
    for_(literal(DType::i32, 0), v.get(), literal(DType::i32, 3), [&](Value k) {
      if_(
          k % 2 == 0, [&] { v.set(v.get() * 3 + k); }, [&] { v.set(v.get() - k); });
    });
    const Variable steps(DType::i32, 0);
    while_([&] { return (v.get() & 0xff) != 0; }, [&] { v.set(v.get() - 1), steps.set(steps.get() + 1); });
    y.store(i, v.get() + steps.get());
    y.store(grid_size() + i, cast(DType::i32, extent() + y.size()));
  });
  std::mt19937_64 rng(test_seed());
  const std::size_t n = 300;
  std::vector<std::int32_t> x(n), right(2 * n, 5);
  for (auto& v : x) v = static_cast<std::int32_t>(rng() % 60) - 20;
  run(fn, {n, 1, 1}, {arg(x), arg(right)}, checked());
  for (const Target& t : targets()) {
    std::vector<std::int32_t> y(2 * n, 5);
    run(lower(fn, t), {n, 1, 1}, {arg(x), arg(y)}, checked());
    EXPECT_EQ(y, right);
  }
}

std::string refusal(const Function& fn, const Target& t) {
  try {
    lower(fn, t);
  } catch (const KernelError& e) {
    return e.what();
  }
  return "";
}

TEST(lower, what_a_target_cannot_do_is_refused_with_kernel_and_line) {
  const Function doubles = map_kernel(
      "doubles", [] { out("y").store(global_id(), cast(DType::f32, cast(DType::f64, in("x").load(global_id())))); });
  Target t = everything();
  EXPECT_EQ(refusal(doubles, t), "");
  t.f64 = false;
  EXPECT_NE(refusal(doubles, t).find("doubles, lower_test.cpp:"), std::string::npos) << refusal(doubles, t);
  EXPECT_NE(refusal(doubles, t).find("f64"), std::string::npos);
  const Function double_buffer = map_kernel("buffer_of_doubles", [] { out("y", DType::f64); });
  EXPECT_NE(refusal(double_buffer, t).find("buffer_of_doubles"), std::string::npos);

  const Function wide =
      map_kernel("wide", [] { out("y", DType::u64).atomic(AtomicOp::add, 0, literal(DType::u64, 1)); });
  t = everything();
  EXPECT_EQ(refusal(wide, t), "");
  t.atomic_i64 = false;
  EXPECT_NE(refusal(wide, t).find("wide, lower_test.cpp:"), std::string::npos) << refusal(wide, t);

  const Function large = block_kernel("large", {512, 1, 1}, [] { shared(DType::f32, 4096).store(thread_id(), 1.0); });
  t = everything();
  EXPECT_EQ(refusal(large, t), "");
  t.max_block_threads = 256;
  EXPECT_NE(refusal(large, t).find("512 threads"), std::string::npos) << refusal(large, t);
  t = everything(), t.max_shared_bytes = 8192;
  EXPECT_NE(refusal(large, t).find("16384 bytes of shared memory"), std::string::npos) << refusal(large, t);

  const Function far = map_kernel("far", [] { out("y").store(global_id() + (std::int64_t{1} << 40), 1.0); });
  t = everything();
  EXPECT_NE(refusal(far, t).find("32 bits"), std::string::npos) << refusal(far, t);
  t.index64 = true;
  EXPECT_EQ(refusal(far, t), "");
}

TEST(lower, index_arithmetic_is_marked_and_the_users_is_not) {
  const Function fn = map_kernel("marks", [] {
    const BufferRef y = out("y", DType::i32);
    y.store(global_id() * 3 + 1, y.load(global_id()) * 3 + 1);
  });
  const Function low = lower(fn, everything());
  int marked = 0, plain = 0;
  for (NodeId id : low.blocks[low[low.blocks[0].back()].args[1]])
    if (low[id].op == Op::binary) (low[id].extra ? marked : plain) += 1;
  EXPECT_EQ(marked, 2);
  EXPECT_EQ(plain, 2);
}

}  // namespace
}  // namespace tessera::ir
