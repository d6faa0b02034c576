// SPDX-License-Identifier: Apache-2.0
// Kernels with deliberate errors, which the checks must report with kernel and line, and similar correct kernels, for
// which the checks must report nothing.
#include "tests/ir/interpreter_helpers.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

namespace tessera::ir {
namespace {

using namespace test;
using Kind = Finding::Kind;
using Shape = std::array<std::uint64_t, 3>;

// The line of the deliberate error. PLANTED sets it.
int planted_line = 0;
#define PLANTED (planted_line = __LINE__)

struct Case {
  const char* name;
  KernelKind kind;
  std::array<std::uint32_t, 3> block;
  Shape shape;
  std::function<void(BufferRef x, BufferRef y)>
      body;  // called with i32 buffers of 64 elements; x is read-only, y can be written
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

std::vector<Finding> check(const Case& c) {
  planted_line = 0;
  const Function fn = trace(
      c.name, c.kind, c.block,
      [&] {
        BufferRef x = in("x", DType::i32), y = out("y", DType::i32);
        c.body(x, y);
      },
      /*verified=*/false);
  std::vector<std::int32_t> x(64), y(64, -1);
  for (int i = 0; i < 64; ++i) x[static_cast<std::size_t>(i)] = i;
  return findings(fn, c.shape, {arg(x), arg(y)}, 8);
}
void expect_reported(const Case& c, Kind kind) {
  const auto found = check(c);
  ASSERT_FALSE(found.empty()) << c.name;
  const bool any = std::ranges::any_of(found, [&](const Finding& f) {
    return f.kind == kind && (f.line.line == planted_line || f.other_line.line == planted_line);
  });
  std::string all;
  for (const Finding& f : found) all += f.text + "\n";
  EXPECT_TRUE(any) << c.name << ", planted in line " << planted_line << ":\n" << all;
  for (const Finding& f : found) {
    EXPECT_EQ(f.kind, kind) << f.text;
    EXPECT_EQ(f.kernel, c.name);
    EXPECT_NE(f.text.find(std::string("[kernel ") + c.name +
                          ", interpreter_checks_test.cpp:" + std::to_string(f.line.line) + "]"),
              std::string::npos)
        << f.text;
    EXPECT_NE(f.text.find("thread ("), std::string::npos) << f.text;
    EXPECT_EQ(f.text.find(" of block (") != std::string::npos, c.kind == KernelKind::block) << f.text;
    if (kind == Kind::out_of_bounds || kind == Kind::race || kind == Kind::uninitialised) {
      EXPECT_NE(f.text.find(f.memory + "[" + std::to_string(f.element) + "]"), std::string::npos) << f.text;
      EXPECT_NE(f.text.find("(elements of " + f.memory + " = " + std::to_string(f.size) + ")"), std::string::npos)
          << f.text;
    }
    if (kind == Kind::race) {
      EXPECT_NE(f.text.find(" at interpreter_checks_test.cpp:" + std::to_string(f.other_line.line)), std::string::npos)
          << f.text;
    }
  }
}
void expect_clean(const Case& c) {
  for (const Finding& f : check(c)) ADD_FAILURE() << c.name << ": " << f.text;
}

constexpr KernelKind map = KernelKind::map, blocks = KernelKind::block;
constexpr std::array<std::uint32_t, 3> one = {1, 1, 1}, b16 = {16, 1, 1};
Value i32(Value v) { return cast(DType::i32, v); }

class Check : public testing::TestWithParam<std::pair<Kind, Case>> {};
class CheckClean : public testing::TestWithParam<Case> {};
TEST_P(Check, ReportsTheDeliberateError) { expect_reported(GetParam().second, GetParam().first); }
TEST_P(CheckClean, ReportsNothingForCorrectKernels) { expect_clean(GetParam()); }
std::vector<std::pair<Kind, Case>> planted(Kind kind, std::vector<Case> cases) {
  std::vector<std::pair<Kind, Case>> out;
  for (Case& c : cases) out.emplace_back(kind, std::move(c));
  return out;
}
const auto name_of_pair = [](const auto& info) { return std::string(info.param.second.name); };
const auto name_of_case = [](const auto& info) { return std::string(info.param.name); };

// A deliberate error is on the same line as its PLANTED.
// clang-format off

// Out-of-bounds accesses.

const std::vector<Case> planted_bounds = {
  {"one_past_the_end", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) {
    PLANTED; y.store(global_id(), x.load(global_id() + 1)); }},
  {"before_the_start", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) {
    PLANTED; y.store(global_id(), x.load(global_id() - 1)); }},
  {"rounded_up_without_guard", blocks, b16, {5, 1, 1}, [](BufferRef, BufferRef y) {
    PLANTED; y.store(global_id(), 1); }},
  {"shared_too_small", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef) {
    BufferRef s = shared(DType::i32, 15);
    PLANTED; s.store(thread_id(), 1); }},
  {"local_past_its_end", map, one, {8, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef mine = local_array(DType::i32, 4);
    PLANTED; y.store(global_id(), mine.load(global_id())); }},
  {"constant_past_a_local", map, one, {8, 1, 1}, [](BufferRef, BufferRef) {
    BufferRef mine = local_array(DType::i32, 4);
    PLANTED; mine.store(4, 1); }},
  {"vector_over_the_end", map, one, {16, 1, 1}, [](BufferRef x, BufferRef y) {
    PLANTED; y.store(global_id(), extract(x.load_vector(global_id() * 4 + 1, 4), 0)); }},
  {"mask_of_load_if_too_wide", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) {
    PLANTED; y.store(global_id(), x.load_if(global_id() < 64, global_id() * 2, 0)); }},
  {"atomic_past_the_end", map, one, {10, 1, 1}, [](BufferRef, BufferRef y) {
    PLANTED; y.atomic(AtomicOp::add, global_id() + 55, literal(DType::i32, 1)); }},
};
INSTANTIATE_TEST_SUITE_P(Bounds, Check, testing::ValuesIn(planted(Kind::out_of_bounds, planted_bounds)), name_of_pair);

