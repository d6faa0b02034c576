// SPDX-License-Identifier: Apache-2.0
// Fourier transforms on every device, compared with sums in long double. The root mean square of the error, divided by
// that of the result, must be at most `bound` epsilon sqrt(log2(n) + 1). (FFTW's programs have factors of 0.3 to 1 for
// powers of two, see https://www.fftw.org/accuracy.)
#include "tessera/fft/fft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <numbers>
#include <random>

#include "tessera/array/functions.h"
#include "tessera/array/rearrange.h"
#include "tessera/array/traversal.h"
#include "tessera/grad/grad.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using fft::Norm;
using test::expect_throw;
using test::OnEveryDevice;

constexpr double bound = 2;

using Number = std::complex<double>;
using Numbers = std::vector<Number>;

/// exp(sign 2 pi i k / n).
std::complex<long double> root(std::int64_t k, std::int64_t n, int sign) {
  const long double angle =
      2 * std::numbers::pi_v<long double> * static_cast<long double>(k % n) / static_cast<long double>(n);
  return {std::cos(angle), static_cast<long double>(sign) * std::sin(angle)};
}

/// Element k of the transform of `row`.
Number element(const Numbers& row, std::int64_t k, int sign) {
  const auto n = std::ssize(row);
  std::complex<long double> sum = 0;
  for (std::int64_t j = 0; j < n; ++j)
    sum += std::complex<long double>(row[static_cast<std::size_t>(j)]) * root(j * k % n, n, sign);
  return Number(sum);
}

/// The transform of an array along an axis, from the definition.
Numbers reference(const Numbers& x, const Shape& shape, std::size_t axis, int sign, double scale) {
  std::int64_t inner = 1;
  for (std::size_t d = axis + 1; d < shape.size(); ++d) inner *= shape[d];
  const std::int64_t n = shape[axis];
  std::vector<std::complex<long double>> roots;
  for (std::int64_t k = 0; k < n; ++k) roots.push_back(root(k, n, sign));
  Numbers out(x.size());
  for (std::int64_t start = 0; start < std::ssize(x); ++start) {
    if (start / inner % n != 0) continue;
    for (std::int64_t k = 0; k < n; ++k) {
      std::complex<long double> sum = 0;
      for (std::int64_t j = 0; j < n; ++j)
        sum += std::complex<long double>(x[static_cast<std::size_t>(start + j * inner)]) *
               roots[static_cast<std::size_t>(j * k % n)];
      out[static_cast<std::size_t>(start + k * inner)] = Number(sum * static_cast<long double>(scale));
    }
  }
  return out;
}

std::vector<double> numbers_of(const Array& a) {
  return a.to(Device{Backend::cpu, 0}).astype(DType::f64).to_vector<double>();
}
Numbers numbers_of(const Complex& z) {
  const auto re = numbers_of(z.real), im = numbers_of(z.imag);
  Numbers out;
  for (std::size_t i = 0; i < re.size(); ++i) out.emplace_back(re[i], im[i]);
  return out;
}

/// The root mean square of the error, divided by that of `want`.
double error_of(const Numbers& got, const Numbers& want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) error += std::norm(got[i] - want[i]), size += std::norm(want[i]);
  return size == 0 ? error : std::sqrt(error / size);
}
double allowed(DType t, double n) {
  const double epsilon =
      t == DType::f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  return bound * epsilon * std::sqrt(std::log2(n) + 1);
}

class Fft : public OnEveryDevice {
 protected:
  std::vector<DType> dtypes() const {
    return device_info(GetParam()).can.f64 ? std::vector{DType::f32, DType::f64} : std::vector{DType::f32};
  }
  Array reals(const Shape& shape, DType t) {
    std::normal_distribution<double> d;
    std::vector<double> out;
    for (std::int64_t i = 0; i < element_count(shape); ++i) out.push_back(d(random));
    if (t == DType::f64) return Array::from(out, shape);
    return Array::from(std::vector<float>(out.begin(), out.end()), shape);
  }
  Complex numbers(const Shape& shape, DType t) { return {reals(shape, t), reals(shape, t)}; }
  static bool is_slow() { return is_reference(GetParam().backend) || compiles_slowly(); }
};

