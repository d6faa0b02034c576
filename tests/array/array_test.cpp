// SPDX-License-Identifier: Apache-2.0
// Arrays on every device: creation, views, elementwise operations and their fusion, and the order of reads and writes.
#include "tessera/array/array.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <random>

#include <cmath>
#include <functional>
#include <future>
#include <thread>

#include "tessera/array/generator.h"
#include "tessera/array/observer.h"
#include "tessera/base/philox.h"
#include "tessera/device/context.h"
#include "tessera/device/launch/launch_interceptor.h"
#include "tessera/kernel/kernel.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::OnEveryDevice;
using test::text_of;
TESSERA_ON_EVERY_DEVICE();

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << what << " at " << i << ": got " << got[i];
      continue;
    }
    if (std::isinf(want[i])) {
      ASSERT_EQ(got[i], static_cast<float>(want[i])) << what << " at " << i;
      continue;
    }
    ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(want[i])))
        << what << " at " << i << ", seed " << testing::seed();
  }
}

const std::int64_t sizes[] = {0, 1, 2, 15, 16, 17, 63, 64, 255, 257, 1000, 4099, 70001};

TEST_P(OnEveryDevice, RoundTripsEveryDtype) {
  auto check = [&]<class T>(std::vector<T> data) {
    const Array a = Array::from(data, Shape{static_cast<std::int64_t>(data.size())});
    EXPECT_EQ(a.dtype(), dtype_v<T>);
    EXPECT_EQ(a.to_vector<T>(), data);
  };
  check(std::vector<std::int8_t>{-128, 0, 127});
  check(std::vector<std::uint8_t>{0, 255, 7});
  check(std::vector<std::int16_t>{-32768, 5, 32767});
  check(std::vector<std::uint16_t>{65535, 1, 2});
  check(std::vector<std::int32_t>{INT32_MIN, 0, INT32_MAX});
  check(std::vector<std::uint32_t>{0, UINT32_MAX, 3});
  check(std::vector<std::int64_t>{INT64_MIN, 0, INT64_MAX});
  check(std::vector<std::uint64_t>{UINT64_MAX, 0, 1});
  check(std::vector<half>{half(1.5f), half(-2.25f), half(65504.f)});
  check(std::vector<bfloat16>{bfloat16(1.5f), bfloat16(-2.f)});
  check(std::vector<float>{1.5f, -0.0f, 1e-40f});
  check(std::vector<double>{1e300, -1.0 / 3, 0});
  const bool flags[] = {true, false, true};
  EXPECT_EQ(Array::from(std::span<const bool>(flags)).to_vector<bool>(), (std::vector<bool>{true, false, true}));
  EXPECT_NE(text_of<DtypeError>([] { Array::ones({2}).to_vector<int>(); }).find("i32"), std::string::npos);
  EXPECT_NE(text_of<ShapeError>([] {
              Array::from(std::vector<float>{1, 2, 3}, Shape{2, 2});
            }).find("(2, 2)"),
            std::string::npos);
  EXPECT_NE(text_of<ShapeError>([] { Array::zeros({2}).item<float>(); }).find("(2,)"), std::string::npos);
  EXPECT_EQ(Array::full({}, 3.5).item<float>(), 3.5f);
}

TEST_P(OnEveryDevice, ElementwiseOperationsMatchTheReference) {
  for (auto n : sizes) {
    const auto x = numbers(n), y = numbers(n, 0.25f, 3);
    const Array a = Array::from(x), b = Array::from(y);
    struct Case {
      const char* name;
      Array got;
      std::function<double(double, double)> want;
      double tolerance = 2e-6;
    };
    const Case cases[] = {
        {"+", a + b, [](double p, double q) { return p + q; }},
        {"-", a - b, [](double p, double q) { return p - q; }},
        {"*", a * b, [](double p, double q) { return p * q; }},
        {"/", a / b, [](double p, double q) { return p / q; }},
        {"minimum", minimum(a, b), [](double p, double q) { return std::min(p, q); }},
        {"maximum", maximum(a, b), [](double p, double q) { return std::max(p, q); }},
        {"pow", pow(b, a), [](double p, double q) { return std::pow(q, p); }, 1e-5},
        {"abs", abs(a), [](double p, double) { return std::fabs(p); }},
        {"-a", -a, [](double p, double) { return -p; }},
        {"sqrt", sqrt(b), [](double, double q) { return std::sqrt(q); }},
        {"rsqrt", rsqrt(b), [](double, double q) { return 1 / std::sqrt(q); }},
        {"exp", exp(a), [](double p, double) { return std::exp(p); }},
        {"exp2", exp2(a), [](double p, double) { return std::exp2(p); }},
        {"log", log(b), [](double, double q) { return std::log(q); }},
        {"log2", log2(b), [](double, double q) { return std::log2(q); }},
        {"sin", sin(a), [](double p, double) { return std::sin(p); }},
        {"cos", cos(a), [](double p, double) { return std::cos(p); }},
        {"tanh", tanh(a), [](double p, double) { return std::tanh(p); }},
        {"erf", erf(a), [](double p, double) { return std::erf(p); }},
        {"floor", floor(a), [](double p, double) { return std::floor(p); }},
        {"ceil", ceil(a), [](double p, double) { return std::ceil(p); }},
        {"trunc", trunc(a), [](double p, double) { return std::trunc(p); }},
        {"rint", rint(a), [](double p, double) { return std::nearbyint(p); }},
        {"silu", silu(a), [](double p, double) { return p / (1 + std::exp(-p)); }},
        {"gelu", gelu(a), [](double p, double) { return 0.5 * p * (1 + std::erf(p / std::sqrt(2.0))); }},
        {"scalar on the left", 3 - a, [](double p, double) { return 3 - p; }},
        {"where", where(a < b, a, b), [](double p, double q) { return p < q ? p : q; }},
        {"where with scalars", where(a >= 0, 1.5, b), [](double p, double q) { return p >= 0 ? 1.5 : q; }},
    };
    for (const Case& c : cases) {
      std::vector<double> want;
      for (std::size_t i = 0; i < x.size(); ++i) want.push_back(c.want(x[i], y[i]));
      expect_near(c.got.to_vector<float>(), want, c.tolerance, std::string(c.name) + " of " + std::to_string(n));
    }
  }
}

