// SPDX-License-Identifier: Apache-2.0
// Convolution, pooling and image windows, compared with plain loops in double.
#include "tessera/ops/convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "tessera/array/functions.h"
#include "tessera/grad/grad.h"
#include "tessera/ops/product.h"
#include "tessera/ops/windows.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/launches.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;

struct Case {
  Shape x, weight;
  Convolution2d options;
};

std::vector<Case> cases() {
  return {
      {{2, 3, 7, 8}, {4, 3, 3, 3}, {}},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
      {{2, 3, 5, 6}, {4, 3, 1, 1}, {}},
      {{2, 3, 5, 6}, {4, 3, 1, 1}, {.stride = 2}},
      {{2, 3, 5, 6}, {4, 3, 1, 1}, {.padding = 1}},
      {{3, 4, 9, 10}, {6, 4, 3, 2}, {.stride = {2, 1}, .padding = {1, 0}}},
      {{2, 4, 9, 11}, {6, 2, 3, 3}, {.stride = {1, 3}, .padding = 2, .dilation = {2, 1}, .groups = 2}},
      {{1, 6, 12, 12}, {6, 1, 5, 5}, {.stride = 2, .padding = 2, .groups = 6}},
      {{2, 6, 4, 4}, {3, 2, 1, 1}, {.groups = 3}},
      {{1, 2, 6, 6}, {2, 2, 2, 2}, {.stride = 3, .dilation = 3}},
      {{0, 2, 6, 6}, {2, 2, 2, 2}, {}},
  };
}

// Returns the position of an element of a window in rows or columns, or -1 if it is in the padding.
std::int64_t at(std::int64_t window, std::int64_t k, std::int64_t stride, std::int64_t padding, std::int64_t dilation,
                std::int64_t extent) {
  const std::int64_t p = window * stride - padding + k * dilation;
  return p >= 0 && p < extent ? p : -1;
}

TEST_P(OnEveryDevice, ConvolutionMatchesPlainLoops) {
  for (const Case& c : cases())
    for (const bool with_bias : {false, true}) {
      const auto x = numbers(element_count(c.x)), w = numbers(element_count(c.weight)), b = numbers(c.weight[0]);
      std::optional<Array> bias;
      if (with_bias) bias = Array::from(b);
      const Array got = conv2d(Array::from(x, c.x), Array::from(w, c.weight), bias, c.options);
      ASSERT_EQ(got.rank(), 4);
      const auto y = got.to_vector<float>();
      const Convolution2d& o = c.options;
      const std::int64_t rows =
          (c.x[2] + 2 * o.padding.rows - o.dilation.rows * (c.weight[2] - 1) - 1) / o.stride.rows + 1;
      const std::int64_t columns =
          (c.x[3] + 2 * o.padding.columns - o.dilation.columns * (c.weight[3] - 1) - 1) / o.stride.columns + 1;
      ASSERT_EQ(got.shape(), (Shape{c.x[0], c.weight[0], rows, columns}));
      std::size_t i = 0;
      for (std::int64_t n = 0; n < c.x[0]; ++n)
        for (std::int64_t out = 0; out < c.weight[0]; ++out)
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t q = 0; q < columns; ++q, ++i) {
              double wanted = with_bias ? b[static_cast<std::size_t>(out)] : 0, size = 1;
              const std::int64_t group = out / (c.weight[0] / o.groups);
              for (std::int64_t ch = 0; ch < c.weight[1]; ++ch)
                for (std::int64_t kr = 0; kr < c.weight[2]; ++kr)
                  for (std::int64_t kc = 0; kc < c.weight[3]; ++kc) {
                    const auto row = at(r, kr, o.stride.rows, o.padding.rows, o.dilation.rows, c.x[2]);
                    const auto column = at(q, kc, o.stride.columns, o.padding.columns, o.dilation.columns, c.x[3]);
                    if (row < 0 || column < 0) continue;
                    const auto channel = group * c.weight[1] + ch;
                    const double p =
                        static_cast<double>(
                            x[static_cast<std::size_t>(((n * c.x[1] + channel) * c.x[2] + row) * c.x[3] + column)]) *
                        w[static_cast<std::size_t>(((out * c.weight[1] + ch) * c.weight[2] + kr) * c.weight[3] + kc)];
                    wanted += p, size += std::fabs(p);
                  }
              ASSERT_NEAR(y[i], wanted, 2e-6 * size) << to_string(c.x) << to_string(c.weight) << " at " << i;
            }
    }
}