TEST_P(Fft, PowersOfTwoMatchSums) {
  for (const DType t : dtypes())
    for (const std::int64_t n : {1, 2, 8, 64, 256, 1024}) {
      if (is_slow() && n > 16 && n != 128 && n != 512) continue;
      for (const std::int64_t rows : {1, 17}) {
        const Complex x = numbers({rows, n}, t);
        const double limit = allowed(t, static_cast<double>(n));
        EXPECT_LE(error_of(numbers_of(fft::fft(x)), reference(numbers_of(x), x.shape(), 1, -1, 1)), limit)
            << rows << " x " << n << " " << dtype_name(t);
        const double scale = 1 / static_cast<double>(n);
        EXPECT_LE(error_of(numbers_of(fft::ifft(x)), reference(numbers_of(x), x.shape(), 1, 1, scale)), limit)
            << rows << " x " << n << " " << dtype_name(t);
      }
    }
}

TEST_P(Fft, AnyLengthMatchesSums) {
  for (const DType t : dtypes())
    for (const std::int64_t n : {3, 7, 15, 37, 60, 143, 210}) {
      if (is_slow() && n != 5 && n != 12 && n != 13 && n != 17 && n != 360) continue;
      const Complex x = numbers({5, n}, t);
      EXPECT_LE(error_of(numbers_of(fft::fft(x)), reference(numbers_of(x), x.shape(), 1, -1, 1)),
                allowed(t, static_cast<double>(n)))
          << n << " " << dtype_name(t);
    }
}

TEST_P(Fft, LongTransformsMatchSumsOfSomeElements) {
  for (const DType t : dtypes())
    for (const std::int64_t n :
         is_slow() ? std::vector<std::int64_t>{4096} : std::vector<std::int64_t>{12288, 20011, 1 << 17}) {
      const Complex x = numbers({3, n}, t), y = fft::fft(x);
      const Numbers in = numbers_of(x), out = numbers_of(y);
      Numbers got, want;
      for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, n / 3, n / 2, n - 1})
        for (const std::int64_t row : {0, 1, 2}) {
          got.push_back(out[static_cast<std::size_t>(row * n + k)]);
          want.push_back(element(Numbers(in.begin() + row * n, in.begin() + (row + 1) * n), k, -1));
        }
      EXPECT_LE(error_of(got, want), 2 * allowed(t, static_cast<double>(n))) << n << " " << dtype_name(t);
      EXPECT_LE(error_of(numbers_of(fft::ifft(y)), in), 2 * allowed(t, static_cast<double>(n)))
          << n << " " << dtype_name(t);
    }
}

TEST_P(Fft, TransformsEachAxisOfViews) {
  for (const DType t : dtypes())
    for (const Shape& shape : {Shape{3, 4, 5}, Shape{2, 12, 33}, Shape{17, 16, 2}, Shape{16, 16, 16}}) {
      const Complex x = numbers(shape, t);
      for (int axis = 0; axis < 3; ++axis)
        EXPECT_LE(error_of(numbers_of(fft::fft(x, {}, axis)),
                           reference(numbers_of(x), shape, static_cast<std::size_t>(axis), -1, 1)),
                  allowed(t, static_cast<double>(shape[static_cast<std::size_t>(axis)])))
            << to_string(shape) << " axis " << axis;
      const Complex view{x.real.transpose(), x.imag.transpose()};
      EXPECT_LE(error_of(numbers_of(fft::fft(view)), reference(numbers_of(view), view.shape(), 2, -1, 1)),
                allowed(t, static_cast<double>(shape[0])));
      const Complex part{x.real.slice(2, 0, shape[2], 2), x.imag.slice(2, 0, shape[2], 2)};
      EXPECT_LE(error_of(numbers_of(fft::ifft(part)),
                         reference(numbers_of(part), part.shape(), 2, 1, 1 / static_cast<double>(part.shape(2)))),
                allowed(t, 8));
    }
  const Complex same{Array::full({}, 2).broadcast_to({2, 4}), Array::zeros({2, 4})};
  EXPECT_EQ(numbers_of(fft::fft(same)), (Numbers{8, 0, 0, 0, 8, 0, 0, 0}));
}

