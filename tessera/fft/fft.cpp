// SPDX-License-Identifier: Apache-2.0
#include "tessera/fft/fft.h"

#include <algorithm>
#include <cmath>

#include "tessera/array/functions.h"
#include "tessera/array/operation.h"
#include "tessera/array/rearrange.h"
#include "tessera/fft/transform.h"

namespace tessera::fft {

using detail::Operation;
using detail::RuledOperation;

namespace {

void check_real(const char* operation, DType t) {
  if (t != DType::f32 && t != DType::f64)
    fail<DtypeError>({.operation = operation,
                      .with = {{"dtype", std::string(dtype_name(t))}},
                      .wrong = "the dtype is not f32 or f64",
                      .remedy = "Use astype"});
}

std::int64_t checked_length(const char* operation, std::int64_t n) {
  if (n < 1 || n > most_elements)
    fail<ArgumentError>({.operation = operation,
                         .with = {{"n", std::to_string(n)}},
                         .wrong = n < 1 ? "the length of a transform is less than 1" : "the length is too large",
                         .remedy = "Give the length as `n` or in `sizes`"});
  return n;
}

/// The axes of a transform and its lengths along them.
struct Axes {
  std::vector<int> axes;
  Shape sizes;
};

/// Checks and completes the arguments of a function. `halves` is true if the last axis of `shape` contains half of a
/// spectrum.
Axes axes_of(const char* operation, const Shape& shape, const std::optional<Shape>& sizes, std::vector<int> axes,
             bool halves = false) {
  const std::size_t rank = shape.size();
  if (sizes && !axes.empty() && sizes->size() != axes.size())
    fail<ShapeError>({.operation = operation,
                      .with = {{"sizes", to_string(*sizes)}, {"axes", std::to_string(axes.size())}},
                      .wrong = "there is not one size for each axis"});
  if (sizes && axes.empty())
    for (std::size_t i = 0; i < sizes->size(); ++i)
      axes.push_back(static_cast<int>(i) - static_cast<int>(sizes->size()));
  if (!sizes && axes.empty())
    for (std::size_t d = 0; d < rank; ++d) axes.push_back(static_cast<int>(d));
  Axes out;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const int axis = normalise_axis(operation, axes[i], rank);
    if (std::ranges::find(out.axes, axis) != out.axes.end())
      fail<ArgumentError>(
          {.operation = operation, .with = {{"axis", std::to_string(axis)}}, .wrong = "an axis is repeated"});
    const std::int64_t extent = shape[static_cast<std::size_t>(axis)];
    out.axes.push_back(axis);
    out.sizes.push_back(checked_length(operation, sizes                            ? (*sizes)[i]
                                                  : halves && i + 1 == axes.size() ? 2 * (extent - 1)
                                                                                   : extent));
  }
  if (out.axes.empty())
    fail<ShapeError>({.operation = operation, .with = {{"shape", to_string(shape)}}, .wrong = "the array has no axis"});
  return out;
}

double scale_of(const Shape& sizes, Norm norm, Direction direction) {
  double n = 1;
  for (const std::int64_t size : sizes) n *= static_cast<double>(size);
  if (norm == Norm::ortho) return 1 / std::sqrt(n);
  return (norm == Norm::forward) == (direction == Direction::forward) ? 1 / n : 1;
}

/// Cuts an axis, or pads it with zeros.
Array resized(const Array& a, int axis, std::int64_t n) {
  const std::int64_t extent = a.shape(axis);
  if (n == extent) return a;
  if (n < extent) return a.slice(axis, 0, n);
  Shape rest = a.shape();
  rest[static_cast<std::size_t>(axis)] = n - extent;
  return concatenate({a, Array::zeros({}, a.dtype(), a.device()).broadcast_to(rest)}, axis);
}
Complex resized(const Complex& z, int axis, std::int64_t n) {
  return {resized(z.real, axis, n), resized(z.imag, axis, n)};
}

Attributes no_attributes() { return {}; }

Norm opposite(Norm norm) { return norm == Norm::ortho ? norm : norm == Norm::forward ? Norm::backward : Norm::forward; }
Direction opposite(Direction d) { return d == Direction::forward ? Direction::inverse : Direction::forward; }

/// The adjoint of one part of a complex result, as a complex number.
Complex adjoint_of_part(const Backward& b, std::size_t part) {
  if (part == 0) return b.adjoint();
  return {Array::zeros({}, b.adjoint().dtype(), b.adjoint().device()).broadcast_to(b.adjoint().shape()), b.adjoint()};
}

/// transform() with a gradient. The adjoint of a sum of x[j] w^(j k) is the sum of y[k] conj(w)^(j k), the other
/// direction with the same factor.
Complex differentiable_transform(const Complex& x, int axis, Direction direction, double scale) {
  RuledOperation operation("fft::fft", x.real, x.imag);
  const Complex y =
      transform({detail::without_history(x.real), detail::without_history(x.imag)}, axis, direction, scale);
  std::vector<Array> parts = operation.finish(std::vector<Array>{y.real, y.imag}, no_attributes, [&](std::size_t part) {
    return Rule{.backward = [=](Backward& b) {
      if (!b.needs_adjoint(0) && !b.needs_adjoint(1)) return;
      const Complex g = differentiable_transform(adjoint_of_part(b, part), axis, opposite(direction), scale);
      b.add(0, [&] { return g.real; });
      b.add(1, [&] { return g.imag; });
    }};
  });
  return {parts[0], parts[1]};
}

/// Factors of the elements of a half spectrum of n real numbers: 1 for elements that are their own conjugates, else
/// `other`. They vary along an axis.
Array half_factors(std::int64_t n, double other, const Complex& like, int axis) {
  const DType t = like.dtype();
  const Device device = like.device();
  Shape shape(like.shape().size(), 1);
  shape[static_cast<std::size_t>(axis)] = n / 2 + 1;
  const Array k = Array::arange(n / 2 + 1, 0, 1, DType::i64, device).reshape(shape);
  const Array alone = n % 2 == 0 ? (k == 0) | (k == n / 2) : k == 0;  // not half of a pair of conjugates
  return where(alone, Array::full({}, 1, t, device), other);
}

Array differentiable_inverse_to_real(const Complex& x, int axis, std::int64_t n, double scale);

/// transform_real() with a gradient: sums over half of the frequencies. inverse_to_real() counts frequencies twice that
/// differ from their conjugates.
Complex differentiable_transform_real(const Array& x, int axis, double scale) {
  RuledOperation operation("fft::rfft", x);
  const std::int64_t n = x.shape(axis);
  const Complex y = transform_real(detail::without_history(x), axis, scale);
  std::vector<Array> parts = operation.finish(std::vector<Array>{y.real, y.imag}, no_attributes, [&](std::size_t part) {
    return Rule{.backward = [=](Backward& b) {
      b.add(0, [&] {
        const Complex g = adjoint_of_part(b, part);
        return differentiable_inverse_to_real(g * half_factors(n, 0.5, g, axis), axis, n, scale);
      });
    }};
  });
  return {parts[0], parts[1]};
}

Array differentiable_inverse_to_real(const Complex& x, int axis, std::int64_t n, double scale) {
  RuledOperation operation("fft::irfft", x.real, x.imag);
  return operation.finish(
      inverse_to_real({detail::without_history(x.real), detail::without_history(x.imag)}, axis, n, scale), [&] {
        return Rule{.backward = [=](Backward& b) {
          if (!b.needs_adjoint(0) && !b.needs_adjoint(1)) return;
          const Complex g = differentiable_transform_real(b.adjoint(), axis, scale);
          const Array factors = half_factors(n, 2, g, axis);
          b.add(0, [&] { return g.real * factors; });
          b.add(1, [&] { return g.imag * factors; });
        }};
      });
}

Attributes attributes_of(const Axes& a) {
  return {{"axes", std::vector<std::int64_t>(a.axes.begin(), a.axes.end())},
          {"sizes", std::vector<std::int64_t>(a.sizes.begin(), a.sizes.end())}};
}

Complex finished(const Operation& operation, const Complex& z, const Axes& axes) {
  std::vector<Array> parts = operation.finish(std::vector<Array>{z.real, z.imag}, [&] { return attributes_of(axes); });
  return {parts[0], parts[1]};
}

Complex transformed(const char* name, Complex x, const std::optional<Shape>& sizes, std::vector<int> axes, Norm norm,
                    Direction direction) {
  const Operation operation(name, x.real, x.imag);
  check_real(name, x.dtype());
  const Axes all = axes_of(name, x.shape(), sizes, std::move(axes));
  double scale = scale_of(all.sizes, norm, direction);
  for (std::size_t i = all.axes.size(); i-- > 0; scale = 1)
    x = differentiable_transform(resized(x, all.axes[i], all.sizes[i]), all.axes[i], direction, scale);
  return finished(operation, x, all);
}

/// The result of ihfft is the conjugate.
Complex transformed_real(const char* name, const Array& x, const std::optional<Shape>& sizes, std::vector<int> axes,
                         Norm norm, bool conjugate = false) {
  const Operation operation(name, x);
  check_real(name, x.dtype());
  const Axes all = axes_of(name, x.shape(), sizes, std::move(axes));
  const int last = all.axes.back();
  Complex y = differentiable_transform_real(resized(x, last, all.sizes.back()), last,
                                            scale_of(all.sizes, norm, Direction::forward));
  for (std::size_t i = all.axes.size() - 1; i-- > 0;)
    y = differentiable_transform(resized(y, all.axes[i], all.sizes[i]), all.axes[i], Direction::forward, 1);
  return finished(operation, conjugate ? conj(y) : y, all);
}

/// The operand of hfft is conjugated first.
Array transformed_to_real(const char* name, Complex x, const std::optional<Shape>& sizes, std::vector<int> axes,
                          Norm norm, bool conjugate = false) {
  const Operation operation(name, x.real, x.imag);
  check_real(name, x.dtype());
  if (conjugate) x = conj(x);
  const Axes all = axes_of(name, x.shape(), sizes, std::move(axes), true);
  for (std::size_t i = 0; i + 1 < all.axes.size(); ++i)
    x = differentiable_transform(resized(x, all.axes[i], all.sizes[i]), all.axes[i], Direction::inverse, 1);
  const int last = all.axes.back();
  const std::int64_t n = all.sizes.back();
  x = resized(x, last, n / 2 + 1);
  Array y = differentiable_inverse_to_real(x, last, n, scale_of(all.sizes, norm, Direction::inverse));
  return operation.finish(std::move(y), [&] { return attributes_of(all); });
}

/// Moves the elements of axes by half of their extents, rounded down or up.
Array shifted(const char* name, const Array& x, const std::vector<int>& axes, bool inverse) {
  const Operation operation(name, x);
  std::vector<std::int64_t> moved;
  for (int d = 0; d < (axes.empty() ? x.rank() : static_cast<int>(axes.size())); ++d)
    moved.push_back(axes.empty() ? d : normalise_axis(name, axes[static_cast<std::size_t>(d)], x.shape().size()));
  Array out = x;
  for (const std::int64_t axis : moved) {
    const std::int64_t half = x.shape(static_cast<int>(axis)) / 2;
    out = roll(out, inverse ? -half : half, static_cast<int>(axis));
  }
  return operation.finish(moved.empty() ? x.copy() : std::move(out), [&] { return Attributes{{"axes", moved}}; });
}

Array frequencies(const char* name, std::int64_t n, double spacing, DType dtype, std::optional<Device> device,
                  bool half) {
  const Operation operation(name);
  check_real(name, dtype);
  checked_length(name, n);
  if (!(spacing != 0 && std::isfinite(spacing)))
    fail<ArgumentError>({.operation = name,
                         .with = {{"spacing", std::to_string(spacing)}},
                         .wrong = "the distance of samples must be finite and not zero"});
  const double step = 1 / (static_cast<double>(n) * spacing);
  Array out = half ? Array::arange(n / 2 + 1, 0, 1, dtype, device)
                   : concatenate({Array::arange((n + 1) / 2, 0, 1, dtype, device),
                                  Array::arange(n / 2, -static_cast<double>(n / 2), 1, dtype, device)});
  return operation.finish(out * step, [&] { return Attributes{{"n", n}, {"spacing", spacing}}; });
}

std::optional<Shape> size_of(std::optional<std::int64_t> n) {
  return n ? std::optional<Shape>(Shape{*n}) : std::nullopt;
}

}  // namespace

