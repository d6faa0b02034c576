// SPDX-License-Identifier: Apache-2.0
// Repeated small operations, for which a thread caches the launch: bit-identical results, the number of cached
// launches, and everything that observes an operation or prevents caching.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "tessera/array/cached_operation.h"
#include "tessera/array/functions.h"
#include "tessera/array/observer.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/queue/sequence.h"
#include "tessera/grad/grad.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/launches.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using detail::CachedOperation;
using test::expect_contains;
using test::OnEveryDevice;
using test::text_of;

using Reduction = std::function<Array(const Array&)>;

/// Returns the bytes of the elements in row-major order.
std::vector<std::byte> bytes_of(const Array& a) {
  std::vector<std::byte> out(a.bytes());
  a.download(out.data());
  return out;
}
/// Computes the reduction under an observer, which disables caching.
Array computed(const Reduction& reduction, const Array& a) {
  struct Looks : ArrayObserver {
    void made(const ArrayOperation&) override {}
  } looks;
  const ObserverScope scope(&looks);
  return reduction(a).eval();
}
/// Fills the memory that the results will reuse with NaN, so that missing writes are detected.
void poison(std::int64_t elements) {
  std::vector<Array> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(Array::full({elements}, std::numeric_limits<double>::quiet_NaN(), DType::f64));
}
template <class F>
std::uint64_t done_again(F&& work) {
  const std::uint64_t before = CachedOperation::done();
  work();
  return CachedOperation::done() - before;
}

class RepeatedReductions : public OnEveryDevice {
 protected:
  Array values(Shape shape, DType t) {
    const std::int64_t n = element_count(shape);
    return is_float(t) ? Array::from(numbers(n), shape).astype(t).eval()
                       : Array::from(integers(n, 0, 100), shape).astype(t).eval();
  }
  /// Compares cached results with uncached ones. Each round uses different elements.
  void expect_same(const Reduction& reduction, const std::function<Array()>& operand, const std::string& what) {
    for (int round = 0; round < 3; ++round) {
      const Array a = operand();
      const Array want = computed(reduction, a);
      poison(want.size() + 8);
      const Array got = reduction(a);
      got.eval();
      ASSERT_EQ(got.shape(), want.shape()) << what;
      ASSERT_EQ(got.strides(), want.strides()) << what;
      ASSERT_EQ(got.dtype(), want.dtype()) << what;
      ASSERT_EQ(bytes_of(got), bytes_of(want)) << what << ", round " << round;
    }
  }
  const bool built_in = is_built_in(GetParam().backend);
};
INSTANTIATE_TEST_SUITE_P(Devices, RepeatedReductions, ::testing::ValuesIn(testing::all_devices()),
                         [](const auto& info) {
                           return std::string(backend_name(info.param.backend)) + std::to_string(info.param.index);
                         });