TEST_P(Fft, HalfSpectrumOfRealNumbersIsThatOfComplexOnes) {
  for (const DType t : dtypes())
    for (const std::int64_t n : {1, 2, 9, 30, 34, 256}) {
      if (is_slow() && n > 34 && n != 256) continue;
      const Array x = reals({3, n}, t);
      const Complex y = fft::rfft(x);
      EXPECT_EQ(y.shape(), Shape({3, n / 2 + 1}));
      const Numbers whole = reference(numbers_of(Complex(x)), x.shape(), 1, -1, 1);
      Numbers want;
      for (std::int64_t i = 0; i < std::ssize(whole); ++i)
        if (i % n <= n / 2) want.push_back(whole[static_cast<std::size_t>(i)]);
      const double limit = allowed(t, static_cast<double>(n));
      EXPECT_LE(error_of(numbers_of(y), want), limit) << n << " " << dtype_name(t);
      const Array back = fft::irfft(y, n);
      EXPECT_LE(error_of(numbers_of(Complex(back)), numbers_of(Complex(x))), 2 * limit) << n << " " << dtype_name(t);
      // Imaginary parts that a spectrum of real numbers does not have.
      const Array k = Array::arange(n / 2 + 1, 0, 1, t);
      const Array none = (k == 0) | (2 * k == static_cast<double>(n));
      const Complex changed{y.real, where(none, 7, y.imag)};
      EXPECT_LE(error_of(numbers_of(Complex(fft::irfft(changed, n))), numbers_of(Complex(x))), 2 * limit) << n;
    }
  if (is_slow()) return;
  const Array x = reals({1 << 16}, DType::f32);
  EXPECT_LE(error_of(numbers_of(Complex(fft::irfft(fft::rfft(x)))), numbers_of(Complex(x))),
            allowed(DType::f32, 1 << 16));
}

TEST_P(Fft, HermitianSignalsHaveRealSpectra) {
  for (const DType t : dtypes())
    for (const std::int64_t n : {2, 9, 12}) {
      if (is_slow() && n == 9) continue;
      const auto size = static_cast<std::size_t>(n);
      const double limit = 2 * allowed(t, static_cast<double>(n));
      // The whole signal from the elements of its first half.
      const Complex half = numbers({n / 2 + 1}, t);
      Numbers whole(size);
      const Numbers first = numbers_of(half);
      for (std::size_t i = 0; i < first.size(); ++i) whole[(size - i) % size] = std::conj(first[i]);
      for (std::size_t i = 0; i < first.size(); ++i) whole[i] = first[i];
      whole[0] = whole[0].real();
      if (n % 2 == 0) whole[size / 2] = whole[size / 2].real();
      const double n_float = static_cast<double>(n);
      for (const auto& [norm, scale] : {std::pair(Norm::backward, 1.), std::pair(Norm::ortho, 1 / std::sqrt(n_float)),
                                        std::pair(Norm::forward, 1 / n_float)}) {
        const Array y = fft::hfft(half, n, -1, norm);
        EXPECT_EQ(y.shape(), Shape({n}));
        EXPECT_LE(error_of(numbers_of(Complex(y)), reference(whole, {n}, 0, -1, scale)), limit) << n;
        const Array r = reals({n}, t);
        const Complex z = fft::ihfft(r, {}, -1, norm);
        Numbers want = reference(numbers_of(Complex(r)), {n}, 0, 1, 1 / (scale * n_float));
        want.resize(static_cast<std::size_t>(n / 2 + 1));
        EXPECT_LE(error_of(numbers_of(z), want), limit) << n;
        EXPECT_LE(error_of(numbers_of(Complex(fft::hfft(z, n, -1, norm))), numbers_of(Complex(r))), limit) << n;
      }
    }
  EXPECT_EQ(fft::hfft(numbers({3, 4}, DType::f32)).shape(), Shape({3, 6}));
  EXPECT_EQ(fft::hfft(numbers({3, 4}, DType::f32), {}, 0).shape(), Shape({4, 4}));
  EXPECT_EQ(fft::ihfft(reals({3, 4}, DType::f32), 8).shape(), Shape({3, 5}));
}