TEST_P(OnEveryDevice, IntegerArithmeticMatchesTheDocumentation) {
  const std::vector<std::int32_t> x = {7, -7, 7, -7, INT32_MIN, INT32_MIN, 5, 0}, y = {2, 2, -2, -2, -1, 0, 0, 3};
  const Array a = Array::from(x), b = Array::from(y);
  EXPECT_EQ((a / b).to_vector<int>(), (std::vector<int>{3, -3, -3, 3, INT32_MIN, 0, 0, 0}));
  EXPECT_EQ((a % b).to_vector<int>(), (std::vector<int>{1, -1, 1, -1, 0, 0, 0, 0}));
  EXPECT_EQ((a + INT32_MAX).to_vector<int>()[0], static_cast<int>(7u + INT32_MAX));
  EXPECT_EQ((a & 3).to_vector<int>()[1], -7 & 3);
  EXPECT_EQ((a == b).to_vector<bool>(), (std::vector<bool>{0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ((a < b).to_vector<bool>(), (std::vector<bool>{0, 1, 0, 1, 1, 1, 0, 1}));
  const Array bytes = Array::from({std::uint8_t{0}, std::uint8_t{255}});
  EXPECT_NE(text_of<DtypeError>([&] { bytes + -1; }).find("-1"), std::string::npos);
  EXPECT_NE(text_of<DtypeError>([&] { bytes < 300; }).find("300"), std::string::npos);
  EXPECT_EQ((bytes + 255).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{255, 254}));
  const std::int64_t odd = (std::int64_t{1} << 53) + 1;
  EXPECT_EQ((Array::ones({1}, DType::i64) * odd).item<std::int64_t>(), odd);
  EXPECT_EQ((Array::zeros({1}, DType::u64) + UINT64_MAX).item<std::uint64_t>(), UINT64_MAX);
}

// On `cpu`, a division by a constant is compiled to a multiplication.
TEST_P(OnEveryDevice, IntegerDivisionByAScalarIsExact) {
  std::mt19937_64 random(testing::seed());
  const auto check = [&]<class T>(T) {
    using Limits = std::numeric_limits<T>;
    std::vector<T> divisors = {1,
                               2,
                               3,
                               5,
                               7,
                               10,
                               100,
                               127,
                               0,
                               Limits::max(),
                               Limits::min(),
                               static_cast<T>(-1),
                               static_cast<T>(-7),
                               static_cast<T>(Limits::max() - 1),
                               static_cast<T>(Limits::max() / 2 + 1)};
    for (int i = 0; i < 6; ++i) divisors.push_back(static_cast<T>(random() >> random() % 60));
    for (const T d : divisors) {
      std::vector<T> x = {0, 1, static_cast<T>(-1), Limits::max(), Limits::min(), static_cast<T>(Limits::min() + 1)};
      while (x.size() < 2000) {
        const auto any = static_cast<T>(random());
        const auto multiple = static_cast<T>(static_cast<std::uint64_t>(d == 0 ? any : any / (d == T(-1) ? T(1) : d)) *
                                             static_cast<std::uint64_t>(d));
        for (const int off : {-1, 0, 1}) x.push_back(static_cast<T>(multiple + static_cast<T>(off)));
        x.push_back(any);
      }
      std::vector<T> quotients, rests;
      for (const T v : x) {
        const bool wraps = std::is_signed_v<T> && d == static_cast<T>(-1);
        quotients.push_back(d == 0  ? T(0)
                            : wraps ? static_cast<T>(0 - static_cast<std::uint64_t>(v))
                                    : static_cast<T>(v / d));
        rests.push_back(d == 0 || wraps ? T(0) : static_cast<T>(v % d));
      }
      const Array a = Array::from(x);
      EXPECT_EQ((a / d).template to_vector<T>(), quotients) << +d << ", seed " << testing::seed();
      EXPECT_EQ((a % d).template to_vector<T>(), rests) << +d << ", seed " << testing::seed();
    }
  };
  check(std::int32_t{}), check(std::uint32_t{}), check(std::int16_t{}), check(std::uint8_t{});
}

// docs/arrays.md, "Dtypes": the dtype of the result depends only on the types of the operands.
TEST_P(OnEveryDevice, DtypePromotionMatchesTheDocumentation) {
  using enum DType;
  const DType order[] = {boolean, u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64};
  const DType want[13][13] = {
      {boolean, u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64},
      {u8, u8, i16, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64},
      {i8, i16, i8, i32, i16, i64, i32, i64, i64, f16, bf16, f32, f64},
      {u16, u16, i32, u16, i32, u32, i32, u64, i64, f16, bf16, f32, f64},
      {i16, i16, i16, i32, i16, i64, i32, i64, i64, f16, bf16, f32, f64},
      {u32, u32, i64, u32, i64, u32, i64, u64, i64, f16, bf16, f32, f64},
      {i32, i32, i32, i32, i32, i64, i32, i64, i64, f16, bf16, f32, f64},
      {u64, u64, i64, u64, i64, u64, i64, u64, i64, f16, bf16, f32, f64},
      {i64, i64, i64, i64, i64, i64, i64, i64, i64, f16, bf16, f32, f64},
      {f16, f16, f16, f16, f16, f16, f16, f16, f16, f16, f32, f32, f64},
      {bf16, bf16, bf16, bf16, bf16, bf16, bf16, bf16, bf16, f32, bf16, f32, f64},
      {f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f64},
      {f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64},
  };
  for (int i = 0; i < 13; ++i)
    for (int j = 0; j < 13; ++j) {
      EXPECT_EQ(promote(order[i], order[j]), want[i][j]) << dtype_name(order[i]) << " with " << dtype_name(order[j]);
      if (i != 0 && device_info(GetParam()).can.f64) {
        EXPECT_EQ((Array::ones({2}, order[i]) + Array::ones({2}, order[j])).dtype(), want[i][j]);
      }
    }
  for (DType t : order) {
    if (t == f64 && !device_info(GetParam()).can.f64) continue;
    const Array a = Array::ones({2}, t);
    const bool real = is_float(t), truth = t == boolean;
    for (double v : {2.0, 2.5}) {  // the value does not matter
      EXPECT_EQ((a * v).dtype(), real ? t : f32);
      EXPECT_EQ((v - a).dtype(), real ? t : f32);
      EXPECT_EQ(where(a != a, a, v).dtype(), real ? t : f32);
    }
    EXPECT_EQ((a * 2.0f).dtype(), real ? t : f32);
    EXPECT_EQ((a + 1).dtype(), truth ? i32 : t);
    EXPECT_EQ((a + std::int64_t{1}).dtype(), truth ? i64 : t);
    EXPECT_EQ((a + std::uint8_t{1}).dtype(), truth ? i32 : t);
    EXPECT_EQ(where(a == a, a, true).dtype(), t);
  }
  EXPECT_EQ(where(Array::ones({1}, boolean), 1, 0).dtype(), i32);
  EXPECT_EQ(where(Array::ones({1}, boolean), 1, 0.0).dtype(), f32);
  EXPECT_EQ((Array::from({7, -7}) / 2.0).to_vector<float>(), (std::vector<float>{3.5f, -3.5f}));
  EXPECT_EQ((2.0 / Array::from({4, -8})).to_vector<float>(), (std::vector<float>{0.5f, -0.25f}));
  const float one_of_three = 1 / (1 + std::exp(-3.f));
  for (DType t : {u8, u32, u64, i16})
    EXPECT_NEAR(sigmoid(Array::full({1}, 3, t)).item<float>(), one_of_three, 1e-6) << dtype_name(t);
  EXPECT_NEAR(silu(Array::full({1}, 3, u16)).item<float>(), 3 * one_of_three, 1e-6);
  // In-place operations never convert floats to integers, or numbers to bools.
  Array whole = Array::from({1, 2}), narrow = Array::from({1.f, 2.f}).astype(f16), truths = Array::ones({2}, boolean);
  const std::string text = text_of<DtypeError>([&] { whole += Array::from({0.5f, 1.f}); });
  EXPECT_NE(text.find("i32"), std::string::npos) << text;
  EXPECT_NE(text.find("astype"), std::string::npos) << text;
  EXPECT_THROW(whole *= 2.0, DtypeError);
  EXPECT_THROW(truths += 1, DtypeError);
  EXPECT_EQ(whole.to_vector<int>(), (std::vector<int>{1, 2}));
  whole *= Array::from({std::int64_t{3}});
  whole -= 1;
  EXPECT_EQ(whole.to_vector<int>(), (std::vector<int>{2, 5}));
  narrow += 0.5;
  EXPECT_EQ(narrow.astype(f32).to_vector<float>(), (std::vector<float>{1.5f, 2.5f}));
}

TEST_P(OnEveryDevice, AssigningAcrossDevicesThrows) {
  const Device other = GetParam().backend == Backend::interp ? Device{Backend::cpu, 0} : Device{Backend::interp, 0};
  Array a = Array::zeros({2});
  const std::string text = text_of<DeviceError>([&] { a.assign(Array::ones({2}, DType::f32, other)); });
  EXPECT_NE(text.find(to_string(other)), std::string::npos) << text;
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{0, 0}));
  a.assign(Array::ones({2}, DType::f32, other).to(a.device()));
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST_P(OnEveryDevice, RejectsInvalidShapes) {
  const Array one = Array::ones({1});
  EXPECT_THROW(one.broadcast_to({6148914691236517206, 3}), ShapeError);
  EXPECT_THROW(one.broadcast_to({std::int64_t{1} << 62, 4}), ShapeError);
  EXPECT_THROW(one.broadcast_to({std::int64_t{1} << 62, 4, 0}), ShapeError);
  EXPECT_THROW(Array::empty({0, std::int64_t{1} << 62, 4}), ShapeError);
  const Array row = one.broadcast_to({1, std::int64_t{1} << 30}), column = one.broadcast_to({std::int64_t{1} << 30, 1});
  EXPECT_THROW(row + column, ShapeError);
  EXPECT_THROW(where(row > 0, row, column), ShapeError);
  EXPECT_EQ(one.broadcast_to({0, 5}).size(), 0);
  const Array a = Array::arange(6).reshape({2, 3});
  for (const std::vector<int>& axes : {std::vector<int>{0, 1, 1}, {0, 0}, {1, 1, 0}, {1}, {}, {0, -2}, {1, 0, 1, 0}})
    EXPECT_THROW(a.permute(axes), ShapeError) << axes.size();
  EXPECT_THROW(one.permute({0, 0}), ShapeError);
  EXPECT_THROW(a.permute({0, 2}), ShapeError);
  EXPECT_EQ(a.permute({-1, 0}).to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST_P(OnEveryDevice, FillRoundsAndSaturates) {
  const auto full = [](double v, DType t) {
    return Array::full({3}, v, t).astype(DType::i64).to_vector<std::int64_t>();
  };
  using Integers = std::vector<std::int64_t>;
  EXPECT_EQ(full(2.9, DType::i32), Integers(3, 2));
  EXPECT_EQ(full(-2.9, DType::i32), Integers(3, -2));
  EXPECT_EQ(full(300, DType::u8), Integers(3, 255));
  EXPECT_EQ(full(-1, DType::u8), Integers(3, 0));
  EXPECT_EQ(full(-300, DType::i8), Integers(3, -128));
  EXPECT_EQ(full(0x1p63, DType::i64), Integers(3, INT64_MAX));
  EXPECT_EQ(full(std::nan(""), DType::i16), Integers(3, 0));
  EXPECT_EQ(full(0.25, DType::boolean), Integers(3, 1));
  EXPECT_EQ(Array::full({3}, 0x1p64, DType::u64).to_vector<std::uint64_t>(), std::vector<std::uint64_t>(3, UINT64_MAX));
  EXPECT_EQ(Array::full({1}, 1e300).item<float>(), HUGE_VALF);
  EXPECT_EQ(Array::full({1}, 1.0 / 3).item<float>(), 1.0f / 3);
  Array strided = Array::zeros({6}, DType::u8).slice(0, 0, 6, 2);
  strided.fill(1e9);
  EXPECT_EQ(strided.to_vector<std::uint8_t>(), std::vector<std::uint8_t>(3, 255));
  EXPECT_EQ(Array::arange(3, 0.5, 1.5, DType::i32).to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(Array::arange(3, 126, 1, DType::i8).to_vector<std::int8_t>(), (std::vector<std::int8_t>{126, 127, -128}));
  EXPECT_EQ(Array::arange(2, 300, 0, DType::u8).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{255, 255}));
  // Conversions from floats to integers saturate. NaN becomes 0.
  const Array f = Array::from({3e9f, -3e9f, std::nanf(""), -1.9f});
  EXPECT_EQ(f.astype(DType::i32).to_vector<int>(), (std::vector<int>{INT32_MAX, INT32_MIN, 0, -1}));
  EXPECT_EQ(f.astype(DType::u8).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{255, 0, 0, 0}));
}

TEST_P(OnEveryDevice, SixteenBitFloatsAreComputedInF32) {
  const auto x = numbers(1000);
  for (DType t : {DType::f16, DType::bf16}) {
    const Array a = Array::from(x).astype(t);
    const Array y = a * a + 1;
    EXPECT_EQ(y.dtype(), t);
    const auto stored = a.astype(DType::f32).to_vector<float>();
    std::vector<double> want;
    for (float v : stored) {
      const float r = v * v + 1;
      want.push_back(t == DType::f16 ? half_value(half_bits(r)) : bfloat16_value(bfloat16_bits(r)));
    }
    // The result is rounded once at the end. A fused multiply-add may differ by one unit.
    expect_near(y.astype(DType::f32).to_vector<float>(), want, t == DType::f16 ? 1e-3 : 8e-3,
                std::string(dtype_name(t)));
  }
  EXPECT_EQ(promote(DType::f16, DType::bf16), DType::f32);
  EXPECT_EQ(promote(DType::i32, DType::f32), DType::f32);
  EXPECT_EQ(promote(DType::u8, DType::i8), DType::i16);
}

TEST_P(OnEveryDevice, BroadcastsCompatibleShapesAndRejectsOthers) {
  const auto x = numbers(7 * 5), row = numbers(5), column = numbers(7);
  const Array a = Array::from(x, Shape{7, 5}), r = Array::from(row), c = Array::from(column, Shape{7, 1});
  std::vector<double> want;
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < 5; ++j) want.push_back((double(x[i * 5 + j]) + row[j]) * column[i]);
  expect_near(((a + r) * c).to_vector<float>(), want, 2e-6, "rows and columns");
  EXPECT_EQ((r + c).shape(), (Shape{7, 5}));
  const std::string text = text_of<ShapeError>([&] { a + Array::ones({4}); });
  EXPECT_NE(text.find("(7, 5)"), std::string::npos) << text;
  EXPECT_NE(text.find("(4,)"), std::string::npos) << text;
}

TEST_P(OnEveryDevice, ViewsShareMemoryWithCorrectStrides) {
  const auto x = numbers(4 * 6 * 5);
  const Array a = Array::from(x, Shape{4, 6, 5});
  auto at = [&](int i, int j, int k) { return double(x[static_cast<std::size_t>((i * 6 + j) * 5 + k)]); };
  std::vector<double> want;
  for (int k = 0; k < 5; ++k)
    for (int j = 1; j < 6; j += 2)
      for (int i = 0; i < 4; ++i) want.push_back(at(i, j, k) + 1);
  expect_near((a.transpose().slice(1, 1, 6, 2) + 1).to_vector<float>(), want, 1e-6, "transposed and stepped");
  want.clear();
  for (int j = 0; j < 6; ++j)
    for (int i = 0; i < 4; ++i) want.push_back(at(i, j, 2));
  expect_near(a.select(2, 2).permute({1, 0}).to_vector<float>(), want, 0, "selected and permuted");
  want.clear();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 6; ++j)
      for (int k = 0; k < 5; ++k) want.push_back(at(i, j, k));
  expect_near(a.reshape({-1, 10}).to_vector<float>(), want, 0, "reshaped");
  // A strided array that can be reshaped as a view, and one that must be copied.
  const Array sliced = a.slice(2, 0, 4);
  EXPECT_EQ(sliced.reshape({24, 4}).source(), a.source());
  want.clear();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 6; ++j)
      for (int k = 0; k < 4; ++k) want.push_back(at(i, j, k));
  expect_near(sliced.reshape({24, 4}).to_vector<float>(), want, 0, "a view of rows");
  expect_near(sliced.reshape({-1}).to_vector<float>(), want, 0, "a copy");
  EXPECT_NE(text_of<ShapeError>([&] { a.reshape({7, 7}); }).find("(4, 6, 5)"), std::string::npos);
  const std::int64_t huge = std::int64_t{1} << 32;
  EXPECT_THROW(Array::empty({0}).reshape({huge, huge}), ShapeError);
  EXPECT_THROW(Array::empty({0}).reshape({huge, huge, -1}), ShapeError);
  EXPECT_EQ(Array::empty({0, 3}).reshape({-1}).shape(), (Shape{0}));
  EXPECT_EQ(Array::empty({0, 3}).reshape({-1, 3}).shape(), (Shape{0, 3}));
  EXPECT_NE(text_of<ShapeError>([&] {
              Array::empty({0, 3}).reshape({0, -1});
            }).find("-1 is ambiguous"),
            std::string::npos);
  EXPECT_THROW(a.select(0, 4), ShapeError);
  EXPECT_THROW(a.permute({0, 0, 1}), ShapeError);
  EXPECT_THROW(a.slice(0, 0, 4, 0), ShapeError);
}

