// SPDX-License-Identifier: Apache-2.0
// Repeated small products, for which a thread caches the launch: results, the number of cached launches, and everything
// that observes a product or prevents caching.
#include "tessera/array/cached_operation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "tessera/array/functions.h"
#include "tessera/array/observer.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/queue/sequence.h"
#include "tessera/ops/product.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/launches.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::OnEveryDevice;
using test::text_of;

/// Returns the product of matrices of small integers, which is exact in every dtype.
std::vector<float> reference(const Array& a, const Array& b) {
  const std::int64_t m = a.shape(0), k = a.shape(1), n = b.shape(1);
  const auto x = a.astype(DType::f32).to_vector<float>(), y = b.astype(DType::f32).to_vector<float>();
  std::vector<float> out(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t p = 0; p < k; ++p)
        out[static_cast<std::size_t>(i * n + j)] +=
            x[static_cast<std::size_t>(i * k + p)] * y[static_cast<std::size_t>(p * n + j)];
  return out;
}
/// Returns the number of wrong elements as text, or an empty string if there are none.
std::string wrong(const Array& a, const Array& b, const Array& product) {
  const auto got = product.astype(DType::f32).to_vector<float>(), want = reference(a, b);
  if (product.shape() != Shape{a.shape(0), b.shape(1)}) return "shape " + to_string(product.shape());
  std::size_t differ = 0;
  for (std::size_t i = 0; i < want.size(); ++i) differ += !(got[i] == want[i]);
  return differ == 0 ? "" : std::to_string(differ) + " elements of " + to_string(product.shape());
}

Array matrix_of(std::mt19937_64& random, std::int64_t rows, std::int64_t columns, DType t) {
  std::uniform_int_distribution<int> small(-4, 4);
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(rows * columns));
  for (std::int32_t& v : numbers) v = small(random);
  return Array::from(numbers, Shape{rows, columns}).astype(t).eval();
}
/// Fills the memory that the results will reuse with NaN, so that missing writes are detected.
void poison(std::int64_t elements) {
  std::vector<Array> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(Array::full({elements}, std::numeric_limits<double>::quiet_NaN(), DType::f32));
}

bool kept(const Array& a, const Array& b) {
  return static_cast<bool>(detail::CachedOperation(detail::CachedOperation::product, a, &b));
}

class RepeatedProducts : public OnEveryDevice {
 protected:
  Array matrix(std::int64_t rows, std::int64_t columns, DType t) { return matrix_of(random, rows, columns, t); }
  const bool built_in = is_built_in(GetParam().backend);
};
INSTANTIATE_TEST_SUITE_P(Devices, RepeatedProducts, ::testing::ValuesIn(testing::all_devices()), [](const auto& info) {
  return std::string(backend_name(info.param.backend)) + std::to_string(info.param.index);
});

TEST_P(RepeatedProducts, CachedLaunchesReadTheCurrentContents) {
  const std::vector<DType> types = {DType::f32, DType::f64, DType::u8};
  for (const DType t : std::span(types).first(built_in ? 3 : 1))  // the cache is used only by built-in backends
    for (const auto& [m, n, k] :
         {std::array<std::int64_t, 3>{16, 16, 16}, {5, 7, 3}, {24, 24, 24}, {1, 9, 17}, {8, 1, 8}}) {
      // Also tests views with other strides, and views that begin in the middle of their memory.
      const Array wide = matrix(m + 3, k + 2, t), tall = matrix(n, k, t);
      const std::pair<Array, Array> pairs[] = {{matrix(m, k, t), matrix(k, n, t)},
                                               {matrix(k, m, t).transpose(), matrix(k, n, t)},
                                               {matrix(m, k, t), tall.transpose()},
                                               {wide.slice(0, 2, m + 2).slice(1, 1, k + 1), matrix(k, n, t)}};
      for (int round = 0; round < 2; ++round)
        for (const auto& [a, b] : pairs) {
          poison(m * n);
          EXPECT_EQ(wrong(a, b, matmul(a, b)), "") << dtype_name(t) << " round " << round;
          const Array other = matrix(m, k, t);  // has the shape and dtype of the first operand
          EXPECT_EQ(wrong(other, b, matmul(other, b)), "") << dtype_name(t);
        }
    }
  const Array a = matrix(16, 16, DType::f32), b = matrix(16, 16, DType::f32);
  static_cast<void>(matmul(a, b));
  EXPECT_EQ(kept(a, b), built_in) << "otherwise this tests nothing";
  EXPECT_FALSE(kept(a, b.transpose().as_contiguous().astype(DType::i32).eval()));
  Array written = a.copy();
  for (int i = 0; i < 3; ++i) {
    written += 1.0;
    EXPECT_EQ(wrong(written, b, matmul(written, b)), "") << "written in place";
    EXPECT_EQ(wrong(a, b, matmul(a + 0.0, b)), "") << "with a pending operand";
  }
  EXPECT_EQ(wrong(a, a, matmul(a, a)), "");
  EXPECT_EQ(wrong(a, a, matmul(a, a)), "") << "the same array as both operands";
}

