// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "tessera/array/functions.h"
#include "tessera/array/index.h"
#include "tessera/array/statistics.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/convolution.h"
#include "tessera/ops/transformer.h"
#include "tests/grad/grad_cases.h"

namespace tessera::test {

std::vector<Case> function_cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, std::vector<Shape> shapes, std::function<Array(const Arrays&)> f,
                       double low = -2, double high = 2) {
    all.push_back({std::move(name), std::move(shapes), std::move(f), low, high});
  };
  // The result is squared, so that the gradient varies even if elements are only moved.
  const auto moved = [&](std::string name, Shape shape, std::function<Array(const Array&)> f) {
    add(std::move(name), {std::move(shape)}, [f](const Arrays& x) {
      const Array y = f(x[0]);
      return y * y;
    });
  };
  const auto ids = [](std::vector<int> values, Shape shape, const Array& like) {
    return Array::from(std::vector<std::int32_t>(values.begin(), values.end()), shape, like.device());
  };
  for (const Shape& s : {Shape{3, 4}, Shape{}, Shape{0}}) {
    add(
        "log1p" + to_string(s), {s}, [](const Arrays& x) { return log1p(x[0]); }, -0.9, 3);
    add("expm1" + to_string(s), {s}, [](const Arrays& x) { return expm1(x[0]); });
    add("sign" + to_string(s), {s}, [](const Arrays& x) { return sign(x[0]) * x[0]; });
    add("clip" + to_string(s), {s}, [](const Arrays& x) { return clip(x[0], -0.7123, 0.9321); });
  }
  add("clip by arrays", {{3, 4}, {4}, {3, 1}}, [](const Arrays& x) { return clip(x[0], x[1], x[2]); });
  add("clip by one array", {{3, 4}, {1}}, [](const Arrays& x) { return clip(x[0], x[1], 1.0321) * x[0]; });

  moved("pad", {2, 3}, [](const Array& x) { return pad(x, {{1, 0}, {2, 3}}, 0.5); });
  moved("pad of nothing", {0, 3}, [](const Array& x) { return pad(x, {{1, 1}, {0, 0}}, 0.5); });
  moved("pad of a view", {4, 3}, [](const Array& x) { return pad(x.transpose().slice(1, 0, 4, 2), {{0, 1}, {1, 0}}); });
  add("update_slice", {{4, 5}, {2, 3}}, [](const Arrays& x) {
    const Array y = update_slice(x[0], x[1], {1, 2});
    return y * y;
  });
  add("update_slice of all", {{2, 3}, {2, 3}}, [](const Arrays& x) {
    return update_slice(x[0] * x[1], x[1], {0, 0}) * x[0];
  });
  moved("stack", {2, 3}, [](const Array& x) { return stack({x, x * 2, x.slice(0, 0, 2)}, 1); });
  moved("stack at the end", {2, 3}, [](const Array& x) { return stack({x, exp(x)}, -1); });
  moved("split", {6, 2}, [](const Array& x) {
    const auto parts = split(x, 3);
    return parts[0] * parts[2] + parts[1];
  });
  moved("split in parts", {2, 6}, [](const Array& x) {
    const auto parts = split(x, std::vector<std::int64_t>{1, 0, 3, 2}, 1);
    return parts[0] * parts[2].slice(1, 0, 2) + parts[3];
  });
  moved("flip", {2, 3, 4}, [](const Array& x) { return flip(x, {0, -1}) * x; });
  moved("flip of all of a view", {4, 3}, [](const Array& x) { return flip(x.transpose().slice(1, 0, 4, 2)); });
  moved("sort", {3, 5}, [](const Array& x) { return sort(x) * x; });
  moved("sort of columns", {5, 3}, [](const Array& x) { return sort(x, 0) * x; });
  moved("masked_select", {4, 3}, [](const Array& x) { return masked_select(x, x > 0.1234); });
  moved("masked_select of rows", {4, 3}, [](const Array& x) {
    const Array kept = Array::from({true, false, true, true}, {}, x.device());
    return masked_select(x, kept) * x.slice(0, 0, 3);
  });
  for (const std::int64_t k : {-1, 0, 2}) {
    moved("tril" + std::to_string(k), {2, 3, 4}, [k](const Array& x) { return tril(x, k); });
    moved("triu" + std::to_string(k), {2, 3, 4}, [k](const Array& x) { return triu(x, k); });
  }

  for (const std::vector<int>& axes : {std::vector<int>{}, {0}, {-1}, {0, 2}})
    for (const bool keep : {false, true}) {
      const auto statistic = [&](const char* name, auto f) {
        add(name + std::to_string(axes.size()) + (axes.empty() ? "" : std::to_string(axes[0])) + (keep ? " keep" : ""),
            {{2, 3, 4}}, [=](const Arrays& x) { return f(x[0] * 1.5, axes, keep); });
      };
      statistic("var", [](Array x, auto a, bool k) { return var(std::move(x), a, 1, k); });
      statistic("std", [](Array x, auto a, bool k) { return tessera::std(std::move(x), a, 0, k); });
      statistic("logsumexp", [](Array x, auto a, bool k) { return logsumexp(std::move(x), a, k); });
    }
  for (const int axis : {0, 1}) {
    const std::string at = " along " + std::to_string(axis);
    moved("cumprod" + at, {3, 5}, [axis](const Array& x) { return cumprod(x, axis); });
    moved("cummax" + at, {3, 5}, [axis](const Array& x) { return cummax(x, axis) * x; });
    moved("cummin" + at, {3, 5}, [axis](const Array& x) { return cummin(x, axis) * x; });
    moved("prod" + at, {3, 5}, [axis](const Array& x) { return prod(x, {axis}); });
    // One factor is zero.
    moved("cumprod with a zero" + at, {3, 5}, [axis](const Array& x) {
      return cumprod(x * (Array::arange(5, 0, 1, DType::f32, x.device()) != 2), axis) +
             prod(x - x.slice(axis, 0, 1), {axis}, true);
    });
  }
  add("convolve", {{5}, {3}}, [](const Arrays& x) { return convolve(x[0], x[1], ConvolvedPart::same); });
  for (const int axis : {0, 1, -1}) {
    const std::string at = " along " + std::to_string(axis);
    moved("cumsum" + at, {2, 3, 4}, [axis](const Array& x) { return cumsum(x, axis); });
    moved("take" + at, {3, 4, 5}, [=](const Array& x) { return take(x, ids({2, 0, 2, 7, -1, 1}, {2, 3}, x), axis); });
    moved("index" + at, {3, 4, 5}, [=](const Array& x) {
      std::vector<AxisIndex> by(3, Slice{{}, {}, -2});
      by[static_cast<std::size_t>((axis + 1) % 3)] = ids({2, 0, -1, 9}, {2, 2}, x);
      by[static_cast<std::size_t>((axis + 2) % 3)] = ids({1, 1}, {2}, x);
      return index(x, by);
    });
    moved("take one" + at, {3, 4, 5}, [=](const Array& x) { return take(x, ids({1}, {}, x), axis); });
    // Two rows of indices for each pair. One index is shared by all rows, and one is out of range.
    moved("take_along_axis" + at, {3, 4, 5}, [=](const Array& x) {
      Shape s = {3, 4, 5};
      s[static_cast<std::size_t>(axis < 0 ? 2 : axis)] = 2;
      std::vector<int> which;
      for (int i = 0; i < element_count(s); ++i) which.push_back(i * 5 % 7 % 4 - (i % 11 == 0 ? 2 : 0));
      return take_along_axis(x, ids(which, s, x), axis);
    });
    moved("take_along_axis with one index" + at, {3, 4, 5}, [=](const Array& x) {
      return take_along_axis(x, ids({1}, {1, 1, 1}, x), axis);
    });
    const auto written = [&](const char* name, Array (*f)(const Array&, const Array&, const Array&, int)) {
      Shape updates = {3, 4, 5};
      updates[static_cast<std::size_t>(axis < 0 ? 2 : axis)] = 4;
      add(name + at, {{3, 4, 5}, updates}, [=](const Arrays& x) {
        const Array y = f(x[0], ids({2, 0, 2, 9}, {4}, x[0]), x[1], axis);
        return y * y;
      });
      add(name + (" with one update" + at), {{3, 4, 5}, {1}}, [=](const Arrays& x) {
        const Array y = f(x[0], ids({2, 0, -3, 0}, {2, 2}, x[0]), x[1], axis);
        return y * y;
      });
      add(name + (" at one index" + at), {{3, 4, 5}, {}}, [=](const Arrays& x) {
        const Array y = f(x[0], ids({1}, {}, x[0]), x[1], axis);
        return y * y;
      });
    };
    written("scatter", scatter), written("scatter_add", scatter_add);
  }
  add("scatter of one element", {{4}, {}}, [=](const Arrays& x) {
    const Array y = scatter(x[0], ids({2}, {}, x[0]), x[1]);
    return y * y;
  });
  add("scatter of nothing", {{4, 2}, {0, 2}}, [=](const Arrays& x) {
    const Array y = scatter(x[0], ids({}, {0}, x[0]), x[1]) + scatter_add(x[0], ids({}, {0}, x[0]), x[1]);
    return y * y;
  });

  const Windows2d windows{.kernel = {2, 3}, .stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}};
  moved("windows2d", {2, 2, 5, 4}, [=](const Array& x) { return windows2d(x, windows); });
  moved("windows2d of a view", {2, 2, 4, 5}, [=](const Array& x) {
    return windows2d(x.permute({1, 0, 3, 2}), windows);
  });
  moved("fold2d", {2, 2, 3, 2, 3, 4}, [=](const Array& x) { return fold2d(x, {5, 4}, windows); });
  const auto convolution = [&](const char* name, Shape x, Shape weight, bool bias, Convolution2d options) {
    std::vector<Shape> shapes = {x, weight};
    if (bias) shapes.push_back({weight[0]});
    add(std::string("conv2d ") + name, shapes,
        [=](const Arrays& a) { return conv2d(a[0], a[1], bias ? std::optional(a[2]) : std::nullopt, options); });
  };
  convolution("plain", {2, 2, 4, 5}, {3, 2, 2, 3}, true, {});
  convolution("with strides", {2, 2, 5, 5}, {2, 2, 3, 2}, false, {.stride = {2, 3}});
  convolution("with padding", {1, 2, 3, 4}, {2, 2, 3, 2}, true, {.padding = {2, 1}});
  convolution("with dilation", {1, 2, 5, 6}, {2, 2, 2, 3}, false, {.padding = 1, .dilation = {3, 2}});
  convolution("in groups", {2, 4, 4, 3}, {6, 2, 2, 2}, true, {.stride = {1, 2}, .padding = {0, 1}, .groups = 2});
  convolution("of each channel", {1, 3, 4, 4}, {3, 1, 3, 3}, true, {.padding = 1, .groups = 3});
  convolution("of single elements", {2, 3, 2, 3}, {4, 3, 1, 1}, true, {});
  convolution("of single elements in groups", {2, 4, 2, 3}, {4, 2, 1, 1}, false, {.groups = 2});
  const auto pools = [&](const char* name, Shape shape, Pool2d options) {
    moved(std::string("max_pool2d ") + name, shape, [=](const Array& x) { return max_pool2d(x, options); });
    moved(std::string("average_pool2d ") + name, shape, [=](const Array& x) { return average_pool2d(x, options); });
  };
  pools("plain", {2, 2, 4, 6}, {.kernel = {2, 3}});
  pools("of overlapping windows", {1, 2, 5, 5}, {.kernel = 3, .stride = 1, .padding = 1});
  pools("of windows apart", {2, 1, 5, 7}, {.kernel = 2, .stride = Extents2d{2, 3}, .padding = {1, 0}});
  moved("max_pool2d of a view", {2, 4, 4, 2}, [](const Array& x) {
    return max_pool2d(x.permute({0, 3, 1, 2}), {.kernel = 2});
  });

  const auto attends = [&](const char* name, Shape q, Shape k, Shape v, AttentionOptions options, bool mask = false) {
    all.push_back({std::string("attention ") + name, {q, k, v}, [=](const Arrays& x) {
                     AttentionOptions o = options;
                     if (mask) {
                       const Array place = Array::arange(k[2], 0, 1, DType::i32, x[0].device());
                       o.mask = place != 1;
                     } else if (o.mask) {
                       o.mask = o.mask->to(x[0].device()).astype(x[0].dtype());
                     }
                     return scaled_dot_product_attention(x[0], x[1], x[2], o);
                   }});
    all.back().once = true;
  };
  attends("plain", {2, 2, 3, 4}, {2, 2, 5, 4}, {2, 2, 5, 3}, {});
  attends("causal", {2, 1, 5, 3}, {2, 1, 5, 3}, {2, 1, 5, 2}, {.causal = true, .scale = 0.7});
  attends("of grouped heads", {2, 4, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 3}, {.causal = true});
  attends("with a mask", {1, 2, 3, 2}, {1, 2, 4, 2}, {1, 2, 4, 2}, {}, true);
  attends("with a bias", {2, 4, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 2},
          {.mask = Array::arange(24, -1, 0.1, DType::f64, Device{Backend::cpu, 0}).reshape({2, 1, 3, 4})});
  attends("to nothing", {1, 1, 2, 2}, {1, 1, 0, 2}, {1, 1, 0, 2}, {});
  all.push_back({"attention of views", {{2, 3, 2, 4}}, [](const Arrays& x) {
                   const Array h = x[0].permute({0, 2, 1, 3});
                   return scaled_dot_product_attention(h, h * 0.5, h + 1, {.causal = true});
                 }});
  all.back().once = true;
  all.push_back(
      {"rotary in batches", {{2, 2, 3, 4}}, [](const Arrays& x) { return rotary(x[0], 5, {}); }, -2, 2, true});
  return all;
}

}  // namespace tessera::test