const std::vector<Case> correct_bounds = {
  {"exact_fit", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) { y.store(global_id(), x.load(63 - global_id())); }},
  {"return_as_guard", blocks, b16, {5, 1, 1}, [](BufferRef x, BufferRef y) {
    if_(global_id() >= x.size(), [&] { return_(); });
    y.store(global_id(), x.load(global_id())); }},
  {"load_if_where_masked", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) {
    y.store(global_id(), x.load_if(global_id() <= 31, global_id() * 2 + 1, -1)); }},
  {"masked_negative", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) {
    Value i = global_id();
    y.store(i, x.load_if(i > 0, i - 1, 0) + x.load_if(i < 63, i + 1, 0)); }},
  {"last_vector", map, one, {16, 1, 1}, [](BufferRef x, BufferRef y) {
    y.store(global_id() * 4, x.load_vector(global_id() * 4, 4)); }},
  {"condition_guards_the_read", map, one, {8, 1, 1}, [](BufferRef x, BufferRef y) {
    Variable k(DType::index, global_id() * 8);
    while_([&] { return x.load_if(k.get() < 64, k.get(), 0) > 20; }, [&] { k.set(k.get() + 9); });
    y.store(global_id(), i32(k.get())); }},
};
INSTANTIATE_TEST_SUITE_P(Bounds, CheckClean, testing::ValuesIn(correct_bounds), name_of_case);

// Races.

