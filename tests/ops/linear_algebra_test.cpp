// SPDX-License-Identifier: Apache-2.0
// In-place linear algebra on every device: parts of one matrix, failures and their order, errors, and cost. The
// catalogue (ops_test) checks results against Higham's bounds, and grad_test checks gradients.
#include "tessera/ops/linear_algebra.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Numbers = std::vector<float>;

/// Returns a row-major positive definite n x n matrix.
Numbers positive_definite(std::int64_t n, std::mt19937_64& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto size = static_cast<std::size_t>(n);
  Numbers a(size * size);
  for (std::size_t i = 0; i < size; ++i)
    for (std::size_t j = 0; j <= i; ++j) a[i * size + j] = a[j * size + i] = uniform(random);
  for (std::size_t i = 0; i < size; ++i) a[i * size + i] = static_cast<float>(n);
  return a;
}

/// Computes the lower triangular factor with plain loops in double, up to the first row that fails.
std::vector<double> factor_of(const Numbers& a, std::size_t n) {
  std::vector<double> l(n * n);
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t i = j; i < n; ++i) {
      double sum = a[i * n + j];
      for (std::size_t k = 0; k < j; ++k) sum -= l[i * n + k] * l[j * n + k];
      l[i * n + j] = i == j ? std::sqrt(sum) : sum / l[j * n + j];
    }
  return l;
}

TEST_P(OnEveryDevice, UpdatesPartOfAMatrixFromOtherParts) {
  const std::size_t n = 50, pitch = 60;
  const Numbers before = numbers(60 * 60);
  Array whole = Array::from(before, Shape{60, 60});
  const Array a = whole.slice(0, 40, 60).slice(1, 0, 30), b = whole.slice(0, 0, 15).slice(1, 0, 30);
  multiply_into(whole.slice(0, 40, 60).slice(1, 30, 45), a, b.transpose(), {.alpha = -2, .beta = 0.5});
  const Numbers got = whole.to_vector<float>();
  for (std::size_t i = 0; i < 60; ++i)
    for (std::size_t j = 0; j < 60; ++j) {
      double wanted = before[i * pitch + j];
      if (i >= 40 && j >= 30 && j < 45) {
        double sum = 0;
        for (std::size_t k = 0; k < 30; ++k) sum += double{before[i * pitch + k]} * before[(j - 30) * pitch + k];
        wanted = 0.5 * wanted - 2 * sum;
        ASSERT_NEAR(got[i * pitch + j], wanted, 2e-4) << i << ", " << j;
      } else {
        ASSERT_EQ(got[i * pitch + j], before[i * pitch + j]) << i << ", " << j << " of " << n;
      }
    }
}

TEST_P(OnEveryDevice, CholeskyReportsTheFailingLeadingMinor) {
  const std::size_t n = 70;
  for (const std::size_t order : {1u, 5u, 66u, 70u})
    for (const float bad : {0.f, -1.f, NAN}) {
      SCOPED_TRACE(std::to_string(order) + ", " + std::to_string(bad));
      Numbers numbers = positive_definite(70, random);
      numbers[(order - 1) * n + order - 1] = bad;
      const Array given = Array::from(numbers, Shape{70, 70});
      expect_throw<ArgumentError>([&] { cholesky(given); },
                                  {"cholesky", "not positive definite", "leading minor = " + std::to_string(order)});
      Array a = given.copy(), failure = Array::zeros({1}, DType::i32);
      cholesky_into(a, failure, 100);
      EXPECT_EQ(failure.item<std::int32_t>(), static_cast<std::int32_t>(order) + 100);
      expect_throw<ArgumentError>([&] { check_cholesky(failure); }, {std::to_string(order + 100)});
      const Numbers got = a.to_vector<float>();
      const auto wanted = factor_of(numbers, n);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j <= i; ++j)
          if (j + 1 < order)
            ASSERT_NEAR(got[i * n + j], wanted[i * n + j], 1e-4) << i << ", " << j;
          else
            ASSERT_TRUE(std::isnan(got[i * n + j])) << i << ", " << j;
      // A recorded failure is kept by later calls. If there are several failures, the smallest order is reported.
      Array other = given.copy();
      cholesky_into(other, failure);
      EXPECT_EQ(failure.item<std::int32_t>(), static_cast<std::int32_t>(order) + 100);
      expect_throw<ArgumentError>([] { check_cholesky(Array::from({0, 90, 12, 0, 40})); }, {"12"});
    }
  check_cholesky(Array::zeros({3}, DType::i32));
}