TEST_P(OnEveryDevice, ComputesPermutedFiveDimensionalArrays) {
  const Shape shape = {3, 4, 2, 5, 3};
  const auto x = numbers(element_count(shape));
  const Array a = Array::from(x, shape);
  const auto got = (a.permute({4, 1, 3, 0, 2}) * 2).to_vector<float>();
  std::size_t at = 0;
  const Strides s = contiguous_strides(shape);
  for (int e = 0; e < 3; ++e)
    for (int b = 0; b < 4; ++b)
      for (int d = 0; d < 5; ++d)
        for (int i = 0; i < 3; ++i)
          for (int c = 0; c < 2; ++c, ++at)
            ASSERT_EQ(got[at], 2 * x[static_cast<std::size_t>(i * s[0] + b * s[1] + c * s[2] + d * s[3] + e * s[4])])
                << at;
}

TEST_P(OnEveryDevice, ElementwiseChainsAreFusedIntoOneKernel) {
  const auto x = numbers(5000), y = numbers(5000);
  const Array a = Array::from(x).eval(), b = Array::from(y).eval();
  const auto before = fused_launches();
  const Array z = sin(a) * b + a * 2 - 1;
  EXPECT_TRUE(z.pending());
  EXPECT_EQ(fused_launches(), before);
  std::vector<double> want;
  for (std::size_t i = 0; i < x.size(); ++i) want.push_back(std::sin(double(x[i])) * y[i] + x[i] * 2.0 - 1);
  expect_near(z.to_vector<float>(), want, 3e-6, "chain");
  EXPECT_EQ(fused_launches(), before + 1);
}

