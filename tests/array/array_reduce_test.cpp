// SPDX-License-Identifier: Apache-2.0
// Reductions over all combinations of axes, joining, indexing, sequences, files and formatting, on every device.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <random>

#include "tessera/array/array.h"
#include "tessera/device/queue/sequence.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

// A plain reduction in double over the marked axes of a row-major array.
struct Reference {
  std::vector<double> sum, largest, smallest, absolute;
};
Reference reference(const std::vector<float>& x, const Shape& shape, const std::vector<bool>& reduced) {
  Shape kept;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!reduced[d]) kept.push_back(shape[d]);
  const auto n = static_cast<std::size_t>(element_count(kept));
  Reference r{std::vector<double>(n), std::vector<double>(n, -1e300), std::vector<double>(n, 1e300),
              std::vector<double>(n)};
  const Strides strides = contiguous_strides(kept);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), out = 0;
    std::size_t k = kept.size();
    for (std::size_t d = shape.size(); d-- > 0;) {
      const std::int64_t c = rest % shape[d];
      rest /= shape[d];
      if (!reduced[d]) out += c * strides[--k];
    }
    const auto o = static_cast<std::size_t>(out);
    r.sum[o] += x[i], r.absolute[o] += std::fabs(x[i]);
    r.largest[o] = std::max<double>(r.largest[o], x[i]), r.smallest[o] = std::min<double>(r.smallest[o], x[i]);
  }
  return r;
}

TEST_P(OnEveryDevice, ReducesOverAllCombinationsOfAxes) {
  const Shape shapes[] = {{1},        {5},        {1000},      {70001},      {3, 4},
                          {66000, 3}, {3, 66000}, {4, 300, 5}, {2, 3, 4, 5}, {1, 7, 1, 33}};
  for (const Shape& shape : shapes) {
    const auto x = numbers(element_count(shape));
    const Array a = Array::from(x, shape).eval();
    for (unsigned mask = 1; mask < 1u << shape.size(); ++mask) {
      std::vector<bool> reduced;
      std::vector<int> axes;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        reduced.push_back(mask >> d & 1);
        if (reduced.back()) axes.push_back(static_cast<int>(d) - (d % 2 ? static_cast<int>(shape.size()) : 0));
      }
      const Reference want = reference(x, shape, reduced);
      const std::string what =
          to_string(shape) + " mask " + std::to_string(mask) + " seed " + std::to_string(testing::seed());
      const auto total = sum(a, axes).to_vector<float>(), top = max(a, axes, true).to_vector<float>(),
                 low = min(a, axes).to_vector<float>();
      // The same with a pending expression, which is fused into the reduction.
      const auto doubled = sum(a * 2 + 1, axes).to_vector<float>();
      ASSERT_EQ(total.size(), want.sum.size()) << what;
      const double count = static_cast<double>(x.size()) / static_cast<double>(want.sum.size());
      for (std::size_t i = 0; i < total.size(); ++i) {
        const double bound = 1e-5 * want.absolute[i] + 1e-6;
        ASSERT_NEAR(total[i], want.sum[i], bound) << what << " sum at " << i;
        ASSERT_EQ(top[i], static_cast<float>(want.largest[i])) << what << " max at " << i;
        ASSERT_EQ(low[i], static_cast<float>(want.smallest[i])) << what << " min at " << i;
        ASSERT_NEAR(doubled[i], 2 * want.sum[i] + count, 2 * bound + 1e-5 * count) << what << " fused sum at " << i;
      }
    }
  }
}

TEST_P(OnEveryDevice, ReducesViews) {
  const auto x = numbers(40 * 30);
  const Array a = Array::from(x, Shape{40, 30});
  const Array view = a.transpose().slice(0, 1, 30, 3);  // (10, 40)
  const auto rows = sum(view, {1}).to_vector<float>(), columns = sum(view, {0}).to_vector<float>();
  for (int i = 0; i < 10; ++i) {
    double want = 0;
    for (int j = 0; j < 40; ++j) want += x[static_cast<std::size_t>(j * 30 + 1 + 3 * i)];
    ASSERT_NEAR(rows[static_cast<std::size_t>(i)], want, 1e-4);
  }
  for (int j = 0; j < 40; ++j) {
    double want = 0;
    for (int i = 0; i < 10; ++i) want += x[static_cast<std::size_t>(j * 30 + 1 + 3 * i)];
    ASSERT_NEAR(columns[static_cast<std::size_t>(j)], want, 1e-4);
  }
  const auto stretched = sum(Array::from({1.f, 2.f, 3.f}).broadcast_to({5, 3}), {0}).to_vector<float>();
  EXPECT_EQ(stretched, (std::vector<float>{5, 10, 15}));
}