TEST_P(OnEveryDevice, ConvolutionAcceptsViewsAndOtherFloats) {
  const Array x = Array::from(numbers(2 * 5 * 6 * 3), Shape{2, 5, 6, 3});  // channels last
  const Array view = x.permute({0, 3, 1, 2}), w = Array::from(numbers(4 * 3 * 3 * 3), Shape{4, 3, 3, 3});
  const auto wanted = conv2d(view.copy(), w).to_vector<float>();
  EXPECT_EQ(conv2d(view, w).to_vector<float>(), wanted);
  EXPECT_EQ(conv2d(view, w, {}).to_vector<float>(), wanted) << "{} means no bias";
  EXPECT_EQ(conv2d(view, w, {.padding = 1}).to_vector<float>(), conv2d(view, w, {}, {.padding = 1}).to_vector<float>());
  EXPECT_EQ(conv2d(conv2d(view, w), Array::ones({1, 4, 2, 2})).to_vector<float>(),
            conv2d(conv2d(view, w).copy(), Array::ones({1, 4, 2, 2})).to_vector<float>());
  const Array half = conv2d(view.astype(DType::f16), w.astype(DType::f16));
  EXPECT_EQ(half.dtype(), DType::f16);
  const auto values = half.astype(DType::f32).to_vector<float>();
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(values[i], wanted[i], 0.05);
  if (device_info(GetParam()).can.f64) {
    EXPECT_EQ(conv2d(view.astype(DType::f64), w.astype(DType::f64)).dtype(), DType::f64);
  }
}

// Computes y and the gradients of x and of the weight, given the adjoint g of y, as products with the matrix of
// windows.
std::array<Array, 3> by_windows(const Array& x, const Array& w, const Array& g, const Convolution2d& options) {
  const Windows2d o{{w.shape(2), w.shape(3)}, options.stride, options.padding, options.dilation};
  const std::int64_t groups = options.groups, out = w.shape(0) / groups, terms = w.size() / w.shape(0);
  const Array windows = windows2d(x, o);
  const Array matrix = windows.reshape({groups, terms, -1}), weight = w.reshape({groups, out, terms});
  const Shape outermost = {w.shape(0), x.shape(0), g.shape(2), g.shape(3)};
  const Array adjoint = g.permute({1, 0, 2, 3}).copy().reshape({groups, out, -1});
  return {matmul(weight, matrix).reshape(outermost).permute({1, 0, 2, 3}),
          fold2d(matmul(weight.permute({0, 2, 1}), adjoint).reshape(windows.shape()), {x.shape(2), x.shape(3)}, o),
          matmul(adjoint, matrix.permute({0, 2, 1})).reshape(w.shape())};
}

