// SPDX-License-Identifier: Apache-2.0
// Sorting, masks, reversal and trigonometric functions, compared with the C++ library on the host. Results match NumPy,
// except that -0 sorts before +0.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "tessera/array/functions.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/launches.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;
using Places = std::vector<std::int64_t>;
constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// NaN sorts last, and -0 before +0.
template <class T>
bool before(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return a == a && b != b;
    if (a == 0 && b == 0) return std::signbit(a) && !std::signbit(b);
  }
  return a < b;
}
template <class T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return a != a && b != b;
    return a == b && std::signbit(a) == std::signbit(b);
  }
  return a == b;
}

template <class T>
class Values {
 public:
  explicit Values(std::mt19937_64& random) : random_(random) {}
  /// Random elements, some of which are special values. They have either arbitrary bit patterns or only a few distinct
  /// values.
  std::vector<T> some(std::int64_t n) {
    std::vector<T> out;
    const bool few = random_() % 2 == 0;
    for (std::int64_t i = 0; i < n; ++i) {
      T v;
      const std::uint64_t bits = random_();
      std::memcpy(&v, &bits, sizeof v);
      if constexpr (std::is_floating_point_v<T>) {
        if (few) v = static_cast<T>(static_cast<int>(bits % 7)) - 3;
        const T specials[] = {
            0, -T{0}, static_cast<T>(inf), -static_cast<T>(inf), static_cast<T>(nan), -static_cast<T>(nan)};
        if (bits % 5 == 0) v = specials[bits / 5 % 6];
      } else if (few) {
        v = static_cast<T>(bits % 7);
      }
      out.push_back(v);
    }
    return out;
  }

 private:
  std::mt19937_64& random_;
};

template <class T>
void check_sort(std::mt19937_64& random, const Shape& shape, int axis) {
  const std::vector<T> x = Values<T>(random).some(element_count(shape));
  const Array a = Array::from(x, shape);
  const auto sorted = sort(a, axis).as_contiguous().to_vector<T>();
  const Array order = argsort(a, axis);
  ASSERT_EQ(order.dtype(), DType::i64);
  ASSERT_EQ(order.shape(), shape);
  const auto places = order.as_contiguous().to_vector<std::int64_t>();
  const auto d = static_cast<std::size_t>(axis < 0 ? axis + static_cast<int>(shape.size()) : axis);
  std::int64_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < d; ++i) outer *= shape[i];
  for (std::size_t i = d + 1; i < shape.size(); ++i) inner *= shape[i];
  const std::int64_t n = shape[d];
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      const auto at = [&](std::int64_t k) { return static_cast<std::size_t>((o * n + k) * inner + i); };
      Places wanted(static_cast<std::size_t>(n));
      std::iota(wanted.begin(), wanted.end(), std::int64_t{0});
      std::ranges::stable_sort(wanted, [&](std::int64_t p, std::int64_t q) { return before(x[at(p)], x[at(q)]); });
      for (std::int64_t k = 0; k < n; ++k) {
        const std::int64_t p = wanted[static_cast<std::size_t>(k)];
        ASSERT_EQ(places[at(k)], p) << to_string(shape) << " axis " << axis << ", place " << k;
        ASSERT_TRUE(same(sorted[at(k)], x[at(p)])) << to_string(shape) << " axis " << axis << ", place " << k;
      }
    }
}