const std::vector<Case> planted_races = {
  {"neighbour_without_barrier", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    s.store(t, 1), s.store((t + 1) % 16, 2);
    PLANTED; y.store(t, s.load(t)); }},
  {"write_after_read_in_a_loop", blocks, b16, {1, 1, 1}, [](BufferRef x, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    Variable sum(DType::i32, 0);
    for_(0, 4, [&](Value r) {
      PLANTED; s.store(t, x.load(r * 16 + t));
      barrier();
      sum.set(sum.get() + s.load(15 - t));
    });
    y.store(t, sum.get()); }},
  {"same_value_by_all", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef) {
    BufferRef s = shared(DType::i32, 1);
    PLANTED; s.store(0, 7); }},
  {"two_blocks_one_element", blocks, b16, {4, 1, 1}, [](BufferRef, BufferRef y) {
    PLANTED; y.store(thread_id(), i32(block_id())); }},
  {"map_threads_one_element", map, one, {64, 1, 1}, [](BufferRef, BufferRef y) {
    PLANTED; y.store(global_id() / 2, 1); }},
  {"map_reads_what_another_writes", map, one, {63, 1, 1}, [](BufferRef, BufferRef y) {
    Value v = y.load(global_id() + 1);
    PLANTED; y.store(global_id(), v); }},
  {"blocks_read_their_neighbours", blocks, b16, {4, 1, 1}, [](BufferRef, BufferRef y) {
    Value g = global_id();
    Value v = y.load((g + 16) % 64);
    barrier();  // orders only the threads of this block
    PLANTED; y.store(g, v); }},
  {"plain_read_of_an_atomic", map, one, {64, 1, 1}, [](BufferRef, BufferRef y) {
    y.atomic(AtomicOp::add, 0, literal(DType::i32, 1));
    PLANTED; if_(y.load(0) > 1000, [&] { y.atomic(AtomicOp::max, 1, literal(DType::i32, 1)); }); }},
  {"counter_without_atomic", map, one, {64, 1, 1}, [](BufferRef, BufferRef y) {
    PLANTED; y.store(5, y.load(5) + 1); }},
  {"block_sum_is_no_barrier", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    s.store(t, i32(t));
    Value sum = block_sum(i32(t));
    PLANTED; y.store(t, s.load(15 - t) + sum); }},
  {"vectors_overlap", map, one, {20, 1, 1}, [](BufferRef x, BufferRef y) {
    PLANTED; y.store(global_id() * 3, x.load_vector(global_id() * 3, 4)); }},
};
INSTANTIATE_TEST_SUITE_P(Races, Check, testing::ValuesIn(planted(Kind::race, planted_races)), name_of_pair);

const std::vector<Case> correct_races = {
  {"own_element_only", blocks, b16, {4, 1, 1}, [](BufferRef x, BufferRef y) {
    Value g = global_id();
    y.store(g, x.load(63 - g));
    y.store(g, y.load(g) + 1); }},
  {"both_barriers_of_a_loop", blocks, b16, {1, 1, 1}, [](BufferRef x, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    Variable sum(DType::i32, 0);
    for_(0, 4, [&](Value r) {
      s.store(t, x.load(r * 16 + t));
      barrier();
      sum.set(sum.get() + s.load(15 - t));
      barrier();
    });
    y.store(t, sum.get()); }},
  {"two_buffers_of_a_pipeline", blocks, b16, {1, 1, 1}, [](BufferRef x, BufferRef y) {
    BufferRef s = shared(DType::i32, 32);  // with two buffers, one barrier per iteration is enough
    Value t = thread_id();
    Variable sum(DType::i32, 0);
    for_(0, 4, [&](Value r) {
      Value half = r % 2 * 16;
      s.store(half + t, x.load(r * 16 + t));
      barrier();
      sum.set(sum.get() + s.load(half + 15 - t));
    });
    y.store(t, sum.get()); }},
  {"many_readers", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) { y.store(global_id(), x.load(0) + x.load(63)); }},
  {"all_atomics", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) {
    y.atomic(AtomicOp::add, global_id() % 3, x.load(global_id()));
    y.atomic(AtomicOp::max, global_id() % 3, literal(DType::i32, 1)); }},
  {"shared_memory_again_in_the_next_block", blocks, b16, {3, 1, 1}, [](BufferRef x, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    s.store(15 - t, x.load(t));  // not a race: other threads wrote these elements in the previous block
    barrier();
    y.store(global_id(), s.load(t)); }},
  {"exchange_through_a_buffer_in_one_block", blocks, b16, {4, 1, 1}, [](BufferRef, BufferRef y) {
    Value g = global_id(), first = block_id() * 16;
    y.store(g, i32(g));
    barrier();
    Value v = y.load(first + 15 - thread_id());
    barrier();
    y.store(g, v); }},
};
INSTANTIATE_TEST_SUITE_P(Races, CheckClean, testing::ValuesIn(correct_races), name_of_case);