// Each round uses different numbers and different memory.
TEST_P(RepeatedReductions, CachesSmallElementwiseOperations) {
  if (!built_in) return;
  using Floats = std::vector<float>;
  const std::uint64_t again = done_again([&] {
    for (int round = 0; round < 4; ++round) {
      const Floats v = numbers(60), w = numbers(60);
      const Array x = Array::from(v, Shape{6, 10}), y = Array::from(w, Shape{6, 10});
      const float c = 0.5f + static_cast<float>(round);
      const auto expect = [&](const Array& got, auto&& want, const char* what) {
        const Floats all = got.to_vector<float>();
        for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], want(i)) << what << ", round " << round;
      };
      poison(60);
      expect(
          x + y, [&](std::size_t i) { return v[i] + w[i]; }, "sum");
      expect(
          y - x, [&](std::size_t i) { return w[i] - v[i]; }, "difference");
      expect(
          x + x, [&](std::size_t i) { return v[i] + v[i]; }, "of one array twice");
      expect(
          x * c, [&](std::size_t i) { return v[i] * c; }, "scalar");
      expect(
          c - x, [&](std::size_t i) { return c - v[i]; }, "scalar first");
      expect(
          where(x < y, c, y), [&](std::size_t i) { return v[i] < w[i] ? c : w[i]; }, "where");
      expect(
          x.transpose() + y.transpose(), [&](std::size_t i) { return v[i % 6 * 10 + i / 6] + w[i % 6 * 10 + i / 6]; },
          "transposed");
      expect(
          x.slice(0, 1, 5) * y.slice(0, 2, 6), [&](std::size_t i) { return v[i + 10] * w[i + 20]; }, "rows");
      expect(
          x + y.select(0, round), [&](std::size_t i) { return v[i] + w[i % 10 + 10 * std::size_t(round)]; }, "row");
      expect(
          x.astype(DType::i32).astype(DType::f32), [&](std::size_t i) { return std::trunc(v[i]); }, "astype");
      Array into = x.copy();
      const Array before = into + y;  // pending, so it must use the old numbers
      into += y;
      expect(
          into, [&](std::size_t i) { return v[i] + w[i]; }, "in place");
      expect(
          before, [&](std::size_t i) { return v[i] + w[i]; }, "its pending reader");
      into *= into;
      expect(
          into, [&](std::size_t i) { return (v[i] + w[i]) * (v[i] + w[i]); }, "in place, by itself");
      into -= c;
      expect(
          into, [&](std::size_t i) { return (v[i] + w[i]) * (v[i] + w[i]) - c; }, "in place, scalar");
      Array rows = into.slice(0, 1, 6);
      rows.assign(into.slice(0, 0, 5));  // overlaps
      expect(
          rows, [&](std::size_t i) { return (v[i] + w[i]) * (v[i] + w[i]) - c; }, "overlapping");
    }
  });
  EXPECT_GE(again, 20u) << "except operations that replace each other's entries";
}

TEST_P(RepeatedReductions, EachRepetitionLaunchesOneKernel) {
  const Array x = Array::from(numbers(10)), y = Array::from(numbers(10));
  const auto launched = [&](auto&& work) {
    const std::uint64_t before = fused_launches();
    work();
    return fused_launches() - before;
  };
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(launched([&] { (x + y).eval(); }), 1u);
    EXPECT_EQ(launched([&] { ((x + y) * 2).eval(); }), 1u) << "fused into one launch";
    const Array held = x - y, above = held * 2;
    EXPECT_EQ(launched([&] { held.eval(); }), 1u);
    EXPECT_EQ(launched([&] { above.eval(); }), 1u);
    EXPECT_EQ(launched([&] { held.eval(), above.eval(); }), 0u);
  }
}