TEST_P(OnEveryDevice, PendingArrayWithTwoConsumersIsComputedOnce) {
  const Array a = Array::from(numbers(300)).eval();
  const Array shared = exp(a);
  const Array p = shared + 1, q = shared * 2;
  const auto before = fused_launches();
  const auto got_p = p.to_vector<float>();
  EXPECT_FALSE(shared.pending()) << "written by the kernel that computed its first consumer";
  EXPECT_EQ(fused_launches(), before + 1);
  const auto got_q = q.to_vector<float>(), got_shared = shared.to_vector<float>();
  EXPECT_EQ(fused_launches(), before + 2);
  for (std::size_t i = 0; i < got_p.size(); ++i) {
    ASSERT_EQ(got_p[i], got_shared[i] + 1);
    ASSERT_EQ(got_q[i], got_shared[i] * 2);
  }
}

TEST_P(OnEveryDevice, PendingArrayCanBeCombinedWithItsOwnViews) {
  const Array a = Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2}) + 1;
  EXPECT_EQ((a + a.transpose()).to_vector<float>(), (std::vector<float>{4, 7, 7, 10}));
  const Array b = Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2}) * 2;
  EXPECT_EQ((b - b.slice(0, 0, 1)).to_vector<float>(), (std::vector<float>{0, 0, 4, 4}));
}

