// SPDX-License-Identifier: Apache-2.0
// The cost of deferred expressions: launches, memory, allocations and locks. Also tests that keeping an expression
// without its array does not change these costs.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <variant>

#include "tessera/array/observer.h"
#include "tests/support/every_device.h"
#include "tests/support/run_with_timeout.h"
#include "tests/support/sanitized.h"

namespace {
std::atomic<long> allocations, locks;
thread_local long fail_in = 0;  // if positive, the n-th allocation of this thread fails
}  // namespace

// sanitizer runtimes define these operators themselves
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(std::size_t size) {
  ++allocations;
  if (fail_in > 0 && --fail_in == 0) throw std::bad_alloc();
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static const auto real = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++locks;
  return real(mutex);
}
#endif

namespace tessera {
namespace {

using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

/// Keeps the pending operands of all operations, like a history does.
class Holder : public ArrayObserver {
 public:
  void made(const ArrayOperation& operation) override {
    for (const OperandSnapshot& o : operation.operands)
      if (const auto* a = std::get_if<ArraySnapshot>(&o); a != nullptr && a->expression()) held.push_back(*a);
  }
  std::vector<ArraySnapshot> held;
};

struct Cost {
  std::uint64_t launches = 0, storages = 0, peak_bytes = 0;
  std::vector<float> values;
  friend bool operator==(const Cost&, const Cost&) = default;
};

template <class F>
Cost cost_of(Device device, F&& program) {
  const Array x = Array::from(std::vector<float>(4096, 0.5f), Shape{64, 64}, device).eval();
  const Array row = Array::full({64}, 2, DType::f32, device).eval(), tall = max(x, {1}, true).eval();
  Queue::of(device).finish();
  trim(device);
  reset_peak_memory(device);
  const MemoryStats before = memory_stats(device);
  const std::uint64_t launches = fused_launches();
  const Array result = program(x, row, tall).eval();
  Queue::of(device).finish();
  const MemoryStats after = memory_stats(device);
  return {fused_launches() - launches, after.allocations + after.reuses - before.allocations - before.reuses,
          after.peak_bytes - before.live_bytes, result.to_vector<float>()};
}

TEST_P(OnEveryDevice, KeepingAnExpressionAddsNoCost) {
  using Program = std::function<Array(const Array& x, const Array& row, const Array& tall)>;
  const std::vector<std::pair<const char*, Program>> programs = {
      {"sum", [](auto& x, auto& row, auto&) { return sum(exp(-0.5 * x * x) / row); }},
      {"chain", [](auto& x, auto& row, auto&) { return (x + row) * x - 1; }},
      {"two results",
       [](auto& x, auto& row, auto&) {
         Array a = x + row;
         return sum(a * 2, {0}) + sum(a, {0});
       }},
      {"deviation", [](auto& x, auto&, auto& tall) { return mean((x - tall) * (x - tall), {1}); }},
      {"a view within", [](auto& x, auto& row, auto&) { return exp(x).transpose() + row; }},
      {"in place",
       [](auto& x, auto& row, auto&) {
         Array out = x.copy();
         out += exp(x) * row;
         return out;
       }},
      {"softmax",
       [](auto& x, auto&, auto& tall) {
         const Array e = exp(x - tall);
         return e / sum(e, {1}, true);
       }},
      {"diamonds",
       [](auto& x, auto&, auto&) {
         Array y = x * x, z = y * y;
         return z * z + std::move(y);
       }},
  };
  for (const auto& [name, program] : programs) {
    static_cast<void>(cost_of(GetParam(), program));  // compiles the kernels and fills the memory pool
    const Cost alone = cost_of(GetParam(), program);
    Holder holder;
    const ObserverScope scope(&holder);
    const Cost held = cost_of(GetParam(), program);
    EXPECT_FALSE(holder.held.empty()) << name;
    EXPECT_EQ(alone.launches, held.launches) << name;
    EXPECT_EQ(alone.storages, held.storages) << name;
    EXPECT_EQ(alone.peak_bytes, held.peak_bytes) << name;
    EXPECT_EQ(alone.values, held.values) << name;
    if (std::string_view(name) == "sum") {
      EXPECT_EQ(held.launches, 1u + (held.storages > 1));
    }
  }
}

TEST(Expressions, AreCreatedWithFewAllocationsAndLocks) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer's runtime allocates and locks itself";
  const DeviceScope cpu({Backend::cpu, 0});
  const Array x = Array::ones({16, 16}).eval(), row = Array::ones({16}).eval();
  for (const bool first : {true, false}) {
    const long before = allocations, locked = locks;
    {
      const Array e = exp(-0.5 * x * x) / row;
      EXPECT_TRUE(e.pending());
      if (!first) {
        EXPECT_LE(allocations - before, 16);
        EXPECT_LE(locks - locked, 12);
        EXPECT_GT(allocations - before, 0);
        EXPECT_GT(locks - locked, 0);
        RecordProperty("allocations", static_cast<int>(allocations - before));
        RecordProperty("locks", static_cast<int>(locks - locked));
        std::printf("an expression of four operations: %ld allocations, %ld locks\n", allocations - before,
                    locks - locked);
      }
    }
  }
}

// If an allocation for internal data fails, the evaluation throws. No thread hangs, and pending arrays remain valid.
TEST(Expressions, OutOfMemoryDuringEvaluationThrows) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer's runtime allocates itself";
  test::run_with_timeout([] {
    const DeviceScope cpu({Backend::cpu, 0});
    const Array x = Array::ones({16}).eval();
    int failed = 0;
    for (long n = 0;; ++n) {  // if n is 0, no allocation fails and everything is compiled
      const Array a = x + 1;
      Array above[] = {a * 2 - 1, exp(a) * 0 + a, a / 2};
      fail_in = n;
      try {
        a.eval();
      } catch (const std::bad_alloc&) {
      } catch (const OutOfMemory&) {}
      const bool did = n == 0 || fail_in == 0;
      fail_in = 0;
      failed += did;
      ASSERT_EQ(above[0].to_vector<float>()[15], 3.f) << n;
      ASSERT_EQ(above[1].to_vector<float>()[15], 2.f) << n;
      ASSERT_EQ(above[2].to_vector<float>()[15], 1.f) << n;
      ASSERT_EQ(a.to_vector<float>()[15], 2.f) << n;
      if (!did) break;
    }
    EXPECT_GT(failed, 10);
  });
}

