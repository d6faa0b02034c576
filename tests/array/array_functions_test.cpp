// SPDX-License-Identifier: Apache-2.0
// Joining, splitting, masks, statistics, running sums, and indexed reads and writes, compared with plain loops in
// double.
#include "tessera/array/functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;
using Indices = std::vector<std::int32_t>;
constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Array numbered(Shape shape, DType dtype = DType::f32) {
  return Array::arange(element_count(shape), 0, 1, dtype).reshape(std::move(shape));
}

int rank(const Shape& shape) { return static_cast<int>(shape.size()); }

void expect_same(const Floats& got, const Floats& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::isnan(got[i]), std::isnan(wanted[i])) << i;
    if (!std::isnan(got[i])) {
      ASSERT_EQ(got[i], wanted[i]) << i;
    }
  }
}

TEST_P(OnEveryDevice, StackAndSplitMatchTheReference) {
  const Array a = numbered({2, 3}), b = a + 10;
  for (int axis : {0, 1, 2, -1, -2, -3}) {
    const Array both = stack({a, b}, axis);
    const int d = axis < 0 ? axis + 3 : axis;
    ASSERT_EQ(both.shape(d), 2);
    ASSERT_EQ(both.select(d, 0).to_vector<float>(), a.to_vector<float>());
    ASSERT_EQ(both.select(d, 1).to_vector<float>(), b.to_vector<float>());
  }
  EXPECT_EQ(stack({a.transpose(), b.transpose()}).select(0, 1).to_vector<float>(), b.transpose().to_vector<float>());
  EXPECT_EQ(stack({Array::ones({0}), Array::ones({0})}, 1).shape(), (Shape{0, 2}));
  EXPECT_EQ(stack({Array::ones({}), Array::zeros({}, DType::i32)}).to_vector<float>(), (Floats{1, 0}));
  expect_throw<Error>([&] { stack({a, a.transpose()}); }, {"the shapes differ"});
  expect_throw<Error>([&] { stack(std::span<const Array>()); }, {"there are no arrays to join"});
  expect_throw<Error>([&] { stack({a, b}, 3); }, {"axis"});

  const Array x = numbered({2, 6});
  const auto thirds = split(x, 3, 1);
  ASSERT_EQ(thirds.size(), 3u);
  EXPECT_EQ(thirds[1].to_vector<float>(), (Floats{2, 3, 8, 9}));
  EXPECT_EQ(thirds[1].source(), x.source());  // a view
  const auto parts = split(x, {1, 0, 5}, -1);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].shape(), (Shape{2, 0}));
  EXPECT_EQ(parts[2].to_vector<float>(), (Floats{1, 2, 3, 4, 5, 7, 8, 9, 10, 11}));
  expect_throw<Error>([&] { split(x, 4, 1); }, {"cannot be divided"});
  expect_throw<Error>([&] { split(x, 0, 1); }, {"cannot be divided"});
  expect_throw<Error>([&] { split(x, {1, 4}, 1); }, {"do not add up to the extent of the axis"});
  expect_throw<Error>([&] { split(x, {-1, 7}, 1); }, {"do not add up to the extent of the axis"});
}

TEST_P(OnEveryDevice, PadAddsElementsAroundAnArray) {
  EXPECT_EQ(pad(numbered({2, 2}), {{1, 0}, {0, 2}}, 9).to_vector<float>(),
            (Floats{9, 9, 9, 9, 0, 1, 9, 9, 2, 3, 9, 9}));
  EXPECT_EQ(pad(numbered({2, 3}).transpose(), {{0, 0}, {1, 1}}).to_vector<float>(),
            (Floats{0, 0, 3, 0, 0, 1, 4, 0, 0, 2, 5, 0}));
  EXPECT_EQ(pad(Array::ones({0}, DType::i32), {{1, 2}}, 7).to_vector<std::int32_t>(), (Indices{7, 7, 7}));
  EXPECT_EQ(pad(numbered({3}) + 1, {{0, 0}}).to_vector<float>(), (Floats{1, 2, 3}));
  expect_throw<Error>([&] { pad(numbered({2, 2}), {{1, 1}}); }, {"one pair of widths per axis"});
  expect_throw<Error>([&] { pad(numbered({2}), {{-1, 1}}); }, {"a width is negative"});
}