TEST_P(OnEveryDevice, ConvolutionAndItsGradientsMatchProductsOfWindows) {
  std::vector<Case> all = cases();
  all.pop_back();                                                           // no images
  all.push_back({{1, 2, 1, 12000}, {3, 2, 1, 5}, {.padding = {0, 2}}});     // a row computed in parts
  all.push_back({{1, 1, 40, 21}, {1, 1, 35, 17}, {.padding = {3, 1}}});     // a large kernel
  all.push_back({{1, 1, 9000, 3}, {2, 1, 3, 2}, {.dilation = {4000, 1}}});  // distant taps
  // distant taps with sums over many channels
  all.push_back({{1, 16, 1, 1200}, {16, 16, 1, 3}, {.dilation = {1, 512}}});
  all.push_back({{1, 1, 1, 8192}, {2, 1, 1, 2048}, {.stride = {1, 512}}});  // more taps than accumulators
  all.push_back({{1, 5, 20, 20}, {4, 5, 31, 31}, {.padding = 15}});
  all.push_back({{1, 16, 9, 400}, {16, 16, 3, 3}, {.padding = 1}});  // bands of one row
  all.push_back({{3, 70, 5, 6}, {17, 70, 3, 3}, {.padding = 1}});    // images that share their padding
  // not all channels fit in shared memory at the same time
  all.push_back({{1, 90, 18, 40}, {9, 90, 3, 3}, {.padding = 1}});
  // Vectors of channels: tiles of a whole row and of part of a row, a tile with only some channels of x, and strides.
  all.push_back({{3, 20, 7, 7}, {40, 20, 3, 3}, {.padding = 1}});
  all.push_back({{2, 34, 14, 30}, {70, 34, 3, 3}, {.stride = 2, .padding = 1}});
  all.push_back({{2, 8, 12, 26}, {32, 4, 3, 5}, {.padding = {2, 3}, .dilation = {1, 2}, .groups = 2}});
  all.push_back({{2, 2, 9, 10}, {3, 2, 3, 3}, {.stride = {4, 2}, .padding = {2, 3}, .dilation = {2, 3}}});
  const auto pick = [&](int low, int high) { return integers(1, low, high)[0]; };
  for (int i = 0; i < 5; ++i) {
    const std::int64_t groups = pick(1, 3), in = pick(1, 9), out = pick(1, 12);
    const Extents2d kernel(pick(1, 4), pick(1, 8)), padding(pick(0, 4), pick(0, 4));
    const Extents2d stride(pick(1, 4), pick(1, 3)), dilation(pick(1, 3), pick(1, 2));
    const auto extent = [&](std::int64_t k, std::int64_t d, std::int64_t p) {
      return std::max<std::int64_t>(1, (k - 1) * d + 1 - 2 * p) + pick(0, 20);
    };
    all.push_back({{pick(1, 5), groups * in, extent(kernel.rows, dilation.rows, padding.rows),
                    extent(kernel.columns, dilation.columns, padding.columns)},
                   {groups * out, in, kernel.rows, kernel.columns},
                   {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups}});
  }
  for (std::size_t i = 0; i < all.size(); i += compiles_slowly() ? 5 : 1)
    for (const DType t : {DType::f32, DType::f16}) {  // integers, so that sums are exact
      const Case& c = all[i];
      const bool narrow = t == DType::f16;
      if (narrow && (i % 3 != 0 || c.x[3] > 1000)) continue;
      const Array x = Array::from(integers(element_count(c.x), narrow ? 0 : -9, narrow ? 1 : 9), c.x).astype(t);
      const Array w =
          Array::from(integers(element_count(c.weight), narrow ? 0 : -9, narrow ? 1 : 9), c.weight).astype(t);
      const Array y = conv2d(x, w, {}, c.options);
      if (narrow && y.size() / y.shape(1) > 2000) continue;  // sums exceed f16's integers
      const Array g = Array::from(integers(y.size(), narrow ? 0 : -9, narrow ? 1 : 9), y.shape()).astype(t);
      const auto wanted = by_windows(x, w, g, c.options);
      const auto [value, gradients] = value_and_grad(
          [&](const Array& a, const Array& b) { return sum(conv2d(a, b, {}, c.options) * g); }, wrt<0, 1>)(x, w);
      const auto same = [&](const Array& is, const Array& should, const char* what) {
        ASSERT_EQ(is.shape(), should.shape()) << what;
        ASSERT_EQ(is.astype(DType::f32).to_vector<float>(), should.astype(DType::f32).to_vector<float>())
            << what << " of " << to_string(c.x) << to_string(c.weight) << " stride " << c.options.stride.rows << ", "
            << c.options.stride.columns << " padding " << c.options.padding.rows << ", " << c.options.padding.columns
            << " dilation " << c.options.dilation.rows << ", " << c.options.dilation.columns << " groups "
            << c.options.groups << " " << dtype_name(t);
      };
      same(y, wanted[0], "result");
      same(std::get<0>(gradients), wanted[1], "gradient of images");
      same(std::get<1>(gradients), wanted[2], "gradient of the weight");
    }
}

