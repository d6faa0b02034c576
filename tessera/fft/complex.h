// SPDX-License-Identifier: Apache-2.0
// Complex arrays. The parts are two arrays, so every device, kernel and gradient works on them without a complex dtype
// (docs/decisions.md). Functions of structures of arrays, such as `to`, `map_arrays`, `save_arrays` and `grad`, visit
// both parts.
#pragma once

#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/array/parts.h"

namespace tessera {

namespace detail {
/// std::complex<float> or std::complex<double>. (This header does not include <complex>, which is long.)
template <class T>
concept ComplexNumber = std::is_floating_point_v<typename T::value_type> && requires(const T& z) {
  z.real();
  z.imag();
};
}  // namespace detail

struct Complex;
class ComplexOperand;

namespace detail {
Complex complex_sum(const ComplexOperand& a, const ComplexOperand& b);
Complex complex_difference(const ComplexOperand& a, const ComplexOperand& b);
Complex complex_product(const ComplexOperand& a, const ComplexOperand& b);
Complex complex_quotient(const ComplexOperand& a, const ComplexOperand& b);
Complex complex_power(const ComplexOperand& a, const ComplexOperand& b);
Array complex_equal(const ComplexOperand& a, const ComplexOperand& b);
}  // namespace detail

/// An operand of complex arithmetic: a Complex, an Array, a std::complex or a number. Arrays are referenced and must
/// outlive the operand. Numbers take the dtype of the other operand.
class ComplexOperand {
 public:
  ComplexOperand(const Complex& z);                   ///< References both parts.
  ComplexOperand(const Array& a) : real_(a) {}        ///< References an array of real numbers.
  ComplexOperand(Array&& a) : real_(std::move(a)) {}  ///< Takes ownership of an array of real numbers.
  /// A real number.
  template <class T>
    requires std::is_arithmetic_v<T>
  ComplexOperand(T value) : real_(value) {}
  /// A complex number.
  template <detail::ComplexNumber T>
  ComplexOperand(const T& z) : real_(z.real()), imag_(z.imag()) {}
  /// The parts as arrays or numbers. An empty imaginary part is zero.
  ComplexOperand(ArrayOperand real, std::optional<ArrayOperand> imag)
      : real_(std::move(real)), imag_(std::move(imag)) {}

  const ArrayOperand& real() const { return real_; }                 ///< The real part.
  const std::optional<ArrayOperand>& imag() const { return imag_; }  ///< The imaginary part; empty if it is zero.

 private:
  ArrayOperand real_;
  std::optional<ArrayOperand> imag_;
};

/// An array of complex numbers: two arrays of the same shape, dtype and device. Operators broadcast and are lazy, like
/// those of Array. `eval({z.real, z.imag})` computes both parts in one kernel.
struct Complex {
  Array real;  ///< The real parts.
  Array imag;  ///< The imaginary parts.

  Complex() = default;  ///< An empty array: f32, shape (0,), on the CPU.
  /// Complex numbers with the imaginary part 0. Throws DtypeError unless the dtype is a float.
  Complex(Array real_part);
  /// Throws ShapeError, DtypeError or DeviceError unless both parts have the same shape, float dtype and device.
  Complex(Array real_part, Array imaginary_part);
  /// Copies numbers of type std::complex<float> or std::complex<double> into a new array. `shape` defaults to one
  /// dimension. Throws ShapeError if the element counts differ.
  template <detail::ComplexNumber T>
  static Complex from(std::span<const T> data, std::optional<Shape> shape = {}, std::optional<Device> device = {}) {
    using Real = typename T::value_type;
    std::vector<Real> parts[2];
    for (const T& z : data) parts[0].push_back(z.real()), parts[1].push_back(z.imag());
    return {Array::from(parts[0], shape, device), Array::from(parts[1], shape, device)};
  }
  template <detail::ComplexNumber T>
  static Complex from(const std::vector<T>& data, std::optional<Shape> shape = {}, std::optional<Device> device = {}) {
    return from(std::span<const T>(data), shape, device);
  }

  const Shape& shape() const { return real.shape(); }              ///< The extents, one per dimension.
  std::int64_t shape(int axis) const { return real.shape(axis); }  ///< The extent of an axis.
  int rank() const { return real.rank(); }                         ///< The number of dimensions.
  std::int64_t size() const { return real.size(); }                ///< The number of elements.
  DType dtype() const { return real.dtype(); }                     ///< The dtype of each part.
  Device device() const { return real.device(); }                  ///< The device that owns the memory.
  /// Copies the elements in row-major order into a vector of std::complex. Blocks until they are computed. Throws
  /// DtypeError if the type does not match the dtype.
  template <detail::ComplexNumber T>
  std::vector<T> to_vector() const {
    const auto re = real.to_vector<typename T::value_type>(), im = imag.to_vector<typename T::value_type>();
    std::vector<T> out;
    out.reserve(re.size());
    for (std::size_t i = 0; i < re.size(); ++i) out.emplace_back(re[i], im[i]);
    return out;
  }
  /// The parts, for functions of structures of arrays.
  auto fields() { return std::tuple(field("real", real), field("imag", imag)); }

  // Argument-dependent lookup finds these operators only if an operand is a Complex.
  /// The sum of each pair of elements.
  friend Complex operator+(const ComplexOperand& a, const ComplexOperand& b) { return detail::complex_sum(a, b); }
  /// The difference of each pair of elements.
  friend Complex operator-(const ComplexOperand& a, const ComplexOperand& b) {
    return detail::complex_difference(a, b);
  }
  /// The product of each pair of elements, by the definition: infinite parts can give NaN.
  friend Complex operator*(const ComplexOperand& a, const ComplexOperand& b) { return detail::complex_product(a, b); }
  /// The quotient of each pair of elements. The divisor is first scaled, so that its square does not overflow.
  /// Infinite parts can give NaN.
  friend Complex operator/(const ComplexOperand& a, const ComplexOperand& b) { return detail::complex_quotient(a, b); }
  friend Complex operator-(const Complex& z) { return {-z.real, -z.imag}; }  ///< The negative of each element.
  /// A bool array: true where both parts are equal.
  friend Array operator==(const ComplexOperand& a, const ComplexOperand& b) { return detail::complex_equal(a, b); }
  /// A bool array: true where a part differs.
  friend Array operator!=(const ComplexOperand& a, const ComplexOperand& b) { return !detail::complex_equal(a, b); }
  /// `a` to the power of `b`: exp(b log(a)), and products if `b` is an integer from -64 to 64. As in NumPy, powers of 0
  /// are 1 if `b` is 0, 0 if its real part is positive, and NaN otherwise.
  friend Complex pow(const ComplexOperand& a, const ComplexOperand& b) { return detail::complex_power(a, b); }
};

Complex conj(const Complex& z);  ///< The conjugate: the imaginary part changes its sign.
Array abs(const Complex& z);     ///< The absolute value, without overflow of squares.
Array angle(const Complex& z);   ///< The angle between -pi and pi, as atan2(imag, real).
Complex exp(const Complex& z);   ///< e to the power of `z`.
Complex log(const Complex& z);   ///< The natural logarithm, with an imaginary part between -pi and pi.
/// The square root whose real part is not negative. The imaginary part has the sign of that of `z`. Infinite parts can
/// give NaN.
Complex sqrt(const Complex& z);

/// The elements in NumPy's layout, such as 1+2j, followed by "complex64" (f32), "complex128" (f64) or "complex" and the
/// dtype of the parts, and by the device. Otherwise like to_string of an Array.
std::string to_string(const Complex& z);

}  // namespace tessera