TEST_P(OnEveryDevice, ThreadsCanEvaluateExpressionsWithSharedOperands) {
  for (int round = 0; round < 20; ++round) {
    const Array x = Array::from(numbers(100)).eval();
    const Array p = x + 1, q = x * 2;
    const Array r = p + q, s = q - p;
    std::thread other([&] { r.eval(); });
    s.eval();
    other.join();
    const auto v = x.to_vector<float>(), got_r = r.to_vector<float>(), got_s = s.to_vector<float>();
    for (std::size_t i = 0; i < v.size(); ++i) {
      ASSERT_EQ(got_r[i], (v[i] + 1) + v[i] * 2);
      ASSERT_EQ(got_s[i], v[i] * 2 - (v[i] + 1));
    }
  }
}

TEST_P(OnEveryDevice, LongExpressionsAreComputedCorrectly) {
  Array x = Array::zeros({100});
  for (int i = 0; i < 1000; ++i) x = x + 1;
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(100, 1000.f));
  Array y = Array::ones({10});
  for (int i = 0; i < 20; ++i) y = y + y;  // a graph with 2^20 paths
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(10, 1048576.f));
}

TEST_P(OnEveryDevice, ExpressionsWithManyInputsRespectTheParameterLimit) {
  Array total = Array::zeros({3, 5});
  std::vector<double> want(15);
  for (int i = 0; i < 40; ++i) {
    const auto x = numbers(15);
    const Array a = Array::from(x, Shape{5, 3});
    total = total + a.transpose() * (i + 1);
    for (int r = 0; r < 3; ++r)
      for (int c = 0; c < 5; ++c)
        want[static_cast<std::size_t>(r * 5 + c)] += x[static_cast<std::size_t>(c * 3 + r)] * (i + 1.0);
  }
  expect_near(total.to_vector<float>(), want, 1e-4, "forty strided inputs with forty scalars");
}

