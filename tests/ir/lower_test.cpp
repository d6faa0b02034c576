// SPDX-License-Identifier: Apache-2.0
// Tests that lowering preserves the meaning of kernels: lowered kernels are interpreted with all checks and compared
// with the originals. node_table_test and interpreter_lowered_test cover most nodes.
#include "tests/ir/interpreter_helpers.h"

#include <algorithm>
#include <cmath>
#include <random>

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

TEST(lower, ReplacesIndicesAndVectors) {
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

TEST(lower, RemovesUnsupportedNodes) {
  const Function fn = block_kernel("lacking", {8, 1, 1}, [] {
    const BufferRef a = in("a", DType::u32), c = out("c", DType::i32);
    const Value i = thread_id(), v = a.load(i);
    c.store(i, dot4(Dot4Signs::signed_signed, v, subgroup_max(v), c.load(i)));
  });
  for (const Op op : {Op::dot4, Op::subgroup}) {
    const auto is = [&](const Node& n) { return n.op == op; };
    EXPECT_TRUE(holds(lower(fn, everything()), is));
    EXPECT_FALSE(holds(lower(fn, nothing()), is));
  }
}

TEST(lower, GuardsMapKernelsInTheDimensionsTheyUse) {
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

TEST(lower, Emulates16BitFloatConversionsExactly) {
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
      // Half of the values are exactly or nearly halfway between two f16 values.
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

// The expansion must have no race and no read of uninitialised memory for any width and block size.
TEST(lower, ExpandsBlockOperations) {
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

TEST(lower, EmulatesFloatAtomicsInLoopConditions) {
  const Function fn = map_kernel("atomics", [] {
    const BufferRef z = out("z");
    // The old value of an atomic controls the loop.
    while_([&] { return z.atomic(AtomicOp::add, global_id(), literal(DType::f32, 1)) < 5; },
           [&] { z.atomic(AtomicOp::add, 64 + global_id(), literal(DType::f32, 2)); });
  });
  Target t = everything();
  t.atomic_f32 = false;
  const Function low = lower(fn, t);
  EXPECT_FALSE(holds(low, [](const Node& n) { return n.op == Op::atomic && n.kind<AtomicOp>() != AtomicOp::cas; }));
  std::vector<float> right(128, 0), got(128, 0);
  run(fn, {64, 1, 1}, {arg(right)});
  run(low, {64, 1, 1}, {arg(got)});
  EXPECT_EQ(got, right);
  EXPECT_EQ(got[0], 6);
}

std::string refusal(const Function& fn, const Target& t) {
  try {
    lower(fn, t);
  } catch (const KernelError& e) {
    return e.what();
  }
  return "";
}

TEST(lower, RejectsUnsupportedKernels) {
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

TEST(lower, MarksIndexArithmeticAsNonWrapping) {
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
