// SPDX-License-Identifier: Apache-2.0
// Block-stride loops and atomics in shared memory, on all targets of the code generator. Compares the results with the
// interpreter.
#include <random>

#include "tests/cpu/cpu_benchmark_kernels.h"
#include "tests/cpu/cpu_compare.h"

namespace tessera::testing {
namespace {

using namespace ir;
using test::in;
using test::out;

class CpuBlockLoops : public ::testing::Test {
 protected:
  std::mt19937 random{test_seed()};
  template <class T>
  std::vector<T> numbers(std::size_t n) {
    std::vector<T> v(n);
    for (T& x : v) x = static_cast<T>(random());
    return v;
  }
  // Includes loops in which only some of the threads run the last iteration.
  static constexpr int ends[] = {0, 1, 63, 64, 65, 127, 128, 200, 256, 1000};
};

TEST_F(CpuBlockLoops, HistogramsMatchInterpreter) {
  const Function f = test::histogram();
  for (int n : {0, 5, 255, 256, 257, 511, 512, 2000})
    expect_same(f, {3, 1, 1},
                {memory(numbers<std::uint8_t>(3 * 2000)), memory(std::vector<std::int32_t>(256)), index_number(n)});
}

// Covers indices and values from memory and from registers, with and without masks.
TEST_F(CpuBlockLoops, SharedMemoryAtomicsMatchInterpreter) {
  const Function f = block_kernel("bins", {64}, [] {
    auto x = in("x", DType::u8), y = in("y", DType::i32);
    auto counts = out("counts", DType::i32), sums = out("sums", DType::f32), each = out("each", DType::i32);
    auto n = scalar_param("n", DType::index);
    auto t = thread_id();
    auto h = shared(DType::i32, 64), most = shared(DType::i32, 64), least = shared(DType::i32, 64);
    auto wide = shared(DType::i64, 64), real = shared(DType::f32, 64);
    h.store(t, 0), most.store(t, 0), least.store(t, 0);
    wide.store(t, literal(DType::i64, 0)), real.store(t, 0.0f);
    barrier();
    for_(t + 3, n + 3, 64, [&](Value k) {
      auto v = x.load(k), w = y.load(k);
      h.atomic(AtomicOp::add, cast(DType::index, v >> 2), cast(DType::i32, v & 15));
      most.atomic(AtomicOp::max, cast(DType::index, (w * 3) & 63), w);
      wide.atomic(AtomicOp::xor_, cast(DType::index, v & 63), cast(DType::i64, w * 5));
      real.atomic(AtomicOp::add, cast(DType::index, w & 63), cast(DType::f32, v));
      if_(w > 0, [&] { least.atomic(AtomicOp::min, cast(DType::index, v >> 2), 7 - w); });
      each.store(k, w / (cast(DType::i32, n) + 1) + cast(DType::i32, v));
    });
    auto before = h.atomic(AtomicOp::add, t, 1);
    barrier();
    counts.store(t, h.load(t) + before * 0), counts.store(t + 64, cast(DType::i32, wide.load(t)));
    counts.store(t + 128, most.load(t)), counts.store(t + 192, least.load(t));
    sums.store(t, real.load(t));
  });
  for (int n : ends)
    for (bool noalias : {true, false})
      expect_same(f, {1, 1, 1},
                  {memory(numbers<std::uint8_t>(1003)), memory(numbers<std::int32_t>(1003)),
                   memory(std::vector<std::int32_t>(256)), memory(std::vector<float>(64)),
                   memory(std::vector<std::int32_t>(1003)), index_number(n)},
                  {1e-5, 1e-5}, {.noalias = noalias});
}

// In these loops, the chunks cannot all run an iteration before the next one starts: threads carry a sum, chunks start
// at different indices, or blocks are two-dimensional.
TEST_F(CpuBlockLoops, NonInterchangeableLoopsMatchInterpreter) {
  const Function sums = block_kernel("sums", {64}, [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    auto n = scalar_param("n", DType::index);
    Variable sum(DType::i32, 0);
    for_(thread_id(), n, 64, [&](Value k) { sum.set(sum.get() + x.load(k)); });
    for_(thread_id(), n, 64, [&](Value k) { y.store(k, x.load(k) + 1); });
    y.store(n + thread_id(), sum.get());
  });
  const Function turned = block_kernel("turned", {64}, [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    auto n = scalar_param("n", DType::index), t = thread_id();
    for_(t + subgroup_id() * 64, n, 64, [&](Value k) { y.store(k * 4 + subgroup_id() % 4, x.load(k)); });
  });
  const Function planes = block_kernel("planes", {16, 4}, [] {
    auto x = in("x", DType::i32), y = out("y", DType::i32);
    auto n = scalar_param("n", DType::index);
    for_(thread_id(0), n, 64, [&](Value k) { y.store(k * 4 + thread_id(1), x.load(k) * 2); });
  });
  for (int n : ends)
    for (const Function* f : {&sums, &turned, &planes})
      expect_same(*f, {1, 1, 1},
                  {memory(numbers<std::int32_t>(1000)), memory(std::vector<std::int32_t>(4000)), index_number(n)});
}

TEST_F(CpuBlockLoops, FloydWarshallMatchesInterpreter) {
  const std::size_t n = 96;
  auto d = numbers<std::int32_t>(n * n);
  for (std::int32_t& v : d) v &= 0xffff;
  for (std::size_t i = 0; i < n; ++i) d[i * n + i] = 0;
  const std::array<std::uint64_t, 3> shapes[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {2, 2, 1}};
  for (int phase = 0; phase < 4; ++phase)
    expect_same(test::shortest_paths(static_cast<test::PathPhase>(phase), 32), shapes[phase],
                {memory(d), index_number(n), index_number(1)});
}

}  // namespace
}  // namespace tessera::testing
