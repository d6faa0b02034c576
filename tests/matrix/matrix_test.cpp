// SPDX-License-Identifier: Apache-2.0
// Matrix fragments in the IR: rules, text and hash, results and findings of the interpreter, and lowering to loops for
// subgroups of any width.
#include "tests/matrix/matrix_kernels.h"

#include <algorithm>
#include <functional>
#include <random>

#include "tessera/emit/lower.h"
#include "tests/ir/interpreter_helpers.h"

namespace tessera::ir {
namespace {

using namespace test;
constexpr FragmentRole left = FragmentRole::left, right = FragmentRole::right, accumulator = FragmentRole::accumulator;
using Kind = Finding::Kind;

Fragment sums() { return Fragment(accumulator, DType::f32); }
std::size_t count(const Function& fn, Op op) {
  std::size_t n = 0;
  for (const Block& b : fn.blocks)
    for (NodeId id : b) n += fn[id].op == op;
  return n;
}

// Rules.

struct Mistake {
  const char* name;
  KernelKind kind;
  std::function<void()> body;
  const char* sentence;
};
class MatrixSentences : public testing::TestWithParam<Mistake> {};
TEST_P(MatrixSentences, ContainKernelLineAndError) {
  const Mistake& m = GetParam();
  const std::string error = error_of<KernelError>([&] { trace(m.name, m.kind, {16, 1, 1}, m.body); });
  EXPECT_NE(error.find(m.sentence), std::string::npos) << error;
  EXPECT_EQ(error.rfind(std::string("[kernel ") + m.name, 0), 0u) << error;
}
const KernelKind blocks = KernelKind::block;
const std::vector<Mistake> mistakes = {
    {"map_kernel", KernelKind::map, [] { sums(); },
     "matrix operations require subgroups, but this is a map kernel. Declare the kernel with block(...)"},
    {"wide_left", blocks, [] { Fragment(left, DType::f64); },
     "the factors of a matrix product must be f16, bf16, f32 or i8"},
    {"bytes", blocks, [] { Fragment(left, DType::i8).load(in("x", DType::i8), 0, 32); },
     "the i8 factors of a matrix product are loaded from memory of u32, not of i8. Store four numbers in each u32"},
    {"left_words", blocks, [] { Fragment(left, DType::i8).load_transposed(in("x", DType::u32), 0, 8); },
     "left factors are loaded with load and right factors with load_transposed. Store the right factor transposed"},
    {"right_words", blocks, [] { Fragment(right, DType::i8).load(in("x", DType::u32), 0, 8); },
     "left factors are loaded with load and right factors with load_transposed. Store the right factor transposed"},
    {"rounded_to_bytes", blocks, [] { Fragment(left, DType::i8).convert(sums()); },
     "mma convert rounds to factors of a matrix product of f16 or bf16, not of i8"},
    {"rounded_to_f32", blocks, [] { Fragment(left, DType::f32).convert(sums()); },
     "mma convert rounds to factors of a matrix product of f16 or bf16, not of f32"},
    {"narrow_sum", blocks, [] { Fragment(accumulator, DType::f16); }, "an accumulator must be f32"},
    {"other_memory", blocks, [] { Fragment(left, DType::f16).load(in("x", DType::bf16), 0, 16); },
     "mma load of a matrix of f16 does not match memory of bf16"},
    {"bits", blocks, [] { Fragment(left, DType::f16).load(in("x", DType::u16), 0, 16); },
     "mma load of a matrix of f16 does not match memory of u16"},
    {"own_memory", blocks, [] { sums().load(local_array(DType::f32, 256), 0, 16); },
     "a matrix must be in memory that threads share"},
    {"read_only", blocks, [] { sums().store(in("x"), 0, 16); }, "this buffer is read-only in this kernel"},
    {"store_of_left", blocks, [] { Fragment(left, DType::f16).store(out("x", DType::f16), 0, 16); },
     "mma store requires the fragment accumulator, but got left"},
    {"fill_of_right", blocks, [] { Fragment(right, DType::f16).fill(0); },
     "mma fill requires the fragment accumulator, but got right"},
    {"two_lefts", blocks, [] { sums().multiply_add(Fragment(left, DType::f16), Fragment(left, DType::f16)); },
     "mma multiply requires the fragment right, but got left"},
    {"mixed", blocks, [] { sums().multiply_add(Fragment(left, DType::f16), Fragment(right, DType::bf16)); },
     "the factors of a matrix product have different types: f16 and bf16"},
    {"float_index", blocks, [] { sums().load(in("x"), in("y").load(0), 16); },
     "memory must be indexed by an integer, not f32"},
    {"float_stride", blocks, [] { sums().load(in("x"), 0, in("y").load(0)); },
     "memory must be indexed by an integer, not f32"},
    {"no_fragment", blocks,
     [] {
       const NodeId memory = local_array(DType::f32, 256).id();
       Builder::current().mma_fill(memory, literal(DType::f32, 1).id());
     },
     "mma fill requires the fragment accumulator, but got none"},
};
INSTANTIATE_TEST_SUITE_P(All, MatrixSentences, testing::ValuesIn(mistakes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Matrix, RejectsOrdinaryAccessToFragments) {
  int line = 0;
  const std::function<void(BufferRef, BufferRef)> uses[] = {
      [&](BufferRef m, BufferRef y) { line = __LINE__, y.store(0, m.load_if(y.load(0) > 1, 3, 0.0)); },
  };
  for (const auto& use : uses) {
    const std::string error = error_of<KernelError>([&] {
      block_kernel("access", {16, 1, 1}, [&] {
        const BufferRef y = out("y");
        const Fragment c = sums();
        c.store(y, 0, 16);
        use(BufferRef(c.id()), y);
      });
    });
    EXPECT_NE(error.find("[kernel access, matrix_test.cpp:" + std::to_string(line) + "] local1 is a matrix"),
              std::string::npos)
        << error;
  }
  // Lanes can access their elements of accumulators, but not of factors.
  for (const bool stores : {false, true}) {
    const std::string error = error_of<KernelError>([&] {
      block_kernel("access", {16, 1, 1}, [&] {
        const Fragment factor(left, DType::f16);
        if (stores)
          factor.set(index_literal(0), 1.0f);
        else
          out("y").store(0, factor.get(index_literal(0)));
      });
    });
    EXPECT_NE(error.find(stores ? "a thread cannot store elements of the factors of a matrix product"
                                : "a thread cannot load elements of the factors of a matrix product"),
              std::string::npos)
        << error;
  }
  // The builder rejects atomics on local memory, but functions can be created without the builder.
  Function fn = block_kernel("access", {16, 1, 1}, [&] {
    const BufferRef y = out("y");
    sums().store(y, 0, 16);
    y.atomic(AtomicOp::add, 0, 1.0f);
  });
  NodeId fragment = no_node;
  for (NodeId id = 1; id < fn.nodes.size(); ++id)
    if (is_fragment(fn[id])) fragment = id;
  for (Node& n : fn.nodes)
    if (n.op == Op::atomic) n.args[0] = fragment;
  const std::string error = error_of<KernelError>([&] { verify(fn); });
  EXPECT_NE(error.find("local1 is a matrix over a subgroup, and atomic requires a per-thread value. Store the "),
            std::string::npos)
      << error;
}

/// Traces a kernel. `body` receives fragments, which are stored at the end.
template <class F>
Function with_product(const char* name, F body, std::uint32_t threads = 16, bool verified = true) {
  return trace(
      name, blocks, {threads, 1, 1},
      [&] {
        const BufferRef a = in("a", DType::f16), b = in("b", DType::f16), c = out("c");
        const Fragment x(left, DType::f16), y(right, DType::f16), z = sums();
        body(a, b, c, x, y, z);
        z.store(c, subgroup_id() * 256, 16);
      },
      verified);
}
#define PRODUCT [&](BufferRef a, BufferRef b, BufferRef c, Fragment x, Fragment y, Fragment z)
#define UNUSED (void)a, (void)b, (void)c, (void)x, (void)y, (void)z

TEST(Matrix, RequiresConvergedSubgroups) {
  const std::vector<std::pair<const char*, std::function<void(std::function<void()>)>>> good = {
      {"subgroup", [](auto f) { if_(subgroup_id() < 2, f); }},
      {"argument", [](auto f) { if_(scalar_param("n", DType::i32) > 2, f); }},
      {"loop", [](auto f) { for_(subgroup_id(), 4, subgroup_count(), [&](Value) { f(); }); }},
      {"broadcast", [](auto f) { if_(subgroup(SubgroupOp::broadcast, in("v").load(thread_id()), 0) > 1, f); }},
      {"any", [](auto f) { if_(subgroup(SubgroupOp::any, in("v").load(thread_id()) > 1), f); }},
      {"variable",
       [](auto f) {
         const Variable v(DType::index, 0);
         if_(subgroup_id() > 1, [&] { v.set(in("v", DType::i32).size() + subgroup_id()); });
         if_(v.get() > 2, f);
       }},
  };
  for (const auto& [name, around] : good) {
    const Function fn = with_product(
        name, PRODUCT { UNUSED, around([&] { z.multiply_add(x, y); }); });
    EXPECT_EQ(count(fn, Op::mma), 2u) << name;
    // The same rule applies to subgroup operations.
    const Function sum = with_product(
        name, PRODUCT { UNUSED, around([&] { c.store(thread_id(), subgroup_sum(a.load(thread_id()))); }); });
    EXPECT_GE(count(sum, Op::subgroup), 1u) << name;
  }
  int outer = 0;
  const std::vector<std::pair<const char*, std::function<void(std::function<void()>)>>> bad = {
      {"lane", [&](auto f) { outer = __LINE__, if_(lane_id() < 2, f); }},
      {"thread", [&](auto f) { outer = __LINE__, if_(thread_id() < 2, f); }},
      {"loop", [&](auto f) { outer = __LINE__, for_(0, lane_id(), [&](Value) { f(); }); }},
      {"scan", [&](auto f) { outer = __LINE__, if_(subgroup(SubgroupOp::inclusive_sum, subgroup_id()) > 1, f); }},
      {"data", [&](auto f) { outer = __LINE__, if_(in("v").load(global_id()) > 1, f); }},
      // Broadcasts from the lane itself, from a lane that the last subgroup may not have, and from an unknown lane.
      {"broadcast_of_mine",
       [&](auto f) {
         outer = __LINE__, if_(subgroup(SubgroupOp::broadcast, in("v").load(thread_id()), lane_id()) > 1, f);
       }},
      {"broadcast_of_1",
       [&](auto f) { outer = __LINE__, if_(subgroup(SubgroupOp::broadcast, in("v").load(thread_id()), 1) > 1, f); }},
      {"broadcast_of_n",
       [&](auto f) {
         const Value n = scalar_param("n", DType::index);
         outer = __LINE__, if_(subgroup(SubgroupOp::broadcast, in("v").load(thread_id()), n) > 1, f);
       }},
      {"variable",
       [&](auto f) {
         const Variable v(DType::index, 0);
         if_(lane_id() > 1, [&] { v.set(1); });
         outer = __LINE__, if_(v.get() > 0, f);
       }},
  };
  for (const auto& [name, around] : bad) {
    const std::string error = error_of<KernelError>([&] {
      with_product(
          name, PRODUCT { UNUSED, around([&] { z.multiply_add(x, y); }); });
    });
    EXPECT_NE(error.find("a matrix operation is inside "), std::string::npos) << name << error;
    EXPECT_NE(error.find("(matrix_test.cpp:" + std::to_string(outer) +
                         "), on which threads of one subgroup may diverge. Move it out, or use a condition that is "
                         "the same in the whole subgroup, such as subgroup_id() or subgroup_broadcast(x, 0)"),
              std::string::npos)
        << name << error;
    const std::string sum = error_of<KernelError>([&] {
      with_product(
          name, PRODUCT { UNUSED, around([&] { c.store(thread_id(), subgroup_sum(a.load(thread_id()))); }); });
    });
    EXPECT_NE(sum.find("a subgroup operation is inside "), std::string::npos) << name << sum;
    EXPECT_NE(sum.find("(matrix_test.cpp:" + std::to_string(outer) + "), on which threads of one subgroup may diverge"),
              std::string::npos)
        << name << sum;
  }
  // Barriers and block operations require all threads of the block, even if subgroups are converged.
  const std::vector<std::pair<const char*, std::function<void(BufferRef)>>> of_block = {
      {"a barrier", [](BufferRef) { barrier(); }},
      {"a block operation", [](BufferRef c) { c.store(0, block_sum(1.f)); }},
      {"a block operation", [](BufferRef c) { c.store(0, block_uniform(in("v").load(thread_id()))); }},
  };
  for (const auto& [what, statement] : of_block) {
    const std::string error = error_of<KernelError>([&] {
      with_product(
          "of_block", PRODUCT {
            UNUSED;
            c.store(thread_id(), subgroup_sum(a.load(thread_id())));
            outer = __LINE__, if_(subgroup_id() < 2, [&] { statement(c); });
          });
    });
    EXPECT_NE(error.find(what + std::string(" is inside if_ (matrix_test.cpp:") + std::to_string(outer) +
                         "), on which threads of one block may diverge"),
              std::string::npos)
        << error;
  }
}

/// Expects that a kernel is rejected with this error, at the line that `body` sets. The kernel multiplies and stores
/// the fragments after `body`.
template <class F>
void expect_refused(const char* name, const std::string& sentence, const int& line, F body) {
  const std::string error = error_of<KernelError>([&] {
    with_product(
        name, PRODUCT {
          Builder::current().at("matrix_test.cpp", 0);
          body(a, b, c, x, y, z);
          z.multiply_add(x, y);
        });
  });
  EXPECT_EQ(error, std::string("[kernel ") + name + ", matrix_test.cpp:" + std::to_string(line) + "] " + sentence);
}

TEST(Matrix, RequiresUniformIndexStrideAndValue) {
  int line = 0;
  const auto refused = [&](const char* name, const std::string& what, auto body) {
    expect_refused(
        name,
        "the " + what + " of a matrix operation may differ within a subgroup. Wrap it in subgroup_broadcast(x, 0)",
        line, body);
  };
  refused(
      "load", "index", PRODUCT { UNUSED, line = __LINE__, x.load(a, lane_id(), 16); });
  refused(
      "load_stride", "stride", PRODUCT { UNUSED, line = __LINE__, x.load(a, 0, thread_id()); });
  refused(
      "transposed", "index", PRODUCT { UNUSED, line = __LINE__, x.load_transposed(a, global_id() / 64, 16); });
  refused(
      "transposed_stride", "stride", PRODUCT { UNUSED, line = __LINE__, x.load_transposed(a, 0, lane_id() + 1); });
  refused(
      "store", "index", PRODUCT { UNUSED, line = __LINE__, z.store(c, thread_id(), 16); });
  refused(
      "store_stride", "stride", PRODUCT { UNUSED, line = __LINE__, z.store(c, 0, lane_id() / 64); });
  refused(
      "fill", "value", PRODUCT { UNUSED, line = __LINE__, z.fill(c.load(0)); });  // other threads may be writing it
  refused(
      "other_lane", "index", PRODUCT {
        UNUSED;
        const Value at = subgroup(SubgroupOp::broadcast, thread_id(), lane_id());
        line = __LINE__, x.load(a, at, 16);
      });
  refused(
      "variable", "index", PRODUCT {
        UNUSED;
        const Variable at(DType::index, 0);
        if_(lane_id() < 3, [&] { at.set(16); });
        line = __LINE__, x.load(a, at.get(), 16);
      });
  // The same operands, wrapped as the error suggests, and operands that are already uniform.
  const Function fn = with_product(
      "wrapped", PRODUCT {
        const auto same = [](Value v) { return subgroup(SubgroupOp::broadcast, v, 0); };
        x.load(a, same(lane_id()), same(thread_id()));
        y.load_transposed(b, block_id() * 2 + subgroup_id(), b.size() / 16);
        z.fill(same(c.load(0)));
        z.multiply_add(x, y);
        z.fill(cast(DType::f32, a.load(subgroup_id())));
        z.multiply_add(x, y);
        for_(subgroup_id(), 4, subgroup_count(), [&](Value tile) { z.store(c, tile * 256, 16); });
      });
  EXPECT_EQ(count(fn, Op::mma), 8u);
}

TEST(Matrix, RejectsBuffersAsValues) {
  int line = 0;
  const auto own = [](DType t) { return Value(local_array(t, 256).id()); };
  const auto tile = [](DType t) { return Value(shared(t, 256).id()); };
  const auto refused = [&](const char* name, const std::string& memory, const std::string& by, auto body) {
    expect_refused(name, memory + " is memory, and " + by + " requires a value. Load an element of it", line, body);
  };
  refused(
      "fill", "local2", "mma fill", PRODUCT { UNUSED, line = __LINE__, z.fill(own(DType::f32)); });
  refused(
      "fill_buffer", "c", "mma fill", PRODUCT { UNUSED, line = __LINE__, z.fill(Value(c.id())); });
  refused(
      "index", "local2", "mma load", PRODUCT { UNUSED, line = __LINE__, x.load(a, own(DType::index), 16); });
  refused(
      "stride", "local2", "mma store", PRODUCT { UNUSED, line = __LINE__, z.store(c, 0, own(DType::index)); });
  refused(
      "narrow", "shared1", "cast", PRODUCT { UNUSED, line = __LINE__, z.fill(tile(DType::f16)); });
  refused(
      "stored", "local1", "store", PRODUCT { UNUSED, line = __LINE__, c.store(0, own(DType::f32)); });
  refused(
      "at", "local1", "store", PRODUCT { UNUSED, line = __LINE__, c.store(own(DType::index), 1.0f); });
  refused(
      "sum", "shared1", "binary", PRODUCT { UNUSED, line = __LINE__, c.store(0, tile(DType::f32) + 1.0f); });
  const auto at = [](int here) { Builder::current().at("matrix_test.cpp", here); };
  refused(
      "condition", "local1", "if_", PRODUCT {
        UNUSED, at(line = __LINE__);
        if_(own(DType::boolean), [&] { c.store(0, 1.0f); });
      });
  refused(
      "bound", "local1", "for_", PRODUCT {
        UNUSED;
        line = __LINE__, for_(0, own(DType::index), [&](Value) { c.store(0, 1.0f); });
      });
  refused(
      "loop", "local1", "while_", PRODUCT {
        UNUSED, at(line = __LINE__);
        while_([&] { return own(DType::boolean); }, [] {});
      });
  const std::string fragment = "local1 is a matrix over a subgroup, and ",
                    remedy =
                        " requires a per-thread value. Store the matrix to shared memory, and read it after a "
                        "barrier";
  expect_refused(
      "stored_matrix", fragment + "store" + remedy, line,
      PRODUCT { UNUSED, line = __LINE__, c.store(0, Value(z.id())); });
  expect_refused(
      "filled_with_matrix", fragment + "mma fill" + remedy, line,
      PRODUCT { UNUSED, line = __LINE__, z.fill(Value(z.id())); });
}

// The builder rejects all of these, but functions can be created without the builder.
TEST(Matrix, RejectsOperandsOfWrongKind) {
  int load = 0, fill = 0, multiply = 0, store = 0;
  const Function good = trace("places", blocks, {16, 1, 1}, [&] {
    const BufferRef a = in("a", DType::f16), c = out("c");
    const Fragment x(left, DType::f16), y(right, DType::f16), z = sums();
    const BufferRef own = local_array(DType::f32, 256);
    load = __LINE__, x.load(a, 0, 16);
    y.load(a, 0, 16);
    fill = __LINE__, z.fill(0.5);
    multiply = __LINE__, z.multiply_add(x, y);
    own.store(thread_id(), 1.0f);
    c.store(0, own.load(thread_id()));
    store = __LINE__, z.store(c, 0, 16);
  });
  verify(good);
  const auto find = [&](auto is) {
    NodeId id = 1;
    while (!is(good[id])) ++id;
    return id;
  };
  const auto operation = [&](MmaOp op) {
    return find([&](const Node& n) { return n.op == Op::mma && n.kind<MmaOp>() == op; });
  };
  const auto matrix = [&](FragmentRole role) {
    return find([&](const Node& n) { return is_fragment(n) && n.kind<FragmentRole>() == role; });
  };
  const NodeId own = find([](const Node& n) { return n.op == Op::local && !is_fragment(n); });
  const NodeId half_value = find([](const Node& n) { return n.op == Op::constant && n.type.dtype == DType::f32; });
  const NodeId c = good[operation(MmaOp::store)].args[1];
  const struct {
    MmaOp op;
    std::size_t operand;
    NodeId other;
    const int& line;
    std::string sentence;
  } changes[] = {
      {MmaOp::load, 0, own, load, "mma load requires a fragment, but got none"},
      {MmaOp::load, 0, c, load, "mma load requires a fragment, but got none"},
      {MmaOp::load, 1, half_value, load, "mma load requires memory, not a value of f32"},
      {MmaOp::load, 1, own, load, "a matrix must be in memory that threads share"},
      {MmaOp::load, 1, matrix(left), load, " is a matrix over a subgroup, and mma load requires a per-thread value"},
      {MmaOp::load, 2, c, load, "c is memory, and mma load requires a value"},
      {MmaOp::load, 3, c, load, "c is memory, and mma load requires a value"},
      {MmaOp::load, 3, no_node, load, "mma load has 3 operands. It takes 4"},
      {MmaOp::fill, 0, matrix(left), fill, "mma fill requires the fragment accumulator, but got left"},
      {MmaOp::fill, 1, matrix(left), fill, " is a matrix over a subgroup, and mma fill requires a per-thread value"},
      {MmaOp::fill, 1, c, fill, "c is memory, and mma fill requires a value"},
      {MmaOp::fill, 2, half_value, fill, "mma fill has 3 operands. It takes 2"},
      {MmaOp::multiply, 0, matrix(right), multiply, "mma multiply requires the fragment accumulator, but got right"},
      {MmaOp::multiply, 1, matrix(right), multiply, "mma multiply requires the fragment left, but got right"},
      {MmaOp::multiply, 2, matrix(left), multiply, "mma multiply requires the fragment right, but got left"},
      {MmaOp::multiply, 2, half_value, multiply, "mma multiply requires the fragment right, but got none"},
      {MmaOp::multiply, 2, no_node, multiply, "mma multiply has 2 operands. It takes 3"},
      {MmaOp::store, 0, matrix(left), store, "mma store requires the fragment accumulator, but got left"},
      {MmaOp::store, 1, own, store, "a matrix must be in memory that threads share"},
      {MmaOp::store, 1, half_value, store, "mma store requires memory, not a value of f32"},
  };
  for (const auto& change : changes) {
    Function fn = good;
    fn.nodes[operation(change.op)].args[change.operand] = change.other;
    const std::string error = error_of<KernelError>([&] { verify(fn); });
    EXPECT_EQ(error.rfind("[kernel places, matrix_test.cpp:" + std::to_string(change.line) + "] ", 0), 0u)
        << change.sentence << "\n"
        << error;
    EXPECT_NE(error.find(change.sentence), std::string::npos) << change.sentence << "\n" << error;
  }
}

TEST(Matrix, PrintsMatrixOperations) {
  const Function fn = with_product(
      "text", PRODUCT {
        z.fill(0.5);
        for_(0, 64, 16, [&](Value k) {
          x.load(a, k, 64);
          y.load_transposed(b, subgroup_id() * 64, 64);
          z.multiply_add(x, y);
        });
        z.multiply(x, y);
        z.load(c, 3, 16);
      });
  EXPECT_EQ(to_text(fn),
            "kernel text block(16, 1, 1)\n"
            "  buffer a: f16 read\n"
            "  buffer b: f16 read\n"
            "  buffer c: f32 read_write\n"
            "  local1: f32[256] accumulator\n"
            "  local2: f16[256] left\n"
            "  local3: f16[256] right\n"
            "  mma_fill local1, 0.5:f32\n"
            "  %1: index = mul subgroup_id(0), 64:index\n"
            "  for i1 from 0:index to 64:index step 16:index\n"
            "    mma_load local2, a[i1] stride 64:index\n"
            "    mma_load local3, b[%1] stride 64:index transposed\n"
            "    mma_multiply local1, local2, local3\n"
            "  mma_multiply local1, local2, local3 replacing\n"
            "  mma_load local1, c[3:index] stride 16:index\n"
            "  %2: index = mul subgroup_id(0), 256:index\n"
            "  mma_store local1, c[%2] stride 16:index\n");
}

TEST(Matrix, HashCoversEveryPartOfAnOperation) {
  std::vector<Hash> all;
  auto add = [&](auto body) { all.push_back(hash_of(with_product("h", body))); };
  add(PRODUCT { UNUSED, x.load(a, 0, 16), z.multiply_add(x, y); });
  add(PRODUCT { UNUSED, x.load(a, 0, 16), z.multiply(x, y); });
  add(PRODUCT { UNUSED, x.load_transposed(a, 0, 16), z.multiply_add(x, y); });
  add(PRODUCT { UNUSED, y.load(a, 0, 16), z.multiply_add(x, y); });
  add(PRODUCT { UNUSED, x.load(b, 0, 16), z.multiply_add(x, y); });
  add(PRODUCT { UNUSED, x.load(a, 1, 16), z.multiply_add(x, y); });
  add(PRODUCT { UNUSED, x.load(a, 0, 17), z.multiply_add(x, y); });
  add(PRODUCT { UNUSED, z.load(c, 0, 16), z.multiply_add(x, y); });
  add(PRODUCT { UNUSED, z.multiply_add(x, y), z.load(c, 0, 16); });
  add(PRODUCT { UNUSED, z.fill(0), z.multiply_add(x, y); });
  add(PRODUCT { UNUSED, z.fill(1), z.multiply_add(x, y); });
  add(PRODUCT { UNUSED; });
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(all[i] == all[j]) << i << " and " << j;
  EXPECT_EQ(all[0], hash_of(with_product(
                        "another_name", PRODUCT { UNUSED, x.load(a, 0, 16), z.multiply_add(x, y); })));
}

TEST(Matrix, RemovesFragmentsThatAreNeverStored) {
  const Function fn = with_product(
      "dead", PRODUCT {
        const Fragment unused = sums(), only_left(left, DType::f16);
        only_left.load(a, 0, 16);
        x.load(a, 0, 16), y.load(b, 0, 16);
        unused.load(c, 0, 16);
        for_(0, 3, [&](Value) { unused.multiply_add(only_left, y); });
        z.multiply_add(x, y);
      });
  const Function same = with_product(
      "dead", PRODUCT {
        (void)c;
        x.load(a, 0, 16), y.load(b, 0, 16);
        z.multiply_add(x, y);
      });
  EXPECT_EQ(to_text(fn), to_text(same));
  EXPECT_EQ(hash_of(fn), hash_of(same));
}

// Results.

struct Size {
  std::size_t m, n, k;
};
template <class T>
void expect_product(const Function& fn, Size s, bool transposed, std::uint32_t width) {
  SCOPED_TRACE(std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k) +
               (transposed ? ", transposed" : "") + ", subgroups of " + std::to_string(width));
  std::mt19937_64 random(test_seed());
  auto values = [&](std::size_t n) {
    std::vector<T> out;
    for (float f : random_floats(n, random, -2, 2)) out.push_back(T(f));
    return out;
  };
  std::vector<T> a = values(s.m * s.k), b = values(s.k * s.n);
  std::vector<float> c = random_floats(s.m * s.n, random);
  const ExactProduct exact(a, b, c, s.m, s.n, s.k, transposed);
  const auto found = findings(fn, {(s.n + 63) / 64, (s.m + 15) / 16, 1},
                              {arg(a), arg(b), arg(c), index_arg(static_cast<std::int64_t>(s.m)),
                               index_arg(static_cast<std::int64_t>(s.n)), index_arg(static_cast<std::int64_t>(s.k))},
                              width);
  for (const Finding& f : found) ADD_FAILURE() << f.text;
  for (std::size_t i = 0; i < c.size(); ++i) ASSERT_NEAR(c[i], exact.value[i], exact.bound[i]) << i;
}
const std::vector<Size> sizes = {{16, 16, 16}, {48, 32, 80}, {17, 70, 33}};

template <class T>
void test_products(auto&& changed, std::vector<std::uint32_t> widths, std::vector<std::uint32_t> threads) {
  for (const std::uint32_t t : threads)
    for (const bool transposed : {false, true}) {
      const Function fn =
          changed(block_kernel("product", {t, 1, 1}, [&] { matrix_product(dtype_v<T>, t, transposed); }));
      for (const std::uint32_t width : widths)
        for (const Size s : sizes) expect_product<T>(fn, s, transposed, width);
    }
}
// In blocks of 50 threads, the last subgroup is incomplete.
const std::vector<std::uint32_t> widths = {1, 8, 32, 64}, threads = {64, 50};
const auto as_it_is = [](Function fn) { return fn; };

TEST(Matrix, InterpreterComputesProducts) {
  test_products<half>(as_it_is, widths, threads);
  test_products<bfloat16>(as_it_is, {8, 5}, {40});
  test_products<float>(as_it_is, {8, 5}, {40});
}
TEST(Matrix, LoweredProductsMatchTheReference) {
  const auto lowered = [](emit::Target target) {
    return [target](Function fn) {
      Function out = emit::lower(fn, target);
      EXPECT_EQ(count(out, Op::mma), target.mma ? count(fn, Op::mma) : 0u);
      return out;
    };
  };
  test_products<half>(lowered({}), {8, 32}, {50});
  test_products<half>(lowered({}), {64}, {64});
  test_products<half>(lowered({.f16_convert = false, .subgroup_width = 1}), {1}, {24});
  test_products<bfloat16>(lowered({.index64 = true}), {5}, {12});
  test_products<bfloat16>(lowered({.bf16_convert = true, .subgroup_width = 1, .vectors = true}), {1}, {6});
  test_products<float>(lowered({.mma = true, .mma_f32 = true}), {8}, {40});
  test_products<float>(lowered({.subgroup_width = 1}), {1}, {24});
  for (const bool converts : {false, true})
    test_products<bfloat16>(lowered({.bf16_convert = converts, .mma = true}), {8}, {40});
}

TEST(Matrix, FragmentsWorkInLoopConditions) {
  for (const bool loops : {false, true}) {
    const Function fn = with_product(
        "condition",
        PRODUCT {
          (void)c;
          x.load(a, 0, 16), y.load(b, 0, 16);
          const Variable rounds(DType::i32, 0);
          while_(
              [&] {
                z.multiply_add(x, y);
                return rounds.get() < 2;
              },
              [&] { rounds.set(rounds.get() + 1); });
        },
        8);
    std::vector<half> a(256, half(2.0f)), b(256, half(0.5f));
    std::vector<float> c(256, -1);
    run(loops ? emit::lower(fn, {}) : fn, {1, 1, 1}, {arg(a), arg(b), arg(c)}, {.subgroup_width = 8});
    EXPECT_EQ(c, std::vector<float>(256, 48)) << loops;
  }
}

// Findings.

std::vector<Finding> found_in(const Function& fn, std::size_t elements_of_a = 256, std::size_t elements_of_c = 512) {
  std::vector<half> a(elements_of_a), b(256);
  std::vector<float> c(elements_of_c, -1);
  return findings(fn, {1, 1, 1}, {arg(a), arg(b), arg(c)}, 8);
}
void expect_found(const std::vector<Finding>& found, Kind kind, const int& line, const std::string& part) {
  ASSERT_FALSE(found.empty());
  for (const Finding& f : found) EXPECT_EQ(f.kind, kind) << f.text;
  const std::string start = "[kernel " + found[0].kernel + ", matrix_test.cpp:" + std::to_string(line) + "] ";
  const bool any = std::ranges::any_of(
      found, [&](const Finding& f) { return f.text.rfind(start, 0) == 0 && f.text.find(part) != f.text.npos; });
  EXPECT_TRUE(any) << start << part << "\n" << found[0].text;
}

TEST(Matrix, ReportsOutOfBoundsAccess) {
  int line = 0;
  const auto load = with_product(
      "load",
      PRODUCT {
        UNUSED;
        line = __LINE__, x.load(a, 1, 16);
        z.multiply_add(x, y);
      },
      8);
  expect_found(found_in(load), Kind::out_of_bounds, line, "of block (0, 0, 0) reads a[256], which is out of bounds");
  EXPECT_TRUE(found_in(load, 257).empty());
  const auto stride = with_product(
      "stride",
      PRODUCT {
        UNUSED;
        line = __LINE__, x.load_transposed(a, 240, -16);
        z.multiply_add(x, y);
      },
      8);
  EXPECT_TRUE(found_in(stride).empty());
  const auto store = with_product(
      "store", PRODUCT { UNUSED, line = __LINE__, z.store(c, -300, 16); }, 8);
  expect_found(found_in(store), Kind::out_of_bounds, line, "writes c[-300], which is out of bounds");
  // It is also reported without checks, as an error if there is no list for findings.
  std::vector<half> a(200), b(256);
  std::vector<float> c(256);
  const std::string error = error_of<KernelError>([&] {
    run(load, {1, 1, 1}, {arg(a), arg(b), arg(c)}, {.subgroup_width = 8});
  });
  EXPECT_NE(error.find("[kernel load, matrix_test.cpp:"), std::string::npos) << error;
  EXPECT_NE(error.find("reads a[200]"), std::string::npos) << error;
}

TEST(Matrix, ReportsRaces) {
  int line = 0;
  auto stores = [&](std::uint32_t threads, std::int64_t apart) {
    return block_kernel("stores", {threads, 1, 1}, [&] {
      const BufferRef a = in("a", DType::f16), b = in("b", DType::f16), c = out("c");
      const Fragment z = sums();
      line = __LINE__, z.store(c, subgroup_id() * apart, 16);
      a.load(0), b.load(0);
    });
  };
  expect_found(found_in(stores(16, 0)), Kind::race, line,
               "thread (8, 0, 0) of block (0, 0, 0) writes c[0], which thread (0, 0, 0)");
  expect_found(found_in(stores(16, 128), 256, 512), Kind::race, line, "writes c[128]");
  EXPECT_TRUE(found_in(stores(16, 256), 256, 512).empty());
  EXPECT_TRUE(found_in(stores(8, 0)).empty());

  for (const bool ordered : {false, true}) {  // any lane may read any element
    const auto staged = with_product(
        "staged",
        PRODUCT {
          const BufferRef s = shared(DType::f16, 256);
          for_(thread_id(), 256, 8, [&](Value i) { s.store(i, a.load(i)); });
          if (ordered) barrier();
          y.load(b, 0, 16);
          line = __LINE__, x.load(s, 0, 16);
          z.load(c, 0, 16);  // in place: each element is stored by the lane that loaded it
          z.multiply_add(x, y);
        },
        8);
    if (ordered)
      EXPECT_TRUE(found_in(staged).empty());
    else
      expect_found(found_in(staged), Kind::race, line, "reads shared1[");
  }
  const auto unwritten = with_product(
      "unwritten",
      PRODUCT {
        UNUSED;
        line = __LINE__, x.load(shared(DType::f16, 256), 0, 16);
        z.multiply_add(x, y);
      },
      8);
  expect_found(found_in(unwritten), Kind::uninitialised, line,
               "reads shared1[0], which no thread of its block has written");
}

TEST(Matrix, ReportsDivergence) {
  int line = 0;
  const auto divergent = with_product(
      "divergent",
      PRODUCT {
        UNUSED;
        if_(lane_id() < 3, [&] { line = __LINE__, z.multiply_add(x, y); });
      },
      16, /*verified=*/false);
  expect_found(found_in(divergent), Kind::divergence, line,
               "matrix multiply is reached by 3 threads out of 8 in its subgroup: thread (2, 0, 0) of block (0, 0, 0) "
               "reached it, thread (3, 0, 0) of block (0, 0, 0) did not");
  const auto whole = with_product(
      "whole",
      PRODUCT {
        UNUSED;
        if_(thread_id() >= 8, [&] { line = __LINE__, z.multiply_add(x, y); });
        if_(subgroup_id() == 1, [&] { z.load(c, 0, 16); });
      },
      8, /*verified=*/false);
  EXPECT_TRUE(found_in(whole).empty());

  const auto index = with_product(
      "index",
      PRODUCT {
        UNUSED;
        line = __LINE__, x.load(a, lane_id(), 1);
        z.multiply_add(x, y);
      },
      8, /*verified=*/false);
  expect_found(found_in(index), Kind::divergence, line,
               "the index of a matrix operation differs within a subgroup: it is 0 in thread (0, 0, 0)");
  const auto stride = with_product(
      "stride", PRODUCT { UNUSED, line = __LINE__, z.load(c, 0, lane_id() / 7); }, 8, /*verified=*/false);
  expect_found(found_in(stride), Kind::divergence, line, "the stride of a matrix operation differs within a subgroup");
  const auto value = with_product(
      "value", PRODUCT { UNUSED, line = __LINE__, z.fill(cast(DType::f32, lane_id())); }, 8, /*verified=*/false);
  expect_found(found_in(value), Kind::divergence, line, "the value of a matrix operation differs within a subgroup");
  // Conditions that the verifier must assume are checked when the kernel runs.
  const auto promised = with_product(
      "promised", PRODUCT { UNUSED, line = __LINE__, z.fill(block_uniform(cast(DType::f32, lane_id()))); }, 8);
  expect_found(found_in(promised), Kind::divergence, line, "the operand of block_uniform differs between threads");
  const auto by_subgroup = with_product(
      "by_subgroup",
      PRODUCT {
        UNUSED;
        z.fill(cast(DType::f32, subgroup_id()));
        x.load(a, subgroup_id() * 4, 8);
        z.multiply_add(x, y);
      },
      8);
  EXPECT_TRUE(found_in(by_subgroup).empty());
}

}  // namespace
}  // namespace tessera::ir