TEST_P(OnEveryDevice, ReductionFusesAPendingExpression) {
  const Array a = Array::from(numbers(1000), Shape{10, 100}).eval();
  auto before = fused_launches();
  const auto fused = sum(exp(a) * 2, {1}).to_vector<float>();
  EXPECT_EQ(fused_launches(), before + 1);
  const Array kept = exp(a) * 2;
  before = fused_launches();
  const auto apart = sum(kept, {1}).to_vector<float>();
  EXPECT_EQ(fused_launches(), before + 2) << "kept is also used elsewhere, so it is computed once";
  EXPECT_FALSE(kept.pending());
  EXPECT_EQ(fused, apart) << "bitwise equal";
}

// Regression tests: each value used to be different if its operands had already been computed.
TEST_P(OnEveryDevice, ReadingIntermediateResultsDoesNotChangeValues) {
  const auto value = [](const Array& a) { return a.astype(DType::f32).to_vector<float>()[0]; };
  for (bool looked_at : {false, true}) {
    const auto look = [&](const Array& a) {
      if (looked_at) to_string(a);
      return a;
    };
    for (DType t : {DType::f16, DType::bf16}) {
      const Array y = Array::full({1}, t == DType::f16 ? 2048 : 256, t);
      const Array z = look(y + 1);
      EXPECT_TRUE((z == y).to_vector<bool>()[0]) << "rounded, as printed";
      EXPECT_EQ(value(look(y + 1) - y), 0);
    }
    const Array y = Array::full({1}, 2048, DType::f16);
    EXPECT_EQ(value(look(y * 64) / 64), HUGE_VALF);
    EXPECT_EQ(value(look(tanh(Array::full({1}, 5, DType::f16))).astype(DType::u8)), 1);
    const Array x = Array::full({40}, 1 + 0x1p-12f), row = Array::full({40}, -(1 + 0x1p-11f));
    EXPECT_EQ(value(look(x * x) + row), 0) << "not contracted";
    const Array zeros = look(Array::full({3}, -0.f) * 1);
    EXPECT_FALSE(std::signbit(value(maximum(zeros, 0))));
    EXPECT_FALSE(std::signbit(value(maximum(0, zeros))));
  }
}

// The kernel form of a sum depends only on the shape, not on whether its argument has been computed.
TEST_P(OnEveryDevice, SumDoesNotDependOnWhenItsArgumentIsComputed) {
  const Array x = Array::from(numbers(512 * 300), Shape{512, 300}),
              y = Array::from(numbers(300 * 512), Shape{300, 512});
  const Array row = Array::from(numbers(300)), column = Array::from(numbers(512), Shape{512, 1});
  const std::function<Array()> expressions[] = {
      [&] { return y.transpose() * 3; },           [&] { return y.transpose() * column; },
      [&] { return x * row + y.transpose(); },     [&] { return row * column; },
      [&] { return x.slice(1, 0, 300, 2) * 0.7; }, [&] { return exp(x.reshape({300, 512}).transpose()) * row; },
  };
  int number = 0;
  for (const auto& expression : expressions) {
    for (const std::vector<int>& axes : {std::vector<int>{}, {0}, {1}})
      for (const auto& [name, f] : {std::pair{"sum", &sum}, {"mean", &mean}, {"max", &max}}) {
        const auto fused = (*f)(expression(), axes, false).to_vector<float>();
        Array computed = expression();
        computed.eval();
        EXPECT_EQ(fused, (*f)(computed, axes, false).to_vector<float>())
            << name << " of expression " << number << " over " << axes.size() << " axes, seed " << testing::seed();
      }
    ++number;
  }
}

