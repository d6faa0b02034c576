// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/convolution.h"

#include <algorithm>
#include <numeric>

#include "tessera/array/functions.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ops/correlation.h"
#include "tessera/ops/product.h"
#include "tessera/ops/windows.h"

namespace tessera {

using detail::Operation, detail::RuledOperation;
using ops::Correlation, ops::WindowSpec;

namespace {

std::string text(Extents2d e) { return to_string(Shape{e.rows, e.columns}); }

std::vector<std::int64_t> numbers(const Windows2d& o) {
  return {o.kernel.rows,  o.kernel.columns,  o.stride.rows,   o.stride.columns,
          o.padding.rows, o.padding.columns, o.dilation.rows, o.dilation.columns};
}

[[noreturn]] void refuse(const char* name, const Shape& x, const Windows2d& o, const char* wrong) {
  fail<ShapeError>({.operation = name,
                    .with = {{"x", to_string(x)},
                             {"kernel", text(o.kernel)},
                             {"stride", text(o.stride)},
                             {"padding", text(o.padding)},
                             {"dilation", text(o.dilation)}},
                    .wrong = wrong});
}

// Returns the number of windows in each direction.
Extents2d windows_of(const char* name, const Shape& x, const Windows2d& o) {
  if (x.size() != 4) refuse(name, x, o, "images must have four dimensions: n, channels, rows, columns");
  if (std::min({o.kernel.rows, o.kernel.columns, o.stride.rows, o.stride.columns, o.dilation.rows,
                o.dilation.columns}) < 1 ||
      std::min(o.padding.rows, o.padding.columns) < 0)
    refuse(name, x, o, "kernel, stride and dilation must be at least 1, and padding at least 0");
  const auto extent = [](std::int64_t n, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                         std::int64_t dilation) {
    const std::int64_t room = n + 2 * padding - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
  };
  const Extents2d out(extent(x[2], o.kernel.rows, o.stride.rows, o.padding.rows, o.dilation.rows),
                      extent(x[3], o.kernel.columns, o.stride.columns, o.padding.columns, o.dilation.columns));
  if (out.rows < 1 || out.columns < 1) refuse(name, x, o, "a window is larger than the image with its padding");
  return out;
}

// Returns x, or a contiguous copy if the kernels cannot read its rows and columns.
Array readable(const Array& x) {
  const bool rows = x.strides()[3] == 1 || x.shape()[3] == 1;
  return rows && (x.strides()[2] == x.shape()[3] || x.shape()[2] == 1) ? x : x.as_contiguous();
}

void launch(WindowSpec::Kind kind, const Array& in, const Array* positions, const Array& out, const Shape& images,
            const Strides& strides, Extents2d windows, const Windows2d& o) {
  std::vector<LaunchArgument> args = {in.view()};
  if (positions != nullptr) args.emplace_back(positions->view());
  args.emplace_back(out.view());
  for (std::int64_t n : {images[0], images[1], images[2], images[3], windows.rows, windows.columns, o.kernel.rows,
                         o.kernel.columns, o.stride.rows, o.stride.columns, o.padding.rows, o.padding.columns,
                         o.dilation.rows, o.dilation.columns, strides[0], strides[1]})
    args.push_back(LaunchArgument::index(n));
  const WindowSpec spec = ops::window_spec(kind, in.dtype(), o);
  const bool of_images = kind == WindowSpec::fold || (spec.spreads() && !spec.apart());
  const Extents2d across = of_images ? Extents2d(images[2], images[3]) : windows;
  std::int64_t planes = images[0] * images[1];
  if (kind == WindowSpec::gather) planes *= o.kernel.rows * o.kernel.columns;
  static auto& family = *new KernelFamily<WindowSpec>(ops::trace_windows);
  family(spec).launch({static_cast<std::uint64_t>(across.columns), static_cast<std::uint64_t>(across.rows),
                       static_cast<std::uint64_t>(planes)},
                      std::span(args));
}

Windows2d windows_of(const Pool2d& o) { return {o.kernel, o.stride.value_or(o.kernel), o.padding}; }

Array pool(const char* name, WindowSpec::Kind kind, const Array& x, const Pool2d& options) {
  const Windows2d o = windows_of(options);
  const Extents2d windows = windows_of(name, x.shape(), o);
  if (2 * o.padding.rows > o.kernel.rows || 2 * o.padding.columns > o.kernel.columns)
    refuse(name, x.shape(), o, "the padding is more than half of the kernel");
  const Array out = Array::empty({x.shape()[0], x.shape()[1], windows.rows, windows.columns},
                                 kind == WindowSpec::positions ? DType::i32 : x.dtype(), x.device());
  if (out.size() == 0) return out;
  const Array images = readable(x);
  launch(kind, images, nullptr, out, x.shape(), images.strides(), windows, o);
  return out;
}

/// Returns images in which each element is the sum of its contributions from all windows that contain it.
Array spread(const char* name, WindowSpec::Kind kind, const Array& pooled, const Array* positions, Extents2d extents,
             const Windows2d& o) {
  const Shape images = {pooled.shape(0), pooled.shape(1), extents.rows, extents.columns};
  const Extents2d windows = windows_of(name, images, o);
  // If windows do not overlap, each window writes its own elements. Elements after the last window are not written, so
  // the result is cleared first.
  const bool left =
      windows.rows * o.stride.rows != extents.rows || windows.columns * o.stride.columns != extents.columns;
  const bool cleared = left && ops::window_spec(kind, pooled.dtype(), o).apart();
  const Array out = cleared ? Array::zeros(images, pooled.dtype(), pooled.device())
                            : Array::empty(images, pooled.dtype(), pooled.device());
  if (out.size() != 0) launch(kind, pooled.as_contiguous(), positions, out, images, out.strides(), windows, o);
  return out;
}

Attributes window_attributes(const Windows2d& o) { return {{"windows", numbers(o)}}; }

// The three products of a convolution compute y from x and the weight, x from y and the weight (the adjoint), and the
// weight from x and y. Each product is linear in both operands, and its two derivatives are the other two products.
Array images_of(const Array& x, const Array& weight, const std::optional<Array>& bias, Extents2d windows,
                const Correlation& c);
Array adjoint_images_of(const Array& y, const Array& weight, Extents2d extents, DType dtype, const Correlation& c);
Array weight_of(const Array& x, const Array& y, DType dtype, const Correlation& c);

Extents2d extents_of(const Shape& images) { return {images[2], images[3]}; }

// Reshapes the weight to (groups, out, in, kernel rows, kernel columns).
Array in_groups(const Array& weight, std::int64_t groups) {
  const Shape& s = weight.shape();
  return weight.reshape({groups, s[0] / groups, s[1], s[2], s[3]});
}

Array images_of(const Array& x, const Array& weight, const std::optional<Array>& bias, Extents2d windows,
                const Correlation& c) {
  RuledOperation operation("convolve2d", x, weight, bias);
  Array y = Array::empty({x.shape()[0], weight.shape()[0], windows.rows, windows.columns}, x.dtype(), x.device());
  if (y.size() != 0 && x.shape(1) == 0) {
    y.fill(0);
    if (bias) y += bias->reshape({y.shape(1), 1, 1});
  } else if (y.size() != 0) {
    ops::correlate(y, x, in_groups(weight, c.groups), bias, false, c);
  }
  return operation.finish(std::move(y), [&] {
    return Rule{.backward =
                    [c](Backward& b) {
                      if (b.needs_adjoint(0) || b.needs_adjoint(1))
                        b.adjoint().eval();  // evaluated once, because two products and a sum read it
                      b.add(0, [&] {
                        return adjoint_images_of(b.adjoint(), b.operand(1), extents_of(b.shape(0)), b.adjoint_dtype(0),
                                                 c);
                      });
                      b.add(1, [&] { return weight_of(b.operand(0), b.adjoint(), b.adjoint_dtype(1), c); });
                      if (b.operands() > 2)
                        b.add(2, [&] { return sum(b.adjoint().astype(b.adjoint_dtype(2)), {0, 2, 3}); });
                    },
                .keeps = operand_bits(0, 1)};
  });
}

// The adjoint in one dimension, for every stride-th element of the images from element `phase` on. These elements are
// read through every `step`-th tap from `first`. `padding` determines the first window that reads them.
struct Phase {
  std::int64_t first, step, taps, dilation, padding, extent;
  Phase(std::int64_t phase, std::int64_t elements, std::int64_t kernel, std::int64_t stride, std::int64_t pad,
        std::int64_t distance) {
    const std::int64_t common = std::gcd(stride, distance);
    step = stride / common, dilation = distance / common;
    first = 0;
    while (first < step && (phase + pad - first * distance) % stride != 0) ++first;
    taps = first >= std::min(step, kernel) ? 0 : ops::ceil_div(kernel - first, step);
    padding = (taps - 1) * dilation - (phase + pad - first * distance) / stride;
    extent = ops::ceil_div(elements - phase, stride);
  }
};

Array adjoint_images_of(const Array& y, const Array& weight, Extents2d extents, DType dtype, const Correlation& c) {
  RuledOperation operation("convolve2d_adjoint", y, weight);
  const Array all = in_groups(weight, c.groups);
  const Shape shape = {y.shape()[0], weight.shape()[1] * c.groups, extents.rows, extents.columns};
  std::vector<Phase> rows, columns;
  for (std::int64_t i = 0; i < std::min(c.stride.rows, extents.rows); ++i)
    rows.emplace_back(i, extents.rows, c.kernel.rows, c.stride.rows, c.padding.rows, c.dilation.rows);
  for (std::int64_t i = 0; i < std::min(c.stride.columns, extents.columns); ++i)
    columns.emplace_back(i, extents.columns, c.kernel.columns, c.stride.columns, c.padding.columns, c.dilation.columns);
  const auto unseen = [](const Phase& p) { return p.taps == 0; };
  const bool gaps = std::ranges::any_of(rows, unseen) || std::ranges::any_of(columns, unseen);
  Array x = gaps || y.size() == 0 ? Array::zeros(shape, dtype, y.device()) : Array::empty(shape, dtype, y.device());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < columns.size(); ++j) {
      const Phase &r = rows[i], &q = columns[j];
      if (r.taps == 0 || q.taps == 0 || x.size() == 0 || y.size() == 0) continue;
      Array part = x.slice(2, static_cast<std::int64_t>(i), extents.rows, c.stride.rows)
                       .slice(3, static_cast<std::int64_t>(j), extents.columns, c.stride.columns);
      const Array taps = all.slice(3, r.first, c.kernel.rows, r.step).slice(4, q.first, c.kernel.columns, q.step);
      ops::correlate(part, y, taps.permute({0, 2, 1, 3, 4}), {}, true,
                     {{r.taps, q.taps}, 1, {r.padding, q.padding}, {r.dilation, q.dilation}, c.groups});
    }
  return operation.finish(std::move(x), [&] {
    return Rule{
        .backward =
            [c](Backward& b) {
              b.add(0, [&] {
                return images_of(b.adjoint(), b.operand(1), {}, extents_of(b.shape(0)), c).astype(b.adjoint_dtype(0));
              });
              b.add(1, [&] { return weight_of(b.adjoint(), b.operand(0), b.adjoint_dtype(1), c); });
            },
        .keeps = operand_bits(0, 1)};
  });
}

Array weight_of(const Array& x, const Array& y, DType dtype, const Correlation& c) {
  RuledOperation operation("convolve2d_weight", x, y);
  const Shape shape = {y.shape()[1], x.shape()[1] / c.groups, c.kernel.rows, c.kernel.columns};
  Array weight = y.size() == 0 || element_count(shape) == 0 ? Array::zeros(shape, dtype, x.device())
                                                            : ops::correlate_weights(x, y, dtype, c);
  return operation.finish(std::move(weight), [&] {
    return Rule{
        .backward =
            [c](Backward& b) {
              b.add(0, [&] {
                return adjoint_images_of(b.operand(1), b.adjoint(), extents_of(b.shape(0)), b.adjoint_dtype(0), c);
              });
              b.add(1, [&] {
                return images_of(b.operand(0), b.adjoint(), {}, extents_of(b.shape(1)), c).astype(b.adjoint_dtype(1));
              });
            },
        .keeps = operand_bits(0, 1)};
  });
}

}  // namespace

