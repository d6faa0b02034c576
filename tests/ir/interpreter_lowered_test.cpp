// SPDX-License-Identifier: Apache-2.0
// Runs kernels before and after lowering for all kinds of devices. The results must be equal, and lowering must
// introduce neither races nor divergence. The interpreter runs both with checks on.
#include "tests/ir/interpreter_helpers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "tessera/emit/lower.h"

namespace tessera::ir {
namespace {

using namespace test;

struct Subject {
  const char* name;
  std::array<std::uint64_t, 3> shape;
  Function fn;
  double
      tolerance;  // relative; 0 means bitwise equal. Lowering may reorder sums, and math functions differ in accuracy
};

// All kernels have the parameters x f32[512], h f16[512] and q u32[512], which are read-only, and y f32[512], n
// i32[512] and g f16[512], which are written.
Function subject(
    const char* name, KernelKind kind, std::array<std::uint32_t, 3> block,
    const std::function<void(BufferRef x, BufferRef h, BufferRef q, BufferRef y, BufferRef n, BufferRef g)>& body) {
  return trace(name, kind, block, [&] {
    BufferRef x = in("x"), h = in("h", DType::f16), q = in("q", DType::u32), y = out("y"), n = out("n", DType::i32),
              g = out("g", DType::f16);
    body(x, h, q, y, n, g);
  });
}
std::vector<Subject> subjects() {
  std::vector<Subject> all;
  constexpr KernelKind map = KernelKind::map, blocks = KernelKind::block;
  all.push_back({"maps",
                 {500, 1, 1},
                 subject("maps", map, {1, 1, 1},
                         [](BufferRef x, BufferRef h, BufferRef q, BufferRef y, BufferRef n, BufferRef g) {
                           Value i = global_id();
                           y.store(i, x.load(i) * 2.f + h.load(i));
                           g.store(i, x.load(i) - h.load(511 - i));
                           n.store(i, dot4(Dot4Signs::signed_signed, q.load(i), q.load(i + 1), cast(DType::i32, i)) ^
                                          bitcast(DType::i32, x.load(i)));
                         }),
                 0});
  all.push_back({"vectors",
                 {64, 1, 1},
                 subject("vectors", map, {1, 1, 1},
                         [](BufferRef x, BufferRef h, BufferRef, BufferRef y, BufferRef, BufferRef g) {
                           Value i = global_id() * 4, v = x.load_vector(i, 4), w = h.load_vector(i, 4);
                           y.store(i, make_vector({extract(v, 3), extract(v, 2), extract(v, 1), extract(v, 0)}));
                           g.store(i,
                                   select(global_id() % 2 == 0, w,
                                          make_vector({extract(w, 1), extract(w, 0), extract(w, 3), extract(w, 2)})));
                         }),
                 0});
  all.push_back({"math",
                 {500, 1, 1},
                 subject("math", map, {1, 1, 1},
                         [](BufferRef x, BufferRef, BufferRef, BufferRef y, BufferRef, BufferRef) {
                           Value i = global_id(), v = x.load(i);
                           y.store(i, exp(v) + 3.f + sin(v) * cos(v) + tanh(v) + erf(v) + log(abs(v) + 1.f));
                         }),
                 1e-5});
  all.push_back({"control",
                 {7, 9, 5},
                 subject("control", map, {1, 1, 1},
                         [](BufferRef x, BufferRef, BufferRef, BufferRef y, BufferRef n, BufferRef) {
                           Value i = (global_id(2) * extent(1) + global_id(1)) * extent(0) + global_id(0);
                           Variable k(DType::i32, 0), sum(DType::f32, 0.f);
                           for_(i % 3, i % 11, [&](Value j) {
                             if_(
                                 x.load(j) > 0.f, [&] { sum.set(sum.get() + x.load(i)); }, [&] { k.set(k.get() + 1); });
                             if_(k.get() > 4, [&] {
                               y.store(i, -1.f);
                               return_();
                             });
                           });
                           while_([&] { return k.get() < 20; }, [&] { k.set(k.get() * 2 + 1); });
                           y.store(i, sum.get());
                           n.store(i, k.get());
                         }),
                 0});
  all.push_back({"atomics",
                 {300, 1, 1},
                 subject("atomics", map, {1, 1, 1},
                         [](BufferRef, BufferRef, BufferRef q, BufferRef y, BufferRef n, BufferRef) {
                           Value i = global_id();
                           y.atomic(AtomicOp::add, i % 5, literal(DType::f32, 0.5));
                           y.atomic(AtomicOp::max, 10 + i % 3, cast(DType::f32, i));
                           n.atomic(AtomicOp::min, i % 7, cast(DType::i32, q.load(i) >> 8));
                         }),
                 0});
  all.push_back({"block_operations",
                 {4, 1, 1},
                 subject("block_operations", blocks, {96, 1, 1},
                         [](BufferRef x, BufferRef, BufferRef, BufferRef y, BufferRef, BufferRef) {
                           Value i = global_id(), v = x.load(i);
                           y.store(i, block_sum(v) + block_max(v) * block_min(v) + block_scan(v, false));
                         }),
                 1e-4});
  all.push_back({"integer_operations",
                 {4, 1, 1},
                 subject("integer_operations", blocks, {96, 1, 1},
                         [](BufferRef, BufferRef, BufferRef q, BufferRef, BufferRef n, BufferRef) {
                           Value i = global_id(), w = cast(DType::i32, q.load(i) >> 20);
                           n.store(i, block_sum(w) + block_scan(w, true) + block_reduce(ReduceOp::or_, w + 1));
                         }),
                 0});
  all.push_back({"looped_operations",
                 {4, 1, 1},
                 subject("looped_operations", blocks, {96, 1, 1},
                         [](BufferRef, BufferRef, BufferRef q, BufferRef, BufferRef n, BufferRef) {
                           Value i = global_id(), w = cast(DType::i32, q.load(i) >> 20);
                           for_(0, 3, [&](Value r) {
                             n.store(i, block_sum(w) + block_scan(w, true) +
                                            block_reduce(ReduceOp::or_, w + cast(DType::i32, r)));
                           });
                         }),
                 0});
  all.push_back({"two_dimensions",
                 {3, 2, 1},
                 subject("two_dimensions", blocks, {8, 8, 1},
                         [](BufferRef x, BufferRef, BufferRef, BufferRef y, BufferRef n, BufferRef) {
                           Value i = (block_id(1) * 3 + block_id(0)) * 64 + thread_id(1) * 8 + thread_id(0);
                           BufferRef tile = shared(DType::f32, 64);
                           tile.store(thread_id(0) * 8 + thread_id(1), x.load(i));
                           barrier();
                           y.store(i, tile.load(thread_id(1) * 8 + thread_id(0)));
                           n.store(i, block_sum(cast(DType::i32, thread_id(0) * 10 + thread_id(1))));
                         }),
                 0});
  all.push_back({"subgroup_sums",
                 {4, 1, 1},
                 subject("subgroup_sums", blocks, {80, 1, 1},
                         [](BufferRef, BufferRef, BufferRef q, BufferRef, BufferRef n, BufferRef) {
                           Value v =
                               cast(DType::i32,
                                    q.load(global_id()) >>
                                        12);  // sums over the block, so that the result does not depend on the width
                           BufferRef sums = shared(DType::i32, 80);
                           Value s = subgroup_sum(v);
                           if_(lane_id() == 0, [&] { sums.store(subgroup_id(), s); });
                           barrier();
                           Variable total(DType::i32, 0);
                           for_(Operand(0), subgroup_count(), [&](Value k) { total.set(total.get() + sums.load(k)); });
                           n.store(global_id(), total.get());
                         }),
                 0});
  all.push_back({"subgroups_by_themselves",
                 {4, 1, 1},
                 subject("subgroups_by_themselves", blocks, {80, 1, 1},
                         [](BufferRef, BufferRef, BufferRef q, BufferRef, BufferRef n, BufferRef) {
                           Variable left(DType::i32, cast(DType::i32, q.load(global_id()) >> 28));
                           // Each subgroup runs a different number of iterations and sums the values of its active
                           // lanes.
                           while_([&] { return subgroup(SubgroupOp::any, left.get() > 0); },
                                  [&] {
                                    Value sum = subgroup_sum(left.get());
                                    if_(lane_id() == 0, [&] { n.atomic(AtomicOp::add, block_id(), sum); });
                                    left.set(max(left.get() - 1, 0));
                                  });
                         }),
                 0});
  return all;
}

struct Data {
  std::vector<float> x, y;
  std::vector<half> h, g;
  std::vector<std::uint32_t> q;
  std::vector<std::int32_t> n;
  explicit Data(std::uint64_t seed) : x(512), y(512, 3.f), h(512), g(512), q(512), n(512, 1 << 30) {
    std::mt19937_64 rng(seed);
    x = random_floats(512, rng, -4, 4);
    for (auto& v : h) v = half(std::uniform_real_distribution<float>(-10, 10)(rng));
    for (auto& v : q) v = static_cast<std::uint32_t>(rng());
  }
  std::vector<Finding> run(const Function& fn, std::array<std::uint64_t, 3> shape, std::uint32_t width) {
    // A lowered function stores 16-bit floats in u16 buffers. The bytes are the same.
    return findings(fn, shape, {arg(x), arg(h), arg(q), arg(y), arg(n), arg(g)}, width);
  }
};

TEST(Lowered, MatchesUnloweredKernelForAllTargets) {
  std::vector<std::pair<const char*, emit::Target>> targets(12, {"", emit::Target{}});
  targets[0].first = "plain";
  targets[1] = {"index64", {.index64 = true}};
  targets[2] = {"no guard", {.guard_map = false}};
  targets[3] = {"no f16", {.f16_convert = false}};
  targets[4] = {"no dot4", {.dot4 = false}};
  targets[5] = {"expanded math", {.expand_math = true}};
  targets[6] = {"no float atomics", {.atomic_f32 = false}};
  targets[7] = {"no block operations", {.block_operations = false}};
  targets[8] = {"no subgroups", {.subgroup_width = 1}};
  targets[9] = {"neither", {.subgroup_width = 1, .block_operations = false}};
  targets[10] = {"vectors", {.vectors = true}};
  targets[11] = {"a poor device",
                 {.f16_convert = false,
                  .dot4 = false,
                  .expand_math = true,
                  .atomic_f32 = false,
                  .subgroup_width = 1,
                  .block_operations = false}};
  for (const Subject& s : subjects()) {
    for (const std::uint32_t width : {1u, 8u, 32u, 64u}) {
      Data expected(test_seed());
      for (const Finding& f : expected.run(s.fn, s.shape, width)) ADD_FAILURE() << f.text;
      for (const auto& [name, target] : targets) {
        SCOPED_TRACE(std::string(s.name) + ", " + name + ", subgroups of " + std::to_string(width));
        Data got(test_seed());
        for (const Finding& f : got.run(emit::lower(s.fn, target), s.shape, target.subgroup_width == 1 ? 1 : width))
          ADD_FAILURE() << f.text;
        EXPECT_EQ(got.n, expected.n);
        EXPECT_EQ(got.g, expected.g);
        for (std::size_t i = 0; i < 512; ++i)
          ASSERT_NEAR(got.y[i], expected.y[i], s.tolerance * std::max(1.f, std::fabs(expected.y[i]))) << i;
      }
    }
  }
}
// All threads of two blocks update the same few floats with compare-and-swap loops, in shared memory and in a buffer.
// Only the deliberately added plain read is a race.
TEST(Lowered, EmulatedFloatAtomicsDoNotRaceWithEachOther) {
  enum Plant { nothing, buffer_read, shared_read };
  int line = 0;
  const auto kernel = [&](Plant plant) {
    return block_kernel("float_atomics", {48, 1, 1}, [&] {
      const BufferRef x = in("x"), y = out("y"), seen = out("seen"), own = shared(DType::f32, 4);
      const Value t = thread_id(), v = x.load(global_id());
      if_(t < 4, [&] { own.store(t, select(t == 3, literal(DType::f32, -0.0), literal(DType::f32, 0))); });
      barrier();
      own.atomic(AtomicOp::add, 0, v);
      own.atomic(AtomicOp::min, 1, v);
      own.atomic(AtomicOp::max, 2, v);
      own.atomic(AtomicOp::add, 3, v);
      if (plant == shared_read) line = __LINE__, seen.store(global_id(), own.load(2));
      y.atomic(AtomicOp::add, t % 2, v);
      y.atomic(AtomicOp::min, 2, v);
      y.atomic(AtomicOp::max, 3, v);
      if (plant == buffer_read) line = __LINE__, seen.store(global_id(), y.load(2));
      barrier();
      if_(t < 4, [&] { y.atomic(AtomicOp::add, 4 + t, own.load(t)); });
    });
  };
  std::mt19937_64 rng(test_seed());
  std::vector<float> x = random_floats(96, rng, -4, 4);
  for (float& v : x) v = std::rint(v * 64) / 64;  // multiples of 1/64, so that sums are exact in any order
  for (const bool index64 : {false, true})
    for (const Plant plant : {nothing, buffer_read, shared_read}) {
      SCOPED_TRACE(plant);
      const Function fn = kernel(plant);
      std::vector<float> start = {1, 0, 9, -9, 0, 0, 0, 0}, right = start, got = start, seen(96, -1);
      run(fn, {2, 1, 1}, {arg(x), arg(right), arg(seen)});
      const std::vector<Finding> found = findings(emit::lower(fn, {.index64 = index64, .atomic_f32 = false}), {2, 1, 1},
                                                  {arg(x), arg(got), arg(seen)});
      EXPECT_EQ(got, right);
      if (plant == nothing) {
        for (const Finding& f : found) ADD_FAILURE() << f.text;
        continue;
      }
      EXPECT_FALSE(found.empty());
      for (const Finding& f : found) {
        EXPECT_EQ(f.kind, Finding::Kind::race) << f.text;
        EXPECT_TRUE(f.line.line == line || f.other_line.line == line) << f.text;
        EXPECT_EQ(f.memory, plant == buffer_read ? "y" : "shared1") << f.text;
      }
    }
}

/// Returns true if a statement of the body from index `from` on writes shared memory. If none does, a barrier before
/// these statements has no effect.
bool shared_written(const Function& fn, BlockId block, std::size_t from) {
  for (std::size_t k = from; k < fn.blocks[block].size(); ++k) {
    const Node& n = fn[fn.blocks[block][k]];
    bool found = n.op == Op::store && fn[n.args[0]].op == Op::shared;
    for_each_nested(n, [&](BlockId inner) { found = found || shared_written(fn, inner, 0); });
    if (found) return true;
  }
  return false;
}
TEST(Lowered, EveryGeneratedBarrierIsNeeded) {
  emit::Target target;
  target.subgroup_width = 1, target.block_operations = false;
  std::size_t deleted = 0;
  for (const Subject& s : subjects()) {
    // Lowering puts a barrier at the start of a loop body even if the end of the body does not need it.
    if (s.fn.kind != KernelKind::block || std::string_view(s.name) == "looped_operations") continue;
    const Function lowered = emit::lower(s.fn, target);
    const std::vector<Function> cut = without_each_barrier(lowered);
    std::size_t barrier = 0;
    for (std::size_t k = 0; k < lowered.blocks[0].size(); ++k) {
      if (lowered[lowered.blocks[0][k]].op != Op::barrier) continue;
      const Function& without = cut[barrier++];
      if (!shared_written(lowered, 0, k)) continue;  // such as the last barrier of a scan at the end of the kernel
      ++deleted;
      Data data(test_seed());
      EXPECT_FALSE(data.run(without, s.shape, 1).empty()) << s.name << ", barrier " << barrier - 1 << "\n"
                                                          << to_text(without);
    }
    EXPECT_EQ(barrier, cut.size());
  }
  EXPECT_GT(deleted, 6u);
}

}  // namespace
}  // namespace tessera::ir