// The reduced dimensions are not contiguous in any view. Some rows are shorter and some are longer than a vector, and
// they can end at any lane.
TEST_P(OnEveryDevice, SumsOverSeveralDimensionsAreTheSameIfFused) {
  const auto check = [&](const Shape& shape, const std::vector<int>& axes) {
    Shape wider = shape, side(shape.size(), 1);
    wider.back() += 3, side[shape.size() - 2] = shape[shape.size() - 2];
    const auto of = [&](const Shape& s) { return Array::from(numbers(element_count(s)), s).eval(); };
    const Array x = of(shape), slice = of(wider).slice(static_cast<int>(shape.size()) - 1, 1, 1 + shape.back());
    const Array row = of({shape.back()}), column = of(side);
    const std::function<Array()> expressions[] = {
        [&] { return x * row; },
        [&] { return slice * 2; },
        // more operations than fit in a small kernel
        [&] { return exp(x * 0.1f) * row + abs(slice) - column + sqrt(abs(x)); },
        [&] { return (x > row).astype(DType::f32); },
    };
    for (const auto& expression : expressions)
      for (const auto& [name, f] : {std::pair{"sum", &sum}, {"max", &max}}) {
        const std::uint64_t before = fused_launches();
        const auto fused = (*f)(expression(), axes, false).to_vector<float>();
        const std::uint64_t launches = fused_launches() - before;
        Array computed = expression();
        computed.eval();
        const std::uint64_t begun = fused_launches();
        ASSERT_EQ(fused, (*f)(computed, axes, false).to_vector<float>())
            << name << " of " << to_string(shape) << ", seed " << testing::seed();
        const bool apart = blocks_are_vectors(GetParam().backend) && x.size() >= 4096 && shape.back() < 128;
        ASSERT_EQ(launches, fused_launches() - begun + apart)
            << "the expression has its own launch only for short rows";
      }
  };
  for (const std::int64_t width : {2, 7, 15, 16, 17, 31, 100, 129, 1000}) check({3, width}, {}), check({67, width}, {});
  check({700, 3}, {}), check({300, 40}, {});
  for (const std::vector<int>& axes : {std::vector<int>{}, {1, 2}, {0, 1}})
    check({5, 9, 21}, axes), check({4, 6, 5}, axes);
}

TEST_P(OnEveryDevice, MinAndMaxPropagateNaNAndOrderZeros) {
  const float nan = std::nanf(""), low = -std::numeric_limits<float>::infinity();
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    if (t == DType::f64 && !device_info(GetParam()).can.f64) continue;
    if (compiles_slowly() && t != DType::f32 && t != DType::f16) continue;
    const auto value = [](const Array& a) { return a.astype(DType::f32).to_vector<float>(); };
    for (std::int64_t n : {1, 3, 33, 1000, 5000})
      for (bool pending : {false, true})
        for (int axis : {0, 1}) {  // along memory and across memory
          const auto of = [&](float first, float other) {
            std::vector<float> x(static_cast<std::size_t>(n), other);
            x[static_cast<std::size_t>(n / 2)] = first;
            Array a = Array::from(x, axis == 0 ? Shape{n, 1} : Shape{1, n})
                          .broadcast_to(axis == 0 ? Shape{n, 40} : Shape{2, n});
            a = a.copy().astype(t);
            if (!pending) a.eval();
            return a;
          };
          const std::string what = std::string(dtype_name(t)) + " " + std::to_string(n);
          EXPECT_TRUE(std::isnan(value(max(of(nan, 1), {axis}))[1])) << what;
          EXPECT_TRUE(std::isnan(value(min(of(-nan, 1), {axis}))[1])) << what;
          EXPECT_EQ(value(max(of(low, low), {axis}))[1], low) << what;
          EXPECT_FALSE(std::signbit(value(max(of(0.f, -0.f), {axis}))[1])) << what;
          EXPECT_TRUE(std::signbit(value(min(of(-0.f, 0.f), {axis}))[1])) << what;
          EXPECT_EQ(argmax(of(nan, 7), axis).to_vector<std::int64_t>()[1], n / 2) << what;
          EXPECT_EQ(argmax(of(0.f, -0.f), axis).to_vector<std::int64_t>()[1], 0) << what;
        }
    const Array a = Array::from({nan, 1.f, -0.f, 0.f, nan, 2.f, low}).astype(t),
                b = Array::from({1.f, nan, 0.f, -0.f, nan, 3.f, -5.f}).astype(t);
    for (bool pending : {false, true}) {
      const Array x = pending ? a * 1 : a, y = pending ? b * 1 : b;
      const auto big = value(maximum(x, y)), small = value(minimum(x, y));
      for (std::size_t i : {0u, 1u, 4u}) EXPECT_TRUE(std::isnan(big[i]) && std::isnan(small[i])) << i;
      for (std::size_t i : {2u, 3u}) EXPECT_TRUE(!std::signbit(big[i]) && std::signbit(small[i])) << i;
      EXPECT_EQ(big[5], 3);
      EXPECT_EQ(small[5], 2);
      const Array tiny = Array::from({1e-40f, 3e-40f}), other = Array::from({2e-40f, 1e-40f});
      EXPECT_EQ(maximum(tiny, other).to_vector<float>(), (std::vector<float>{2e-40f, 3e-40f}));
      EXPECT_EQ(minimum(tiny, other).to_vector<float>(), (std::vector<float>{1e-40f, 1e-40f}));
      EXPECT_EQ(argmax(Array::from({-1e-40f, 1e-40f})).item<std::int64_t>(), 1);
      EXPECT_EQ(big[6], -5);
      EXPECT_EQ(small[6], low);
      EXPECT_TRUE(std::isnan(value(relu(x))[0]));
    }
  }
}