TEST_P(OnEveryDevice, HostAccessEndsWithItsScope) {
  const Array x = Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2});
  const Array before = x + 1;
  if (GetParam().backend != Backend::cpu && GetParam().backend != Backend::interp) {
    EXPECT_THROW(x.host_access(), DeviceError);
    EXPECT_THROW(x.host_view(), DeviceError);
    return;
  }
  {
    const HostView host = x.select(1, 1).host_view();
    EXPECT_TRUE(before.pending()) << "reading evaluates nothing";
    EXPECT_EQ(host.as<float>()[2], 4);
    EXPECT_THROW(host.as<int>(), DtypeError);
  }
  {
    const HostAccess host = x.select(1, 1).host_access();
    EXPECT_FALSE(before.pending());
    ASSERT_EQ(host.as<float>().size(), 3u);
    EXPECT_THROW(host.as<int>(), DtypeError);
    host.as<float>()[2] = 40;
    const Array during = x + 1;
    EXPECT_FALSE(during.pending());
    host.as<float>()[0] = 20;
    EXPECT_EQ(during.to_vector<float>(), (std::vector<float>{2, 3, 4, 41}));
  }
  const Array after = x + 1;
  EXPECT_TRUE(after.pending());
  EXPECT_EQ(after.to_vector<float>(), (std::vector<float>{2, 21, 4, 41}));
  EXPECT_EQ(before.to_vector<float>(), (std::vector<float>{2, 3, 4, 5}));
}