TEST_P(OnEveryDevice, ConvolutionWithoutInputChannelsReturnsTheBias) {
  const Array x = Array::zeros({2, 0, 5, 5}), w = Array::zeros({3, 0, 3, 3}), bias = Array::arange(3) + 1.0f;
  EXPECT_EQ(sum(conv2d(x, w, bias), {0, 2, 3}).to_vector<float>(), (Floats{18, 36, 54}));
  const auto [value, gradients] =
      value_and_grad([](const Array& a, const Array& b) { return sum(conv2d(a, b)); }, wrt<0, 1>)(x, w);
  EXPECT_EQ(value.item<float>(), 0);
  EXPECT_EQ(std::get<0>(gradients).shape(), x.shape());
  EXPECT_EQ(std::get<1>(gradients).shape(), w.shape());
  // Without output channels, the gradient of the images is zero.
  const Array images = Array::ones({1, 2, 4, 4}), none = Array::zeros({0, 2, 3, 3});
  const auto [nothing, of_images] =
      value_and_grad([&](const Array& a) { return sum(conv2d(a, none)) + sum(a) * 0; })(images);
  EXPECT_EQ(sum(abs(of_images)).item<float>(), 0);
}

// Each of the three products reads its operands and writes its result. It needs little additional memory.
TEST_P(OnEveryDevice, ConvolutionDoesNotStoreWindows) {
  const Convolution2d options{.padding = 1};
  const Shape shape = {4, 16, 32, 32};
  const Array x = Array::from(numbers(element_count(shape)), shape),
              w = Array::from(numbers(16 * 16 * 9), Shape{16, 16, 3, 3});
  const Array g = Array::from(numbers(element_count(shape)), shape);
  const auto bytes = static_cast<std::uint64_t>(4 * x.size());
  const auto gradients =
      value_and_grad([&](const Array& a, const Array& b) { return sum(conv2d(a, b, {}, options) * g); }, wrt<0, 1>);
  const auto measured = [&](const std::function<void()>& work) {
    work();  // compiles
    trim(GetParam()), reset_peak_memory(GetParam());
    const std::uint64_t before = memory_stats(GetParam()).live_bytes;
    test::Launches launches;
    work();
    return std::pair(memory_stats(GetParam()).peak_bytes - before, launches.bytes);
  };
  const auto [forward, forward_moved] = measured([&] { conv2d(x, w, {}, options).eval(); });
  EXPECT_LE(forward, bytes * 5 / 4);        // the result
  EXPECT_LE(forward_moved, bytes * 9 / 4);  // the result and its operands
  const auto [backward, backward_moved] = measured([&] { gradients(x, w); });
  EXPECT_LE(backward, bytes * 7 / 2);         // y, y * g and the gradient of x
  EXPECT_LE(backward_moved, bytes * 25 / 2);  // the arrays above, y * g and its sum, and both gradients
}

TEST_P(OnEveryDevice, WindowsAndTheirAdjointMatchTheReference) {
  for (const Case& c : cases()) {
    const Windows2d o{{c.weight[2], c.weight[3]}, c.options.stride, c.options.padding, c.options.dilation};
    const Array x = Array::from(integers(element_count(c.x), -9, 9), c.x).astype(DType::f32);
    const Array windows = windows2d(x, o);
    const Shape s = windows.shape();
    ASSERT_EQ(s.size(), 6u);
    const auto got = windows.to_vector<float>(), images = x.to_vector<float>();
    const auto u = integers(windows.size(), -9, 9);
    const auto folded = fold2d(Array::from(u, s).astype(DType::f32), {c.x[2], c.x[3]}, o).to_vector<float>();
    Floats wanted(images.size());
    std::size_t i = 0;
    for (std::int64_t ch = 0; ch < s[0]; ++ch)
      for (std::int64_t kr = 0; kr < s[1]; ++kr)
        for (std::int64_t kc = 0; kc < s[2]; ++kc)
          for (std::int64_t n = 0; n < s[3]; ++n)
            for (std::int64_t r = 0; r < s[4]; ++r)
              for (std::int64_t q = 0; q < s[5]; ++q, ++i) {
                const auto row = at(r, kr, o.stride.rows, o.padding.rows, o.dilation.rows, c.x[2]);
                const auto column = at(q, kc, o.stride.columns, o.padding.columns, o.dilation.columns, c.x[3]);
                const bool inside = row >= 0 && column >= 0;
                const auto from = static_cast<std::size_t>(((n * s[0] + ch) * c.x[2] + row) * c.x[3] + column);
                ASSERT_EQ(got[i], inside ? images[from] : 0) << to_string(c.x) << " at " << i;
                if (inside) wanted[from] += static_cast<float>(u[i]);
              }
    ASSERT_EQ(folded, wanted) << to_string(c.x);
  }
}