// Reads of uninitialised shared memory.

const std::vector<Case> planted_uninitialised = {
  {"never_written", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    PLANTED; y.store(thread_id(), s.load(thread_id())); }},
  {"left_by_the_block_before", blocks, b16, {3, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    if_(block_id() == 0, [&] { s.store(t, 1); });
    barrier();
    PLANTED; y.store(global_id(), s.load(t)); }},
  {"atomic_on_garbage", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef) {
    BufferRef s = shared(DType::i32, 4);
    PLANTED; s.atomic(AtomicOp::add, thread_id() % 4, literal(DType::i32, 1)); }},
  {"vector_reads_one_too_many", blocks, {4, 1, 1}, {1, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    for_(0, 3, [&](Value k) { s.store(t * 4 + k, 1); });
    barrier();
    PLANTED; y.store(t, extract(s.load_vector(t * 4, 4), 1)); }},
  {"masked_where_written", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    if_(t < 4, [&] { s.store(t, 1); });
    barrier();
    PLANTED; y.store(t, s.load_if(t < 8, t, 0)); }},
  {"loop_begins_reading", blocks, b16, {1, 1, 1}, [](BufferRef x, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    Variable sum(DType::i32, 0);
    for_(0, 3, [&](Value) {
      PLANTED; sum.set(sum.get() + s.load(15 - t));
      barrier();
      s.store(t, x.load(t));
      barrier();
    });
    y.store(t, sum.get()); }},
};
INSTANTIATE_TEST_SUITE_P(Uninitialised, Check, testing::ValuesIn(planted(Kind::uninitialised, planted_uninitialised)), name_of_pair);

const std::vector<Case> correct_uninitialised = {
  {"written_by_its_reader", blocks, b16, {2, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    s.store(thread_id(), 1);
    y.store(global_id(), s.load(thread_id())); }},
  {"unwritten_but_unread", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef s = shared(DType::i32, 64);
    s.store(thread_id() * 2, 1);
    barrier();
    y.store(thread_id(), s.load(30 - thread_id() * 2)); }},
  {"unwritten_but_masked", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    if_(t < 4, [&] { s.store(t, 1); });
    barrier();
    y.store(t, s.load_if(t < 4, t, 0)); }},
  {"first_round_skips_the_read", blocks, b16, {1, 1, 1}, [](BufferRef x, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    Variable sum(DType::i32, 0);
    for_(0, 3, [&](Value r) {
      if_(r > 0, [&] { sum.set(sum.get() + s.load(15 - t)); });
      barrier();
      s.store(t, x.load(t));
      barrier();
    });
    y.store(t, sum.get()); }},
  {"atomics_after_atomics", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef s = shared(DType::i32, 1);
    if_(thread_id() == 5, [&] { s.store(0, 0); });
    barrier();
    s.atomic(AtomicOp::max, 0, i32(thread_id()));
    barrier();
    y.store(thread_id(), s.load(0)); }},
  {"vector_writes_what_it_reads", blocks, {4, 1, 1}, {1, 1, 1}, [](BufferRef x, BufferRef y) {
    BufferRef s = shared(DType::i32, 16);
    Value t = thread_id();
    s.store(t * 4, x.load_vector(t * 4, 4));
    barrier();
    y.store(t * 4, s.load_vector((3 - t) * 4, 4)); }},
  {"zero_when_a_thread_starts", map, one, {64, 1, 1}, [](BufferRef, BufferRef y) {
    BufferRef mine = local_array(DType::i32, 4);  // correct, because locals are zero-initialised
    y.store(global_id(), mine.load(global_id() % 4)); }},
};
INSTANTIATE_TEST_SUITE_P(Uninitialised, CheckClean, testing::ValuesIn(correct_uninitialised), name_of_case);

// Divergent control flow. The verifier rejects most of these kernels while tracing, but the interpreter also checks
// functions that were not verified.