TEST_P(OnEveryDevice, SolvesVectorsAndEmptySystems) {
  const Array t = Array::from({2.f, NAN, 3.f, 4.f}, Shape{2, 2});
  const auto solved = [&](const TriangularSystem& s, const Array& b) {
    return solve_triangular(t, b, s).to_vector<float>();
  };
  const Array b = Array::from({2.f, 11.f});
  EXPECT_EQ(solved({}, b), (Numbers{1, 2}));
  EXPECT_EQ(solved({.transposed = true}, Array::from({14.f, 8.f})), (Numbers{4, 2}));
  EXPECT_EQ(solved({.side = Side::right}, Array::from({14.f, 8.f})), (Numbers{4, 2}));
  EXPECT_EQ(solved({.unit_diagonal = true}, b), (Numbers{2, 5}));
  EXPECT_EQ(solved({}, Array::zeros({2, 0})), Numbers{});
  EXPECT_EQ(solve_triangular(Array::zeros({0, 0}), Array::zeros({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(cholesky(Array::zeros({0, 0})).shape(), (Shape{0, 0}));
  // A zero on the diagonal results in an infinity.
  const Array singular = Array::from({1.f, 0.f, 1.f, 0.f}, Shape{2, 2});
  const Numbers x = solve_triangular(singular, Array::from({1.f, 3.f})).to_vector<float>();
  EXPECT_EQ(x[0], 1);
  EXPECT_TRUE(std::isinf(x[1])) << x[1];

  Array y = Array::from({1.f, 2.f});
  multiply_into(y, Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2}), b, {.alpha = 2, .beta = 10});
  EXPECT_EQ(y.to_vector<float>(), (Numbers{58, 120}));
  multiply_into(y, b, Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2}), {.beta = 0});
  EXPECT_EQ(y.to_vector<float>(), (Numbers{35, 48}));
  // The product is empty, so the result is beta times the old contents.
  Array c = Array::from({1.f, 2.f, 3.f, NAN}, Shape{2, 2});
  const Array none = Array::zeros({2, 0});
  multiply_into(c, none, none.transpose(), {.beta = 3, .lower = true});
  EXPECT_EQ(c.slice(0, 0, 1).to_vector<float>(), (Numbers{3, 2}));
  EXPECT_EQ(c.select(0, 1).slice(0, 0, 1).to_vector<float>(), (Numbers{9}));
  multiply_into(c, none, none.transpose(), {.beta = 0});
  EXPECT_EQ(c.to_vector<float>(), (Numbers{0, 0, 0, 0}));
}

TEST_P(OnEveryDevice, PendingReadersSeeTheOldContents) {
  Array c = Array::ones({8, 8});
  const Array a = Array::ones({8, 8}), later = c * 2;
  multiply_into(c, a, c + 1);  // an operand that depends on the target
  EXPECT_EQ(later.to_vector<float>(), Numbers(64, 2));
  EXPECT_EQ(c.to_vector<float>(), Numbers(64, 17));
}

TEST_P(OnEveryDevice, InPlaceOperationsAllocateNothing) {
  const Device device = GetParam();
  for (const std::int64_t n : {30, 66}) {
    Array a = Array::from(positive_definite(n, random), Shape{n, n}), b = Array::ones({n, n}), c = b.copy(),
          failure = Array::zeros({1}, DType::i32);
    const Array bt = b.transpose();
    const auto all = [&] {
      multiply_into(c, b, bt, {.alpha = -1, .lower = true});
      multiply_into(c, b, bt, {.alpha = -1});
      solve_triangular_into(b, c, {.side = Side::right, .transposed = true, .unit_diagonal = true});
      cholesky_into(a, failure);
    };
    all();
    const auto before = memory_stats(device);
    all();
    const auto after = memory_stats(device);
    EXPECT_EQ(after.allocations + after.reuses, before.allocations + before.reuses) << n;
  }
}