TEST_P(Fft, SeveralAxesAreTransformedOneAfterAnother) {
  const DType t = DType::f32;
  const Shape shape{4, 6, 5};
  const Complex x = numbers(shape, t);
  Numbers all = numbers_of(x), two;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (axis == 1) two = reference(reference(numbers_of(x), shape, 1, -1, 1), shape, 2, -1, 1);
    all = reference(all, shape, axis, -1, 1);
  }
  EXPECT_LE(error_of(numbers_of(fft::fftn(x)), all), allowed(t, 120));
  EXPECT_LE(error_of(numbers_of(fft::fft2(x)), two), allowed(t, 30));
  EXPECT_LE(error_of(numbers_of(fft::ifftn(fft::fftn(x))), numbers_of(x)), allowed(t, 120));
  EXPECT_LE(error_of(numbers_of(fft::ifft2(fft::fft2(x))), numbers_of(x)), allowed(t, 120));
  // Sizes without axes belong to the last axes. Padding and cutting are part of the transform.
  const Complex resized = fft::fftn(x, Shape{3, 8}), cut{x.real.slice(1, 0, 3), x.imag.slice(1, 0, 3)};
  EXPECT_EQ(resized.shape(), Shape({4, 3, 8}));
  EXPECT_LE(error_of(numbers_of(resized), numbers_of(fft::fft(fft::fft(cut, 8, 2), {}, 1))), allowed(t, 24));
  const Array r = reals(shape, t);
  const Complex half = fft::rfftn(r, {}, {0, 2, 1});
  EXPECT_EQ(half.shape(), Shape({4, 4, 5}));
  const Complex whole = fft::fftn(r);
  EXPECT_LE(error_of(numbers_of(half), numbers_of(Complex{whole.real.slice(1, 0, 4), whole.imag.slice(1, 0, 4)})),
            allowed(t, 120));
  EXPECT_LE(error_of(numbers_of(Complex(fft::irfftn(half, Shape{4, 5, 6}, {0, 2, 1}))), numbers_of(Complex(r))),
            allowed(t, 120));
}

TEST_P(Fft, NormsAndLengthsFollowNumPy) {
  const Complex x = Complex(Array::from({1.f, 2.f, 3.f, 4.f}));
  const auto near = [](const Complex& z, const Numbers& want) { EXPECT_LE(error_of(numbers_of(z), want), 1e-6); };
  near(fft::fft(x), {{10, 0}, {-2, 2}, {-2, 0}, {-2, -2}});
  near(fft::fft(x, {}, -1, Norm::ortho), {{5, 0}, {-1, 1}, {-1, 0}, {-1, -1}});
  near(fft::fft(x, {}, -1, Norm::forward), {{2.5, 0}, {-0.5, 0.5}, {-0.5, 0}, {-0.5, -0.5}});
  near(fft::ifft(x), {{2.5, 0}, {-0.5, -0.5}, {-0.5, 0}, {-0.5, 0.5}});
  near(fft::ifft(x, {}, 0, Norm::ortho), {{5, 0}, {-1, -1}, {-1, 0}, {-1, 1}});
  near(fft::ifft(x, {}, 0, Norm::forward), {{10, 0}, {-2, -2}, {-2, 0}, {-2, 2}});
  near(fft::fft(x, 2), {{3, 0}, {-1, 0}});
  near(fft::fft(x, 1), {{1, 0}});
  near(fft::fft(x, 5), {{10, 0},
                        {-4.04508497, -1.31432778},
                        {1.54508497, -2.12662702},
                        {1.54508497, 2.12662702},
                        {-4.04508497, 1.31432778}});
  near(fft::rfft(x.real), {{10, 0}, {-2, 2}, {-2, 0}});
  near(Complex(fft::irfft(x)), {2.5, -2. / 3, 0, -1. / 6, 0, -2. / 3});
  near(Complex(fft::irfft(x, 4, -1, Norm::forward)), {8, -2, 0, -2});
  EXPECT_EQ(fft::fft(Array::zeros({0, 4})).shape(), Shape({0, 4}));
  EXPECT_EQ(numbers_of(fft::fft(Array::zeros({2, 0}), 2)), Numbers(4));
  EXPECT_EQ(numbers_of(fft::fftshift(Array::arange(5))), (std::vector<double>{3, 4, 0, 1, 2}));
  EXPECT_EQ(numbers_of(fft::ifftshift(fft::fftshift(Array::arange(5)))), (std::vector<double>{0, 1, 2, 3, 4}));
  const Array grid = Array::arange(6).reshape({2, 3});
  EXPECT_EQ(numbers_of(fft::fftshift(grid)), (std::vector<double>{5, 3, 4, 2, 0, 1}));
  EXPECT_EQ(numbers_of(fft::fftshift(Complex(grid), {1}).real), (std::vector<double>{2, 0, 1, 5, 3, 4}));
  EXPECT_EQ(numbers_of(fft::fftfreq(5, 0.5)), numbers_of(Array::from({0.f, 0.4f, 0.8f, -0.8f, -0.4f})));
  EXPECT_EQ(numbers_of(fft::fftfreq(4)), (std::vector<double>{0, 0.25, -0.5, -0.25}));
  EXPECT_EQ(numbers_of(fft::rfftfreq(4)), (std::vector<double>{0, 0.25, 0.5}));
  EXPECT_EQ(numbers_of(fft::rfftfreq(5, 0.5)), numbers_of(Array::from({0.f, 0.4f, 0.8f})));
}