TEST_P(OnEveryDevice, TrilAndTriuZeroTheOtherTriangle) {
  for (const Shape& shape : {Shape{3, 3}, Shape{2, 4}, Shape{5, 2}, Shape{2, 3, 4}, Shape{1, 1}, Shape{0, 3}})
    for (std::int64_t k : {-4, -1, 0, 1, 3}) {
      const auto x = numbers(element_count(shape), 1, 2);
      const Array a = Array::from(x, shape);
      const auto low = tril(a, k).to_vector<float>(), high = triu(a, k).to_vector<float>();
      const std::int64_t rows = a.shape(-2), columns = a.shape(-1);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::int64_t c = static_cast<std::int64_t>(i) % columns,
                           r = static_cast<std::int64_t>(i) / columns % rows;
        ASSERT_EQ(low[i], c - r <= k ? x[i] : 0);
        ASSERT_EQ(high[i], c - r >= k ? x[i] : 0);
      }
    }
  EXPECT_EQ(tril(Array::full({2, 2}, nan)).to_vector<float>()[1], 0);
  EXPECT_EQ(triu(Array::ones({2, 2}, DType::boolean)).to_vector<bool>(), (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(tril(Array::ones({2, 2}, DType::u8)).dtype(), DType::u8);
  expect_throw<Error>([&] { tril(Array::ones({3})); }, {"fewer than two dimensions"});
}

TEST_P(OnEveryDevice, OneHotSetsTheIndexedElement) {
  const Array hot = one_hot(Array::from({std::int32_t{1}, std::int32_t{-1}, std::int32_t{3}, std::int32_t{0}}), 3);
  EXPECT_EQ(hot.shape(), (Shape{4, 3}));
  EXPECT_EQ(hot.to_vector<float>(), (Floats{0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(one_hot(Array::from({std::uint8_t{200}}), 300, DType::i32).select(1, 200).item<std::int32_t>(), 1);
  EXPECT_EQ(one_hot(Array::zeros({0, 2}, DType::i64), 4).shape(), (Shape{0, 2, 4}));
  expect_throw<Error>([&] { one_hot(Array::ones({2}), 3); }, {"integer indices"});
  expect_throw<Error>([&] { one_hot(Array::zeros({2}, DType::i32), -1); }, {"the count is negative"});
}

TEST_P(OnEveryDevice, SignClipAndIsnanMatchTheReference) {
  const Array x = Array::from({-2.f, -0.f, 0.f, 1e-42f, 3.f, inf, -inf, nan});
  expect_same(sign(x.slice(0, 0, 3)).to_vector<float>(), {-1, -0.f, 0});
  EXPECT_TRUE(std::signbit(sign(x).to_vector<float>()[1]));
  expect_same(sign(x.slice(0, 4, 8)).to_vector<float>(), {1, 1, -1, nan});
  EXPECT_EQ(sign(Array::from({std::int32_t{-7}, 0, 7})).to_vector<std::int32_t>(), (Indices{-1, 0, 1}));
  EXPECT_EQ(sign(Array::from({std::uint8_t{0}, std::uint8_t{200}})).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{0, 1}));
  EXPECT_EQ(isnan(x).to_vector<bool>(), (std::vector<bool>{0, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(isfinite(x).to_vector<bool>(), (std::vector<bool>{1, 1, 1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(isfinite(x.astype(DType::f16)).to_vector<bool>(), (std::vector<bool>{1, 1, 1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(isfinite(numbered({2}, DType::i32)).to_vector<bool>(), (std::vector<bool>{1, 1}));
  EXPECT_EQ(isnan(numbered({2}, DType::u8)).to_vector<bool>(), (std::vector<bool>{0, 0}));
  expect_same(clip(x, -1, 2).to_vector<float>(), {-1, -0.f, 0, 1e-42f, 2, 2, -1, nan});
  EXPECT_EQ(clip(numbered({5}, DType::i32), 1, 3).to_vector<std::int32_t>(), (Indices{1, 1, 2, 3, 3}));
  EXPECT_EQ(clip(numbered({3}), numbered({3}), 1.5).to_vector<float>(), (Floats{0, 1, 1.5f}));
  EXPECT_EQ(clip(numbered({3}), 2, 1).to_vector<float>(), (Floats{1, 1, 1}));
  expect_throw<Error>([&] { sign(Array::ones({2}, DType::boolean)); }, {"numbers"});
}

TEST_P(OnEveryDevice, ArgminReturnsTheFirstSmallestElement) {
  EXPECT_EQ(argmin(Array::from({3.f, -1.f, -1.f, 2.f})).item<std::int64_t>(), 1);
  EXPECT_EQ(argmin(Array::from({3.f, nan, -inf, nan})).item<std::int64_t>(), 1);
  EXPECT_EQ(argmin(Array::from({0.f, -0.f})).item<std::int64_t>(), 0);
  const std::int32_t lowest = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(argmin(Array::from({std::int32_t{0}, lowest, lowest})).item<std::int64_t>(), 1);
  EXPECT_EQ(argmin(Array::from({std::uint8_t{255}, std::uint8_t{7}, std::uint8_t{0}})).item<std::int64_t>(), 2);
  EXPECT_EQ(argmin(Array::from({~std::uint64_t{0}, std::uint64_t{1}})).item<std::int64_t>(), 1);
  EXPECT_EQ(argmin(Array::from({std::int64_t{1}, std::int64_t{-1}})).item<std::int64_t>(), 1);
  const auto x = numbers(7 * 50);
  const auto at = argmin(Array::from(x, Shape{7, 50}), 1, true).to_vector<std::int64_t>();
  for (std::size_t r = 0; r < 7; ++r) {
    const auto row = x.begin() + static_cast<std::ptrdiff_t>(r * 50);
    ASSERT_EQ(at[r], std::min_element(row, row + 50) - row);
  }
  expect_throw<Error>([&] { argmin(Array::ones({0})); }, {"there are no elements to reduce"});
  expect_throw<Error>([&] { argmin(Array::ones({2}, DType::boolean)); }, {"numbers"});
}

// The error in ulps of the reference as f32 or f64. For results below the smallest normal number, the unit is that
// number, because devices may flush them to zero.
template <class T>
double ulps(T got, double wanted) {
  if (std::isnan(wanted) || std::isinf(wanted))
    return std::isnan(wanted) ? !std::isnan(got) : got != static_cast<T>(wanted);
  const double least = std::numeric_limits<T>::min();
  if (std::fabs(wanted) < least) return std::fabs(static_cast<double>(got) - wanted) / least;
  const double unit = std::ldexp(std::numeric_limits<T>::epsilon(), std::ilogb(wanted));
  return std::fabs(static_cast<double>(got) - wanted) / unit;
}

TEST_P(OnEveryDevice, Log1pAndExpm1AreAccurateInF32) {
  // Tests a sample of all floats. The sample is denser on fast devices.
  const std::uint32_t step = GetParam().backend == Backend::interp ? 100003 : 4001;
  Floats x = {0.f, -0.f, inf, -inf, nan, -1.f, -2.f, 1e-30f, -1e-30f, 89.f, -104.f, 0.5f};
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += step) {
    float v;
    const auto low = static_cast<std::uint32_t>(bits);
    std::memcpy(&v, &low, 4);
    if (std::fabs(v) >= std::numeric_limits<float>::min() && std::isfinite(v)) x.push_back(v);
  }
  for (float v : numbers(20000, -1, 1)) x.push_back(v);
  const Array a = Array::from(x);
  const auto log = log1p(a).to_vector<float>(), exp = expm1(a).to_vector<float>();
  double worst_log = 0, worst_exp = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double l = ulps(log[i], std::log1p(static_cast<double>(x[i])));
    const double wanted = std::expm1(static_cast<double>(x[i]));
    const double e = wanted > std::numeric_limits<float>::max() ? exp[i] < 3.4e38f : ulps(exp[i], wanted);
    if (l > worst_log) worst_log = l, RecordProperty("log1p at", std::to_string(x[i]));
    if (e > worst_exp) worst_exp = e, RecordProperty("expm1 at", std::to_string(x[i]));
    ASSERT_LE(l, 2) << "log1p of " << x[i] << " is " << log[i];
    ASSERT_LE(e, 4.5) << "expm1 of " << x[i] << " is " << exp[i];
  }
  std::printf("log1p within %.3f ulp, expm1 within %.3f ulp\n", worst_log, worst_exp);
  EXPECT_TRUE(std::signbit(log1p(Array::from({-0.f})).item<float>()));
  EXPECT_NEAR(log1p(Array::from({1.f}).astype(DType::f16)).astype(DType::f32).item<float>(), std::log(2.f), 5e-4);
  EXPECT_FLOAT_EQ(expm1(Array::from({std::int32_t{1}})).item<float>(), std::expm1(1.f));
  expect_throw<Error>([&] { log1p(Array::ones({1}, DType::boolean)); }, {"numbers"});
}

TEST_P(OnEveryDevice, Log1pAndExpm1AreAccurateInF64) {
  if (!device_info(GetParam()).can.f64) GTEST_SKIP() << "the device has no f64";
  std::vector<double> x = {0, 1, -1, 1e-300, -1e-300, 1e300, -1e300};
  for (int i = 0; i < 20000; ++i) {
    const double sign = random() % 2 ? 1 : -1;
    x.push_back(sign * std::exp(std::uniform_real_distribution<double>(-60, 6)(random)));
  }
  const auto log = log1p(Array::from(x)).to_vector<double>(), exp = expm1(Array::from(x)).to_vector<double>();
  double worst_log = 0, worst_exp = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {  // the references themselves have an error of up to one ulp
    const double l = ulps(log[i], std::log1p(x[i])), e = ulps(exp[i], std::expm1(x[i]));
    worst_log = std::max(worst_log, l), worst_exp = std::max(worst_exp, e);
    ASSERT_LE(l, 3) << "log1p of " << x[i] << " is " << log[i];
    ASSERT_LE(e, 5.5) << "expm1 of " << x[i] << " is " << exp[i];
  }
  std::printf("log1p within %.3f ulp, expm1 within %.3f ulp\n", worst_log, worst_exp);
}

TEST_P(OnEveryDevice, VarAndStdMatchTheReference) {
  const auto x = numbers(6 * 40, 100, 101);  // far from zero, where the difference of squares would cancel completely
  const Array a = Array::from(x, Shape{6, 40});
  for (double correction : {0.0, 1.0}) {
    const auto v = var(a, {1}, correction).to_vector<float>(), s = stddev(a, {1}, correction).to_vector<float>();
    EXPECT_EQ(tessera::std(a, {1}, correction).to_vector<float>(), s);
    for (std::size_t r = 0; r < 6; ++r) {
      double mean = 0, square = 0;
      for (std::size_t c = 0; c < 40; ++c) mean += x[r * 40 + c] / 40.0;
      for (std::size_t c = 0; c < 40; ++c) square += (x[r * 40 + c] - mean) * (x[r * 40 + c] - mean);
      const double wanted = square / (40 - correction);
      ASSERT_NEAR(v[r], wanted, 1e-4 * wanted);
      ASSERT_NEAR(s[r], std::sqrt(wanted), 1e-4);
    }
  }
  EXPECT_EQ(var(a, {0}, 1, true).shape(), (Shape{1, 40}));
  EXPECT_EQ(var(a.transpose() * 1, {0}).shape(), (Shape{6}));
  EXPECT_EQ(var(Array::full({5}, 3)).item<float>(), 0);
  EXPECT_TRUE(std::isnan(var(Array::ones({1})).item<float>()));  // undefined for a single element
  EXPECT_EQ(var(Array::ones({1}), {}, 0).item<float>(), 0);
  EXPECT_TRUE(std::isnan(var(Array::ones({0})).item<float>()));
  EXPECT_EQ(var(Array::ones({0, 3}), {1}).shape(), (Shape{0}));
  EXPECT_EQ(var(numbered({3}).astype(DType::f16)).dtype(), DType::f16);
  EXPECT_EQ(var(numbered({3}, DType::i32)).astype(DType::f32).item<float>(), 1);
}

TEST_P(OnEveryDevice, LogSumExpDoesNotOverflow) {
  const auto x = numbers(5 * 30, -50, 50);
  const Array a = Array::from(x, Shape{5, 30});
  const auto got = logsumexp(a, {1}).to_vector<float>();
  for (std::size_t r = 0; r < 5; ++r) {
    double total = 0;
    for (std::size_t c = 0; c < 30; ++c) total += std::exp(static_cast<double>(x[r * 30 + c]));
    ASSERT_NEAR(got[r], std::log(total), 1e-5 * std::fabs(std::log(total)));
  }
  expect_same(
      logsumexp(Array::from({-inf, -inf, 1e4f, -inf, inf, 2.f, nan, 0.f}, Shape{4, 2}), {-1}).to_vector<float>(),
      {-inf, 1e4f, inf, nan});
  EXPECT_EQ(logsumexp(a, {0, -1}, true).shape(), (Shape{1, 1}));
  EXPECT_EQ(logsumexp(a, {0}).shape(), (Shape{30}));
  EXPECT_NEAR(logsumexp(Array::zeros({8})).item<float>(), std::log(8.f), 1e-6);
  expect_same(logsumexp(Array::ones({2, 0}), {1}).to_vector<float>(), {-inf, -inf});
  EXPECT_EQ(logsumexp(a.astype(DType::bf16), {1}).dtype(), DType::bf16);
  EXPECT_EQ(logsumexp(numbered({3}, DType::i32)).dtype(), DType::f32);
  expect_throw<Error>([&] { logsumexp(a, {2}); }, {"logsumexp"});
}

TEST_P(OnEveryDevice, CumsumMatchesTheReference) {
  for (const Shape& shape : {Shape{1}, Shape{7}, Shape{0}, Shape{300}, Shape{100003}, Shape{3, 20011}, Shape{900, 5},
                             Shape{20011, 3}, Shape{2, 257, 3}, Shape{4, 0, 2}})
    for (int axis = -1; axis >= -static_cast<int>(shape.size()); --axis) {
      const auto x = integers(element_count(shape));
      const Array a = Array::from(x, shape);
      const auto d = static_cast<std::size_t>(axis + static_cast<int>(shape.size()));
      std::size_t inner = 1, extent = static_cast<std::size_t>(shape[d]);
      for (std::size_t i = d + 1; i < shape.size(); ++i) inner *= static_cast<std::size_t>(shape[i]);
      std::vector<std::int64_t> wanted(x.begin(), x.end());
      for (std::size_t i = 0; i < x.size(); ++i)
        if (i / inner % extent != 0) wanted[i] += wanted[i - inner];
      ASSERT_EQ(cumsum(a, axis).to_vector<std::int64_t>(), wanted) << to_string(shape) << " axis " << axis;
      // the floats are integers, so their sums are exact
      const auto floats = cumsum(a.astype(DType::f32), axis).to_vector<float>();
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(floats[i], static_cast<float>(wanted[i]));
    }
  EXPECT_EQ(cumsum(numbered({2, 3}).transpose(), 0).to_vector<float>(), (Floats{0, 3, 1, 7, 3, 12}));
  EXPECT_EQ(cumsum(Array::ones({3}, DType::boolean)).to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(cumsum(Array::ones({300}, DType::u8)).dtype(), DType::u64);
  const Array half = cumsum(Array::ones({3000}, DType::f16));  // summed in f32, because an f16 sum would stop at 2048
  EXPECT_EQ(half.dtype(), DType::f16);
  EXPECT_EQ(half.astype(DType::f32).to_vector<float>().back(), 3000);
  expect_throw<Error>([&] { cumsum(Array::ones({3}), 1); }, {"cumsum"});
}

// The layout of an axis, for the references.
struct Layout {
  std::size_t outer = 1, extent, inner = 1;
  Layout(const Shape& shape, int axis) : extent(static_cast<std::size_t>(shape[static_cast<std::size_t>(axis)])) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (d < static_cast<std::size_t>(axis)) outer *= static_cast<std::size_t>(shape[d]);
      if (d > static_cast<std::size_t>(axis)) inner *= static_cast<std::size_t>(shape[d]);
    }
  }
};

TEST_P(OnEveryDevice, TakeSelectsAlongAnyAxis) {
  for (const Shape& shape : {Shape{7}, Shape{5, 6}, Shape{3, 4, 5}, Shape{1, 1}})
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis)
      for (const Shape& count : {Shape{1}, Shape{9}, Shape{2, 3}, Shape{}, Shape{0}}) {
        const auto x = numbers(element_count(shape));
        const Layout l(shape, axis);
        const auto extent = static_cast<int>(l.extent);
        const auto which = integers(element_count(count), -2, extent + 1);
        const Array got = take(Array::from(x, shape), Array::from(which, count), axis - (axis % 2 ? rank(shape) : 0));
        Floats wanted;
        for (std::size_t o = 0; o < l.outer; ++o)
          for (std::int32_t i : which)
            for (std::size_t w = 0; w < l.inner; ++w)
              wanted.push_back(i < 0 || i >= extent ? 0
                                                    : x[(o * l.extent + static_cast<std::size_t>(i)) * l.inner + w]);
        ASSERT_EQ(got.rank(), rank(shape) - 1 + rank(count));
        ASSERT_EQ(got.to_vector<float>(), wanted);
      }
  const Array a = numbered({3, 4}), i = Array::from({std::uint64_t{1} << 40, std::uint64_t{2}});
  EXPECT_EQ(take(a.transpose(), i, 1).to_vector<float>(), (Floats{0, 8, 0, 9, 0, 10, 0, 11}));
  EXPECT_EQ(take(a > 5, Array::from({std::int8_t{1}}), 1).to_vector<bool>(), (std::vector<bool>{false, false, true}));
  expect_throw<Error>([&] { take(a, a); }, {"integer indices"});
  expect_throw<Error>([&] { take(a, i, 2); }, {"take"});
  expect_throw<Error>([&] { take_along_axis(Array::ones({}), i); }, {"no axis to select from"});
}

TEST_P(OnEveryDevice, TakeAlongAxisMatchesTheReference) {
  const Shape shape = {3, 4, 5};
  const auto x = numbers(60);
  const Array a = Array::from(x, shape);
  for (int axis = 0; axis < 3; ++axis) {
    Shape some = shape;
    some[static_cast<std::size_t>(axis)] = 6;
    const auto which = integers(element_count(some), -1, static_cast<int>(shape[static_cast<std::size_t>(axis)]));
    const auto got = take_along_axis(a, Array::from(which, some), axis).to_vector<float>();
    const Layout l(shape, axis);
    for (std::size_t i = 0; i < which.size(); ++i) {
      const std::size_t w = i % l.inner, o = i / l.inner / 6;
      const bool inside = which[i] >= 0 && which[i] < static_cast<int>(l.extent);
      ASSERT_EQ(got[i], inside ? x[(o * l.extent + static_cast<std::size_t>(which[i])) * l.inner + w] : 0);
    }
  }
  // a single row of indices, which is broadcast
  const Array order = Array::from({std::int64_t{2}, std::int64_t{0}}, Shape{1, 2});
  EXPECT_EQ(take_along_axis(numbered({2, 3}), order, 1).to_vector<float>(), (Floats{2, 0, 5, 3}));
  EXPECT_EQ(take_along_axis(numbered({3, 2}).transpose(), order).to_vector<float>(), (Floats{4, 0, 5, 1}));
  EXPECT_EQ(take_along_axis(Array::ones({2, 0}), Array::zeros({2, 3}, DType::i32), 1).to_vector<float>(), Floats(6, 0));
  expect_throw<Error>(
      [&] {
        take_along_axis(a, Array::zeros({3, 4}, DType::i32));
      },
      {"as many dimensions as the array"});
  expect_throw<Error>(
      [&] {
        take_along_axis(a, Array::zeros({2, 4, 5}, DType::i32));
      },
      {"except that of the selected axis"});
  expect_throw<Error>([&] { take_along_axis(a, a); }, {"integer indices"});
}

TEST_P(OnEveryDevice, ScatterAndScatterAddMatchTheReference) {
  for (const Shape& shape :
       {Shape{7}, Shape{5, 6}, Shape{3, 4, 5}, Shape{1, 1}, Shape{400, 3}, Shape{9, 150}, Shape{70000}})
    for (int axis = 0; axis < rank(shape); ++axis)
      for (const Shape& count : {Shape{1}, Shape{9}, Shape{20, 30}, Shape{}, Shape{0}}) {
        const auto x = numbers(element_count(shape));
        const Layout l(shape, axis);
        const auto extent = static_cast<int>(l.extent);
        const auto which = integers(element_count(count), -2, extent + 1);
        const auto u = numbers(static_cast<std::int64_t>(l.outer * which.size() * l.inner));
        Shape updates;
        for (int d = 0; d < axis; ++d) updates.push_back(shape[static_cast<std::size_t>(d)]);
        for (std::int64_t n : count) updates.push_back(n);
        for (int d = axis + 1; d < rank(shape); ++d) updates.push_back(shape[static_cast<std::size_t>(d)]);
        Floats replaced = x, added = x;  // sums are in the order of the indices, so the results are bit-identical
        for (std::size_t o = 0; o < l.outer; ++o)
          for (std::size_t i = 0; i < which.size(); ++i)
            for (std::size_t w = 0; w < l.inner && which[i] >= 0 && which[i] < extent; ++w) {
              const float value = u[(o * which.size() + i) * l.inner + w];
              const std::size_t at = (o * l.extent + static_cast<std::size_t>(which[i])) * l.inner + w;
              replaced[at] = value, added[at] += value;
            }
        const Array a = Array::from(x, shape), indices = Array::from(which, count), values = Array::from(u, updates);
        const std::string what = to_string(shape) + " axis " + std::to_string(axis) + " indices " + to_string(count);
        ASSERT_EQ(scatter(a, indices, values, axis).to_vector<float>(), replaced) << what;
        ASSERT_EQ(scatter_add(a, indices, values, axis - rank(shape)).to_vector<float>(), added) << what;
        ASSERT_EQ(a.to_vector<float>(), x);
      }
}

TEST_P(OnEveryDevice, ScatterAcceptsViewsAndOtherDtypes) {
  const Array twice = Array::from({std::uint8_t{1}, std::uint8_t{1}, std::uint8_t{9}});
  const Array a = numbered({2, 3}).transpose();  // (3, 2)
  EXPECT_EQ(scatter(a, twice, Array::from({7.f, 8.f}, Shape{1, 2})).to_vector<float>(), (Floats{0, 3, 7, 8, 2, 5}));
  EXPECT_EQ(scatter_add(a, twice, Array::from({7.f}, Shape{1, 1})).to_vector<float>(), (Floats{0, 3, 15, 18, 2, 5}));
  const Array whole = numbered({3}, DType::i64);
  EXPECT_EQ(scatter_add(whole, twice, Array::ones({3})).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{0, 3, 2}));
  const Array bools = scatter(Array::zeros({3}, DType::boolean), twice, Array::ones({3}, DType::boolean));
  EXPECT_EQ(bools.to_vector<bool>(), (std::vector<bool>{false, true, false}));
  for (const DType narrow : {DType::f16, DType::bf16})
    EXPECT_EQ(scatter(a.astype(narrow), twice, Array::from({7.f, 8.f}, Shape{1, 2}).astype(narrow))
                  .astype(DType::f32)
                  .to_vector<float>(),
              (Floats{0, 3, 7, 8, 2, 5}));
  const Array many = Array::zeros({3000}, DType::i32);  // summed in f32, because an f16 sum would stop at 2048
  const Array half = scatter_add(Array::zeros({2}, DType::f16), many, Array::ones({3000}, DType::f16));
  EXPECT_EQ(half.astype(DType::f32).to_vector<float>(), (Floats{3000, 0}));
  if (device_info(GetParam()).can.f64) {
    const Array d = scatter_add(Array::zeros({2}, DType::f64), many, Array::full({3000}, 0.1, DType::f64));
    double wanted = 0;
    for (int i = 0; i < 3000; ++i) wanted += 0.1;
    EXPECT_EQ(d.to_vector<double>()[0], wanted);
  }
  EXPECT_EQ(scatter_add(Array::ones({0, 2}), Array::zeros({3}, DType::i32), Array::ones({3, 2})).shape(),
            (Shape{0, 2}));
  expect_throw<Error>([&] { scatter(a, twice, Array::ones({3, 3})); }, {"cannot be broadcast"});
  expect_throw<Error>([&] { scatter_add(a, twice, Array::ones({2, 2})); }, {"cannot be broadcast"});
  expect_throw<Error>([&] { scatter_add(a, a, a); }, {"integer indices"});
  expect_throw<Error>([&] { scatter_add(bools, twice, bools); }, {"numbers"});
}

// docs/arrays.md, "Gather and scatter".
TEST_P(OnEveryDevice, DocumentedGatherAndScatterExampleWorks) {
  Array table = Array::arange(6).reshape({3, 2});
  Array ids = Array::from({2, 0, 2});
  Array rows = take(table, ids);
  Array counts = scatter_add(Array::zeros({3}), ids, Array::ones({3}));
  EXPECT_EQ(rows.to_vector<float>(), (Floats{4, 5, 0, 1, 4, 5}));
  EXPECT_EQ(counts.to_vector<float>(), (Floats{1, 0, 2}));
}

TEST_P(OnEveryDevice, UpdateSliceMatchesTheReference) {
  const Array a = numbered({3, 4});
  const Array out = update_slice(a, Array::from({90.f, 91.f}, Shape{2, 1}), {1, 3});
  EXPECT_EQ(out.to_vector<float>(), (Floats{0, 1, 2, 3, 4, 5, 6, 90, 8, 9, 10, 91}));
  EXPECT_EQ(a.to_vector<float>(), numbered({3, 4}).to_vector<float>());
  EXPECT_EQ(update_slice(a, a.slice(0, 0, 0), {3, 0}).to_vector<float>(), a.to_vector<float>());
  EXPECT_EQ(update_slice(numbered({3}, DType::i32), Array::from({7.9f}), {0}).to_vector<std::int32_t>(),
            (Indices{7, 1, 2}));
  expect_throw<Error>([&] { update_slice(a, Array::ones({2, 2}), {2, 0}); }, {"do not fit inside"});
  expect_throw<Error>([&] { update_slice(a, Array::ones({1, 1}), {-1, 0}); }, {"do not fit inside"});
  expect_throw<Error>([&] { update_slice(a, Array::ones({1}), {0}); }, {"do not fit inside"});
}

}  // namespace
}  // namespace tessera