TEST_P(OnEveryDevice, PoolingMatchesPlainLoops) {
  struct PoolCase {
    Shape x;
    Pool2d options;
  };
  const PoolCase all[] = {{{2, 3, 6, 8}, {.kernel = 2}},
                          {{1, 1, 1, 1}, {.kernel = 1}},
                          {{2, 2, 7, 9}, {.kernel = {3, 2}, .stride = 1, .padding = 1}},
                          {{1, 2, 8, 8}, {.kernel = 3, .stride = Extents2d(2, 3), .padding = {1, 0}}},
                          {{2, 1, 5, 5}, {.kernel = 5}},
                          {{1, 2, 13, 20}, {.kernel = 7, .stride = 3, .padding = 3}},
                          {{1, 3, 16, 17}, {.kernel = 8}},
                          {{0, 1, 5, 5}, {.kernel = 2}}};
  for (const PoolCase& c : all) {
    const auto x = integers(element_count(c.x), -4, 4);  // small integers, so that there are ties
    const Array a = Array::from(x, c.x).astype(DType::f32);
    const Extents2d stride = c.options.stride.value_or(c.options.kernel), p = c.options.padding, k = c.options.kernel;
    const Array largest = max_pool2d(a, c.options), mean = average_pool2d(a, c.options);
    const Array positions = ops::max_positions2d(a, c.options);
    const std::int64_t rows = (c.x[2] + 2 * p.rows - k.rows) / stride.rows + 1;
    const std::int64_t columns = (c.x[3] + 2 * p.columns - k.columns) / stride.columns + 1;
    ASSERT_EQ(largest.shape(), (Shape{c.x[0], c.x[1], rows, columns}));
    const auto got = largest.to_vector<float>(), means = mean.to_vector<float>();
    const auto where = positions.to_vector<std::int32_t>();
    const auto u = integers(largest.size(), 1, 9);
    Floats spread(x.size()), mean_spread(x.size());
    std::size_t i = 0;
    for (std::int64_t plane = 0; plane < c.x[0] * c.x[1]; ++plane)
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t q = 0; q < columns; ++q, ++i) {
          double best = -1e9, total = 0;
          std::int64_t position = -1;
          for (std::int64_t kr = 0; kr < k.rows; ++kr)
            for (std::int64_t kc = 0; kc < k.columns; ++kc) {
              const auto row = at(r, kr, stride.rows, p.rows, 1, c.x[2]);
              const auto column = at(q, kc, stride.columns, p.columns, 1, c.x[3]);
              if (row < 0 || column < 0) continue;
              const auto element = static_cast<std::size_t>((plane * c.x[2] + row) * c.x[3] + column);
              const double v = x[element];
              mean_spread[element] += static_cast<float>(u[i]);
              total += v;
              if (v > best) best = v, position = row * c.x[3] + column;
            }
          ASSERT_EQ(got[i], best);
          ASSERT_EQ(where[i], position);
          ASSERT_NEAR(means[i], total / static_cast<double>(k.rows * k.columns), 1e-6);
          spread[static_cast<std::size_t>(plane * c.x[2] * c.x[3] + position)] += static_cast<float>(u[i]);
        }
    const Array values = Array::from(u, largest.shape()).astype(DType::f32);
    ASSERT_EQ(ops::unpool2d(values, positions, {c.x[2], c.x[3]}, c.options).to_vector<float>(), spread);
    const Array totals = values * static_cast<float>(k.rows * k.columns);
    ASSERT_EQ(ops::average_unpool2d(totals, {c.x[2], c.x[3]}, c.options).to_vector<float>(), mean_spread);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const auto odd =
      max_pool2d(Array::from({1.f, nan, -inf, -inf}, Shape{1, 2, 1, 2}), {.kernel = {1, 2}}).to_vector<float>();
  EXPECT_TRUE(std::isnan(odd[0]));
  EXPECT_EQ(odd[1], -inf);
  EXPECT_EQ(
      max_pool2d(Array::full({1, 1, 2, 2}, -7, DType::i32), {.kernel = 2, .padding = 1}).to_vector<std::int32_t>(),
      (std::vector<std::int32_t>{-7, -7, -7, -7}));
}