TEST_P(Fft, AdjointOfEachFunctionHasTheSameInnerProduct) {
  // <F x, y> = <x, F* y>, where the gradient computes F* y.
  const DType t = dtypes().back();
  using Function = std::function<Complex(const Complex&)>;
  const auto only_real = [](auto f) { return [f](const Complex& z) { return f(z.real); }; };
  const auto to_real = [](auto f) { return [f](const Complex& z) { return Complex(f(z)); }; };
  const std::vector<std::pair<const char*, Function>> functions = {
      {"fft", [](const Complex& z) { return fft::fft(z, {}, 0, Norm::ortho); }},
      {"ifft", [](const Complex& z) { return fft::ifft(z, 9); }},
      {"fft, cut", [](const Complex& z) { return fft::fft(z, 3, 0); }},
      {"fft of 17", [](const Complex& z) { return fft::fft(z, 17); }},
      {"fftn", [](const Complex& z) { return fft::fftn(z); }},
      {"ifft2", [](const Complex& z) { return fft::ifft2(z); }},
      {"rfft", only_real([](const Array& x) { return fft::rfft(x); })},
      {"rfft of 7", only_real([](const Array& x) { return fft::rfft(x, 7, 0, Norm::ortho); })},
      {"rfftn", only_real([](const Array& x) { return fft::rfftn(x); })},
      {"irfft", to_real([](const Complex& z) { return fft::irfft(z); })},
      {"irfft of 9", to_real([](const Complex& z) { return fft::irfft(z, 9, 0); })},
      {"irfftn", to_real([](const Complex& z) { return fft::irfftn(z); })},
      {"hfft", to_real([](const Complex& z) { return fft::hfft(z, {}, -1, Norm::ortho); })},
      {"ihfft", only_real([](const Array& x) { return fft::ihfft(x, {}, 0); })},
      {"fftshift", [](const Complex& z) { return fft::fftshift(z); }},
  };
  const Shape shape{4, 6};
  const Complex x = numbers(shape, t);
  for (const auto& [name, f] : functions) {
    const Complex y = f(x), weights = numbers(y.shape(), t);
    const auto product = [](const Complex& a, const Complex& b) { return sum(a.real * b.real) + sum(a.imag * b.imag); };
    const Complex adjoint = grad([&](const Complex& z) { return product(f(z), weights); })(x);
    const double forward = numbers_of(product(y, weights))[0], backward = numbers_of(product(x, adjoint))[0];
    const double size = std::sqrt(numbers_of(product(y, y))[0] * numbers_of(product(weights, weights))[0]);
    EXPECT_LE(std::abs(forward - backward), 10 * allowed(t, 24) * size) << name;
    // One element by central differences. The function is linear, so the step can be large.
    std::vector<double> unit(24);
    unit[7] = 1;
    const Array step = Array::from(std::vector<float>(unit.begin(), unit.end()), shape).astype(t);
    const auto at = [&](double by) { return numbers_of(product(f(Complex{x.real + by * step, x.imag}), weights))[0]; };
    EXPECT_NEAR(numbers_of(adjoint.real)[7], at(0.5) - at(-0.5), 20 * allowed(t, 24) * (1 + size)) << name;
  }
  // The gradient can be differentiated again.
  const auto energy = [](const Complex& z) { return sum(abs(fft::fft(z)) * abs(fft::fft(z)) * z.real); };
  const auto slope = [&](const Complex& z) { return sum(grad(energy)(z).imag); };
  const Complex second = grad(slope)(x);
  const double h = t == DType::f64 ? 1e-3 : 1e-2;
  std::vector<float> unit(24);
  unit[5] = 1;
  const Array step = Array::from(unit, shape).astype(t);
  const double difference =
      (numbers_of(slope({x.real, x.imag + h * step}))[0] - numbers_of(slope({x.real, x.imag - h * step}))[0]) / (2 * h);
  EXPECT_NEAR(numbers_of(second.imag)[5], difference, (t == DType::f64 ? 1e-6 : 2e-2) * (1 + std::abs(difference)));
}