const std::vector<Case> planted_divergence = {
  {"barrier_under_a_thread_condition", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef) {
    if_(thread_id() < 8, [&] { PLANTED; barrier(); }); }},
  {"barrier_in_both_branches", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef) {
    if_(thread_id() % 2 == 0, [&] { PLANTED; barrier(); }, [&] { barrier(); }); }},
  {"barrier_in_a_loop_of_own_length", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef) {
    for_(Operand(0), thread_id() + 1, [&](Value) { PLANTED; barrier(); }); }},
  {"barrier_in_a_while_of_own_length", blocks, b16, {1, 1, 1}, [](BufferRef x, BufferRef) {
    Variable k(DType::i32, x.load(thread_id()));
    while_([&] { return k.get() > 0; }, [&] {
      PLANTED; barrier();
      k.set(k.get() - 1);
    }); }},
  {"barrier_after_a_return", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef) {
    if_(thread_id() == 3, [&] { return_(); });
    PLANTED; barrier(); }},
  {"sum_over_part_of_the_block", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    if_(thread_id() < 12, [&] { PLANTED; y.store(thread_id(), block_sum(i32(thread_id()))); }); }},
  {"scan_in_part_of_the_block", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    if_(thread_id() > 0, [&] { PLANTED; y.store(thread_id(), block_scan(i32(thread_id()), true)); }); }},
  {"broken_promise", blocks, b16, {1, 1, 1}, [](BufferRef x, BufferRef y) {
    PLANTED; Value n = block_uniform(x.load(thread_id() / 8));
    y.store(thread_id(), n); }},
  {"subgroup_sum_in_part_of_a_subgroup", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    if_(thread_id() < 12, [&] { PLANTED; y.store(thread_id(), subgroup_sum(i32(thread_id()))); }); }},
  {"shuffle_in_every_second_thread", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    if_(thread_id() % 2 == 0, [&] { PLANTED; y.store(thread_id(), subgroup(SubgroupOp::shuffle_xor, i32(thread_id()), 2)); }); }},
  {"any_in_a_while_that_lanes_leave", blocks, b16, {1, 1, 1}, [](BufferRef x, BufferRef y) {
    Variable left(DType::i32, x.load(thread_id()));
    while_([&] { return left.get() > 0; }, [&] {
      PLANTED; if_(subgroup(SubgroupOp::any, left.get() > 3), [&] { y.store(thread_id(), 1); });
      left.set(left.get() - 1);
    }); }},
  {"broadcast_from_two_lanes", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    PLANTED; y.store(thread_id(), subgroup(SubgroupOp::broadcast, i32(thread_id()), lane_id() / 4)); }},
};
INSTANTIATE_TEST_SUITE_P(Divergence, Check, testing::ValuesIn(planted(Kind::divergence, planted_divergence)), name_of_pair);

const std::vector<Case> correct_divergence = {
  {"barrier_under_a_block_condition", blocks, b16, {4, 1, 1}, [](BufferRef, BufferRef) {
    if_(block_id() % 2 == 0, [&] { barrier(); }); }},
  {"condition_from_read_only_data", blocks, b16, {4, 1, 1}, [](BufferRef x, BufferRef) {
    if_(x.load(block_id()) > 1, [&] { barrier(); }); }},
  {"promise_kept", blocks, b16, {4, 1, 1}, [](BufferRef, BufferRef y) {
    Value n = block_uniform(i32(global_id() / 16));
    for_(Operand(0), n, [&](Value) { barrier(); });
    y.store(global_id(), n); }},
  {"promise_of_nan", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    Value n = block_uniform(cast(DType::f32, thread_id()) * 0.f + std::numeric_limits<float>::quiet_NaN());
    y.store(thread_id(), i32(n)); }},
  {"while_on_a_block_sum", blocks, b16, {2, 1, 1}, [](BufferRef x, BufferRef y) {
    Variable left(DType::i32, x.load(thread_id())), more(DType::i32, 1);
    while_([&] { return more.get() > 0; }, [&] {
      left.set(max(left.get() - 1, 0));
      more.set(block_max(left.get()));
    });
    y.store(global_id(), left.get()); }},
  {"whole_subgroups_leave", blocks, b16, {1, 1, 1}, [](BufferRef, BufferRef y) {
    if_(subgroup_id() == 0, [&] { y.store(thread_id(), subgroup_sum(i32(thread_id()))); }); }},
  {"each_subgroup_loops_until_its_lanes_are_done", blocks, b16, {1, 1, 1}, [](BufferRef x, BufferRef y) {
    Variable left(DType::i32, x.load(thread_id()));
    while_([&] { return subgroup(SubgroupOp::any, left.get() > 0); }, [&] { left.set(max(left.get() - 1, 0)); });
    y.store(thread_id(), left.get()); }},
  {"part_of_the_last_subgroup_is_all_of_it", blocks, {12, 1, 1}, {1, 1, 1}, [](BufferRef, BufferRef y) {
    y.store(thread_id(), subgroup_sum(i32(thread_id())) + block_sum(i32(thread_id()))); }},
  {"return_of_the_whole_block", blocks, b16, {4, 1, 1}, [](BufferRef, BufferRef y) {
    if_(block_id() == 2, [&] { return_(); });
    barrier();
    y.store(global_id(), 1); }},
};
INSTANTIATE_TEST_SUITE_P(Divergence, CheckClean, testing::ValuesIn(correct_divergence), name_of_case);