// A write evaluates all arrays that depend on the memory, even if an array between them no longer exists. Other arrays
// are not evaluated.
TEST_P(OnEveryDevice, WritesEvaluateAllDependentArrays) {
  Array x = Array::from({1.f, 2.f, 3.f});
  Array top = exp(x * 0) + x;  // the arrays in between no longer exist
  for (int i = 0; i < 20; ++i) top = std::move(top) + 1;
  std::optional<ArraySnapshot> kept;
  {
    const Array gone = x * 5;
    kept.emplace(gone);
  }
  const std::uint64_t launches = fused_launches();
  x += 10;
  EXPECT_EQ(fused_launches() - launches, 2u) << "the dependent array and the write, but not the kept expression";
  EXPECT_FALSE(top.pending());
  EXPECT_EQ(top.to_vector<float>(), (std::vector<float>{22, 23, 24}));
  EXPECT_THROW(kept->array(), ArgumentError);
}

// After part of an expression has been computed, all expressions that use it read it from memory and release its
// inputs.
TEST_P(OnEveryDevice, ComputedOperandsAreReadFromMemory) {
  const Device d = GetParam();
  Array top = Array::zeros({1 << 16});
  const std::uint64_t live = memory_stats(d).live_bytes;
  for (int i = 0; i < 50; ++i) {
    const Array input = Array::full({1 << 16}, 1);
    Array next = top + input;  // pending on the previous array
    top.eval();                // computed after `next` was created
    top = std::move(next);
  }
  top.eval();
  EXPECT_LE(memory_stats(d).live_bytes, live + 4 * (std::uint64_t{1} << 18)) << "old inputs are still alive";
  EXPECT_EQ(top.slice(0, 0, 1).item<float>(), 50.f);
}

}  // namespace
}  // namespace tessera