Complex fft(const Complex& x, std::optional<std::int64_t> n, int axis, Norm norm) {
  return transformed("fft::fft", x, size_of(n), {axis}, norm, Direction::forward);
}
Complex ifft(const Complex& x, std::optional<std::int64_t> n, int axis, Norm norm) {
  return transformed("fft::ifft", x, size_of(n), {axis}, norm, Direction::inverse);
}
Complex rfft(const Array& x, std::optional<std::int64_t> n, int axis, Norm norm) {
  return transformed_real("fft::rfft", x, size_of(n), {axis}, norm);
}
Array irfft(const Complex& x, std::optional<std::int64_t> n, int axis, Norm norm) {
  return transformed_to_real("fft::irfft", x, size_of(n), {axis}, norm);
}
Array hfft(const Complex& x, std::optional<std::int64_t> n, int axis, Norm norm) {
  return transformed_to_real("fft::hfft", x, size_of(n), {axis}, opposite(norm), true);
}
Complex ihfft(const Array& x, std::optional<std::int64_t> n, int axis, Norm norm) {
  return transformed_real("fft::ihfft", x, size_of(n), {axis}, opposite(norm), true);
}
Complex fftn(const Complex& x, const std::optional<Shape>& sizes, std::vector<int> axes, Norm norm) {
  return transformed("fft::fftn", x, sizes, std::move(axes), norm, Direction::forward);
}
Complex ifftn(const Complex& x, const std::optional<Shape>& sizes, std::vector<int> axes, Norm norm) {
  return transformed("fft::ifftn", x, sizes, std::move(axes), norm, Direction::inverse);
}
Complex rfftn(const Array& x, const std::optional<Shape>& sizes, std::vector<int> axes, Norm norm) {
  return transformed_real("fft::rfftn", x, sizes, std::move(axes), norm);
}
Array irfftn(const Complex& x, const std::optional<Shape>& sizes, std::vector<int> axes, Norm norm) {
  return transformed_to_real("fft::irfftn", x, sizes, std::move(axes), norm);
}
Complex fft2(const Complex& x, const std::optional<Shape>& sizes, std::vector<int> axes, Norm norm) {
  return transformed("fft::fft2", x, sizes, std::move(axes), norm, Direction::forward);
}
Complex ifft2(const Complex& x, const std::optional<Shape>& sizes, std::vector<int> axes, Norm norm) {
  return transformed("fft::ifft2", x, sizes, std::move(axes), norm, Direction::inverse);
}

Array fftshift(const Array& x, std::vector<int> axes) { return shifted("fft::fftshift", x, axes, false); }
Complex fftshift(const Complex& x, std::vector<int> axes) { return {fftshift(x.real, axes), fftshift(x.imag, axes)}; }
Array ifftshift(const Array& x, std::vector<int> axes) { return shifted("fft::ifftshift", x, axes, true); }
Complex ifftshift(const Complex& x, std::vector<int> axes) {
  return {ifftshift(x.real, axes), ifftshift(x.imag, axes)};
}

Array fftfreq(std::int64_t n, double spacing, DType dtype, std::optional<Device> device) {
  return frequencies("fft::fftfreq", n, spacing, dtype, device, false);
}
Array rfftfreq(std::int64_t n, double spacing, DType dtype, std::optional<Device> device) {
  return frequencies("fft::rfftfreq", n, spacing, dtype, device, true);
}

}  // namespace tessera::fft