Array windows2d(const Array& x, const Windows2d& o) {
  RuledOperation operation("windows2d", x);
  const Extents2d windows = windows_of("windows2d", x.shape(), o);
  const Shape& s = x.shape();
  const Array out =
      Array::empty({s[1], o.kernel.rows, o.kernel.columns, s[0], windows.rows, windows.columns}, x.dtype(), x.device());
  if (out.size() != 0) {
    const Array images = readable(x);
    launch(WindowSpec::gather, images, nullptr, out, s, images.strides(), windows, o);
  }
  const auto rule = [&] {
    return Rule{[o](Backward& b) { b.add(0, [&] { return fold2d(b.adjoint(), {b.shape(0)[2], b.shape(0)[3]}, o); }); }};
  };
  return operation.finish(
      out, [&] { return window_attributes(o); }, rule);
}

Array fold2d(const Array& windows, Extents2d extents, const Windows2d& o) {
  RuledOperation operation("fold2d", windows);
  const Shape& s = windows.shape();
  if (s.size() != 6)
    fail<ShapeError>(
        {.operation = "fold2d",
         .with = {{"windows", to_string(s)}},
         .wrong = "windows must have six dimensions: channels, kernel rows, kernel columns, n, rows, columns"});
  const Shape images = {s[3], s[0], extents.rows, extents.columns};
  const Extents2d many = windows_of("fold2d", images, o);
  if (s != Shape{s[0], o.kernel.rows, o.kernel.columns, s[3], many.rows, many.columns})
    fail<ShapeError>({.operation = "fold2d",
                      .with = {{"windows", to_string(s)}, {"images", to_string(images)}, {"kernel", text(o.kernel)}},
                      .wrong = "the number of windows does not match the images"});
  Array out = Array::empty(images, windows.dtype(), windows.device());
  if (out.size() != 0) launch(WindowSpec::fold, windows.as_contiguous(), nullptr, out, images, out.strides(), many, o);
  return operation.finish(
      std::move(out),
      [&] {
        Attributes all = window_attributes(o);
        all.push_back({"extents", std::vector<std::int64_t>{extents.rows, extents.columns}});
        return all;
      },
      [&] { return Rule{[o](Backward& b) { b.add(0, [&] { return windows2d(b.adjoint(), o); }); }}; });
}