TEST_P(OnEveryDevice, ReductionsHaveTheDocumentedDtypes) {
  const Array i = Array::from({INT32_MAX, INT32_MAX, 2});
  EXPECT_EQ(sum(i).item<std::int64_t>(), 2ll * INT32_MAX + 2);
  EXPECT_EQ(max(i).item<std::int32_t>(), INT32_MAX);
  if (device_info(GetParam()).can.f64) {
    EXPECT_EQ(mean(i).item<double>(), (2. * INT32_MAX + 2) / 3);
    EXPECT_EQ(mean(Array::from({std::int64_t{100000001}, std::int64_t{100000003}})).item<double>(), 100000002);
    EXPECT_EQ(mean(Array::full({3}, 1e18, DType::i64) * 9).item<double>(), 9e18) << "its sum overflows i64";
    const Array largest = Array::full({1}, UINT32_MAX, DType::u32);
    EXPECT_EQ(mean(largest.broadcast_to({5'000'011})).item<double>(), UINT32_MAX) << "its sum is not a double";
  } else {
    EXPECT_FLOAT_EQ(mean(i).item<float>(), (2.f * INT32_MAX + 2) / 3);
  }
  EXPECT_EQ(sum(Array::from({std::uint8_t{200}, std::uint8_t{100}})).item<std::uint64_t>(), 300u);
  EXPECT_EQ(static_cast<float>(sum(Array::ones({4000}, DType::f16)).item<half>()), 4000.f) << "f16 is summed as f32";
  const Array b = Array::from({1.f, 0.f, 3.f}) > 0;
  EXPECT_TRUE(any(b).item<bool>());
  EXPECT_NEAR(mean(b).astype(DType::f32).item<float>(), 2.f / 3, 1e-6f);
  EXPECT_NE(to_string(0 / Array::zeros({1})).find("[nan]"), std::string::npos) << "without a sign";
  EXPECT_FALSE(all(b).item<bool>());
  EXPECT_TRUE(all(Array::zeros({0}, DType::boolean)).item<bool>());
  EXPECT_FALSE(any(Array::zeros({0}, DType::boolean)).item<bool>());
  EXPECT_EQ(sum(Array::zeros({0, 3}), {0}).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(sum(Array::zeros({0, 3}), {1}).shape(), (Shape{0}));
  EXPECT_THROW(max(Array::zeros({0, 3}), {0}), ShapeError);
  EXPECT_THROW(sum(b, {1}), ShapeError);
  EXPECT_THROW(sum(Array::ones({2, 2}), {0, 0}), ShapeError);
  EXPECT_THROW(max(b), DtypeError);
}

TEST_P(OnEveryDevice, ArgmaxReturnsTheFirstLargestElement) {
  for (std::int64_t n : {1, 2, 255, 256, 257, 5000}) {
    auto x = numbers(3 * n);
    x[static_cast<std::size_t>(n / 2)] = 5, x[static_cast<std::size_t>(n - 1)] = 5;  // the first of equal elements
    const auto got = argmax(Array::from(x, Shape{3, n})).to_vector<std::int64_t>();
    for (std::size_t r = 0; r < 3; ++r) {
      const auto row = x.begin() + static_cast<std::ptrdiff_t>(r) * n;
      ASSERT_EQ(got[r], std::max_element(row, row + n) - row) << n;
    }
    const auto down = argmax(Array::from(x, Shape{3, n}), 0, true);
    EXPECT_EQ(down.shape(), (Shape{1, n}));
    const auto columns = down.to_vector<std::int64_t>();
    for (std::int64_t c = 0; c < n; ++c) {
      std::int64_t best = 0;
      for (std::int64_t r = 1; r < 3; ++r)
        if (x[static_cast<std::size_t>(r * n + c)] > x[static_cast<std::size_t>(best * n + c)]) best = r;
      ASSERT_EQ(columns[static_cast<std::size_t>(c)], best);
    }
  }
  const float nan = std::nanf(""), low = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(argmax(Array::from({low, nan, low})).item<std::int64_t>(), 1);
  EXPECT_EQ(argmax(Array::from({low, low})).item<std::int64_t>(), 0);
  EXPECT_EQ(argmax(Array::from({9.f, 1.f, nan, nan})).item<std::int64_t>(), 2);
  EXPECT_EQ(argmax(Array::from({-5, -3, -4})).item<std::int64_t>(), 1);
}

// Rows contain ties, infinities, zeros of both signs, and NaN at any position. They can end at any position in a group
// of vectors.
TEST_P(OnEveryDevice, ArgmaxHandlesTiesInfinitiesAndNaN) {
  SCOPED_TRACE("seed " + std::to_string(testing::seed()));
  std::mt19937 random(static_cast<std::uint32_t>(testing::seed()));
  const float odd[] = {-std::numeric_limits<float>::infinity(), -1.f, -0.f, 0.f, 1.f, 2.f, 2.f};
  for (const DType t : {DType::f32, DType::f16, DType::f64, DType::i32, DType::u8, DType::i64}) {
    if (t == DType::f64 && !device_info(GetParam()).can.f64) continue;
    // OpenCL has a single form for all lengths, and its compilation is slow.
    if (GetParam().backend == Backend::opencl && t != DType::f32 && t != DType::i32) continue;
    for (const std::int64_t n : {1, 15, 16, 63, 64, 65, 79, 129, 512, 513, 700, 9001}) {
      if (n > 9000 && t != DType::f32) continue;  // long rows are searched in parts on some devices
      const std::int64_t rows = 5;
      std::vector<float> x(static_cast<std::size_t>(rows * n));
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) / n;
        x[i] = row == 0 ? odd[0] : odd[random() % (row == 1 ? 3 : std::size(odd))];
        if (!is_float(t)) x[i] = std::isinf(x[i]) || x[i] < 0 ? 0 : x[i];
        if (row >= 3 && is_float(t) && random() % static_cast<unsigned>(n) == 0) x[i] = std::nanf("");
      }
      const Array a = Array::from(x, Shape{rows, n}).astype(t);
      const auto plain = argmax(a, 1).to_vector<std::int64_t>();
      const auto pending = argmax(where(a == a, a, a), 1).to_vector<std::int64_t>();
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* row = x.data() + r * n;
        std::int64_t best = 0;
        for (std::int64_t c = 1; c < n; ++c)
          if (!std::isnan(row[best]) && (row[c] > row[best] || std::isnan(row[c]))) best = c;
        ASSERT_EQ(plain[static_cast<std::size_t>(r)], best) << dtype_name(t) << ", row " << r << " of " << n;
        ASSERT_EQ(pending[static_cast<std::size_t>(r)], best) << dtype_name(t) << ", row " << r << " of " << n;
      }
    }
  }
}