TEST_P(RepeatedProducts, CachesProductsWithVectors) {
  const DType t = DType::f32;
  for (const std::int64_t n : {16, 24}) {
    const Array square = matrix(n, n, t), tall = matrix(3 * n, n, t), wide = tall.transpose();
    for (int round = 0; round < 3; ++round) {
      // Also tests a row of the matrix itself, which begins at the same address.
      for (const Array& x : {matrix(1, n, t).select(0, 0), square.select(0, 0), tall.select(0, 5)})
        for (const Array* a : {&square, &tall, &wide}) {
          poison(3 * n);
          if (a->shape(1) == n) {
            EXPECT_EQ(wrong(*a, x.unsqueeze(1), matmul(*a, x).unsqueeze(1)), "") << "matrix by vector " << round;
          }
          if (a->shape(0) == n) {
            EXPECT_EQ(wrong(x.unsqueeze(0), *a, matmul(x, *a).unsqueeze(0)), "") << "vector by matrix " << round;
          }
          if (a->shape(1) == n) {
            EXPECT_EQ(wrong(*a, x.unsqueeze(1), matmul(*a, x.unsqueeze(1))), "") << "matrix by column " << round;
          }
          EXPECT_EQ(wrong(x.unsqueeze(0), x.unsqueeze(1), matmul(x, x).reshape({1, 1})), "") << "dot " << round;
        }
    }
    const Array x = matrix(1, n, t).select(0, 0), column = x.unsqueeze(1);
    for (const auto& [a, b] : {std::pair{square, x}, {x, square}, {square, column}}) {
      static_cast<void>(matmul(a, b));  // refreshes the cache entry, which another operation may have replaced
      EXPECT_EQ(kept(a, b), built_in) << "otherwise this tests nothing";
    }
  }
}

TEST_P(RepeatedProducts, CachedLaunchesAreVisibleToObserversRecordingsAndTraces) {
  const Array a = matrix(16, 16, DType::f32), b = matrix(16, 16, DType::f32);
  static_cast<void>(matmul(a, b));
  const auto launched = [] {
    std::uint64_t n = 0;
    for (const auto& k : placement_log().kernels) n += k.launches;
    return n;
  };
  const std::uint64_t before = launched();
  for (int i = 0; i < 10; ++i) static_cast<void>(matmul(a, b));
  EXPECT_EQ(launched() - before, 10u);
  {
    const Placement scope;
    for (int i = 0; i < 3; ++i) static_cast<void>(matmul(a, b));
    ASSERT_EQ(scope.log().kernels.size(), 1u);
    EXPECT_EQ(scope.log().kernels[0].launches, 3u);
    EXPECT_FALSE(kept(a, b));
  }
  if (GetParam() != Device{Backend::cpu, 0}) {
    const Placement strict = Placement::strict({{Backend::cpu, 0}});
    expect_contains(text_of<DeviceError>([&] { static_cast<void>(matmul(a, b)); }), {to_string(GetParam())});
  }
  struct Told : ArrayObserver {
    void made(const ArrayOperation& operation) override { names += std::string(operation.name) + " "; }
    std::string names;
  } told;
  {
    const ObserverScope scope(&told);
    static_cast<void>(matmul(a, b)), static_cast<void>(matmul(a, b));
  }
  EXPECT_EQ(told.names, "matmul matmul ");
  {
    const test::Launches launches;
    static_cast<void>(matmul(a, b));
    EXPECT_EQ(launches.count, 1u);
  }
  EXPECT_EQ(kept(a, b), built_in) << "no longer observed";
}

TEST_P(RepeatedProducts, ReplaysReadTheCurrentContents) {
  Array a = matrix(16, 16, DType::f32);
  const Array b = matrix(16, 16, DType::f32);
  static_cast<void>(matmul(a, b)), static_cast<void>(matmul(a, b));
  Array out;
  Sequence step = Sequence::record(Queue::of(GetParam()), [&] { out = matmul(a, b); });
  for (int i = 0; i < 3; ++i) {
    a += 1.0;
    a.eval();
    step.replay();
    EXPECT_EQ(wrong(a, b, out), "") << "replay " << i;
  }
  EXPECT_EQ(wrong(a, b, matmul(a, b)), "") << "after the replays";
}