Array conv2d(const Array& x, const Array& weight, const std::optional<Array>& bias, const Convolution2d& options) {
  const Operation operation("conv2d", x, weight, bias);
  const std::int64_t groups = options.groups;
  const Shape &s = x.shape(), &w = weight.shape();
  const auto wrong = [&](const char* what) {
    fail<ShapeError>({.operation = "conv2d",
                      .with = {{"x", to_string(s)},
                               {"weight", to_string(w)},
                               {"bias", bias ? to_string(bias->shape()) : "none"},
                               {"groups", std::to_string(groups)}},
                      .wrong = what});
  };
  if (s.size() != 4) wrong("images must have four dimensions: n, channels, rows, columns");
  if (w.size() != 4) wrong("the weight must have four dimensions: out, channels / groups, kernel rows, kernel columns");
  if (groups < 1 || s[1] % groups != 0 || w[0] % groups != 0)
    wrong("the channels of x and of the result must be multiples of groups");
  if (w[1] * groups != s[1]) wrong("the weight has a different number of channels than x");
  if (bias && bias->shape() != Shape{w[0]}) wrong("the bias does not have one element per channel of the result");
  if (!is_float(x.dtype()) || !is_float(weight.dtype()))
    fail<DtypeError>(
        {.operation = "conv2d",
         .with = {{"x", std::string(dtype_name(x.dtype()))}, {"weight", std::string(dtype_name(weight.dtype()))}},
         .wrong = "this operation requires a float dtype",
         .remedy = "Use astype"});
  const Windows2d o{{w[2], w[3]}, options.stride, options.padding, options.dilation};
  const Extents2d windows = windows_of("conv2d", s, o);
  const std::int64_t n = s[0], each = w[1] * w[2] * w[3], out = w[0] / groups, area = windows.rows * windows.columns;
  const bool single = w[2] == 1 && w[3] == 1 && windows.rows == s[2] && windows.columns == s[3] &&
                      o.padding.rows == 0 && o.padding.columns == 0;
  Array result;
  bool with_bias = bias.has_value();
  if (single) {  // each image already is the matrix of its windows
    result = matmul(weight.reshape({groups, out, each}), x.reshape({n, groups, each, area}));
    result = result.reshape({n, w[0], windows.rows, windows.columns});
  } else {
    const DType t = promote(x.dtype(), weight.dtype());
    const bool fits = bias && promote(t, bias->dtype()) == t;
    result = images_of(x.astype(t), weight.astype(t), fits ? bias : std::nullopt, windows,
                       {o.kernel, o.stride, o.padding, o.dilation, groups});
    with_bias = bias && !fits;
  }
  if (with_bias) result = std::move(result) + bias->reshape({w[0], 1, 1});
  return operation.finish(std::move(result), [&] { return Attributes{{"windows", numbers(o)}, {"groups", groups}}; });
}

