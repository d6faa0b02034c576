// SPDX-License-Identifier: Apache-2.0
// Internal to fft/. Transforms of contiguous arrays without history.
#pragma once

#include "tessera/array/axis_layout.h"
#include "tessera/fft/complex.h"

namespace tessera::fft {

enum class Direction : std::uint8_t { forward, inverse };

/// The transform along an axis: sums of x[j] exp(-+2 pi i j k / n), times `scale`. The parts of x are f32 or f64, and
/// the extent n is at least 1.
Complex transform(const Complex& x, int axis, Direction direction, double scale);
/// The first n / 2 + 1 elements of the forward transform of n real numbers along an axis, times `scale`.
Complex transform_real(const Array& x, int axis, double scale);
/// The inverse transform of the spectrum of n real numbers along an axis, times `scale`. The spectrum has n / 2 +
/// 1 elements. The imaginary parts of the first, and for even n of the last one, are not used.
Array inverse_to_real(const Complex& x, int axis, std::int64_t n, double scale);

}  // namespace tessera::fft