// The number of selected elements differs in each round.
TEST_P(RepeatedReductions, CachesMaskedSelections) {
  const std::uint64_t again = done_again([&] {
    for (const DType t : {DType::f32, DType::f64, DType::f16, DType::i16, DType::u8, DType::boolean})
      for (const Shape& shape : {Shape{1}, Shape{7}, Shape{300}, Shape{5, 33}})
        for (const double limit :
             {50.0, 20.0, -1.0, 200.0}) {  // includes selections of no elements and of all elements
          const Array a = values(shape, t), mask = (values(shape, DType::i32) > limit).eval();
          const std::string what =
              std::string(dtype_name(t)) + " " + to_string(shape) + " above " + std::to_string(limit);
          const Reduction select = [&](const Array& x) { return masked_select(x, mask); };
          const Reduction places = [&](const Array& x) { return nonzero(x)[0]; };
          poison(element_count(shape) + 8);
          const Array got = select(a), at = places(mask);
          EXPECT_EQ(bytes_of(got), bytes_of(computed(select, a))) << what;
          EXPECT_EQ(bytes_of(at), bytes_of(computed(places, mask))) << what;
          const auto flags = mask.to_vector<bool>();
          std::vector<std::byte> want;
          const auto all = bytes_of(a);
          const std::size_t size = dtype_size(t);
          for (std::size_t i = 0; i < flags.size(); ++i)
            if (flags[i])
              want.insert(want.end(), all.begin() + static_cast<std::ptrdiff_t>(i * size),
                          all.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
          EXPECT_EQ(bytes_of(got), want) << what;
          EXPECT_EQ(got.shape(), (Shape{static_cast<std::int64_t>(std::ranges::count(flags, true))})) << what;
        }
  });
  EXPECT_EQ(again != 0, built_in) << "otherwise this tests nothing";
  // Views, and masks that select rows.
  const Array m = values({6, 40}, DType::f32), rows = (Array::arange(6) > 2).eval();
  for (int round = 0; round < 3; ++round) {
    const Array part = m.transpose().slice(0, round, round + 20);
    EXPECT_EQ(masked_select(part, part > 0).to_vector<float>(),
              masked_select(part.copy(), part.copy() > 0).to_vector<float>());
    EXPECT_EQ(bytes_of(masked_select(m, rows)), bytes_of(m.slice(0, 3, 6)));
  }
}

TEST_P(RepeatedReductions, CachedResultsAreBitIdentical) {
  if (!built_in) return;  // the cache is used only by built-in backends
  const auto shapes = {Shape{7}, Shape{16, 40}, Shape{3, 300}, Shape{4, 5, 6}, Shape{2, 3, 33, 4}};
  const std::uint64_t again = done_again([&] {
    for (const DType t : {DType::f32, DType::f16, DType::i32, DType::u8})
      for (const Shape& shape : shapes)
        for (int axis = -1; axis < static_cast<int>(shape.size()); ++axis)
          for (const bool keep : {false, true}) {
            const std::vector<int> axes = axis < 0 ? std::vector<int>{} : std::vector{axis};
            const std::string what =
                std::string(dtype_name(t)) + " " + to_string(shape) + " axis " + std::to_string(axis);
            const auto whole = [&] { return values(shape, t); };
            expect_same([&](const Array& a) { return sum(a, axes, keep); }, whole, "sum " + what);
            expect_same([&](const Array& a) { return max(a, axes, keep); }, whole, "max " + what);
            expect_same([&](const Array& a) { return argmax(a, axis, keep); }, whole, "argmax " + what);
            if (t != DType::f32) continue;
            expect_same([&](const Array& a) { return min(a, axes, keep); }, whole, "min " + what);
            expect_same([&](const Array& a) { return mean(a, axes, keep); }, whole, "mean " + what);
            // Views with other strides, and views that begin in the middle of their memory.
            Shape wider = shape;
            for (std::int64_t& extent : wider) extent = 2 * extent + 3;
            const auto view = [&] {
              Array v = values(wider, t).transpose();
              for (int d = 0; d < v.rank(); ++d) v = v.slice(d, 3, v.shape(d), 2);
              return v.transpose();
            };
            expect_same([&](const Array& a) { return sum(a, axes, keep); }, view, "sum of a view " + what);
            expect_same([&](const Array& a) { return argmax(a, axis, keep); }, view, "argmax of a view " + what);
          }
    const auto bools = [&] { return (values({4, 40}, DType::i32) > 97).eval(); };
    expect_same([](const Array& a) { return any(a, {1}); }, bools, "any");
    expect_same([](const Array& a) { return all(a, {0}); }, bools, "all");
  });
  EXPECT_NE(again, 0u) << "otherwise this tests nothing";
}

TEST_P(RepeatedReductions, CachesCopiesOfViews) {
  const std::uint64_t again = done_again([&] {
    for (const DType t : {DType::f32, DType::f64, DType::u8, DType::boolean})
      for (const Shape& shape : {Shape{50}, Shape{16, 40}, Shape{5, 6, 7}, Shape{2, 3, 4, 5}}) {
        const auto cut = [&] {
          Array v = values(shape, t);
          for (int d = 0; d < v.rank(); ++d) v = v.slice(d, 1, v.shape(d), d + 1);
          return v;
        };
        const std::string what = std::string(dtype_name(t)) + " " + to_string(shape);
        expect_same([](const Array& a) { return a.as_contiguous(); }, cut, "slices of " + what);
        expect_same([](const Array& a) { return a.transpose().copy(); }, cut, "transposed slices of " + what);
        expect_same(
            [](const Array& a) {
              return a.unsqueeze(0).broadcast_to({3, a.shape(0)}).copy();
            },
            [&] { return values({shape[0]}, t); }, "broadcast " + what);
      }
  });
  EXPECT_EQ(again != 0, built_in) << "otherwise this tests nothing";
  const Array a = values({16, 40}, DType::f32), b = a.transpose();
  const std::uint64_t before = fused_launches();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(b.copy().to_vector<float>()[1], a.to_vector<float>()[40]);
  EXPECT_EQ(fused_launches() - before, 3u);
  trace_fusion(true);
  ::testing::internal::CaptureStderr();
  static_cast<void>(b.copy());
  trace_fusion(false);
  expect_contains(::testing::internal::GetCapturedStderr(), {"tessera: fused cast", "its result is written in place"});
  // The copies are independent: writing to one does not change the other.
  Array copy = b.copy();
  copy += 1.0;
  EXPECT_NE(bytes_of(copy), bytes_of(b));
}

TEST_P(RepeatedReductions, CachesReductionsOverSeveralAxesAndInParts) {
  const auto cube = [&] { return values({4, 5, 40}, DType::f32); };
  for (const auto& axes : {std::vector{0, 1}, {2, 0}, {0, -1}, {1, 2}})
    expect_same([&](const Array& a) { return sum(a, axes); }, cube, "sum over two of three");
  // Long rows are first summed in parts.
  const auto rows = [&] { return values({2, 9000}, DType::f32); };
  for (const bool keep : {false, true}) {
    expect_same([&](const Array& a) { return sum(a, {1}, keep); }, rows, "sum in parts");
    expect_same([&](const Array& a) { return sum(a, {}, keep); }, rows, "sum of all in parts");
    expect_same([&](const Array& a) { return max(a, {1}, keep); }, rows, "max in parts");
  }
  const Array a = rows();
  sum(a, {1}), sum(a, {1});
  EXPECT_EQ(done_again([&] { sum(a, {1}); }), built_in ? 2u : 0u);
}

TEST_P(RepeatedReductions, CachedLaunchesReadTheCurrentContents) {
  Array a = values({16, 40}, DType::f32);
  static_cast<void>(sum(a, {0}));
  const auto right = [&](const Array& got) {
    const auto x = a.to_vector<float>(), sums = got.to_vector<float>();
    for (std::size_t j = 0; j < 40; ++j) {
      double want = 0;
      for (std::size_t i = 0; i < 16; ++i) want += x[i * 40 + j];
      EXPECT_NEAR(sums[j], want, 1e-4);
    }
  };
  for (int i = 0; i < 3; ++i) {
    a += 1.0;
    right(sum(a, {0}));  // the first call computes the pending array
    a.eval();
    EXPECT_EQ(done_again([&] { right(sum(a, {0})); }), built_in ? 1u : 0u);
  }
  const Array pending = a + 0.0;
  EXPECT_EQ(done_again([&] { right(sum(pending, {0})); }), 0u) << "fused, so not cached";
  // Results that still exist are not overwritten.
  const Array first = sum(a, {0});
  const auto before = bytes_of(first);
  a += 1.0;
  a.eval();
  const Array second = sum(a, {0});
  EXPECT_EQ(bytes_of(first), before);
  EXPECT_NE(bytes_of(second), before);
}

TEST_P(RepeatedReductions, CachedLaunchesAreVisibleToObserversRecordingsAndTraces) {
  const Array a = values({16, 40}, DType::f32);
  static_cast<void>(sum(a, {0}));
  const auto launched = [] {
    std::uint64_t n = 0;
    for (const auto& k : placement_log().kernels) n += k.launches;
    return n;
  };
  const std::uint64_t before = launched(), fused = fused_launches();
  for (int i = 0; i < 10; ++i) static_cast<void>(sum(a, {0}));
  EXPECT_EQ(launched() - before, 10u);
  EXPECT_EQ(fused_launches() - fused, 10u);
  {
    const Placement scope;
    EXPECT_EQ(done_again([&] {
                for (int i = 0; i < 3; ++i) static_cast<void>(sum(a, {0}));
              }),
              0u);
    ASSERT_EQ(scope.log().kernels.size(), 1u);
    EXPECT_EQ(scope.log().kernels[0].launches, 3u);
  }
  if (GetParam() != Device{Backend::cpu, 0}) {
    const Placement strict = Placement::strict({{Backend::cpu, 0}});
    expect_contains(text_of<DeviceError>([&] { static_cast<void>(sum(a, {0})); }), {to_string(GetParam())});
  }
  struct Told : ArrayObserver {
    void made(const ArrayOperation& operation) override { names += std::string(operation.name) + " "; }
    std::string names;
  } told;
  {
    const ObserverScope scope(&told);
    static_cast<void>(sum(a, {0})), static_cast<void>(argmax(a, 1));
  }
  EXPECT_EQ(told.names, "sum argmax ");
  {
    const test::Launches launches;
    static_cast<void>(sum(a, {0}));
    EXPECT_EQ(launches.count, 1u);
  }
  trace_fusion(true);
  ::testing::internal::CaptureStderr();
  static_cast<void>(sum(a, {0}));
  trace_fusion(false);
  expect_contains(::testing::internal::GetCapturedStderr(), {"tessera: fused", "sum"});
  EXPECT_EQ(done_again([&] { static_cast<void>(sum(a, {0})); }), built_in ? 1u : 0u) << "no longer observed";
}

TEST_P(RepeatedReductions, ReplaysReadTheCurrentContents) {
  Array a = values({16, 40}, DType::f32);
  const Reduction reduction = [](const Array& x) { return max(x, {0}); };
  static_cast<void>(reduction(a)), static_cast<void>(reduction(a));
  Array out;
  Sequence step = Sequence::record(Queue::of(GetParam()), [&] { out = reduction(a); });
  for (int i = 0; i < 3; ++i) {
    a += 1.0;
    a.eval();
    step.replay();
    EXPECT_EQ(bytes_of(out), bytes_of(computed(reduction, a))) << "replay " << i;
  }
  EXPECT_EQ(bytes_of(reduction(a)), bytes_of(computed(reduction, a))) << "after the replays";
}

TEST_P(RepeatedReductions, CacheDoesNotAffectGradients) {
  const Array x = values({16, 40}, DType::f32);
  const auto f = [](const Array& v) { return sum(max(v, {1}) * 2.0f); };
  Array want;
  for (int i = 0; i < 3; ++i) {
    static_cast<void>(max(x, {1})), static_cast<void>(f(x));
    const auto [value, gradient] = value_and_grad(f)(x);
    EXPECT_EQ(bytes_of(value), bytes_of(f(x)));
    if (i == 0) want = gradient.copy();
    EXPECT_EQ(bytes_of(gradient), bytes_of(want));
    const auto g = gradient.to_vector<float>();
    EXPECT_EQ(std::count(g.begin(), g.end(), 2.0f), 16) << "one per row";
  }
}

TEST_P(RepeatedReductions, CacheWorksWithManyThreadsAndQueues) {
  const Array a = values({16, 40}, DType::f32);
  const Reduction reduction = [](const Array& x) { return argmax(x, 1); };
  const auto want = bytes_of(reduction(a));
  std::vector<int> wrong(4, -1);
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      const DeviceScope device(GetParam());
      count = 0;
      for (int i = 0; i < 50; ++i) {
        const Array once = reduction(a);
        Queue queue(GetParam());
        const QueueScope scope(queue);
        count += bytes_of(once) != want;
        count += bytes_of(reduction(a)) != want;
      }
    });
  for (std::thread& t : threads) t.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