Array max_pool2d(const Array& x, const Pool2d& options) {
  RuledOperation operation("max_pool2d", x);
  if (x.dtype() == DType::boolean)
    fail<DtypeError>({.operation = "max_pool2d",
                      .with = {{"dtype", "bool"}},
                      .wrong = "this operation requires a numeric dtype",
                      .remedy = "Use astype"});
  const auto rule = [&] {  // recomputes the positions; of equal maxima, the first one is used, as in PyTorch
    return Rule{.backward =
                    [options](Backward& b) {
                      b.add(0, [&] {
                        const Array where = ops::max_positions2d(detail::without_history(b.operand(0)), options);
                        return ops::unpool2d(b.adjoint(), where, {b.shape(0)[2], b.shape(0)[3]}, options);
                      });
                    },
                .keeps = operand_bits(0)};
  };
  return operation.finish(
      pool("max_pool2d", WindowSpec::largest, x, options), [&] { return window_attributes(windows_of(options)); },
      rule);
}

Array average_pool2d(const Array& x, const Pool2d& options) {
  RuledOperation operation("average_pool2d", x);
  if (!is_float(x.dtype()))
    fail<DtypeError>({.operation = "average_pool2d",
                      .with = {{"dtype", std::string(dtype_name(x.dtype()))}},
                      .wrong = "this operation requires a float dtype",
                      .remedy = "Use astype"});
  const auto rule = [&] {
    return Rule{[options](Backward& b) {
      b.add(0, [&] { return ops::average_unpool2d(b.adjoint(), extents_of(b.shape(0)), options); });
    }};
  };
  return operation.finish(
      pool("average_pool2d", WindowSpec::mean, x, options), [&] { return window_attributes(windows_of(options)); },
      rule);
}