TEST_P(OnEveryDevice, SortMatchesStdStableSort) {
  // Covers all methods. Rows of up to 128 elements are sorted by counting, and longer rows by a radix sort in one or
  // several parts of 1024 to 4096 elements. On cpu, rows of 33 to 1024 elements are sorted by a network.
  const bool slow = GetParam().backend == Backend::interp;
  for (const Shape& s : {Shape{1}, Shape{2}, Shape{128}, Shape{129}, Shape{3, 130}, Shape{2, 1100},
                         Shape{slow ? 9000 : 70001}, Shape{5, 1}})
    check_sort<float>(random, s, -1), check_sort<std::int32_t>(random, s, -1);
  // The network sorts blocks of 16 elements and merges the blocks. The last run of a merge may be short or missing.
  if (blocks_are_vectors(GetParam().backend))
    for (const std::int64_t n :
         {33, 48, 49, 63, 65, 100, 127, 200, 257, 350, 400, 470, 500, 513, 700, 1000, 1024, 1025})
      for (const std::int64_t rows : {1, 16, 21}) check_sort<float>(random, {rows, n}, 1);
  for (const int axis : {0, 1, -1, -3}) check_sort<float>(random, {4, 3, 5}, axis);
  check_sort<float>(random, {200, 3}, 0), check_sort<std::int64_t>(random, {2, 150, 2}, 1);
  std::vector<void (*)(std::mt19937_64&, const Shape&, int)> others = {
      check_sort<std::int8_t>,   check_sort<std::uint8_t>,  check_sort<std::int16_t>,
      check_sort<std::uint16_t>, check_sort<std::uint32_t>, check_sort<std::uint64_t>};
  if (device_info(GetParam()).can.f64) others.push_back(check_sort<double>);
  // Vendor compilers are slow, so each run tests only two of the other dtypes.
  if (!is_built_in(GetParam().backend)) std::ranges::shuffle(others, random), others.resize(2);
  for (const auto check : others)
    for (const std::int64_t n : {40, 1000, slow ? 2100 : 5000}) check(random, {n}, 0);
}

TEST_P(OnEveryDevice, SortsViewsPendingArraysAndEmptyArrays) {
  const Array x = Array::from(numbers(600, -9, 9));
  for (const DType t : {DType::f16, DType::bf16}) {
    const Array small = x.astype(t);
    EXPECT_EQ(sort(small).dtype(), t);
    EXPECT_EQ(sort(small).astype(DType::f32).to_vector<float>(), sort(small.astype(DType::f32)).to_vector<float>());
    EXPECT_EQ(argsort(small).to_vector<std::int64_t>(), argsort(small.astype(DType::f32)).to_vector<std::int64_t>());
    const Array special = Array::from({nan, 1.f, -inf, -nan, inf, -1.f}).astype(t);
    EXPECT_EQ(argsort(special).to_vector<std::int64_t>(), (Places{2, 5, 1, 4, 0, 3}));
  }
  std::vector<bool> bools;
  for (int i = 0; i < 300; ++i) bools.push_back(random() % 2 == 0);
  const std::unique_ptr<bool[]> raw(new bool[300]);
  std::copy(bools.begin(), bools.end(), raw.get());
  const Array flags = Array::from(std::span<const bool>(raw.get(), 300));
  std::sort(bools.begin(), bools.end());
  EXPECT_EQ(sort(flags).to_vector<bool>(), bools);
  EXPECT_EQ(sort(flags.slice(0, 0, 9)).dtype(), DType::boolean);
  // Views, pending arrays and empty arrays.
  const Array m = Array::from(numbers(20 * 300)).reshape({20, 300});
  EXPECT_EQ(sort(m.transpose(), 0).transpose().as_contiguous().to_vector<float>(), sort(m, 1).to_vector<float>());
  EXPECT_EQ(sort(-m).to_vector<float>(), flip(-sort(m), {1}).to_vector<float>());
  EXPECT_EQ(take_along_axis(m, argsort(m)).to_vector<float>(), sort(m).to_vector<float>());
  EXPECT_EQ(sort(Array::ones({0})).shape(), Shape{0});
  EXPECT_EQ(argsort(Array::ones({3, 0, 2}), 0).shape(), (Shape{3, 0, 2}));
  expect_throw<Error>([&] { argsort(m, 2); }, {"axis"});
}