TEST_P(OnEveryDevice, WritesEvaluatePendingReadersFirst) {
  Array x = Array::from({1.f, 2.f, 3.f, 4.f});
  const Array y = x.slice(0, 1, 3);
  const Array z = y + 1;
  EXPECT_TRUE(z.pending());
  x += Array::ones({4});
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(z.to_vector<float>(), (std::vector<float>{3, 4})) << "as if computed before the write";
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{3, 4})) << "a view sees the write";

  // The write reaches a pending expression through an operand that was computed in between.
  Array u = Array::from({1.f, 2.f});
  const Array v = u * 3, w = v + 1;
  v.eval();
  Array alias = v;
  alias += Array::ones({2});
  EXPECT_EQ(w.to_vector<float>(), (std::vector<float>{4, 7}));
  // The same applies to a fill, an upload through assign, and a copy.
  const Array before_fill = u + 10;
  u.fill(0);
  EXPECT_EQ(before_fill.to_vector<float>(), (std::vector<float>{11, 12}));
  const Array before_assign = u + 10;
  u.assign(Array::from({5.f, 6.f}));
  EXPECT_EQ(before_assign.to_vector<float>(), (std::vector<float>{10, 10}));
  EXPECT_EQ(u.to_vector<float>(), (std::vector<float>{5, 6}));
}

/// Runs a write on another thread while this thread is about to launch. If the writer waits as it should, it does not
/// finish before the launch.
class WriterMeanwhile final : public LaunchInterceptor {
 public:
  explicit WriterMeanwhile(std::function<void()> write) : write_(std::move(write)) {
    thread_context.launch_interceptor = this;
  }
  ~WriterMeanwhile() override { thread_context.launch_interceptor = nullptr; }
  void launched(const Kernel&, Device device, std::array<std::uint64_t, 3>, std::span<const LaunchArgument>,
                const std::function<void()>& launch) override {
    if (!writer_.valid()) {
      writer_ = std::async(std::launch::async, [this, device] {
        const DeviceScope scope(device);
        write_();
      });
      writer_.wait_for(std::chrono::milliseconds(50));
    }
    launch();
  }
  void wait() { writer_.get(); }

 private:
  std::function<void()> write_;
  std::future<void> writer_;
};

TEST_P(OnEveryDevice, WriterWaitsForComputationsOfReleasedArrays) {
  constexpr std::int64_t n = 3000;
  Array out = Array::ones({n});
  const std::pair<const char*, std::function<float(Array)>> users[] = {
      {"sum", [&](Array y) { return sum(std::move(y)).item<float>() / n; }},
      {"argmax", [&](Array y) { return static_cast<float>(argmax(std::move(y), 0).item<std::int64_t>()); }},
      {"assign",
       [&](Array y) {
         out.assign(std::move(y));
         return out.slice(0, n - 1, n).item<float>();
       }},
      {"+=",
       [&](Array y) {
         out.fill(1);
         out += std::move(y);
         return out.slice(0, n - 1, n).item<float>() - 1;
       }},
  };
  for (const auto& [name, use] : users)
    for (int round = 0; round < 2; ++round) {  // in the second round, everything is already compiled
      Array x = Array::zeros({n});
      x.slice(0, 7, 8).fill(1);
      Array y = 2 + 0 * x.copy() + x;
      const float want = use(y + 0);
      y = 2 + 0 * x.copy() + x;
      WriterMeanwhile writer([&] { x += Array::arange(n, 100); });
      EXPECT_EQ(use(std::move(y)), want) << name;
      writer.wait();
      EXPECT_EQ(x.slice(0, n - 1, n).item<float>(), 100.f + n - 1) << name;
    }
}

TEST_P(OnEveryDevice, AssignHandlesOverlappingMemoryOfSeparateArrays) {
  Array x = Array::from({1.f, 2.f, 3.f, 4.f});
  const ArraySnapshot kept(x);
  x.slice(0, 0, 3).assign(kept.array().slice(0, 1, 4));  // another array with the same memory
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, 3, 4, 4}));
  x.slice(0, 1, 4).assign(Array::wrap(x.view().storage, DType::f32, {3}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, 2, 3, 4}));
}

TEST_P(OnEveryDevice, InPlaceOperationsHandleOverlappingViews) {
  Array x = Array::from({1.f, 2.f, 3.f, 4.f, 5.f});
  x += x;
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, 4, 6, 8, 10}));
  x.slice(0, 1, 5).assign(x.slice(0, 0, 4));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, 2, 4, 6, 8}));
  Array even = x.slice(0, 0, 5, 2);
  even *= Array::full({1}, 10);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{20, 2, 40, 6, 80}));
  Array m = Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2});
  m += m.transpose();
  EXPECT_EQ(m.to_vector<float>(), (std::vector<float>{2, 5, 5, 8}));
  EXPECT_THROW(x += Array::ones({2, 5}), ShapeError);
  Array rows = Array::zeros({2}).broadcast_to({3, 2});
  EXPECT_NE(text_of<ShapeError>([&] { rows += Array::ones({3, 2}); }).find("broadcast"), std::string::npos);
}