TEST_P(OnEveryDevice, ConvolutionRejectsInvalidArguments) {
  const Array x = Array::ones({2, 4, 5, 5}), w = Array::ones({6, 4, 3, 3});
  expect_throw<Error>([&] { conv2d(x.select(0, 0), w); }, {"images must have four dimensions"});
  expect_throw<Error>([&] { conv2d(x, w.select(0, 0)); }, {"the weight must have four dimensions"});
  expect_throw<Error>([&] { conv2d(x, Array::ones({6, 3, 3, 3})); }, {"a different number of channels"});
  expect_throw<Error>([&] { conv2d(x, w, {}, {.groups = 3}); }, {"must be multiples of groups"});
  expect_throw<Error>([&] { conv2d(x, w, Array::ones({5})); }, {"the bias does not have one element"});
  expect_throw<Error>([&] { conv2d(x, Array::ones({6, 4, 7, 7})); }, {"larger than the image"});
  expect_throw<Error>([&] { conv2d(x, Array::ones({6, 4, 7, 7})); }, {"(2, 4, 5, 5)"});
  expect_throw<Error>([&] { conv2d(x, w, {}, {.stride = 0}); }, {"at least 1"});
  expect_throw<Error>([&] { conv2d(x.astype(DType::i32), w); }, {"requires a float dtype"});
  expect_throw<Error>([&] { max_pool2d(x, {.kernel = 2, .padding = 2}); }, {"more than half of the kernel"});
  expect_throw<Error>([&] { max_pool2d(x, {.kernel = 6}); }, {"larger than the image"});
  expect_throw<Error>([&] { average_pool2d(x.astype(DType::i32), {.kernel = 2}); }, {"requires a float dtype"});
  expect_throw<Error>([&] { max_pool2d(x > 0, {.kernel = 2}); }, {"requires a numeric dtype"});
  expect_throw<Error>([&] { fold2d(x, 5, {.kernel = 2}); }, {"windows must have six dimensions"});
  expect_throw<Error>([&] { fold2d(windows2d(x, {.kernel = 2}), 6, {.kernel = 2}); },
                      {"the number of windows does not match"});
}

TEST_P(OnEveryDevice, ConvolveMatchesPlainLoops) {
  for (const auto& [n, k] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {5, 1}, {5, 2}, {5, 3}, {3, 7}, {4, 4}, {100, 31}}) {
    SCOPED_TRACE(std::to_string(n) + ", " + std::to_string(k));
    const std::vector<std::int32_t> x = integers(n), y = integers(k);
    std::vector<std::int32_t> full(static_cast<std::size_t>(n + k - 1));
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < y.size(); ++j) full[i + j] += x[i] * y[j];
    // NumPy's documentation: `same` has max(n, k) elements in the middle, `valid` those of complete overlap.
    const auto least = static_cast<std::ptrdiff_t>(std::min(n, k)), most = static_cast<std::ptrdiff_t>(std::max(n, k));
    const std::vector<std::int32_t> same(full.begin() + (least - 1) / 2, full.begin() + (least - 1) / 2 + most),
        valid(full.begin() + least - 1, full.begin() + most);
    const Array a = Array::from(x), v = Array::from(y);
    EXPECT_EQ(convolve(a, v).to_vector<std::int32_t>(), full);
    EXPECT_EQ(convolve(a, v, ConvolvedPart::same).to_vector<std::int32_t>(), same);
    EXPECT_EQ(convolve(a, v, ConvolvedPart::valid).to_vector<std::int32_t>(), valid);
    const auto floats = convolve(a.astype(DType::f32), v, ConvolvedPart::same).to_vector<float>();
    for (std::size_t i = 0; i < same.size(); ++i) EXPECT_EQ(floats[i], static_cast<float>(same[i])) << i;
  }
  test::expect_throw<ShapeError>([] { convolve(Array::ones({0}), Array::ones({2})); }, {"convolve", "(0,)"});
  test::expect_throw<ShapeError>([] { convolve(Array::ones({2, 2}), Array::ones({2})); }, {"(2, 2)"});
}

}  // namespace
}  // namespace tessera
