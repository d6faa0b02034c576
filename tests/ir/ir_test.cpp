// SPDX-License-Identifier: Apache-2.0
// Tests the type checks and messages of the builder, the canonical form, the verifier, uniformity, text and hash.
#include "tests/ir/interpreter_helpers.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace tessera::ir {
namespace {

using namespace test;

std::size_t count(const Function& fn, Op op) {
  std::size_t n = 0;
  for (const Block& b : fn.blocks)
    for (NodeId id : b) n += fn[id].op == op;
  return n;
}
/// Returns the first node with this operation in a block, or no_node.
NodeId first(const Function& fn, Op op, std::uint32_t skip = 0) {
  for (const Block& b : fn.blocks)
    for (NodeId id : b)
      if (fn[id].op == op && skip-- == 0) return id;
  return no_node;
}
BlockId block_of(const Function& fn, NodeId id) {
  for (BlockId b = 0; b < fn.blocks.size(); ++b)
    if (std::ranges::find(fn.blocks[b], id) != fn.blocks[b].end()) return b;
  return no_block;
}

// Types.

struct Mistake {
  const char* name;
  KernelKind kind;
  std::function<void()> body;
  const char* sentence;
};
class Sentences : public testing::TestWithParam<Mistake> {};

TEST_P(Sentences, ErrorContainsKernelLineAndCause) {
  const Mistake& m = GetParam();
  const std::string error = error_of<KernelError>([&] { trace(m.name, m.kind, {16, 1, 1}, m.body); });
  EXPECT_NE(error.find(m.sentence), std::string::npos) << error;
  EXPECT_EQ(error.rfind(std::string("[kernel ") + m.name, 0), 0u) << error;
}

const std::vector<Mistake> mistakes = {
    {"mixed", KernelKind::map, [] { in("x").load(global_id()) + in("n", DType::i32).load(global_id()); },
     "operands of add have different types: f32 and i32. Use cast<T>(...)"},
    {"compare_mixed", KernelKind::map, [] { in("x", DType::f64).load(0) < in("n").load(0); },
     "operands of a comparison have different types: f64 and f32"},
    {"float_bits", KernelKind::map, [] { in("x").load(0) & in("z").load(1); }, "and cannot take f32"},
    {"float_shift", KernelKind::map, [] { in("x").load(0) << 1; }, "shl cannot take f32"},
    {"bool_sum", KernelKind::map, [] { (global_id() < 3) + (global_id() < 4); }, "add cannot take bool"},
    {"integer_exp", KernelKind::map, [] { exp(in("n", DType::i32).load(0)); }, "exp requires floats, not i32"},
    {"half_literal", KernelKind::map, [] { in("n", DType::i32).load(0) * 1.5; },
     "the literal 1.500000 is combined with a value of i32 and cannot be converted to it"},
    {"bool_literal", KernelKind::map, [] { in("n", DType::i32).load(0) == true; },
     "the literal true is combined with a value of i32"},
    {"condition", KernelKind::map, [] { if_(global_id(), [] {}); }, "the condition of if_ must be a bool, not index"},
    {"while_condition", KernelKind::map, [] { while_([] { return global_id(); }, [] {}); },
     "the condition of while_ must be a bool, not index"},
    {"select_types", KernelKind::map, [] { select(global_id() < 1, in("x").load(0), in("n", DType::i32).load(0)); },
     "the two values of select have different types: f32 and i32"},
    {"read_only", KernelKind::map, [] { in("x").store(0, 1.f); },
     "this buffer is read-only in this kernel: declare it Buffer<T>"},
    {"stored_type", KernelKind::map, [] { out("x").store(0, global_id()); },
     "a value of index cannot be stored in memory of f32"},
    {"float_index", KernelKind::map, [] { in("x").load(in("y").load(0)); },
     "memory must be indexed by an integer, not f32"},
    {"loop_types", KernelKind::map, [] { for_(global_id(), in("n", DType::i32).load(0), [](Value) {}); },
     "begin, end and step of for_ must be integers of the same type, not index, i32 and index"},
    {"zero_step", KernelKind::map, [] { for_(0, 10, 0, [](Value) {}); },
     "the step of for_ must be greater than zero, not 0"},
    {"step_down", KernelKind::map, [] { for_(10, 0, -1, [](Value) {}); },
     "the step of for_ must be greater than zero, not -1"},
    {"bitcast_size", KernelKind::map, [] { bitcast(DType::i32, in("x", DType::f64).load(0)); },
     "bitcast requires types of equal size, not f64 and i32"},
    {"bitcast_index", KernelKind::map, [] { bitcast(DType::i32, global_id()); },
     "bitcast requires types of equal size"},
    {"dot4_types", KernelKind::map,
     [] { dot4(Dot4Signs::signed_signed, in("x").load(0), in("y").load(0), in("z").load(0)); },
     "dot4 requires u32, u32 and i32, not f32, f32 and f32"},
    {"atomic_type", KernelKind::map, [] { out("x", DType::u8).atomic(AtomicOp::add, 0, literal(DType::u8, 1)); },
     "atomics support i32, u32, i64, u64, f32 and f64, not u8"},
    {"atomic_local", KernelKind::map,
     [] { local_array(DType::i32, 4).atomic(AtomicOp::add, 0, literal(DType::i32, 1)); },
     "atomics require memory that threads share"},
    {"map_barrier", KernelKind::map, [] { barrier(); }, "a barrier requires blocks, but this is a map kernel"},
    {"map_shared", KernelKind::map, [] { shared(DType::f32, 4); }, "shared memory requires blocks"},
    {"map_thread_id", KernelKind::map, [] { thread_id(); }, "thread_id is not available in a map kernel"},
    {"map_block_sum", KernelKind::map, [] { block_sum(1.f); }, "block operations require blocks"},
    {"map_subgroup", KernelKind::map, [] { subgroup_sum(1.f); }, "subgroup operations require blocks"},
    {"dimension", KernelKind::map, [] { global_id(3); }, "global_id has dimensions 0, 1 and 2"},
    {"huge_local", KernelKind::map, [] { local_array(DType::f32, 5000); },
     "a local array must have 1 to 4096 elements"},
    {"half_local", KernelKind::map, [] { local_array(DType::f16, 4); }, "16-bit floats can only be stored in buffers"},
    {"five_printed", KernelKind::map,
     [] {
       Value i = global_id();
       print("{} {} {} {} {}", {i, i, i, i, i});
     },
     "print takes at most four values"},
    {"any_of_ints", KernelKind::block, [] { subgroup(SubgroupOp::any, 1); }, "subgroup any cannot take index"},
    {"lane_missing", KernelKind::block, [] { subgroup(SubgroupOp::shuffle, 1.f); },
     "subgroup shuffle requires an index as its lane"},
    {"float_block_or", KernelKind::block, [] { block_reduce(ReduceOp::or_, 1.f); }, "block_or cannot take f32"},
    {"extract_past", KernelKind::map, [] { extract(in("x").load_vector(0, 2), 2); },
     "extract from f32x2: it has no element 2"},
    {"vector_sum", KernelKind::map,
     [] {
       BufferRef x = in("x");
       x.load_vector(0, 2) + x.load_vector(2, 2);
     },
     "arithmetic requires single elements"},
    // Rules that are checked on the whole function.
    {"leaves_if", KernelKind::map,
     [] {
       Value leaked;
       if_(global_id() < 3, [&] { leaked = in("x").load(0); });
       out("y").store(global_id(), leaked);
     },
     "a value read inside an if_, for_ or while_ is used outside of it"},
    {"leaves_loop_through_sum", KernelKind::map,
     [] {
       Value leaked;
       BufferRef x = in("x");
       for_(0, 3, [&](Value i) { leaked = x.load(i) + 1.f; });
       out("y").store(global_id(), leaked * 2.f);
     },
     "used outside of it"},
    {"counter_leaves", KernelKind::map,
     [] {
       Value leaked;
       for_(0, 3, [&](Value i) { leaked = i; });
       out("y", DType::i32).store(0, cast(DType::i32, leaked));
     },
     "a loop counter is used outside of its for_"},
    {"condition_leaves", KernelKind::map,
     [] {
       Value seen;
       BufferRef x = in("x"), y = out("y");
       while_([&] { return (seen = x.load(0)) > 1.f; }, [&] { y.store(0, seen); });
     },
     "used outside of it"},
    {"effects_in_condition", KernelKind::map,
     [] {
       while_(
           [&] {
             BufferRef y = out("y");
             if_(global_id() < 3, [&] { y.store(0, 1.f); });
             return y.load(0) > 1.f;
           },
           [] {});
     },
     "the condition of while_ contains control statements"},
    {"barrier_thread", KernelKind::block, [] { if_(thread_id() < 3, [] { barrier(); }); }, "a barrier is inside if_"},
    {"barrier_data", KernelKind::block, [] { if_(out("y").load(0) < 3.f, [] { barrier(); }); },
     "a barrier is inside if_"},
    {"barrier_loop", KernelKind::block, [] { for_(Operand(0), thread_id(), [](Value) { barrier(); }); },
     "a barrier is inside for_"},
    {"barrier_while", KernelKind::block,
     [] {
       Variable k(DType::index, thread_id());
       while_([&] { return k.get() > 0; },
              [&] {
                barrier();
                k.set(k.get() - 1);
              });
     },
     "a barrier is inside while_"},
    {"barrier_returned", KernelKind::block,
     [] {
       if_(global_id() >= extent(), [] { return_(); });
       barrier();
     },
     "a barrier is inside if_"},
    {"block_sum_thread", KernelKind::block,
     [] {
       BufferRef y = out("y");
       if_(lane_id() == 0, [&] { y.store(0, block_sum(1.f)); });
     },
     "a block operation is inside if_"},
    {"variable_of_threads", KernelKind::block,
     [] {
       Variable v(DType::i32, 0);
       if_(thread_id() == 2, [&] { v.set(1); });
       if_(v.get() == 0, [] { barrier(); });
     },
     "a barrier is inside if_"},
};
INSTANTIATE_TEST_SUITE_P(All, Sentences, testing::ValuesIn(mistakes),
                         [](const auto& info) { return std::string(info.param.name); });

// clang-format off
TEST(Builder, ErrorsContainTheLine) {
  const int line = __LINE__ + 1;
  const auto body = [] { in("x").load(0) + in("n", DType::i32).load(0); };
  EXPECT_NE(error_of<KernelError>([&] { map_kernel("sum", body); }).find("[kernel sum, ir_test.cpp:" + std::to_string(line) + "]"),
            std::string::npos);
  int barrier_line = 0, if_line = 0;
  const std::string error = error_of<KernelError>([&] {
    block_kernel("deep", {16, 1, 1}, [&] {
      Value c = thread_id() < 3; if_line = __LINE__;
      if_(c, [&] {
        barrier(); barrier_line = __LINE__;
      });
    });
  });
  EXPECT_NE(error.find("[kernel deep, ir_test.cpp:" + std::to_string(barrier_line) + "] a barrier is inside if_ (ir_test.cpp:" +
                       std::to_string(if_line) + ")"), std::string::npos) << error;
}
// clang-format on
TEST(Builder, RecordsLinesOfTheKernelNotOfTheLibrary) {
  const Function fn = trace(
      "lines", KernelKind::block, {16, 1, 1},
      [] {
        BufferRef x = in("x"), y = out("y");
        Variable sum(DType::f32, 0.f);
        for_(0, 4, [&](Value i) { sum.set(sum.get() + sqrt(-abs(x.load(i))) * exp(x.load(0))); });
        while_([&] { return sum.get() > 1.f; }, [&] { sum.set(sum.get() / 2.f); });
        if_(!(sum.get() > 0.f), [&] { y.store(thread_id(), subgroup_sum(sum.get())); });
      },
      /*verified=*/false);
  for (const Block& b : fn.blocks)
    for (NodeId id : b) EXPECT_EQ(to_string(fn.sources[id]).rfind("ir_test.cpp:", 0), 0u) << op_name(fn[id].op);
}
TEST(Builder, RejectsTracingOutsideOfKernelsAndNestedKernels) {
  EXPECT_NE(error_of<KernelError>([] { global_id(); }).find("used outside of a kernel"), std::string::npos);
  EXPECT_FALSE(Builder::tracing());
  const std::string nested = error_of<KernelError>([] { map_kernel("outer", [] { map_kernel("inner", [] {}); }); });
  EXPECT_NE(nested.find("[kernel inner"), std::string::npos);
  EXPECT_NE(nested.find("kernel outer is being traced"), std::string::npos);
  EXPECT_FALSE(Builder::tracing());  // after an error, no builder is active
  map_kernel("after", [] { out("y").store(0, 1.f); });
}
TEST(Builder, RejectsEmptyAndOversizedBlocks) {
  for (const std::array<std::uint32_t, 3> size :
       {std::array<std::uint32_t, 3>{0, 1, 1}, {1025, 1, 1}, {32, 33, 1}, {65536, 65536, 1}})
    EXPECT_NE(error_of<KernelError>([&] {
                trace("size", KernelKind::block, size, [] {});
              }).find("a block must have 1 to 1024 threads"),
              std::string::npos);
  block_kernel("size", {32, 32, 1}, [] {});
}

// Constant folding and merging of equal nodes.

TEST(Builder, FoldsConstants) {
  const Function fn = map_kernel("folded", [] {
    BufferRef y = out("y", DType::i32), f = out("f"), b = out("b", DType::boolean);
    Value seven = literal(DType::i32, 7), zero = literal(DType::i32, 0), least = literal(DType::i32, -2147483648.0);
    y.store(0, (seven + 3) * 2 - seven / 2 + seven % 4);  // 20 - 3 + 3
    y.store(1, seven / zero + seven % zero);
    y.store(2, least / -1);
    y.store(3, seven << 33);
    y.store(4, cast(DType::i32, literal(DType::f32, 1e20)));
    y.store(5, cast(DType::i32, literal(DType::f32, std::numeric_limits<double>::quiet_NaN())));
    y.store(6, bitcast(DType::i32, literal(DType::f32, -1.0)));
    f.store(0, min(literal(DType::f32, std::numeric_limits<double>::quiet_NaN()), 2.f));
    b.store(0, literal(DType::f32, std::numeric_limits<double>::quiet_NaN()) != 1.f);
  });
  EXPECT_EQ(count(fn, Op::binary) + count(fn, Op::cast) + count(fn, Op::bitcast) + count(fn, Op::compare), 0u)
      << to_text(fn);
  std::vector<std::int32_t> y(7, 99);
  std::vector<float> f(1);
  std::vector<std::uint8_t> b(1);
  run(fn, {1, 1, 1}, {arg(y), arg(f), {reinterpret_cast<std::byte*>(b.data()), 1, 0}});
  EXPECT_EQ(y, (std::vector<std::int32_t>{20, 0, std::numeric_limits<std::int32_t>::min(), 14,
                                          std::numeric_limits<std::int32_t>::max(), 0,
                                          static_cast<std::int32_t>(0xbf800000)}));
  EXPECT_EQ(f[0], 2.f);
  EXPECT_EQ(b[0], 1);
}
TEST(Builder, SimplifiesOnlyExactIdentities) {
  const Function fn = map_kernel("identities", [] {
    BufferRef x = in("x"), n = in("n", DType::i32), y = out("y"), m = out("m", DType::i32);
    Value v = x.load(0), k = n.load(0);
    m.store(0, k * 1 + 0), m.store(1, (k - 0) << 0), m.store(2, (k | 0) ^ 0), m.store(3, k * 0);
    y.store(0, v * 1.f / 1.f);
  });
  EXPECT_EQ(count(fn, Op::binary), 0u) << to_text(fn);
  const Function kept = map_kernel("kept", [] {
    BufferRef x = in("x"), y = out("y");
    Value v = x.load(0);
    y.store(0, v + 0.f), y.store(1, v * 0.f), y.store(2, v - v),
        y.store(3, v / v);  // not folded, because v may be -0, NaN or infinite
  });
  EXPECT_EQ(count(kept, Op::binary), 4u) << to_text(kept);
}
TEST(Builder, MergesEqualPureNodesButNotLoads) {
  const Function fn = map_kernel("shared", [] {
    BufferRef x = out("x"), y = out("y");
    Value i = global_id();
    y.store(i, x.load(i * 2 + 1));
    x.store(i * 2 + 1, 5.f);
    y.store(i + 1, x.load(i * 2 + 1));
  });
  EXPECT_EQ(count(fn, Op::load), 2u);
  EXPECT_EQ(count(fn, Op::binary), 3u) << to_text(fn);  // i * 2, (i * 2) + 1 and i + 1
}

// Canonical form.

TEST(Canonical, RemovesDeadNodesAndEmptyControlFlow) {
  const Function fn = map_kernel("dead", [] {
    BufferRef x = in("x"), y = out("y");
    Value i = global_id();
    exp(x.load(i));
    if_(i < 5, [&] { x.load(i + 1); });
    for_(0, 10, [&](Value j) { sqrt(x.load(j)); });
    if_(
        i < 3, [] {}, [&] { x.load(0); });
    y.store(i, 1.f);
  });
  const Function plain = map_kernel("dead", [] {
    BufferRef x = in("x"), y = out("y");
    (void)x;
    y.store(global_id(), 1.f);
  });
  EXPECT_EQ(to_text(fn), to_text(plain));
  EXPECT_EQ(hash_of(fn), hash_of(plain));
}
TEST(Canonical, RemovesEmptyElse) {
  const auto make = [](bool with_else) {
    return map_kernel("branch", [&] {
      BufferRef y = out("y");
      if (with_else)
        if_(
            global_id() < 3, [&] { y.store(0, 1.f); }, [] {});
      else
        if_(global_id() < 3, [&] { y.store(0, 1.f); });
    });
  };
  EXPECT_EQ(hash_of(make(true)), hash_of(make(false)));
}
TEST(Canonical, HoistsLoopInvariantNodes) {
  const Function fn = map_kernel("hoisted", [] {
    BufferRef x = in("x"), y = out("y");
    Value n = scalar_param("n", DType::index), i = global_id();
    Variable sum(DType::f32, 0.f);
    for_(Operand(0), n, [&](Value j) {
      for_(Operand(0), n, [&](Value k) {
        sum.set(sum.get() + x.load((i * n + 7) * n + j * n +
                                   k));  // the first product moves out of both loops, j * n only out of the inner one
      });
    });
    y.store(i, sum.get());
  });
  const NodeId outer = first(fn, Op::for_);
  std::size_t before = 0, between = 0, inside = 0;
  for (BlockId b = 0; b < fn.blocks.size(); ++b)
    for (NodeId id : fn.blocks[b]) {
      if (fn[id].op != Op::binary || fn[id].type.dtype != DType::index) continue;
      if (b == 0)
        ++before;
      else if (b == fn[outer].extra)
        ++between;
      else
        ++inside;
    }
  EXPECT_EQ(before, 3u) << to_text(fn);
  EXPECT_EQ(between, 2u) << to_text(fn);
  EXPECT_EQ(inside, 1u) << to_text(fn);
}
TEST(Canonical, MovesNodesIntoTheBranchThatUsesThem) {
  const Function fn = map_kernel("sunk", [] {
    BufferRef x = in("x"), y = out("y");
    Value v = exp(x.load(global_id()));  // traced outside of the branch, used inside
    if_(global_id() < 3, [&] { y.store(global_id(), v); });
  });
  EXPECT_NE(block_of(fn, first(fn, Op::math)), 0u) << to_text(fn);
  EXPECT_EQ(block_of(fn, first(fn, Op::load)), 0u) << to_text(fn);  // a load is not moved
}
TEST(Canonical, PlacesEachNodeInOneBlockBeforeItsUses) {
  const Function fn = block_kernel("order", {16, 1, 1}, [] {
    BufferRef x = in("x"), y = out("y");
    BufferRef s = shared(DType::f32, 16);
    Value t = thread_id();
    s.store(t, x.load(global_id()));
    barrier();
    Variable sum(DType::f32, 0.f);
    for_(0, 16, [&](Value j) {
      if_(
          j != t, [&] { sum.set(sum.get() + s.load(j) * x.load(t)); }, [&] { sum.set(0.f); });
    });
    Variable k(DType::i32, 3);
    while_([&] { return k.get() * 2 > 1; }, [&] { k.set(k.get() - 1); });
    y.store(global_id(), sum.get() + block_sum(sum.get()));
  });
  std::vector<int> seen(fn.nodes.size());
  const std::function<void(BlockId)> walk = [&](BlockId b) {
    for (NodeId id : fn.blocks[b]) {
      const Node& n = fn[id];
      EXPECT_FALSE(is_leaf(n.op));
      EXPECT_NE(n.op, Op::return_);
      if (n.op == Op::while_) walk(n.args[1]);
      for (NodeId a : operands(n))
        EXPECT_TRUE(is_leaf(fn[a].op) || seen[a] == 1) << id << " uses " << a << "\n" << to_text(fn);
      if (n.op == Op::while_)
        walk(n.extra);
      else
        for_each_nested(n, walk);
      ++seen[id];
    }
  };
  walk(0);
  for (NodeId id = 1; id < fn.nodes.size(); ++id) EXPECT_EQ(seen[id], is_leaf(fn[id].op) ? 0 : 1) << id;
  EXPECT_EQ(to_text(canonicalise(fn)), to_text(fn));  // canonicalisation is idempotent
  EXPECT_EQ(hash_of(canonicalise(fn)), hash_of(fn));
}
TEST(Canonical, ReplacesReturnByStructuredControlFlow) {
  const Function guard = map_kernel("guard", [] {
    BufferRef y = out("y");
    if_(global_id() >= 10, [] { return_(); });
    y.store(global_id(), 1.f);
  });
  const Function plain = map_kernel("guard", [] {
    BufferRef y = out("y");
    if_(!(global_id() >= 10), [&] { y.store(global_id(), 1.f); });
  });
  EXPECT_EQ(to_text(guard), to_text(plain));

  const Function last = map_kernel("last", [] {
    BufferRef y = out("y");
    y.store(0, 1.f);
    return_();
    y.store(1, 1.f);
  });
  EXPECT_EQ(count(last, Op::store), 1u);

  const Function loops = map_kernel("loops", [] {
    BufferRef x = in("x"), y = out("y");
    for_(0, 10, [&](Value i) {
      for_(0, 10, [&](Value j) {
        if_(x.load(i) > x.load(j), [&] {
          y.store(0, 1.f);
          return_();
        });
        y.store(j, 2.f);
      });
    });
    y.store(1, 3.f);
  });
  EXPECT_EQ(count(loops, Op::return_), 0u);
  EXPECT_EQ(to_text(canonicalise(loops)), to_text(loops));
}
TEST(Canonical, AllowsBarrierAfterUniformReturn) {
  block_kernel("whole", {16, 1, 1}, [] {
    if_(block_id() >= 3, [] { return_(); });
    barrier();
    out("y").store(global_id(), block_sum(1.f));
  });
}

// Hash and text.

// Simulates compilers that evaluate operands in different orders: the loads of one product are traced in both orders
// and on different lines.
TEST(Hash, DoesNotDependOnTraceOrderOrLines) {
  const Function one = map_kernel("product", [&] {
    BufferRef x = in("x"), z = in("z"), y = out("y");
    Value i = global_id(), a = x.load(i), b = z.load(i + 1) * 2.f;
    y.store(i, a * b + exp(b) * x.load(i + 5));
  });
  const Function other = map_kernel("product", [&] {
    BufferRef x = in("x"), z = in("z"), y = out("y");
    Value i = global_id(), last = x.load(i + 5);
    Value b = z.load(i + 1) * 2.f;
    Value e = exp(b);
    Value a = x.load(i);
    y.store(i, a * b + e * last);
  });
  EXPECT_EQ(to_text(one), to_text(other));
  EXPECT_EQ(hash_of(one), hash_of(other));
}
TEST(Hash, DoesNotDependOnTraceOrderOfMemoriesAndConvergentNodes) {
  const auto make = [](bool swapped) {
    return block_kernel("order", {32, 1, 1}, [&] {
      BufferRef x = in("x"), y = out("y");
      BufferRef a, b;
      if (swapped)
        b = shared(DType::f32, 32), a = shared(DType::f32, 32);
      else
        a = shared(DType::f32, 32), b = shared(DType::f32, 32);
      Value t = thread_id(), v = x.load(t);
      a.store(t, v);
      b.store(31 - t, v);
      barrier();
      Value most, sum;
      if (swapped)
        most = block_max(a.load(t)), sum = block_sum(b.load(t));
      else
        sum = block_sum(b.load(t)), most = block_max(a.load(t));
      y.store(t, sum / most);
    });
  };
  EXPECT_EQ(to_text(make(false)), to_text(make(true)));
  EXPECT_EQ(hash_of(make(false)), hash_of(make(true)));
}
TEST(Hash, DependsOnOperationsButNotOnNames) {
  const auto make = [](const char* name, float factor, int offset, DType t, std::uint32_t block, bool wide) {
    Function fn = block_kernel(name, {block, 1, 1}, [&] {
      BufferRef x = in(name, t), y = out("y", t);
      y.store(global_id(), x.load(global_id() + offset) * factor);
    });
    fn.index64 = wide;
    return hash_of(fn);
  };
  const Hash base = make("a", 2, 1, DType::f32, 32, false);
  EXPECT_EQ(base, make("b", 2, 1, DType::f32, 32, false));
  EXPECT_NE(base, make("a", 3, 1, DType::f32, 32, false));
  EXPECT_NE(base, make("a", 2, 2, DType::f32, 32, false));
  EXPECT_NE(base, make("a", 2, 1, DType::f64, 32, false));
  EXPECT_NE(base, make("a", 2, 1, DType::f32, 64, false));
  EXPECT_NE(base, make("a", 2, 1, DType::f32, 32, true));
  EXPECT_EQ(to_string(base).size(), 32u);
  Function exact = map_kernel("exact", [] { out("y").store(global_id(), 1.f); });
  const Hash loose = hash_of(exact);
  exact.exact = true;
  EXPECT_NE(hash_of(exact), loose);
  EXPECT_TRUE(canonicalise(exact).exact);
  EXPECT_TRUE(to_text(exact).starts_with("kernel exact map exact\n")) << to_text(exact);
  const auto printing = [](const char* text) { return hash_of(map_kernel("p", [&] { print(text, {global_id()}); })); };
  EXPECT_NE(printing("a {}"), printing("b {}"));
  // The same nodes in different blocks, or with different operations, must have different hashes.
  const auto nested = [](bool inside) {
    return hash_of(map_kernel("n", [&] {
      BufferRef y = out("y");
      if_(global_id() < 4, [&] {
        y.store(0, 1.f);
        if (inside) y.store(1, 1.f);
      });
      if (!inside) y.store(1, 1.f);
    }));
  };
  EXPECT_NE(nested(true), nested(false));
}

// Uniformity.

TEST(Uniformity, FindsProvablyUniformValues) {
  std::vector<std::pair<std::string, bool>> wanted;
  std::vector<NodeId> stored;
  const Function fn = block_kernel("uniform", {32, 1, 1}, [&] {
    BufferRef x = in("x"), w = out("w"), y = out("y");
    Value a = scalar_param("a", DType::f32);
    BufferRef s = shared(DType::f32, 4);
    const auto expect = [&](const char* name, Value v, bool uniform) {
      wanted.emplace_back(name, uniform);
      y.store(static_cast<int>(wanted.size()), v);
    };
    expect("constant", literal(DType::f32, 1), true);
    expect("scalar", a * 2.f, true);
    expect("thread", cast(DType::f32, thread_id()), false);
    expect("global", cast(DType::f32, global_id()), false);
    expect("lane", cast(DType::f32, lane_id()), false);
    expect("block", cast(DType::f32, block_id() * block_count() + extent()), true);
    expect("read only at uniform index", x.load(block_id()), true);
    expect("read only at thread", x.load(thread_id()), false);
    expect("written buffer", w.load(block_id()), false);
    expect("shared", s.load(0), false);
    expect("block_sum", block_sum(x.load(thread_id())), true);
    expect("block_scan", block_scan(x.load(thread_id()), true), false);
    expect("subgroup_sum", subgroup_sum(x.load(thread_id())), false);
    expect("promise", block_uniform(x.load(thread_id() * 0)), true);
    expect("atomic", w.atomic(AtomicOp::add, 0, literal(DType::f32, 1)), false);
    Variable same(DType::f32, 1.f), own(DType::f32, 1.f), branch(DType::f32, 1.f), looped(DType::f32, 0.f);
    own.set(x.load(thread_id()));
    if_(thread_id() < 4, [&] { branch.set(2.f); });
    if_(block_id() < 4, [&] { same.set(2.f); });
    for_(Operand(0), thread_id(), [&](Value) { looped.set(looped.get() + 1.f); });
    expect("variable", same.get(), true);
    expect("variable of own values", own.get(), false);
    expect("variable set under a thread's condition", branch.get(), false);
    expect("variable counted in a thread's loop", looped.get(), false);
    for_(0, 4, [&](Value i) { expect("uniform counter", cast(DType::f32, i), true); });
    for_(thread_id(), 64, [&](Value i) { expect("own counter", cast(DType::f32, i), false); });
  });
  const std::vector<bool> uniform = uniform_values(fn);
  std::size_t checked = 0;
  for (const Block& b : fn.blocks)
    for (NodeId id : b) {
      const Node& n = fn[id];
      if (n.op != Op::store || fn[n.args[0]].op != Op::param || fn.params[fn[n.args[0]].imm].name != "y") continue;
      const std::size_t k = static_cast<std::size_t>(fn[n.args[1]].imm) - 1;
      EXPECT_EQ(uniform[n.args[2]], wanted[k].second) << wanted[k].first;
      ++checked;
    }
  EXPECT_EQ(checked, wanted.size());
}

TEST(SharedBytes, IncludeTheAlignmentOfEachArray) {
  const Function fn = block_kernel("bytes", {16, 1, 1}, [] {
    BufferRef a = shared(DType::u8, 5), b = shared(DType::f64, 3), c = shared(DType::f32, 1);
    a.store(0, literal(DType::u8, 1)), b.store(0, 1.0), c.store(0, 1.f);
  });
  EXPECT_EQ(shared_bytes(fn), 16u + 32u + 4u);
}

}  // namespace
}  // namespace tessera::ir