TEST_P(OnEveryDevice, MaskedSelectMatchesNumPy) {
  const Floats x = numbers(5000);
  const Array a = Array::from(x, Shape{50, 100});
  Floats above;
  Places rows, columns;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] > 1) {
      above.push_back(x[i]);
      rows.push_back(static_cast<std::int64_t>(i) / 100), columns.push_back(static_cast<std::int64_t>(i) % 100);
    }
  EXPECT_EQ(masked_select(a, a > 1).to_vector<float>(), above);
  // Some parts have no true elements, others have true elements only at their ends.
  for (const std::int64_t n : {1, 4095, 4096, 4097, 13000}) {
    const std::unique_ptr<bool[]> raw(new bool[static_cast<std::size_t>(n)]());
    Places wanted;
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{4095}, std::int64_t{4096}, std::int64_t{12287}, n - 1})
      if (at < n) raw[static_cast<std::size_t>(at)] = true;
    for (std::int64_t i = 0; i < n; ++i)
      if (raw[static_cast<std::size_t>(i)]) wanted.push_back(i);
    const Array flags = Array::from(std::span<const bool>(raw.get(), static_cast<std::size_t>(n)));
    ASSERT_EQ(nonzero(flags)[0].to_vector<std::int64_t>(), wanted) << n;
  }
  const auto at = nonzero(a > 1);
  ASSERT_EQ(at.size(), 2u);
  EXPECT_EQ(at[0].to_vector<std::int64_t>(), rows);
  EXPECT_EQ(at[1].to_vector<std::int64_t>(), columns);
  // Rows, views, and an empty selection.
  const Array small = Array::arange(6).reshape({3, 2}), first = Array::from({true, false, true});
  EXPECT_EQ(masked_select(small, first).to_vector<float>(), (Floats{0, 1, 4, 5}));
  EXPECT_EQ(masked_select(small, first).shape(), (Shape{2, 2}));
  EXPECT_EQ(masked_select(small.transpose(), small.transpose() > 2).to_vector<float>(), (Floats{4, 3, 5}));
  EXPECT_EQ(masked_select(small, small > 9).shape(), Shape{0});
  EXPECT_EQ(masked_select(small, Array::zeros({3}, DType::boolean)).shape(), (Shape{0, 2}));
  EXPECT_EQ(masked_select(Array::ones({0, 4}), Array::ones({0}, DType::boolean)).shape(), (Shape{0, 4}));
  EXPECT_EQ(nonzero(Array::from({0.f, nan, -0.f, 2.f}))[0].to_vector<std::int64_t>(), (Places{1, 3}));
  EXPECT_EQ(nonzero(Array::zeros({2, 0, 3}))[2].shape(), Shape{0});
  const auto deep = nonzero(Array::from({std::int32_t{0}, 0, 0, 7, 0, 0, 0, 1}, Shape{2, 2, 2}));
  EXPECT_EQ(deep[0].to_vector<std::int64_t>(), (Places{0, 1}));
  EXPECT_EQ(deep[1].to_vector<std::int64_t>(), (Places{1, 1}));
  EXPECT_EQ(deep[2].to_vector<std::int64_t>(), (Places{1, 1}));
  expect_throw<Error>([&] { masked_select(small, small); }, {"a mask must be a bool array", "Compare"});
  expect_throw<Error>([&] { masked_select(small, Array::from({true, false})); }, {"the array's first axes"});
}

