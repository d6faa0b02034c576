// SPDX-License-Identifier: Apache-2.0
#include "tessera/fft/complex.h"

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

/// a + sign * b, where a missing operand is zero. The result has the shape and dtype of `like`. One operand is an
/// array.
Array combined(const Part& a, const Part& b, int sign, const Array& like) {
  Array out = a && b ? (sign > 0 ? *a + *b : *a - *b) : a ? 0 + *a : sign * *b;
  out = out.astype(like.dtype());
  return out.shape() == like.shape() ? out : out.broadcast_to(like.shape());
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

Complex conj(const Complex& z) { return {z.real, -z.imag}; }
Array abs(const Complex& z) { return hypot(z.real, z.imag); }
Array angle(const Complex& z) { return atan2(z.imag, z.real); }
Complex exp(const Complex& z) {
  const Array size = exp(z.real);
  return {size * cos(z.imag), size * sin(z.imag)};
}
Complex log(const Complex& z) { return {log(abs(z)), angle(z)}; }

}  // namespace tessera
