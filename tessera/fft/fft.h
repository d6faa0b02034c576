// SPDX-License-Identifier: Apache-2.0
// Discrete Fourier transforms, with the names and conventions of the Python array API standard's `fft`
// (https://data-apis.org/array-api/latest/extensions/fourier_transform_functions.html) and numpy.fft. They apply to one
// or several axes, for all indices of the other axes, and run on the array's device. An Array converts to a Complex.
//
// Arrays are f32 or f64. The root mean square of the error, divided by that of the result, is a small multiple of
// epsilon sqrt(log2(n)). Lengths whose prime factors are at most 13 are fastest; other lengths use Bluestein's
// algorithm and take about five times as long. The first transform of a length compiles a kernel.
//
// All functions throw DtypeError for other dtypes, ShapeError if an axis does not exist, and ArgumentError if a length
// is less than 1 or if an axis is repeated. They are differentiable.
#pragma once

#include "tessera/fft/complex.h"

namespace tessera::fft {

/// Which transforms are divided by what, where n is the length (or the product of lengths).
enum class Norm : std::uint8_t {
  backward,  ///< inverse transforms by n
  ortho,     ///< both by sqrt(n)
  forward,   ///< forward transforms by n
};

/// The sums of x[j] exp(-2 pi i j k / n) along an axis. If `n` is given, the axis is first cut, or padded with zeros at
/// its end.
Complex fft(const Complex& x, std::optional<std::int64_t> n = {}, int axis = -1, Norm norm = Norm::backward);
/// The inverse of fft: the sums of x[j] exp(2 pi i j k / n), divided by n.
Complex ifft(const Complex& x, std::optional<std::int64_t> n = {}, int axis = -1, Norm norm = Norm::backward);
/// The first n / 2 + 1 elements of the transform of real numbers; the others are their conjugates. Takes half the time.
Complex rfft(const Array& x, std::optional<std::int64_t> n = {}, int axis = -1, Norm norm = Norm::backward);
/// The inverse of rfft: n real numbers (by default 2 (m - 1), where m is the extent of the axis). The imaginary parts
/// of the first element, and for even n of the last one, are not used.
Array irfft(const Complex& x, std::optional<std::int64_t> n = {}, int axis = -1, Norm norm = Norm::backward);

/// The transform of a spectrum that is the conjugate of its mirror image: n real numbers (by default 2 (m - 1), where m
/// is the extent of the axis). `x` has the elements 0 to n / 2. Equals irfft of the conjugate without its division.
Array hfft(const Complex& x, std::optional<std::int64_t> n = {}, int axis = -1, Norm norm = Norm::backward);
/// The inverse of hfft: the conjugate of rfft(x), divided by n.
Complex ihfft(const Array& x, std::optional<std::int64_t> n = {}, int axis = -1, Norm norm = Norm::backward);

/// The transform along several axes (all if empty). `sizes` are the lengths along these axes.
Complex fftn(const Complex& x, const std::optional<Shape>& sizes = {}, std::vector<int> axes = {},
             Norm norm = Norm::backward);
/// The inverse of fftn.
Complex ifftn(const Complex& x, const std::optional<Shape>& sizes = {}, std::vector<int> axes = {},
              Norm norm = Norm::backward);
/// rfft along the last of the axes, then fft along the others.
Complex rfftn(const Array& x, const std::optional<Shape>& sizes = {}, std::vector<int> axes = {},
              Norm norm = Norm::backward);
/// The inverse of rfftn. `sizes` are those of the result.
Array irfftn(const Complex& x, const std::optional<Shape>& sizes = {}, std::vector<int> axes = {},
             Norm norm = Norm::backward);
/// fftn along the last two axes.
Complex fft2(const Complex& x, const std::optional<Shape>& sizes = {}, std::vector<int> axes = {-2, -1},
             Norm norm = Norm::backward);
/// The inverse of fft2.
Complex ifft2(const Complex& x, const std::optional<Shape>& sizes = {}, std::vector<int> axes = {-2, -1},
              Norm norm = Norm::backward);

/// Moves the frequency 0 of a spectrum to the middle of these axes (all if empty).
Array fftshift(const Array& x, std::vector<int> axes = {});
Complex fftshift(const Complex& x, std::vector<int> axes = {});
/// The inverse of fftshift.
Array ifftshift(const Array& x, std::vector<int> axes = {});
Complex ifftshift(const Complex& x, std::vector<int> axes = {});
/// The frequencies of the elements of fft, in cycles per unit of `spacing`, the distance of two samples: 0, 1, ...,
/// -2, -1, divided by n * spacing.
Array fftfreq(std::int64_t n, double spacing = 1, DType dtype = DType::f32, std::optional<Device> device = {});
/// The frequencies of the elements of rfft: 0, 1, ..., n / 2, divided by n * spacing.
Array rfftfreq(std::int64_t n, double spacing = 1, DType dtype = DType::f32, std::optional<Device> device = {});

}  // namespace tessera::fft