TEST_P(RepeatedReductions, InvalidArgumentsAreRejectedDespiteTheCache) {
  const Array a = values({16, 40}, DType::f32), five = values({1, 2, 2, 2, 3}, DType::f32);
  for (int i = 0; i < 2; ++i) {
    static_cast<void>(sum(a, {0})), static_cast<void>(sum(a, {0, 1}));
    expect_contains(text_of<ShapeError>([&] { static_cast<void>(sum(a, {2})); }), {"axis = 2"});
    expect_contains(text_of<ShapeError>([&] { static_cast<void>(sum(a, {-3})); }), {"axis = -3"});
    expect_contains(text_of<ShapeError>([&] { static_cast<void>(sum(a, {0, -2})); }), {"occurs twice"});
    expect_contains(text_of<ShapeError>([&] { static_cast<void>(argmax(a, 2)); }), {"axis = 2"});
    EXPECT_EQ(sum(five, {0, 4}).shape(), (Shape{2, 2, 2}));
    EXPECT_EQ(bytes_of(sum(sum(a))), bytes_of(sum(a))) << "without dimensions";
    EXPECT_EQ(sum(a.slice(0, 0, 0), {0}).to_vector<float>(), std::vector<float>(40)) << "without elements";
  }
}

TEST(RepeatedReduction, HandlesWrappedMemoryAndForks) {
  const DeviceScope cpu({Backend::cpu, 0});
  std::vector<float> host(64, 1.0f);
  const Array a = Array::wrap(Storage::wrap_host(host.data(), 256, nullptr), DType::f32, {64});
  for (int i = 0; i < 3; ++i) {
    host[0] = static_cast<float>(i);
    EXPECT_EQ(done_again([&] { EXPECT_EQ(sum(a).item<float>(), 63.0f + static_cast<float>(i)); }), 0u);
  }
  const Array c = Array::ones({64});
  static_cast<void>(sum(c));
  ASSERT_EQ(done_again([&] { static_cast<void>(sum(c)); }), 1u);
  // A child process cannot use its parent's devices. A cached operation throws like any other.
  expect_contains(test::run_in_child({}, [&] { return to_string(sum(c)); }),
                  {"exception", "before this process was forked"});
  EXPECT_EQ(sum(c).item<float>(), 64.0f);
}

/// A coherence hook that runs before memory is read can compute on this thread. This hook computes often enough to
/// replace every cache entry.
TEST(RepeatedReduction, HandlesNestedOperations) {
  const DeviceScope cpu({Backend::cpu, 0});
  struct Busy : CoherenceHook {
    void before_read(Storage&) override {
      ++asked;
      for (std::int64_t n = 1; n <= 400; ++n) total += sum(Array::ones({n})).item<float>();
    }
    void before_write(Storage&) override {}
    bool has_other_writers() const noexcept override { return false; }
    int asked = 0;
    double total = 0;
  };
  const Array a = Array::arange(64).eval();
  static_cast<void>(sum(a)), static_cast<void>(sum(a));
  auto& busy = static_cast<Busy&>(a.view().storage->set_coherence_hook(std::make_unique<Busy>()));
  const Array once = sum(a);
  EXPECT_EQ(busy.asked, 1);
  EXPECT_EQ(busy.total, 400 * 401 / 2);
  EXPECT_EQ(once.item<float>(), 63 * 64 / 2);
}

}  // namespace
}  // namespace tessera