// Index overflow, endless loops, and the behaviour without a report function.

const std::vector<Case> planted_overflow = {
  {"product_of_indices", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) {
    PLANTED; y.store(global_id(), x.load((global_id() + 1) * 1000000 * 100000)); }},
  {"comparison_of_a_wrapped_index", map, one, {64, 1, 1}, [](BufferRef, BufferRef y) {
    PLANTED; if_(global_id() * 100000000 < 5, [&] { y.store(global_id(), 1); }); }},
  {"bound_of_a_loop", map, one, {1, 1, 1}, [](BufferRef, BufferRef y) {
    PLANTED; for_(extent() * 3000000000, extent() * 3000000002, [&](Value) { y.store(0, 1); }); }},
};
INSTANTIATE_TEST_SUITE_P(Overflow, Check, testing::ValuesIn(planted(Kind::index_overflow, planted_overflow)), name_of_pair);
const std::vector<Case> correct_overflow = {
  {"intermediate_values_may_be_large", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) {
    y.store(global_id(), x.load((global_id() + 1) * 100000000 / 100000000 - 1)); }},
  {"unused_where_too_large", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) {
    Value far = global_id() * 100000000;
    if_(global_id() < 1, [&] { y.store(global_id(), x.load(far)); }); }},
  {"hashing_in_u32_wraps", map, one, {64, 1, 1}, [](BufferRef x, BufferRef y) {
    Value h = cast(DType::u32, global_id()) * 2654435761u;
    y.store(global_id(), x.load(cast(DType::index, h >> 26))); }},
};
INSTANTIATE_TEST_SUITE_P(Overflow, CheckClean, testing::ValuesIn(correct_overflow), name_of_case);

const std::vector<Case> planted_misaligned = {
  {"load_of_four", map, one, {4, 1, 1}, [](BufferRef x, BufferRef y) {
    Builder::current().set_aligned_vectors();
    PLANTED; y.store(global_id(), extract(x.load_vector(global_id() + 4, 4), 0)); }},
  {"store_of_two", map, one, {4, 1, 1}, [](BufferRef x, BufferRef y) {
    Builder::current().set_aligned_vectors();
    PLANTED; y.store(global_id() * 2 + 1, x.load_vector(global_id() * 2, 2)); }},
};
INSTANTIATE_TEST_SUITE_P(Misaligned, Check, testing::ValuesIn(planted(Kind::misaligned, planted_misaligned)), name_of_pair);
const std::vector<Case> correct_misaligned = {
  {"without_the_declaration", map, one, {4, 1, 1}, [](BufferRef x, BufferRef y) {
    y.store(global_id(), extract(x.load_vector(global_id() + 1, 4), 0)); }},
  {"vectors_of_three", map, one, {4, 1, 1}, [](BufferRef x, BufferRef y) {
    Builder::current().set_aligned_vectors();
    y.store(global_id() * 4, make_vector({x.load(0), extract(x.load_vector(global_id() * 3 + 1, 3), 0)})); }},
};
INSTANTIATE_TEST_SUITE_P(Misaligned, CheckClean, testing::ValuesIn(correct_misaligned), name_of_case);