TEST_P(RepeatedProducts, CacheWorksWithManyThreadsAndQueues) {
  const Array a = matrix(16, 16, DType::f32), b = matrix(16, 16, DType::f32);
  std::vector<std::string> found(4);
  std::vector<std::thread> threads;
  for (std::string& text : found)
    threads.emplace_back([&] {
      const DeviceScope device(GetParam());
      for (int i = 0; i < 50 && text.empty(); ++i) {
        const Array once = matmul(a, b);
        Queue queue(GetParam());
        const QueueScope scope(queue);
        text = wrong(once, b, matmul(once, b));
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& text : found) EXPECT_EQ(text, "");
}

TEST_P(RepeatedProducts, InvalidArgumentsAreRejectedDespiteTheCache) {
  const Array a = matrix(16, 16, DType::f32), b = matrix(16, 16, DType::f32);
  static_cast<void>(matmul(a, b)), static_cast<void>(matmul(a, b));
  expect_contains(text_of<ShapeError>([&] { static_cast<void>(matmul(a, matrix(15, 16, DType::f32))); }), {"16", "15"});
  const Device other = GetParam() == Device{Backend::cpu, 0} ? Device{Backend::interp, 0} : Device{Backend::cpu, 0};
  expect_contains(text_of<DeviceError>([&] { static_cast<void>(matmul(a, b.to(other))); }), {"different devices"});
  EXPECT_EQ(wrong(a, b, matmul(a, b)), "");
}

/// Products with at most 128 rows. With wide vectors, their blocks pack the right factor themselves. Tests edges,
/// several steps along k, transposed factors, and batches.
TEST(ProductsOfFewRows, HandleEdgesAndSeveralStepsAlongK) {
  const DeviceScope cpu({Backend::cpu, 0});
  std::mt19937_64 random(testing::seed());
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, DType t) {
    return matrix_of(random, rows, columns, t);
  };
  for (const DType t : {DType::f32, DType::f64, DType::i32})
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{100, 130, 300}, {128, 96, 1300}, {37, 513, 90}}) {
      const Array a = matrix(m, k, t), b = matrix(k, n, t);
      const Array at = a.transpose().as_contiguous().transpose(), bt = b.transpose().as_contiguous().transpose();
      for (const Array* left : {&a, &at})
        for (const Array* right : {&b, &bt}) {
          poison(m * n);
          EXPECT_EQ(wrong(*left, *right, matmul(*left, *right)), "")
              << dtype_name(t) << (left == &at ? " t" : " n") << (right == &bt ? "t" : "n");
        }
      const Array three = matrix(3 * m, k, t).reshape({3, m, k}), others = matrix(3 * k, n, t).reshape({3, k, n});
      const Array products = matmul(three, others);
      for (int i = 0; i < 3; ++i)
        EXPECT_EQ(wrong(three.select(0, i), others.select(0, i), products.select(0, i)), "") << "matrix " << i;
    }
}

TEST(RepeatedProduct, HandlesWrappedMemoryAndForks) {
  const Device cpu{Backend::cpu, 0};
  std::vector<float> host(2 * 256);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i % 7) - 3;
  const Array a = Array::wrap(Storage::wrap_host(host.data(), 2048, nullptr), DType::f32, {16, 16}),
              b = Array::from(std::vector<float>(host.begin() + 256, host.end()), Shape{16, 16}, cpu);
  for (int i = 0; i < 3; ++i) {
    host[static_cast<std::size_t>(i)] += 1;
    EXPECT_EQ(wrong(a, b, matmul(a, b)), "") << "reads the current host memory";
  }
  EXPECT_FALSE(kept(a, b));
  const Array c = b + 1.0f;
  static_cast<void>(matmul(c, b)), static_cast<void>(matmul(c, b));
  ASSERT_TRUE(kept(c, b));
  // A child process cannot use its parent's devices. A cached operation throws like any other.
  expect_contains(test::run_in_child({}, [&] { return wrong(c, b, matmul(c, b)); }),
                  {"exception", "before this process was forked"});
  EXPECT_EQ(wrong(c, b, matmul(c, b)), "");
}

}  // namespace
}  // namespace tessera