TEST_P(OnEveryDevice, ConcatenateTakeAndArangeMatchTheReference) {
  const Array a = Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2}), b = Array::from({5.f, 6.f}, Shape{2, 1});
  EXPECT_EQ(concatenate({a, b}, 1).to_vector<float>(), (std::vector<float>{1, 2, 5, 3, 4, 6}));
  EXPECT_EQ(concatenate({a, a.transpose() + 1, Array::zeros({0, 2})}, 0).to_vector<float>(),
            (std::vector<float>{1, 2, 3, 4, 2, 4, 3, 5}));
  EXPECT_EQ(concatenate({Array::from({1, 2}), Array::from({0.5f})}).to_vector<float>(),
            (std::vector<float>{1, 2, 0.5f}));
  EXPECT_THROW(concatenate({a, b}, 0), ShapeError);
  const Array table = Array::arange(12).reshape({4, 3});
  EXPECT_EQ(take(table, Array::from({3, 0, 3})).to_vector<float>(),
            (std::vector<float>{9, 10, 11, 0, 1, 2, 9, 10, 11}));
  EXPECT_EQ(take(table, Array::from({std::int64_t{-1}, std::int64_t{4}})).to_vector<float>(),
            std::vector<float>(6, 0.f));
  EXPECT_EQ(take(table, Array::from({(std::int64_t{1} << 32) + 1})).to_vector<float>(), std::vector<float>(3, 0.f))
      << "a large index does not wrap into range";
  EXPECT_EQ(take(table, Array::from({UINT64_MAX})).to_vector<float>(), std::vector<float>(3, 0.f));
  EXPECT_EQ(take(table.astype(DType::f16), Array::from({1}, Shape{1, 1})).shape(), (Shape{1, 1, 3}));
  EXPECT_THROW(take(table, Array::from({0.5f})), DtypeError);
  EXPECT_EQ(Array::arange(4, -3, 2, DType::i16).to_vector<std::int16_t>(), (std::vector<std::int16_t>{-3, -1, 1, 3}));
  EXPECT_EQ(Array::arange(0).size(), 0);
}