Array convolve(const Array& a, const Array& v, ConvolvedPart part) {
  const Operation operation("convolve", a, v);
  if (a.rank() != 1 || v.rank() != 1 || a.size() == 0 || v.size() == 0)
    fail<ShapeError>({.operation = "convolve",
                      .with = {{"a", to_string(a.shape())}, {"v", to_string(v.shape())}},
                      .wrong = "both arrays must have one dimension and at least one element"});
  const DType dtype = promote(a.dtype(), v.dtype());
  const bool exchanged = a.size() < v.size();
  const Array longer = (exchanged ? v : a).astype(dtype), shorter = (exchanged ? a : v).astype(dtype);
  const std::int64_t n = longer.size(), k = shorter.size();
  Array out;
  if (is_float(dtype)) {
    const Array kernel = flip(shorter).reshape({1, 1, 1, k});
    out = conv2d(longer.reshape({1, 1, 1, n}), kernel, {.padding = {0, k - 1}}).reshape({n + k - 1});
  } else {
    const auto positions = [&](std::int64_t count) { return Array::arange(count, 0, 1, DType::i64, a.device()); };
    const Array read = positions(n + k - 1).unsqueeze(1) - positions(k);  // positions outside read zero
    out = matmul(take(longer, read), shorter).astype(dtype);
  }
  if (part == ConvolvedPart::same) out = out.slice(0, (k - 1) / 2, (k - 1) / 2 + n);
  if (part == ConvolvedPart::valid) out = out.slice(0, k - 1, n);
  return operation.finish(out.as_contiguous(), [&] { return Attributes{{"part", static_cast<std::int64_t>(part)}}; });
}

Array ops::max_positions2d(const Array& x, const Pool2d& options) {
  return pool("max_pool2d", WindowSpec::positions, x, options);
}

Array ops::unpool2d(const Array& pooled, const Array& positions, Extents2d extents, const Pool2d& options) {
  RuledOperation operation("unpool2d", pooled, positions);
  const Array which = positions.as_contiguous();
  Array out = spread("unpool2d", WindowSpec::unpool, pooled, &which, extents, windows_of(options));
  const auto rule = [] {
    return Rule{.backward =
                    [](Backward& b) {
                      b.add(0, [&] {
                        const Shape& s = b.shape(0);
                        const Array from = b.operand(1).reshape({s[0], s[1], s[2] * s[3]});
                        const Array back = b.adjoint();
                        const std::int64_t places = back.shape(2) * back.shape(3);
                        return take_along_axis(back.reshape({s[0], s[1], places}), from, 2).reshape(s);
                      });
                    },
                .keeps = operand_bits(1)};
  };
  return operation.finish(std::move(out), rule);
}

Array ops::average_unpool2d(const Array& pooled, Extents2d extents, const Pool2d& options) {
  RuledOperation operation("average_unpool2d", pooled);
  const Windows2d o = windows_of(options);
  const Array share = pooled / static_cast<double>(o.kernel.rows * o.kernel.columns);
  Array out = spread("average_unpool2d", WindowSpec::spread, share, nullptr, extents, o);
  const auto rule = [&] {
    return Rule{[options](Backward& b) { b.add(0, [&] { return average_pool2d(b.adjoint(), options); }); }};
  };
  return operation.finish(std::move(out), rule);
}

}  // namespace tessera