TEST_P(OnEveryDevice, InvalidArgumentsThrowAndLeaveOperandsUnchanged) {
  const Array a = Array::ones({4, 4}), wide = Array::ones({4, 6});
  Array c = Array::full({4, 4}, 7), failure = Array::zeros({1}, DType::i32);
  expect_throw<ShapeError>([&] { multiply_into(c, wide, a); }, {"multiply_into", "6 columns", "4 rows"});
  expect_throw<ShapeError>([&] { multiply_into(c, a, wide); }, {"multiply_into", "(4, 4)", "(4, 6)"});
  expect_throw<ShapeError>([&] { multiply_into(c, a, a.select(0, 0)); }, {"multiply_into", "three matrices"});
  Array rows = Array::zeros({4, 6});
  expect_throw<ShapeError>([&] { multiply_into(rows, a, wide, {.lower = true}); }, {"square matrix"});
  expect_throw<DtypeError>([&] { multiply_into(c, a.astype(DType::f16), a); }, {"multiply_into", "f16", "f32"});
  Array integers = c.astype(DType::i32);
  expect_throw<DtypeError>([&] { multiply_into(integers, integers, integers); }, {"i32", "float dtype"});
  expect_throw<ArgumentError>([&] { multiply_into(c, c, a); }, {"multiply_into", "copy()"});
  expect_throw<ArgumentError>([&] { multiply_into(c, a, c.transpose()); }, {"multiply_into", "copy()"});
  expect_throw<ArgumentError>(
      [&] {
        multiply_into(c.slice(0, 0, 2).slice(1, 0, 2), c.slice(0, 1, 3).slice(1, 1, 3),
                      a.slice(0, 0, 2).slice(1, 0, 2));
      },
      {"copy()"});
  expect_throw<ArgumentError>([&] { multiply_into(Array::zeros({4}).broadcast_to({4, 4}), a, a); }, {"broadcast"});
  expect_throw<ShapeError>([&] { solve_triangular(wide, a); }, {"solve_triangular", "(4, 6)"});
  expect_throw<ShapeError>([&] { solve_triangular(a, Array::ones({5, 4})); }, {"solve_triangular", "(5, 4)"});
  expect_throw<ShapeError>([&] { solve_triangular(a, wide, {.side = Side::right}); }, {"right"});
  expect_throw<DtypeError>([&] { solve_triangular(a.astype(DType::f16), a.astype(DType::f16)); }, {"f16"});
  expect_throw<ArgumentError>([&] { solve_triangular_into(c, c); }, {"solve_triangular_into", "copy()"});
  expect_throw<ShapeError>([&] { cholesky(wide); }, {"cholesky", "(4, 6)"});
  expect_throw<DtypeError>([&] { cholesky(a.astype(DType::bf16)); }, {"cholesky", "bf16"});
  expect_throw<ArgumentError>([&] { cholesky_into(c, c); }, {"cholesky_into", "i32"});
  expect_throw<ArgumentError>([&] { cholesky_into(c, failure, -1); }, {"order = -1"});
  expect_throw<DtypeError>([&] { check_cholesky(c); }, {"check_cholesky", "f32"});
  const Device other = GetParam() == Device{Backend::cpu, 0} ? Device{Backend::interp, 0} : Device{Backend::cpu, 0};
  expect_throw<DeviceError>([&] { multiply_into(c, a.to(other), a); }, {"multiply_into", to_string(other)});
  expect_throw<DeviceError>([&] { solve_triangular(a.to(other), a); }, {"solve_triangular", to_string(other)});
  Array elsewhere = failure.to(other);
  expect_throw<DeviceError>([&] { cholesky_into(c, elsewhere); }, {"cholesky_into", to_string(other)});
  EXPECT_EQ(c.to_vector<float>(), Numbers(16, 7));
  // Adjacent rows and columns of one matrix do not overlap.
  Array frame = Array::ones({6, 6});
  multiply_into(frame.slice(0, 3, 6).slice(1, 3, 6), frame.slice(0, 3, 6).slice(1, 0, 3),
                frame.slice(0, 0, 3).slice(1, 0, 3));
  EXPECT_EQ(sum(frame).item<float>(), 36 + 27);
}

}  // namespace
}  // namespace tessera