TEST_P(OnEveryDevice, RoundTripsNpyFiles) {
  const auto folder = std::filesystem::temp_directory_path() / ("tessera_npy_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "a.npy").string();
  for (DType t : storable_dtypes) {
    if (t == DType::f64 && !device_info(GetParam()).can.f64) continue;  // it cannot be created or transposed there
    const Array a = (Array::arange(24).reshape({2, 3, 4}) - 3).astype(t);
    save_npy(a.transpose(), path);
    const Array b = load_npy(path);
    ASSERT_EQ(b.dtype(), t);
    ASSERT_EQ(b.shape(), (Shape{4, 3, 2}));
    const Array want = a.to(Device{}).transpose().astype(DType::f64), got = b.to(Device{}).astype(DType::f64);
    EXPECT_EQ(got.to_vector<double>(), want.to_vector<double>()) << dtype_name(t);
  }
  save_npy(Array::full({}, 7), path);
  EXPECT_EQ(load_npy(path).item<float>(), 7.f);
  // Invalid files: truncated at every length, and with some changed bytes.
  save_npy(Array::ones({2, 3}), path);
  std::ifstream in(path, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(in), {});
  auto load = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return load_npy(path);
  };
  for (std::size_t n = 0; n < whole.size(); ++n) ASSERT_THROW(load(whole.substr(0, n)), FormatError) << n;
  auto altered = [&](const char* from, const char* to) {
    std::string s = whole;
    s.replace(s.find(from), std::string(from).size(), to);
    return s;
  };
  for (auto [from, to] : {std::pair{"<f4", ">f4"},
                          {"<f4", "<c8"},
                          {"(2, 3)", "(2, 9)"},
                          {"(2, 3)", "(2,-3)"},
                          {"(2, 3)", "[2, 3]"},
                          {"descr", "dascr"},
                          {"False", "Falso"}})
    EXPECT_THROW(load(altered(from, to)), FormatError) << from << " to " << to;
  try {
    load(altered("(2, 3)", "(2, 9)"));
  } catch (const FormatError& e) {
    EXPECT_NE(std::string(e.what()).find("data"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("(2, 9)"), std::string::npos) << e.what();
  }
  EXPECT_EQ(load(altered("(2, 3)", "(3, 2)")).shape(), (Shape{3, 2}));
  try {
    load_npy(folder.string());
    ADD_FAILURE() << "no error for a folder";
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("path = " + folder.string()), std::string::npos) << e.what();
  }
  std::filesystem::remove_all(folder);
  EXPECT_THROW(load_npy(path), ArgumentError);
}