TEST_P(Fft, RejectsInvalidArguments) {
  const Complex x = Complex(Array::ones({2, 4}));
  expect_throw<ArgumentError>([&] { fft::fft(x, 0); }, {"fft::fft", "less than 1", "0"});
  expect_throw<ArgumentError>([&] { fft::fft(x, -3); }, {"fft::fft", "-3"});
  expect_throw<ArgumentError>([&] { fft::fft(Array::zeros({2, 0})); }, {"less than 1"});
  expect_throw<ArgumentError>([&] { fft::irfft(Array::ones({1})); }, {"fft::irfft", "less than 1"});
  expect_throw<ArgumentError>([&] { fft::fftn(x, {}, {1, -1}); }, {"fft::fftn", "repeated", "1"});
  expect_throw<ShapeError>([&] { fft::fft(x, {}, 2); }, {"fft::fft", "2"});
  expect_throw<ShapeError>([&] { fft::fft(Array::ones({})); }, {"fft::fft"});
  expect_throw<ShapeError>([&] { fft::fftn(Array::ones({})); }, {"fft::fftn", "no axis"});
  expect_throw<ShapeError>([&] { fft::fftn(x, Shape{2}, {0, 1}); }, {"fft::fftn", "sizes"});
  expect_throw<DtypeError>([&] { fft::rfft(Array::arange(4, 0, 1, DType::i32)); }, {"fft::rfft", "i32", "astype"});
  expect_throw<DtypeError>([&] { fft::fft(Array::ones({4}, DType::f16)); }, {"fft::fft", "f16"});
  expect_throw<ArgumentError>([&] { fft::hfft(Array::ones({1})); }, {"fft::hfft", "less than 1"});
  expect_throw<DtypeError>([&] { fft::ihfft(Array::ones({4}, DType::i32)); }, {"fft::ihfft", "i32"});
  expect_throw<ArgumentError>([&] { fft::fftfreq(0); }, {"fft::fftfreq"});
  expect_throw<ArgumentError>([&] { fft::rfftfreq(4, 0); }, {"fft::rfftfreq", "spacing"});
}