TEST_P(OnEveryDevice, ArraysAreNeverMovedImplicitly) {
  const Device other = GetParam().backend == Backend::interp ? Device{Backend::cpu, 0} : Device{Backend::interp, 0};
  const Array here = Array::ones({3}), there = Array::ones({3}, DType::f32, other);
  const std::string text = text_of<DeviceError>([&] { here + there; });
  EXPECT_NE(text.find(to_string(GetParam())), std::string::npos) << text;
  EXPECT_NE(text.find(to_string(other)), std::string::npos) << text;
  const Array moved = (here * 2).to(other);
  EXPECT_EQ(moved.device(), other);
  EXPECT_EQ((moved + there).to_vector<float>(), (std::vector<float>{3, 3, 3}));
  EXPECT_EQ(here.to(GetParam()).source(), here.source()) << "already there: the same array";
}

TEST_P(OnEveryDevice, ThreadsCanReadTheSameArray) {
  const Array a = Array::from(numbers(10000)).eval();
  const Array pending = a * 2 + 1;
  const auto want = (a * 2 + 1).to_vector<float>();
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      bool good = true;
      for (int i = 0; i < 20; ++i) good = good && (pending - 0).to_vector<float>() == want;
      right[static_cast<std::size_t>(t)] = good;
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(right, (std::vector<int>{1, 1, 1, 1}));
}

TEST_P(OnEveryDevice, RandomNumbersAreTheSameOnEveryDevice) {
  const std::uint64_t s = 0x1234567890abcdefull;
  const auto bits = random_bits({1003}, s).to_vector<std::uint32_t>();
  const auto uniform = random_uniform({1003}, s, -1, 1).to_vector<float>();
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const auto words = philox4x32(s, i / 4);
    ASSERT_EQ(bits[i], words[i % 4]) << i;
    ASSERT_EQ(uniform[i], std::fma(static_cast<float>(words[i % 4] >> 8) * 0x1p-24f, 2.f, -1.f)) << i;
  }
  // A part contains the same numbers as the whole array, for any starting position.
  for (const std::int64_t row : {0, 3})
    for (const std::int64_t column : {0, 1, 2, 6, 9}) {
      const Shape whole{2, 7, 13}, starts{1, row, column}, shape{1, 4, 4};
      const auto cut = [&](const Array& a) {
        return a.slice(0, 1, 2).slice(1, row, row + 4).slice(2, column, column + 4);
      };
      EXPECT_EQ(random_bits_part(whole, starts, shape, s).to_vector<std::uint32_t>(),
                cut(random_bits(whole, s)).to_vector<std::uint32_t>());
      EXPECT_EQ(random_uniform_part(whole, starts, shape, s, -1, 2).to_vector<float>(),
                cut(random_uniform(whole, s, -1, 2)).to_vector<float>());
      EXPECT_EQ(random_normal_part(whole, starts, shape, s, 3, 2).to_vector<float>(),
                cut(random_normal(whole, s, 3, 2)).to_vector<float>());
    }
  EXPECT_EQ(random_bits_part({9, 11}, {0, 0}, {9, 11}, s).to_vector<std::uint32_t>(),
            random_bits({9, 11}, s).to_vector<std::uint32_t>());
  EXPECT_EQ(random_uniform_part({5}, {3}, {0}, s).size(), 0);
  EXPECT_THROW(random_uniform_part({5, 5}, {0, 3}, {5, 3}, s), ShapeError);
  EXPECT_THROW(random_uniform_part({5, 5}, {0}, {5}, s), ShapeError);
  const auto normal = random_normal({200000}, s, 3, 2).to_vector<float>();
  double mean = 0, square = 0;
  for (float v : normal) mean += v, square += double(v) * v;
  mean /= 200000, square = square / 200000 - mean * mean;
  EXPECT_NEAR(mean, 3, 0.02);
  EXPECT_NEAR(std::sqrt(square), 2, 0.02);
}

TEST_P(OnEveryDevice, KernelsRejectNonContiguousArrays) {
  const auto twice =
      kernel("twice", [](Buffer<const float> x, Buffer<float> y) { y[global_id()] = 2.0f * x[global_id()]; });
  const Array x = Array::from(numbers(6)).reshape({2, 3});
  Array y = Array::zeros({3, 2});
  const std::string text = text_of<ShapeError>([&] { twice.launch({6}, x.transpose(), y); });
  test::expect_contains(text, {"(3, 2)", "(1, 3)", "as_contiguous()"});
  test::expect_contains(text_of<ShapeError>([&] { twice.launch({6}, x, y.transpose()); }), {"assign()"});
  text_of<ShapeError>([&] { twice.launch({6}, Array::full({1}, 7.0, DType::f32).broadcast_to({6}), y); });
  twice.launch({6}, x.transpose().as_contiguous(), y);
  const auto want = (2.0f * x.transpose()).to_vector<float>();
  EXPECT_EQ(y.to_vector<float>(), want);
}

}  // namespace
}  // namespace tessera