TEST_P(OnEveryDevice, SavingReplacesAFileAtomically) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("tessera_save_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string path = (folder / "a.npy").string(), link = (folder / "link.npy").string();
  const auto bytes = [](const std::string& of) {
    std::ifstream in(of, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const auto files = [&] { return std::distance(fs::directory_iterator(folder), fs::directory_iterator()); };
  const Array old = Array::from(numbers(1000)), next = Array::from(numbers(1001));
  save_npy(old, path);
  const std::string before = bytes(path);
  ASSERT_EQ(before.size(), 128u + 4000u);

  // If an array cannot be read, the old file is unchanged, and no temporary file remains.
  EXPECT_THROW(Sequence::record(Queue::of(GetParam()), [&] { save_npy(next, path); }), ArgumentError);
  EXPECT_EQ(bytes(path), before);
  EXPECT_EQ(files(), 1);
  EXPECT_THROW(save_npy(next, folder.string()), ArgumentError);
  EXPECT_THROW(save_npy(next, path + "/b.npy"), ArgumentError);  // a file is not a folder
  EXPECT_EQ(bytes(path), before);
  EXPECT_EQ(files(), 1);
  EXPECT_THROW(save_npy(next, "/dev/full"), ArgumentError);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));

  // Saves through a link, keeps permissions, and saves into a new folder.
  fs::create_symlink("a.npy", link);
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  save_npy(next, link);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(load_npy(path).to_vector<float>(), next.to_vector<float>());
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(files(), 2);
  save_npy(old, (folder / "new" / "b.npy").string());
  EXPECT_EQ(bytes(folder / "new" / "b.npy"), before);
  const std::string ahead = (folder / "ahead.npy").string(), longest = folder / (std::string(251, 'n') + ".npy");
  fs::create_symlink("new/c.npy", ahead);  // the link's target does not exist yet
  save_npy(old, ahead);
  EXPECT_TRUE(fs::is_symlink(ahead));
  EXPECT_EQ(bytes(folder / "new" / "c.npy"), before);
  save_npy(old, longest);
  EXPECT_EQ(bytes(longest), before);
  // Temporary files of an earlier process with the same id do not interfere.
  for (int i = 0; i < 100; ++i) std::ofstream(folder / "new" / fmt::format(".{}.{}", ::getpid(), i)) << "left";
  save_npy(next, (folder / "new" / "b.npy").string());
  EXPECT_EQ(load_npy((folder / "new" / "b.npy").string()).to_vector<float>(), next.to_vector<float>());
  EXPECT_EQ(bytes(folder / "new" / fmt::format(".{}.99", ::getpid())), "left");
  if (::geteuid() != 0) {  // root ignores permissions
    const fs::path shut = folder / "new", file = shut / "b.npy";
    fs::permissions(shut, fs::perms::owner_read | fs::perms::owner_exec);
    save_npy(next, file.string());
    EXPECT_EQ(load_npy(file.string()).to_vector<float>(), next.to_vector<float>());
    fs::permissions(file, fs::perms::owner_read);
    fs::permissions(shut, fs::perms::owner_all);
    EXPECT_THROW(save_npy(old, file.string()), ArgumentError);
    EXPECT_EQ(load_npy(file.string()).to_vector<float>(), next.to_vector<float>());
  }

  // A pipe is not replaced; it receives the contents of the file.
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto read = std::async(std::launch::async, [&] { return bytes(pipe); });
  save_npy(old, pipe);
  EXPECT_EQ(read.get(), before);
  EXPECT_TRUE(fs::is_fifo(pipe));

  // An open file is not replaced: data appended by other writers is kept.
  const std::string log = (folder / "log").string();
  const int number = ::open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::write(number, "line\n", 5), 5);
  save_npy(old, "/dev/fd/" + std::to_string(number));
  ::close(number);
  EXPECT_EQ(bytes(log), "line\n" + before);
  fs::remove_all(folder);
}

TEST_P(OnEveryDevice, PrintsLikeNumpy) {
  const std::string device = to_string(GetParam());
  EXPECT_EQ(to_string(Array::from({1.f, 2.5f, -3.f, 4.f}, Shape{2, 2})),
            "array([[  1, 2.5],\n       [ -3,   4]], f32, " + device + ")");
  EXPECT_EQ(to_string(Array::from({true, false})), "array([ true, false], bool, " + device + ")");
  EXPECT_EQ(to_string(Array::full({}, 2, DType::i8)), "array(2, i8, " + device + ")");
  const std::string large = to_string(Array::arange(2000));
  EXPECT_NE(large.find("[   0,    1,    2, ..., 1997, 1998, 1999]"), std::string::npos) << large;
  EXPECT_NE(large.find("(2000,)"), std::string::npos);
}

}  // namespace
}  // namespace tessera
