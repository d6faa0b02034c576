// SPDX-License-Identifier: Apache-2.0
// Random integer kernels with nested control flow, barriers, shared memory, block and subgroup operations, and local
// arrays. The code generator and the interpreter must produce bit-identical results.
#include <cstdlib>
#include <random>

#include "tests/cpu/cpu_compare.h"

namespace tessera::testing {
namespace {

using namespace ir;

// Traces a random kernel. Between barriers, threads only write their own elements, so there are no races.
class Program {
 public:
  Program(unsigned seed, std::array<std::uint32_t, 3> block)
      : random_(seed), threads_(block[0] * block[1] * block[2]), subgroups_(threads_ != 0 && seed % 2 == 0) {}

  void trace() {
    in_ = buffer_param("in", DType::i32, Access::read);
    out_ = buffer_param("out", DType::i32, Access::read_write);
    count_ = scalar_param("count", DType::i32);
    wide_ = scalar_param("wide", DType::i64);
    if (threads_) {
      self_ = (thread_id(2) * block_size(1) + thread_id(1)) * block_size(0) + thread_id(0);
      const Value block = (block_id(2) * block_count(1) + block_id(1)) * block_count(0) + block_id(0);
      global_ = block * static_cast<int>(threads_) + self_;
      shared_ = shared(DType::i32, threads_);
      shared_.store(self_, cast(DType::i32, self_ * 3));
      barrier();
    } else {
      self_ = global_id(0);
      global_ = (global_id(2) * extent(1) + global_id(1)) * extent(0) + global_id(0);
    }
    for (int i = 0; i < 3; ++i) variables_.emplace_back(DType::i32, any_value(0));
    plain_ = local_array(DType::i32, 1);  // zero at the start
    array_ = local_array(DType::i32, 4);
    flag_ = local_array(DType::boolean, 1);
    statements(4, 0, Together::block);
    statements(3, 0, Together::block);
    Value sum = plain_.load(0);
    for (auto& v : variables_) sum = sum * 31 + v.get();
    for (int i = 0; i < 4; ++i) sum = sum * 7 + array_.load(i);
    out_.store(global_, sum + cast(DType::i32, flag_.load(0)));
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  Value small_index(Value v, int n) { return cast(DType::index, (v & 0x7fffffff) % n); }

  Value uniform_value() {
    switch (pick(5)) {
      case 0: return count_;
      case 1: return literal(DType::i32, pick(9) - 3);
      case 2: return in_.load(small_index(count_ + pick(50), 64));
      case 3: return threads_ ? cast(DType::i32, block_id(pick(3))) : cast(DType::i32, extent(pick(3)));
      default: return cast(DType::i32, wide_ >> pick(40)) & 15;
    }
  }
  Value leaf() {
    switch (pick(10)) {
      case 0:
      case 1:
        if (!variables_.empty())
          return variables_[static_cast<std::size_t>(pick(static_cast<int>(variables_.size())))].get();
        return uniform_value();
      case 2: return cast(DType::i32, self_);
      case 3: return cast(DType::i32, threads_ ? thread_id(pick(3)) : global_id(pick(3)));
      case 4: return in_.load(global_ % 64);
      case 5: return array_.id() ? array_.load(pick(4)) : uniform_value();
      case 6: return plain_.id() ? plain_.load(0) : uniform_value();
      case 7:
        return counters_.empty() ? uniform_value()
                                 : counters_[static_cast<std::size_t>(pick(static_cast<int>(counters_.size())))];
      default: return uniform_value();
    }
  }
  Value any_value(int depth) {
    if (depth > 2 || pick(4) == 0) return leaf();
    const Value a = any_value(depth + 1), b = any_value(depth + 1);
    switch (pick(16)) {
      case 0:
      case 1: return a + b;
      case 2: return a - b;
      case 3: return a * b;
      case 4: return a / b;
      case 5: return a % b;
      case 6: return min(a, b);
      case 7: return max(a, b);
      case 8: return (a & b) | (a ^ 21);
      case 9: return a << (b & 63);
      case 10: return a >> b;
      case 11: return select(condition(depth + 1), a, b);
      case 12: return cast(DType::i32, cast(pick(2) ? DType::i8 : DType::u16, a)) + b;
      case 13: return cast(DType::i32, cast(DType::i64, a) * cast(DType::i64, b) >> 7);
      case 14: return in_.load(small_index(a, 64));
      default: return cast(DType::i32, cast(DType::f32, a)) + b;
    }
  }
  Value condition(int depth) {
    const Value a = any_value(depth + 1), b = any_value(depth + 1);
    return compare(static_cast<CompareOp>(pick(6)), a, b);
  }

  // Returns a value that is equal in all lanes of a subgroup. Call it where the lanes have converged.
  Value subgroup_value() {
    switch (pick(4)) {
      case 0: return cast(DType::i32, subgroup_id()) - literal(DType::i32, pick(3));
      case 1: return subgroup(SubgroupOp::broadcast, any_value(1), index_literal(0));
      case 2: return subgroup(pick(2) ? SubgroupOp::min : SubgroupOp::max, any_value(1));
      default: return select(subgroup(SubgroupOp::any, condition(1)), subgroup_sum(any_value(1)), uniform_value());
    }
  }
  // The threads that have converged at this point.
  enum class Together { none, subgroup, block };
  void statements(int n, int depth, Together together) {
    const std::size_t scope = counters_.size();
    for (int i = 0; i < n; ++i) statement(depth, together);
    counters_.resize(scope);
  }
  void statement(int depth, Together together) {
    Variable& v = variables_[static_cast<std::size_t>(pick(static_cast<int>(variables_.size())))];
    const int kind = pick(depth > 2 ? 6 : 16);
    if (kind < 3) return v.set(any_value(0));
    if (kind == 3) return array_.store(pick(2) ? small_index(any_value(0), 4) : index_literal(pick(4)), any_value(0));
    if (kind == 4) return plain_.store(0, plain_.load(0) + any_value(0));
    if (kind == 5) return flag_.store(0, condition(0));
    if (kind == 6) {
      // Later statements may use this value after a barrier.
      counters_.push_back(any_value(0));
      return;
    }
    if (kind == 7) {
      if_(
          condition(0), [&] { statements(2, depth + 1, Together::none); },
          [&] { statements(1 + pick(2), depth + 1, Together::none); });
      return;
    }
    if (kind == 8) {
      if_(uniform_value() > uniform_value(), [&] { statements(2, depth + 1, together); });
      return;
    }
    if (kind == 9) {
      const int end = 1 + pick(4), step = 1 + pick(2);
      for_(literal(DType::i32, 0), literal(DType::i32, end), literal(DType::i32, step), [&](Value i) {
        counters_.push_back(i);
        statements(2, depth + 1, together);
        counters_.pop_back();
      });
      return;
    }
    if (kind == 10) {
      const Value begin = pick(2) ? self_ : small_index(any_value(1), 5);
      for_(begin, begin + small_index(any_value(1), 4), literal_index(1 + pick(3)), [&](Value i) {
        counters_.push_back(cast(DType::i32, i));
        statements(2, depth + 1, Together::none);
        counters_.pop_back();
      });
      return;
    }
    if (kind == 11) {
      Variable rounds(DType::i32, any_value(1) & 3);
      while_([&] { return rounds.get() > 0; },
             [&] {
               rounds.set(rounds.get() - 1);
               statements(2, depth + 1, Together::none);
             });
      return;
    }
    if (kind > 13 && subgroups_ && together != Together::none) return subgroup_statement(v, depth);
    if (together != Together::block || threads_ == 0) return v.set(v.get() + any_value(1));
    if (kind == 12) {
      barrier();
      shared_.store(self_, any_value(0));
      barrier();
      v.set(shared_.load((self_ + 1 + pick(7)) % static_cast<int>(threads_)));
      return;
    }
    switch (pick(4)) {
      case 0: v.set(block_sum(any_value(0))); break;
      case 1: v.set(v.get() + block_max(any_value(0))); break;
      case 2: v.set(block_scan(any_value(0), pick(2) == 0)); break;
      default: v.set(v.get() ^ block_reduce(ReduceOp::or_, any_value(0))); break;
    }
  }
  void subgroup_statement(Variable& v, int depth) {
    const SubgroupOp sums[] = {SubgroupOp::sum, SubgroupOp::inclusive_sum, SubgroupOp::exclusive_sum};
    switch (pick(4)) {
      case 0: v.set(v.get() ^ subgroup(sums[pick(3)], any_value(0))); break;
      case 1: v.set(subgroup(SubgroupOp::shuffle_xor, any_value(0), index_literal(pick(3)))); break;
      case 2:
        if_(
            subgroup_value() > subgroup_value(), [&] { statements(2, depth + 1, Together::subgroup); },
            [&] { statements(1, depth + 1, Together::subgroup); });
        break;
      default: {  // the trip count differs between subgroups
        Variable rounds(DType::i32, any_value(1) & 3);
        while_([&] { return subgroup(SubgroupOp::any, rounds.get() > 0); },
               [&] {
                 rounds.set(rounds.get() - 1);
                 statements(2, depth + 1, Together::subgroup);
               });
      }
    }
  }
  static Value literal_index(int v) { return index_literal(v); }

  std::mt19937 random_;
  std::uint32_t threads_;
  bool subgroups_;
  BufferRef in_, out_, shared_, array_{}, plain_{}, flag_{};
  Value count_, wide_, self_, global_;
  std::vector<Variable> variables_;
  std::vector<Value> counters_;
};

TEST(CpuFuzz, RandomKernelsMatchInterpreter) {
  std::mt19937 random(test_seed());
  const int programs = std::getenv("TESSERA_FUZZ_PROGRAMS") ? std::atoi(std::getenv("TESSERA_FUZZ_PROGRAMS")) : 30;
  const std::vector<std::array<std::uint32_t, 3>> shapes = {{0, 0, 0},   {64, 1, 1}, {16, 4, 1}, {37, 1, 1},
                                                            {8, 8, 1},   {5, 7, 1},  {4, 2, 3},  {1, 1, 1},
                                                            {100, 1, 1}, {16, 1, 1}, {3, 1, 1},  {32, 2, 2}};
  for (int p = 0; p < programs && !::testing::Test::HasFailure(); ++p) {
    const unsigned own = random();
    const auto block = shapes[own % shapes.size()];
    const std::uint32_t threads = block[0] * block[1] * block[2];
    Program program(own, block);
    const Function f = threads ? block_kernel("fuzz" + std::to_string(own), block, [&] { program.trace(); })
                               : map_kernel("fuzz" + std::to_string(own), [&] { program.trace(); });
    const std::array<std::uint64_t, 3> shape =
        threads ? std::array<std::uint64_t, 3>{2, 2, 1} : std::array<std::uint64_t, 3>{29, 3, 2};
    const std::size_t n = threads ? threads * 4 : 29 * 3 * 2;
    std::vector<std::int32_t> in(64), out(n, -1);
    for (auto& v : in) v = static_cast<std::int32_t>(random()) >> (random() % 32);
    expect_same(f, shape,
                {memory(in), memory(out), number(static_cast<std::int32_t>(own % 5)),
                 number(static_cast<std::int64_t>(own) * 977)},
                {}, Variant{.index64 = own % 3 == 0});
  }
}

}  // namespace
}  // namespace tessera::testing
