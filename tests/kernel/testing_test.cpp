// SPDX-License-Identifier: Apache-2.0
// Tests that the testing helpers detect and describe errors, and accept correct results.
#include "tessera/testing/testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/kernel/kernel.h"

using namespace tessera;
namespace tt = tessera::testing;

namespace {

template <class F>
std::string failure(F f) {
  try {
    f();
  } catch (const tt::Failure& e) {
    return e.what();
  }
  return "no failure";
}
::testing::AssertionResult holds(const std::string& text, const std::string& part) {
  if (text.find(part) != text.npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

const auto scale = kernel("scale", [](Buffer<const float> x, Buffer<float> y, Val<float> a) {
  auto i = global_id();
  y[i] = a * x[i];
});

TEST(Testing, ComparesFloatsWithATolerance) {
  const std::vector<float> got = {1, 2, 3.001f, 4};
  const std::vector<double> expected = {1, 2, 3, 4};
  tt::expect_close(got, expected, {.absolute = 0.01});
  tt::expect_close(got, expected, {.relative = 0.001});
  EXPECT_TRUE(holds(
      failure([&] { tt::expect_close(got, expected, {.relative = 1e-5}, "sums"); }),
      "[sums] 1 of 4 elements are wrong; first [2] got 3.00099993, expected 3 (difference 0.001, allowed 3e-05)"));
  EXPECT_TRUE(holds(failure([&] {
                      tt::expect_equal(got, std::vector<double>{1, 2, 3});
                    }),
                    "it has 4 elements, expected 3"));
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  tt::expect_equal(std::vector<float>{nan, infinity}, std::vector<double>{std::nan(""), infinity});
  EXPECT_TRUE(
      holds(failure([&] { tt::expect_close(std::vector<float>{nan}, std::vector<double>{1}, {.absolute = 1e9}); }),
            "got nan"));
  EXPECT_TRUE(
      holds(failure([&] { tt::expect_close(std::vector<float>{1}, std::vector<double>{infinity}, {.relative = 1}); }),
            "expected inf"));
  // Integers that are equal when converted to double.
  const std::vector<std::int64_t> large = {(1ll << 60) + 1}, larger = {(1ll << 60) + 2};
  tt::expect_equal(large, large);
  EXPECT_TRUE(holds(failure([&] { tt::expect_equal(large, larger); }),
                    "got 1152921504606846977, expected 1152921504606846978"));
  tt::expect_equal(std::vector<std::uint64_t>{~0ull}, std::vector<std::uint64_t>{~0ull});
  EXPECT_TRUE(
      holds(failure([&] { tt::expect_equal(std::vector<std::uint64_t>{~0ull}, std::vector<std::int64_t>{-1}); }),
            "expected -1"));
  tt::expect_equal(std::vector<half>{half(0.5f)}, std::vector<double>{0.5});
}

TEST(Testing, RandomDataDependsOnlyOnTheSeed) {
  tt::Random a(7), b(7), c(8);
  const auto x = a.values<float>(1000, -2, 3);
  EXPECT_EQ(x, b.values<float>(1000, -2, 3));
  EXPECT_NE(x, c.values<float>(1000, -2, 3));
  double sum = 0;
  for (float v : x) {
    EXPECT_GE(v, -2);
    EXPECT_LE(v, 3);
    sum += v;
  }
  EXPECT_NEAR(sum / 1000, 0.5, 0.25);
  const auto n = a.values<std::int8_t>(2000, -3, 3);
  for (int k = -3; k <= 3; ++k) EXPECT_GT(std::count(n.begin(), n.end(), k), 150) << k;
  double squares = 0;
  for (int i = 0; i < 4000; ++i) squares += std::pow(a.normal(), 2);
  EXPECT_NEAR(squares / 4000, 1, 0.2);
  EXPECT_EQ(tt::seed(), tt::seed());
}

TEST(Testing, RunsOnAllDevicesAndFourInterpreters) {
  const auto& devices = tt::all_devices();
  for (int i = 0; i < 4; ++i) EXPECT_NE(std::ranges::find(devices, Device{Backend::interp, i}), devices.end()) << i;
  const auto width =
      kernel("width", block(64), [](Buffer<std::int32_t> y) { y[global_id()] = cast<std::int32_t>(subgroup_size()); });
  std::vector<std::int32_t> widths;
  tt::for_each_device([&](Device d) {
    EXPECT_EQ(current_device(), d);
    tt::Poisoned<std::int32_t> y(64);
    width.launch(blocks(1), y);
    if (d.backend == Backend::interp) widths.push_back(y.values()[63]);
  });
  EXPECT_EQ(widths, (std::vector<std::int32_t>{32, 1, 8, 64}));
}

TEST(Testing, AcceptsCorrectKernelsAtAllSizes) {
  tt::for_each_device([](Device) {
    tt::Random random;
    for (const std::size_t n : tt::awkward_sizes) {
      const auto x = random.values<float>(n);
      std::vector<double> expected;
      for (const float v : x) expected.push_back(2.5 * v);
      const DeviceBuffer<float> in(x);
      tt::Poisoned<float> out(n);
      EXPECT_EQ(out.unwritten(), n);
      scale.launch({n}, in, out, 2.5f);
      out.expect(expected, {.relative = 1e-6});
      EXPECT_EQ(out.unwritten(), 0u);
    }
  });
}

TEST(Testing, FailuresContainDeviceElementAndSeed) {
  const auto wrong = failure([] {
    tt::for_each_device([](Device) {
      tt::Random random;
      const auto x = random.values<float>(100);
      std::vector<double> expected(x.begin(), x.end());
      expected[17] += 1;
      const DeviceBuffer<float> in(x);
      tt::Poisoned<float> out(100);
      scale.launch({99}, in, out, 1);  // one thread too few
      out.expect(expected, {}, "scaled");
    });
  });
  EXPECT_TRUE(holds(wrong, "it failed on " + std::to_string(tt::all_devices().size()) + " of "));
  EXPECT_TRUE(holds(
      wrong,
      "\n  interp:1 (reference interpreter, subgroups of 1): [scaled] 2 of 100 elements are wrong; first [17] got "));
  EXPECT_TRUE(holds(wrong, "; 1 were never written, first [99]"));
  EXPECT_TRUE(holds(wrong, "seed = " + std::to_string(tt::seed())));

  const auto past = failure([] {
    tt::for_each_device(std::vector{Device{Backend::interp, 0}}, [](Device) {
      // The view has one more element than the test checks, which simulates a kernel that writes out of bounds.
      tt::Poisoned<std::int32_t> out(10);
      BufferView longer = out.view();
      longer.elements += 1;
      const auto fill = kernel("fill", [](Buffer<std::int32_t> y) { y[global_id()] = 3; });
      fill.launch({11}, longer);
      out.expect(std::vector<std::int32_t>(10, 3));
    });
  });
  EXPECT_TRUE(holds(past, "the kernel wrote element [10] of a buffer of 10 elements"));
}

TEST(Testing, DetectsUnwrittenElementsOfEveryType) {
  tt::for_each_device([](Device) {
    const auto ones = [&]<class T>(T one) {
      const auto fill = kernel("fill", [one](Buffer<T> y) { y[2 * global_id()] = one; });
      tt::Poisoned<T> out(10);
      EXPECT_EQ(out.unwritten(), 10u);
      fill.launch({5}, out);
      EXPECT_EQ(out.unwritten(), 5u);
      EXPECT_EQ(out.values()[4], one);
    };
    ones(true), ones(std::int8_t{1}), ones(std::uint16_t{1}), ones(1), ones(std::int64_t{1}), ones(half(1)),
        ones(bfloat16(1)), ones(1.0f);
  });
}

}  // namespace