// As in NumPy, arrays without axes are treated as shape (1,). The position that argmax returns also has no axes.
TEST_P(OnEveryDevice, TreatsArraysWithoutAxesAsOneDimensional) {
  const Array five = Array::full({}, 5), zero = Array::zeros({});
  for (const int axis : {0, -1}) {
    EXPECT_EQ(argmax(five, axis).shape(), Shape{});
    EXPECT_EQ(argmin(five, axis, true).shape(), Shape{});
    EXPECT_EQ(argmax(five, axis).item<std::int64_t>(), 0);
    EXPECT_EQ(cumsum(five, axis).to_vector<float>(), Floats{5});
    EXPECT_EQ(sort(five, axis).to_vector<float>(), Floats{5});
    EXPECT_EQ(argsort(five, axis).to_vector<std::int64_t>(), Places{0});
    EXPECT_EQ(take(five, Array::from<std::int32_t>({0, 0, 1}), axis).to_vector<float>(), (Floats{5, 5, 0}));
  }
  EXPECT_EQ(cumsum(five).shape(), Shape{1});
  EXPECT_EQ(sort(five).shape(), Shape{1});
  EXPECT_EQ(take(five, Array::zeros({}, DType::i64)).shape(), Shape{});
  EXPECT_EQ(nonzero(five)[0].to_vector<std::int64_t>(), Places{0});
  EXPECT_EQ(nonzero(zero)[0].shape(), Shape{0});
  EXPECT_EQ(masked_select(five, five > 1).to_vector<float>(), Floats{5});
  EXPECT_EQ(masked_select(five, five < 1).shape(), Shape{0});
  EXPECT_EQ(masked_select(Array::ones({2, 3}), five > 1).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(masked_select(Array::ones({2, 3}), five < 1).shape(), (Shape{0, 2, 3}));
  for (const auto& call : {+[](const Array& a) { return argmax(a, 1); }, +[](const Array& a) { return cumsum(a, 1); },
                           +[](const Array& a) { return sort(a, 1); },
                           +[](const Array& a) { return take(a, Array::zeros({1}, DType::i64), 1); }})
    expect_throw<ShapeError>([&] { call(five); }, {"axis = 1", "the axis is out of range"});
}

TEST_P(OnEveryDevice, UniqueMatchesStdSet) {
  for (const std::int64_t n : {1, 60, 3000}) {
    auto x = integers(n, -40, 40);
    const Array a = Array::from(x);
    std::ranges::sort(x);
    x.erase(std::unique(x.begin(), x.end()), x.end());
    EXPECT_EQ(unique(a).to_vector<std::int32_t>(), x);
  }
  const auto got = unique(Array::from({nan, 2.f, -inf, 2.f, -0.f, 0.f, nan, -nan}, Shape{2, 4})).to_vector<float>();
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(Floats(got.begin(), got.begin() + 3), (Floats{-inf, 0, 2}));
  EXPECT_TRUE(std::isnan(got[3]));
  EXPECT_EQ(unique(Array::from({true, false, true})).to_vector<bool>(), (std::vector<bool>{false, true}));
  EXPECT_EQ(unique(Array::ones({0, 3})).shape(), Shape{0});
  EXPECT_EQ(unique(Array::full({}, 7)).to_vector<float>(), Floats{7});
}

// Compares all slices a[begin:end:step] with Python's semantics.
TEST_P(OnEveryDevice, SlicesMatchPython) {
  const std::int64_t n = 5, none = -100;
  const Array a = Array::arange(n);
  for (const std::int64_t step : {-1, -2, -4, -9})
    for (std::int64_t begin = -7; begin <= 7; ++begin)
      for (std::int64_t end : {none, std::int64_t{-6}, std::int64_t{-3}, std::int64_t{-1}, std::int64_t{0},
                               std::int64_t{2}, std::int64_t{9}}) {
        const std::int64_t from = std::clamp(begin < 0 ? begin + n : begin, std::int64_t{-1}, n - 1);
        const std::int64_t to = std::clamp(end < 0 ? end + n : end, std::int64_t{-1}, n - 1);
        Floats wanted;
        for (std::int64_t i = from; i > to; i += step) wanted.push_back(static_cast<float>(i));
        ASSERT_EQ(a.slice(0, begin, end, step).to_vector<float>(), wanted) << begin << ":" << end << ":" << step;
      }
  const Array m = Array::arange(12).reshape({3, 4});
  EXPECT_EQ(m.slice(1, -1, -5, -2).to_vector<float>(), (Floats{3, 1, 7, 5, 11, 9}));
  EXPECT_EQ(m.transpose().slice(0, 1, none, -1).to_vector<float>(), (Floats{1, 5, 9, 0, 4, 8}));
  Array copy = m.slice(0, 2, none, -1);
  copy.fill(0);
  EXPECT_EQ(m.slice(0, 2, 3).to_vector<float>(), (Floats{8, 9, 10, 11}));
  EXPECT_EQ(m.slice(0, 0, 3, std::numeric_limits<std::int64_t>::min()).shape(), (Shape{0, 4}));
  expect_throw<Error>([&] { m.slice(0, 0, 1, 0); }, {"the step is zero"});

  EXPECT_EQ(flip(m).to_vector<float>(), (Floats{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(flip(m, {0}).to_vector<float>(), (Floats{8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3}));
  EXPECT_EQ(flip(m, {-1}).slice(0, 0, 1).to_vector<float>(), (Floats{3, 2, 1, 0}));
  EXPECT_EQ(flip(Array::full({}, 3)).item<float>(), 3);
  // All combinations of axes, in rows longer than a vector. The second round uses different numbers.
  const Shape shape = {3, 2, 5, 35};
  for (int round = 0; round < 2; ++round)
    for (unsigned chosen = 1; chosen < 16; ++chosen) {
      const Floats x = numbers(element_count(shape));
      const Strides strides = contiguous_strides(shape);
      std::vector<int> axes;
      for (int d = 0; d < 4; ++d)
        if ((chosen >> d & 1) != 0) axes.push_back(d);
      Floats turned(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        std::int64_t to = 0;
        for (std::size_t d = 0; d < 4; ++d) {
          const std::int64_t at = static_cast<std::int64_t>(i) / strides[d] % shape[d];
          to += strides[d] * ((chosen >> d & 1) != 0 ? shape[d] - 1 - at : at);
        }
        turned[static_cast<std::size_t>(to)] = x[i];
      }
      const Array a = Array::from(x, shape);
      ASSERT_EQ(flip(a, axes).to_vector<float>(), turned) << "axes " << chosen;
      test::Launches launches;
      flip(a, axes);
      ASSERT_EQ(launches.count, std::popcount(chosen & ~(chosen << 1))) << "one per run of adjacent axes, " << chosen;
    }
  EXPECT_EQ(flip(Array::ones({0, 2}, DType::u8)).shape(), (Shape{0, 2}));
  EXPECT_EQ(flip(Array::from({true, false, false})).to_vector<bool>(), (std::vector<bool>{false, false, true}));
  Array one = Array::ones({1});
  flip(one).fill(5);  // a copy, although no element has moved
  EXPECT_EQ(one.item<float>(), 1);
  expect_throw<Error>([&] { flip(m, {2}); }, {"axis"});
}

TEST_P(OnEveryDevice, LinspaceAndEyeMatchNumPy) {
  const bool wide = device_info(GetParam()).can.f64;
  for (const auto& [start, stop, count] :
       {std::tuple{0.0, 1.0, 11}, {-3.5, 1e6, 1001}, {2.0, -2.0, 4}, {5.0, 6.0, 1}}) {
    const auto got = Array::linspace(start, stop, count).to_vector<float>();
    ASSERT_EQ(got.size(), static_cast<std::size_t>(count));
    const double step = count > 1 ? (stop - start) / (count - 1) : 0;
    for (int i = 0; i < count; ++i) {
      const double wanted = i > 0 && i == count - 1 ? stop : i * step + start;
      if (wide)
        ASSERT_EQ(got[static_cast<std::size_t>(i)], static_cast<float>(wanted)) << i;
      else
        ASSERT_NEAR(got[static_cast<std::size_t>(i)], wanted, 1e-6 * std::max(std::abs(start), std::abs(stop))) << i;
    }
  }
  EXPECT_EQ(Array::linspace(-1, 1, 4, DType::i32).to_vector<std::int32_t>(), (std::vector<std::int32_t>{-1, -1, 0, 1}));
  EXPECT_EQ(Array::linspace(0, 1, 0).shape(), Shape{0});
  EXPECT_EQ(Array::linspace(0, 1, 3, DType::f16).dtype(), DType::f16);
  expect_throw<Error>([] { Array::linspace(0, 1, -1); }, {"the count is negative"});
  expect_throw<Error>([] { Array::linspace(0, 1, 2, DType::boolean); }, {"bool"});
  EXPECT_EQ(Array::eye(2).to_vector<float>(), (Floats{1, 0, 0, 1}));
  EXPECT_EQ(Array::eye(2, 3, 1).to_vector<float>(), (Floats{0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(Array::eye(3, 2, -1, DType::i32).to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(Array::eye(0, 4).shape(), (Shape{0, 4}));
  EXPECT_EQ(Array::eye(1, {}, 0, DType::boolean).to_vector<bool>(), std::vector<bool>{true});
  expect_throw<Error>([] { Array::eye(-1); }, {"an extent is negative"});
}

// docs/arrays.md, "Sort and select".
TEST_P(OnEveryDevice, DocumentedSortAndSelectExampleWorks) {
  Array scores = Array::from({0.3f, 2.5f, -1.f, 2.5f});
  Array order = argsort(scores);
  Array best = take(scores, flip(order)).slice(0, 0, 2);
  Array positive = masked_select(scores, scores > 0);
  EXPECT_EQ(order.to_vector<std::int64_t>(), (Places{2, 0, 1, 3}));
  EXPECT_EQ(best.to_vector<float>(), (Floats{2.5f, 2.5f}));
  EXPECT_EQ(positive.to_vector<float>(), (Floats{0.3f, 2.5f, 2.5f}));
}

// Unary and binary functions. Their accuracy is measured by lower_math_test, and by node_table_test on every device.

double ulps(float got, double wanted) {
  if (std::isnan(wanted) || std::isinf(static_cast<float>(wanted)))
    return std::isnan(wanted) ? !std::isnan(got) : got != static_cast<float>(wanted);
  const double least = std::numeric_limits<float>::min(), size = std::max(std::fabs(wanted), least);
  return std::fabs(static_cast<double>(got) - wanted) / std::ldexp(1.0, std::ilogb(size) - 23);
}

TEST_P(OnEveryDevice, UnaryFunctionsMatchTheCLibrary) {
  struct One {
    const char* name;
    Array (*f)(Array);
    double (*of)(double);
    double ulp;
  };
  const std::vector<One> all = {{"tan", tan, [](double v) { return std::tan(v); }, 2},
                                {"asin", asin, [](double v) { return std::asin(v); }, 1.25},
                                {"acos", acos, [](double v) { return std::acos(v); }, 1.25},
                                {"atan", atan, [](double v) { return std::atan(v); }, 1.5},
                                {"sinh", sinh, [](double v) { return std::sinh(v); }, 1.75},
                                {"cosh", cosh, [](double v) { return std::cosh(v); }, 1.5},
                                {"log10", log10, [](double v) { return std::log10(v); }, 1}};
  Floats x = {0.f, -0.f, inf, -inf, nan, 1.f, -1.f, 1.5707963f, 89.f, -89.f, 90.f, 1e-30f, 99999.f, 1000.f};
  for (const float v : numbers(3000, -1, 1)) x.push_back(v);
  for (const float v : numbers(3000, -90, 90)) x.push_back(v);
  const Array a = Array::from(x);
  for (const One& one : all) {
    const auto got = one.f(a).to_vector<float>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double wanted = one.of(static_cast<double>(x[i]));
      ASSERT_LE(ulps(got[i], wanted), one.ulp) << one.name << " of " << x[i] << " is " << got[i] << ", not " << wanted;
      if (wanted == 0) {
        ASSERT_EQ(std::signbit(got[i]), std::signbit(wanted)) << one.name << " of " << x[i];
      }
    }
    EXPECT_EQ(one.f(Array::from({1})).dtype(), DType::f32);
    const Array half = Array::from({0.5f}).astype(DType::f16);
    EXPECT_EQ(one.f(half).dtype(), DType::f16);
    EXPECT_NEAR(one.f(half).astype(DType::f32).item<float>(), one.of(0.5), 1e-3) << one.name;
    expect_throw<Error>([&] { one.f(Array::ones({1}, DType::boolean)); }, {"numbers"});
  }
}

TEST_P(OnEveryDevice, BinaryFunctionsMatchTheCLibrary) {
  Floats x, y;
  const Floats specials = {0.f, -0.f, 1.f, -1.f, inf, -inf, nan, 3e38f, -1e-30f};
  for (const float a : specials)
    for (const float b : specials) x.push_back(a), y.push_back(b);
  for (const float v : numbers(3000)) x.push_back(v);
  for (const float v : numbers(3000)) y.push_back(v);
  const Array a = Array::from(x), b = Array::from(y);
  const auto angle = atan2(a, b).to_vector<float>(), length = hypot(a, b).to_vector<float>(),
             sized = copysign(a, b).to_vector<float>(), next = nextafter(a, b).to_vector<float>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double p = x[i], q = y[i];
    ASSERT_LE(ulps(angle[i], std::atan2(p, q)), 1.75) << p << ", " << q << " gave " << angle[i];
    ASSERT_EQ(std::signbit(angle[i]), std::signbit(std::isnan(angle[i]) ? angle[i] : std::atan2(p, q)))
        << p << ", " << q;
    ASSERT_LE(ulps(length[i], std::hypot(p, q)), 1.25) << p << ", " << q << " gave " << length[i];
    ASSERT_TRUE(std::isnan(x[i]) ? std::isnan(sized[i]) : sized[i] == std::copysign(x[i], y[i])) << p << ", " << q;
    ASSERT_EQ(std::signbit(sized[i]), std::signbit(y[i])) << p << ", " << q;
    const float after = std::nextafter(x[i], y[i]);
    ASSERT_TRUE(std::isnan(after) ? std::isnan(next[i])
                                  : next[i] == after && std::signbit(next[i]) == std::signbit(after))
        << p << ", " << q << " gave " << next[i];
  }
  EXPECT_FLOAT_EQ(hypot(Array::from({3}), 4).item<float>(), 5);
  EXPECT_FLOAT_EQ(atan2(1, Array::from({-1.f})).item<float>(), std::atan2(1.f, -1.f));
  EXPECT_EQ(copysign(Array::from({2.f, -3.f}), -1).to_vector<float>(), (Floats{-2, -3}));
  EXPECT_EQ(copysign(2.5, Array::from({-0.f, 1.f}).astype(DType::bf16)).astype(DType::f32).to_vector<float>(),
            (Floats{-2.5, 2.5}));
  EXPECT_EQ(copysign(Array::from({1.f, -2.f}).astype(DType::f16), Array::from({-1.f})).dtype(), DType::f32);
  EXPECT_EQ(nextafter(Array::from({1.f}).astype(DType::f16), 2).astype(DType::f32).item<float>(), 1 + 0x1p-10f);
  if (device_info(GetParam()).can.f64) {
    EXPECT_EQ(nextafter(Array::from({1.0}), 2).item<double>(), 1 + 0x1p-52);
    EXPECT_EQ(copysign(Array::from({2.0}), Array::from({-0.0})).to_vector<double>(), std::vector<double>{-2});
    EXPECT_NEAR(atan2(Array::from({1e-200}), Array::from({1.0})).item<double>(), 1e-200, 1e-215);
  }
  expect_throw<Error>([&] { atan2(1, 2); }, {"one operand must be an array"});
  expect_throw<Error>([&] { copysign(1, 2); }, {"one operand must be an array"});
  expect_throw<Error>([&] { hypot(Array::ones({1}, DType::boolean), true); }, {"numbers"});
}

TEST_P(OnEveryDevice, ShiftsMatchTheReference) {
  for (const DType t : {DType::u8, DType::i8, DType::u16, DType::i16, DType::u32, DType::i32, DType::u64, DType::i64}) {
    const int bits = 8 * static_cast<int>(dtype_size(t));
    std::vector<std::int64_t> x, by, left, right;
    for (const std::int64_t v : {0, 1, -1, 5, -77, 120})
      for (const int n : {0, 1, 3, bits - 1, bits, bits + 1, 127}) {
        const auto value = Array::from({v}).astype(t).astype(DType::i64).item<std::int64_t>();
        x.push_back(value), by.push_back(n);
        const auto wide = static_cast<std::uint64_t>(value);
        left.push_back(n < bits ? static_cast<std::int64_t>(wide << n) : 0);
        right.push_back(is_signed_int(t) ? value >> std::min(n, bits - 1)
                        : n < bits       ? static_cast<std::int64_t>(wide >> n)
                                         : 0);
      }
    const Array a = Array::from(x).astype(t), counts = Array::from(by).astype(t);
    const auto wide = [](const Array& y) { return y.astype(DType::i64).to_vector<std::int64_t>(); };
    EXPECT_EQ(wide(a << counts), wide(Array::from(left).astype(t))) << dtype_name(t);
    EXPECT_EQ(wide(a >> counts), right) << dtype_name(t);
    EXPECT_EQ(wide(a << 3), wide(a * 8)) << dtype_name(t);
    EXPECT_EQ(wide(a >> 64), wide(is_signed_int(t) ? where(a < 0, Array::full({}, -1, t), 0) : a * 0)) << dtype_name(t);
  }
  EXPECT_EQ((1 << Array::from({0, 4})).to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 16}));
  expect_throw<DtypeError>([] { Array::ones({1}) << 1; }, {"integers"});
}

TEST_P(OnEveryDevice, RoundIsinfAndIsfiniteMatchTheReference) {
  const Array x = Array::from({0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 2.51f, inf, nan});
  const auto rounded = round(x).to_vector<float>();
  EXPECT_EQ(Floats(rounded.begin(), rounded.end() - 1), (Floats{0, 2, 2, -0.f, -2, 3, inf}));
  EXPECT_TRUE(std::signbit(rounded[3]) && std::isnan(rounded[7]));
  EXPECT_EQ(isinf(Array::from({inf, -inf, nan, 3e38f})).to_vector<bool>(),
            (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(isinf(Array::from({70000.f, 1.f}).astype(DType::f16)).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(isinf(Array::from({1, 2})).to_vector<bool>(), (std::vector<bool>{false, false}));
}

}  // namespace
}  // namespace tessera
