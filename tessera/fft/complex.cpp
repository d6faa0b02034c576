// SPDX-License-Identifier: Apache-2.0
#include "tessera/fft/complex.h"

#include <cmath>
#include <limits>
#include <memory>

#include "tessera/array/print.h"

namespace tessera {

namespace {

using Part = std::optional<ArrayOperand>;

void check_float(const Array& part) {
  if (!is_float(part.dtype()))
    fail<DtypeError>({.operation = "Complex",
                      .with = {{"dtype", std::string(dtype_name(part.dtype()))}},
                      .wrong = "the parts of complex numbers are floats",
                      .remedy = "Convert the array with astype"});
}

/// a + sign * b, where a missing operand is zero. The result has the shape and dtype of `like`.
Array combined(const Part& a, const Part& b, int sign, const Array& like) {
  const auto is_array = [](const Part& p) { return p && p->is_array(); };
  const auto value = [](const Part& p) { return p ? p->value() : 0; };
  if (!is_array(a) && !is_array(b))
    return Array::full({}, value(a) + sign * value(b), like.dtype(), like.device())
        .broadcast_to(like.shape())
        .as_contiguous();
  Array out = a && b ? (sign > 0 ? *a + *b : *a - *b) : a ? 0 + *a : sign * *b;
  out = out.astype(like.dtype());
  return out.shape() == like.shape() ? out : out.broadcast_to(like.shape()).as_contiguous();
}

/// The numbers with parts of this dtype. Signs of zeros are kept.
Complex converted(const ComplexOperand& z, DType dtype, Device device) {
  const auto part = [&](const ArrayOperand& o) {
    return o.is_array() ? o.array().astype(dtype) : Array::full({}, o.value(), dtype, device);
  };
  const Array real = part(z.real());
  if (!z.imag()) return Complex(real);
  const Array imag = part(*z.imag());
  const Shape shape = broadcast_shapes("Complex", real.shape(), imag.shape());
  return Complex(real.broadcast_to(shape), imag.broadcast_to(shape));
}

}  // namespace

ComplexOperand::ComplexOperand(const Complex& z) : real_(z.real), imag_(z.imag) {}

Complex::Complex(Array real_part) : real(std::move(real_part)) {
  check_float(real);
  imag = Array::zeros({}, real.dtype(), real.device()).broadcast_to(real.shape());
}

Complex::Complex(Array real_part, Array imaginary_part) : real(std::move(real_part)), imag(std::move(imaginary_part)) {
  check_float(real);
  if (real.shape() != imag.shape())
    fail<ShapeError>({.operation = "Complex",
                      .with = {{"real", to_string(real.shape())}, {"imag", to_string(imag.shape())}},
                      .wrong = "the parts have different shapes",
                      .remedy = "Use broadcast_to"});
  if (real.dtype() != imag.dtype())
    fail<DtypeError>(
        {.operation = "Complex",
         .with = {{"real", std::string(dtype_name(real.dtype()))}, {"imag", std::string(dtype_name(imag.dtype()))}},
         .wrong = "the parts have different dtypes",
         .remedy = "Use astype"});
  if (real.device() != imag.device())
    fail<DeviceError>({.operation = "Complex",
                       .with = {{"real", to_string(real.device())}, {"imag", to_string(imag.device())}},
                       .wrong = "the parts are on different devices",
                       .remedy = "Use to(device)"});
}

Complex detail::complex_sum(const ComplexOperand& a, const ComplexOperand& b) {
  Array real = a.real() + b.real();
  Array imag = combined(a.imag(), b.imag(), 1, real);
  return {std::move(real), std::move(imag)};
}

Complex detail::complex_difference(const ComplexOperand& a, const ComplexOperand& b) {
  Array real = a.real() - b.real();
  Array imag = combined(a.imag(), b.imag(), -1, real);
  return {std::move(real), std::move(imag)};
}

Complex detail::complex_product(const ComplexOperand& a, const ComplexOperand& b) {
  if (!a.imag()) return {a.real() * b.real(), a.real() * *b.imag()};
  if (!b.imag()) return {a.real() * b.real(), *a.imag() * b.real()};
  return {a.real() * b.real() - *a.imag() * *b.imag(), a.real() * *b.imag() + *a.imag() * b.real()};
}

Complex detail::complex_quotient(const ComplexOperand& a, const ComplexOperand& b) {
  if (!b.imag()) return {a.real() / b.real(), *a.imag() / b.real()};
  // a / b = a conj(t) / (|t|^2 s) with t = b / s, where s is the larger of the absolute parts of b. One is an array.
  const Array& like = (a.real().is_array() ? a.real() : b.real()).array();
  const Array zero = Array::zeros({}, like.dtype(), like.device());
  const Array x = zero + b.real(), y = zero + *b.imag();
  const Array s = maximum(abs(x), abs(y)), tx = x / s, ty = y / s;
  const Array d = (tx * tx + ty * ty) * s;
  if (!a.imag()) return {a.real() * tx / d, -(a.real() * ty) / d};
  return {(a.real() * tx + *a.imag() * ty) / d, (*a.imag() * tx - a.real() * ty) / d};
}

Array detail::complex_equal(const ComplexOperand& a, const ComplexOperand& b) {
  const Array real = a.real() == b.real();
  if (!a.imag() && !b.imag()) return real;
  if (a.imag() && b.imag()) return real & (*a.imag() == *b.imag());
  const ArrayOperand& only = a.imag() ? *a.imag() : *b.imag();
  return only.is_array() ? real & (only == 0) : real & (only.value() == 0);
}

Complex detail::complex_power(const ComplexOperand& a, const ComplexOperand& b) {
  constexpr double most_products = 64;
  const double exponent = b.real().value();
  if (!b.imag() && !b.real().is_array() && a.imag() && a.imag()->is_array() && std::abs(exponent) <= most_products &&
      exponent == std::trunc(exponent)) {
    Complex square = 0 + Complex(a.real().array(), a.imag()->array());
    if (exponent < 0) square = 1 / square;
    std::optional<Complex> product;
    for (auto n = static_cast<unsigned>(std::abs(exponent)); n > 0; n >>= 1) {
      if (n & 1) product = product ? *product * square : square;
      if (n > 1) square = square * square;
    }
    if (!product) return Complex(Array::ones(square.shape(), square.dtype(), square.device()));
    return *product;
  }
  const Array& like = (a.real().is_array() ? a.real() : b.real()).array();
  std::optional<DType> given;
  for (const ComplexOperand* o : {&a, &b})
    if (o->real().is_array()) {
      const DType t = o->real().array().dtype();
      given = given ? promote(*given, t) : t;
    }
  const DType dtype = is_float(*given) ? *given : DType::f32;
  const Complex base = converted(a, dtype, like.device()), power = converted(b, dtype, like.device()),
                value = exp(power * log(base));
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const Array at_zero = base == 0, none = power == 0, positive = power.real > 0;
  return {where(at_zero, where(none, 1.0, where(positive, 0.0, Array::full({}, nan, value.dtype(), like.device()))),
                value.real),
          where(at_zero, where(none | positive, 0.0, Array::full({}, nan, value.dtype(), like.device())), value.imag)};
}

Complex conj(const Complex& z) { return {z.real, -z.imag}; }
Array abs(const Complex& z) { return hypot(z.real, z.imag); }
Array angle(const Complex& z) { return atan2(z.imag, z.real); }
Complex exp(const Complex& z) {
  const Array size = exp(z.real);
  return {size * cos(z.imag), where(z.imag == 0, z.imag, size * sin(z.imag))};  // size can be infinite
}
Complex log(const Complex& z) { return {log(abs(z)), angle(z)}; }
Complex sqrt(const Complex& z) {
  // The larger part of the result has no cancellation; the other follows from the product 2 re im = z.imag.
  const Array larger = sqrt(0.5 * abs(z) + 0.5 * abs(z.real));
  const Array smaller = where(larger == 0, z.imag, 0.5 * z.imag / larger);
  const Array right = z.real >= 0;
  return {where(right, larger, abs(smaller)), where(right, smaller, copysign(larger, z.imag))};
}

std::string to_string(const Complex& z) {
  const DType t = z.dtype();
  std::string kind(t == DType::f32 ? "complex64" : t == DType::f64 ? "complex128" : "complex ");
  if (t != DType::f32 && t != DType::f64) kind += dtype_name(t);
  kind += ", " + to_string(z.device());
  eval({z.real, z.imag});
  const detail::HostElements real(z.real), imag(z.imag);
  return detail::array_text(
      z.shape(),
      [&](std::int64_t i) {
        const std::string im = imag.text(i);
        return real.text(i) + (im.starts_with('-') ? "" : "+") + im + "j";
      },
      kind);
}

}  // namespace tessera