TEST_P(Fft, ComplexArithmeticMatchesTheStandardLibrary) {
  using C = std::complex<float>;
  std::vector<C> a, b;
  for (int i = 0; i < 12; ++i)
    a.emplace_back(numbers_of(reals({}, DType::f32))[0], i - 6), b.emplace_back(i + 1, 2 - i);
  b[3] = {1e30f, 1e30f}, a[3] = {1e30f, 0};
  const Complex x = Complex::from(a, Shape{3, 4}), y = Complex::from(b, Shape{3, 4});
  const Array r = Array::arange(4, 1);
  const auto same = [&](const Complex& got, auto want) {
    EXPECT_EQ(got.shape(), Shape({3, 4}));
    const std::vector<C> all = got.to_vector<C>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::complex<double> w =
          want(std::complex<double>(a[i]), std::complex<double>(b[i]), 1.0 + static_cast<double>(i % 4));
      if (std::abs(w) >= 1e37) continue;
      EXPECT_LE(std::abs(std::complex<double>(all[i]) - w), 4e-6 * (1e-30 + std::abs(w))) << i;
    }
  };
  same(x + y, [](auto p, auto q, double) { return p + q; });
  same(x - y, [](auto p, auto q, double) { return p - q; });
  same(x * y, [](auto p, auto q, double) { return p * q; });
  same(x / y, [](auto p, auto q, double) { return p / q; });
  same(x + r, [](auto p, auto, double s) { return p + s; });
  same(r - x, [](auto p, auto, double s) { return s - p; });
  same(x * r, [](auto p, auto, double s) { return p * s; });
  same(r * x, [](auto p, auto, double s) { return p * s; });
  same(x / r, [](auto p, auto, double s) { return p / s; });
  same(r / y, [](auto, auto q, double s) { return s / q; });
  same(2 * x - 1, [](auto p, auto, double) { return 2. * p - 1.; });
  same(x * C(0, 1), [](auto p, auto, double) { return p * std::complex<double>(0, 1); });
  same(C(3, 4) / y, [](auto, auto q, double) { return std::complex<double>(3, 4) / q; });
  same(-conj(x), [](auto p, auto, double) { return -std::conj(p); });
  same(exp(y / 1e30f * x / x), [](auto, auto q, double) { return std::exp(q / 1e30); });
  same(log(y), [](auto, auto q, double) { return std::log(q); });
  same(Complex(abs(y), angle(y)), [](auto, auto q, double) { return std::complex<double>(std::abs(q), std::arg(q)); });
  same(sqrt(y), [](auto, auto q, double) { return std::sqrt(q); });
  same(sqrt(-conj(y)), [](auto, auto q, double) { return std::sqrt(-std::conj(q)); });
  same(pow(x, 3), [](auto p, auto, double) { return p * p * p; });
  same(pow(y, -2), [](auto, auto q, double) { return 1. / q / q; });
  const Array rows = r.broadcast_to({3, 4});
  same(pow(rows, C(0.5f, 1) * Complex(rows)),
       [](auto, auto, double s) { return std::pow(s, std::complex(0.5, 1.) * s); });
  same(pow(C(0, 1), Complex(rows)), [](auto, auto, double s) { return std::pow(std::complex<double>(0, 1), s); });
  const Complex zero(Array::zeros({3, 4})), exponents(Array::arange(12, -1).reshape({3, 4}));
  const auto powers = pow(zero, exponents).to_vector<C>();
  EXPECT_TRUE(std::isnan(powers[0].real()) && std::isnan(powers[0].imag()));
  EXPECT_EQ(powers[1], C(1));
  EXPECT_EQ(powers[2], C(0));
  EXPECT_EQ(sqrt(Complex::from(std::vector<C>{{0, 0}, {4, 0}, {-4, 0}, {-4, -0.f}, {0, 2}})).to_vector<C>(),
            (std::vector<C>{{0, 0}, {2, 0}, {0, 2}, {0, -2}, {1, 1}}));
  const Complex changed{x.real, where(Array::arange(12).reshape({3, 4}) == 5, 100, x.imag)};
  std::vector<bool> five(12, true);
  five[5] = false;
  EXPECT_EQ((x == changed).to_vector<bool>(), five);
  five.flip();
  EXPECT_EQ((x != changed).to_vector<bool>(), five);
  EXPECT_EQ((Complex(r) == r).to_vector<bool>(), std::vector<bool>(4, true));
  EXPECT_EQ((2 == Complex(r)).to_vector<bool>(), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ((Complex(r) != C(2, 1)).to_vector<bool>(), std::vector<bool>(4, true));
  EXPECT_EQ(to_string(Complex::from(std::vector<C>{{1, -2}, {0.5f, 10}}, Shape{2, 1})),
            "array([[   1-2j],\n       [0.5+10j]], complex64, " + to_string(GetParam()) + ")");
  EXPECT_EQ(to_string(Complex(Array::zeros({0}, DType::f32))),
            "array([], shape=(0,), complex64, " + to_string(GetParam()) + ")");
  const Complex row{x.real.select(0, 0), x.imag.select(0, 0)};
  EXPECT_EQ((x.real.unsqueeze(0) * row).shape(), Shape({1, 3, 4}));
  EXPECT_EQ(Complex(r).to_vector<C>(), (std::vector<C>{1, 2, 3, 4}));
  EXPECT_EQ((Complex(r) + Complex::from(std::vector<C>{{0, 1}})).to_vector<C>(),
            (std::vector<C>{{1, 1}, {2, 1}, {3, 1}, {4, 1}}));
  std::string paths;
  for_each_array(x, [&](const Array&, const Path& path) { paths += path.text() + " "; });
  EXPECT_EQ(paths, "real imag ");
  EXPECT_EQ(map_arrays(x, [](const Array& p) { return p.transpose(); }).shape(), Shape({4, 3}));
  expect_throw<ShapeError>([&] { Complex(r, Array::ones({3})); }, {"Complex", "(4,)", "(3,)"});
  expect_throw<DtypeError>([&] { Complex(r, Array::ones({4}, DType::f16)); }, {"Complex", "f16"});
  expect_throw<DtypeError>([&] { Complex(Array::ones({4}, DType::i32)); }, {"Complex", "i32", "astype"});
  expect_throw<DtypeError>([&] { x.to_vector<std::complex<double>>(); }, {"f32"});
}

INSTANTIATE_TEST_SUITE_P(Devices, Fft, ::testing::ValuesIn(testing::all_devices()), [](const auto& info) {
  return std::string(backend_name(info.param.backend)) + std::to_string(info.param.index);
});

}  // namespace
}  // namespace tessera