const std::vector<Case> planted_endless = {
  {"step_of_zero", map, one, {4, 1, 1}, [](BufferRef x, BufferRef y) {
    PLANTED; for_(Operand(0), x.load(3), x.load(0), [&](Value) { y.store(global_id(), 1); }); }},
  {"negative_step_of_one_thread", map, one, {4, 1, 1}, [](BufferRef x, BufferRef y) {
    PLANTED; for_(Operand(0), x.load(3), x.load(global_id()) - 2, [&](Value) { y.store(global_id(), 1); }); }},
  {"condition_that_holds_forever", map, one, {4, 1, 1}, [](BufferRef x, BufferRef y) {
    PLANTED; while_([&] { return x.load(global_id()) < 100; }, [&] { y.store(global_id(), 1); }); }},
};
INSTANTIATE_TEST_SUITE_P(Endless, Check, testing::ValuesIn(planted(Kind::endless_loop, planted_endless)), name_of_pair);

TEST(Checks, ThrowsTheFirstFindingWithItsLine) {
  const Function fn = trace("edges", KernelKind::block, {16, 1, 1}, [] {
    BufferRef x = in("weights"), y = out("y");
    PLANTED; y.store(global_id(), x.load(global_id() + 40)); });
  std::vector<float> x(64), y(64);
  for (const bool checks : {false, true}) {  // these accesses are found even without checks
    InterpreterOptions options;
    options.checks = checks;
    EXPECT_EQ(error_of<KernelError>([&] { run(fn, {4, 1, 1}, {arg(x), arg(y)}, options); }),
              "[kernel edges, interpreter_checks_test.cpp:" + std::to_string(planted_line) +
                  "] thread (8, 0, 0) of block (1, 0, 0) reads weights[64], which is out of bounds (elements of weights = 64). "
                  "Guard it with if_, or use load_if");
  }
}
// clang-format on

TEST(Checks, IgnoresOutOfBoundsWrites) {
  const Function fn = map_kernel("wild", [] {
    BufferRef y = out("y", DType::i32);
    y.store(global_id() * 3 - 10, 7);
  });
  std::vector<std::int32_t> y(40, -1);
  InterpreterOptions options;
  int found = 0;
  options.report = [&](const Finding&) { ++found; };
  interpret(fn, {20, 1, 1}, std::array{InterpreterArgument{reinterpret_cast<std::byte*>(y.data() + 10), 20, 0}},
            options);
  EXPECT_EQ(found, 1);
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(y[static_cast<std::size_t>(i)], i >= 10 && i < 30 && (i - 10 + 10) % 3 == 0 ? 7 : -1) << i;
}
TEST(Checks, DetectsRacesBetweenViewsOfDifferentTypes) {
  const Function fn = map_kernel("views", [] {
    BufferRef bytes = out("bytes", DType::u8), words = out("words", DType::u32);
    Value i = global_id();
    bytes.store(i + 5, 1);
    if_(i == 0, [&] { words.store(1, 7); });
  });
  std::vector<std::uint32_t> words(4);
  const InterpreterArgument bytes = {reinterpret_cast<std::byte*>(words.data()), 16, 0};
  const auto found = findings(fn, {4, 1, 1}, {bytes, arg(words)});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Kind::race);
  EXPECT_EQ(found[0].memory, "words");
  std::vector<std::uint32_t> others(4);
  EXPECT_TRUE(findings(fn, {4, 1, 1}, {bytes, arg(others)}).empty());
}
TEST(Checks, ReportsEachPairOfStatementsOnce) {
  const Function fn = map_kernel("many", [] {
    BufferRef y = out("y");
    y.store(global_id() * 0, 1.f);
  });
  std::vector<float> y(1);
  EXPECT_EQ(findings(fn, {100000, 1, 1}, {arg(y)}).size(), 1u);
}

}  // namespace
}  // namespace tessera::ir
