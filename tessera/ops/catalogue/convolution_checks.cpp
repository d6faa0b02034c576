// SPDX-License-Identifier: Apache-2.0
// Checks of convolution, pooling and windows of images.
#include <algorithm>
#include <cmath>

#include "tessera/ops/catalogue/check.h"
#include "tessera/ops/convolution.h"

namespace tessera::ops {

namespace {

struct ConvolutionCase {
  Shape x, weight;
  Convolution2d options;
};

// Calls f(window, element of the kernel, element of x) for every element of x that a window reads.
template <class F>
void each_window(const ConvolutionCase& c, Extents2d windows, F&& f) {
  const Convolution2d& o = c.options;
  for (std::int64_t r = 0; r < windows.rows; ++r)
    for (std::int64_t q = 0; q < windows.columns; ++q)
      for (std::int64_t i = 0; i < c.weight[2]; ++i)
        for (std::int64_t j = 0; j < c.weight[3]; ++j) {
          const std::int64_t row = r * o.stride.rows - o.padding.rows + i * o.dilation.rows;
          const std::int64_t column = q * o.stride.columns - o.padding.columns + j * o.dilation.columns;
          if (row >= 0 && row < c.x[2] && column >= 0 && column < c.x[3])
            f(r * windows.columns + q, i * c.weight[3] + j, row * c.x[3] + column);
        }
}

Extents2d windows_of(const ConvolutionCase& c) {
  const Convolution2d& o = c.options;
  return {(c.x[2] + 2 * o.padding.rows - o.dilation.rows * (c.weight[2] - 1) - 1) / o.stride.rows + 1,
          (c.x[3] + 2 * o.padding.columns - o.dilation.columns * (c.weight[3] - 1) - 1) / o.stride.columns + 1};
}

double check_convolution(const ConvolutionCase& c, DType t, Device device, std::uint64_t seed) {
  if (t == DType::f64 && !device_info(device).can.f64) return 0;
  Random random(seed);
  const auto x = rounded(random.numbers(element_count(c.x)), t),
             w = rounded(random.numbers(element_count(c.weight)), t);
  const auto b = rounded(random.numbers(c.weight[0]), t);
  const Extents2d windows = windows_of(c);
  const std::int64_t area = windows.rows * windows.columns, each = c.weight[2] * c.weight[3], pixels = c.x[2] * c.x[3];
  const Shape shape = {c.x[0], c.weight[0], windows.rows, windows.columns};
  std::vector<double> wanted(static_cast<std::size_t>(element_count(shape))), size(wanted.size(), 1);
  for (std::int64_t n = 0; n < c.x[0]; ++n)
    for (std::int64_t out = 0; out < c.weight[0]; ++out) {
      const std::int64_t plane = (n * c.weight[0] + out) * area, group = out / (c.weight[0] / c.options.groups);
      for (std::int64_t i = 0; i < area; ++i)
        wanted[static_cast<std::size_t>(plane + i)] = b[static_cast<std::size_t>(out)];
      for (std::int64_t ch = 0; ch < c.weight[1]; ++ch) {
        const std::int64_t image = (n * c.x[1] + group * c.weight[1] + ch) * pixels;
        each_window(c, windows, [&](std::int64_t window, std::int64_t k, std::int64_t from) {
          const double p = x[static_cast<std::size_t>(image + from)] *
                           w[static_cast<std::size_t>((out * c.weight[1] + ch) * each + k)];
          wanted[static_cast<std::size_t>(plane + window)] += p;
          size[static_cast<std::size_t>(plane + window)] += std::fabs(p);
        });
      }
    }
  // The sums are computed at least in f32 and rounded at most twice to the dtype of the result.
  for (double& s : size)
    s = s * ((t == DType::f64 ? 1e-14 : 3e-6) + product_rounding(device, t)) + 3 * unit(t) * s + half_step(t);
  const Array a = array_of(x, c.x, t, device), weight = array_of(w, c.weight, t, device);
  const Array bias = array_of(b, {c.weight[0]}, t, device);
  return worst(poisoned(device, wanted.size() * dtype_size(t), [&] { return conv2d(a, weight, bias, c.options); }),
               wanted, size);
}

// The data are integers, so that sums are exact. fold2d has no weight: only the kernel extents of `c.weight` are used.
double check_fold(const ConvolutionCase& c, Device device, std::uint64_t seed) {
  Random random(seed);
  const Extents2d windows = windows_of(c);
  const std::int64_t area = windows.rows * windows.columns, each = c.weight[2] * c.weight[3];
  const Shape shape = {c.x[1], c.weight[2], c.weight[3], c.x[0], windows.rows, windows.columns};
  const auto v = random.integers(element_count(shape), -9, 9);
  std::vector<double> wanted(static_cast<std::size_t>(element_count(c.x)));
  for (std::int64_t n = 0; n < c.x[0]; ++n)
    for (std::int64_t ch = 0; ch < c.x[1]; ++ch)
      each_window(c, windows, [&](std::int64_t window, std::int64_t k, std::int64_t from) {
        wanted[static_cast<std::size_t>((n * c.x[1] + ch) * c.x[2] * c.x[3] + from)] +=
            v[static_cast<std::size_t>(((ch * each + k) * c.x[0] + n) * area + window)];
      });
  const Array a = array_of(v, shape, DType::f32, device);
  const Windows2d o{{c.weight[2], c.weight[3]}, c.options.stride, c.options.padding, c.options.dilation};
  return worst(poisoned(device, wanted.size() * 4, [&] { return fold2d(a, {c.x[2], c.x[3]}, o); }), wanted, 0, 1e-30);
}

double check_pool(bool mean, const ConvolutionCase& c, Device device, std::uint64_t seed) {
  Random random(seed);
  const auto v = rounded(random.numbers(element_count(c.x)), DType::f32);
  const Extents2d windows = windows_of(c);
  const std::int64_t area = windows.rows * windows.columns, each = c.weight[2] * c.weight[3];
  std::vector<double> wanted(static_cast<std::size_t>(c.x[0] * c.x[1] * area), mean ? 0 : -1e300);
  for (std::int64_t plane = 0; plane < c.x[0] * c.x[1]; ++plane)
    each_window(c, windows, [&](std::int64_t window, std::int64_t, std::int64_t from) {
      double& to = wanted[static_cast<std::size_t>(plane * area + window)];
      const double one = v[static_cast<std::size_t>(plane * c.x[2] * c.x[3] + from)];
      to = mean ? to + one / static_cast<double>(each) : std::max(to, one);
    });
  const Array a = array_of(v, c.x, DType::f32, device);
  const Pool2d o{{c.weight[2], c.weight[3]}, c.options.stride, c.options.padding};
  return worst(poisoned(device, wanted.size() * 4, [&] { return mean ? average_pool2d(a, o) : max_pool2d(a, o); }),
               wanted, 0, mean ? 1e-6 : 1e-30);
}

}  // namespace

void add_convolution_checks(Checks& checks) {
  const ConvolutionCase cases[] = {
      {{2, 3, 9, 11}, {4, 3, 3, 3}, {}},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {}},
      {{2, 4, 9, 11}, {6, 2, 3, 2}, {.stride = {1, 3}, .padding = 1, .dilation = {2, 1}, .groups = 2}},
      {{2, 3, 33, 65}, {5, 3, 5, 3}, {.stride = 2, .padding = {2, 1}}},
  };
  for (const ConvolutionCase& c : cases) {
    const std::string shape = to_string(c.x) + ", " + to_string(c.weight);
    for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64})
      checks.push_back({"conv2d", shape + " " + std::string(dtype_name(t)),
                        [=](Device device, std::uint64_t seed) { return check_convolution(c, t, device, seed); }});
    checks.push_back({"fold2d", shape, [c](Device device, std::uint64_t seed) { return check_fold(c, device, seed); }});
    if (c.options.dilation.rows != 1) continue;
    for (const bool mean : {false, true})
      checks.push_back({mean ? "average_pool2d" : "max_pool2d", shape,
                        [=](Device device, std::uint64_t seed) { return check_pool(mean, c, device, seed); }});
  }
}

}  // namespace tessera::ops
