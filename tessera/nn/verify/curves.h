// SPDX-License-Identifier: Apache-2.0
// Activations as functions of real numbers: their ranges, their linear bounds, and the error of a device. Internal.
#pragma once

#include <cstdint>

namespace tessera::verification {

struct Interval {
  double lo = 0, hi = 0;
};

enum class CurveKind : std::uint8_t { relu, leaky, tanh, sigmoid, silu, gelu };
struct Curve {
  CurveKind kind = CurveKind::relu;
  double slope = 0;  ///< slope of `leaky` below 0; the value of a float
};

double value(Curve curve, double x);
/// Returns the range of the function over [lo, hi], rounded outward.
Interval range(Curve curve, Interval x);
/// Linear bounds of f: below_slope x + below <= f(x) <= above_slope x + above for all x in a finite interval. The area
/// between the two lines is small.
struct Lines {
  double below_slope = 0, below = 0, above_slope = 0, above = 0;
};
Lines lines(Curve curve, Interval x);
/// Returns true if f is linear on the interval. Both lines are then equal.
bool is_linear(Curve curve, Interval x);

// Devices compute in f32. These are the errors of the least accurate device in the table of docs/kernels.md, so a proof
// holds for all devices. They are 3 ulp for exp and division (2.5 for division in OpenCL), 5 ulp for tanh, and 16 ulp
// for erf. Results and operands below the smallest normal number may be flushed to 0.
inline constexpr double unit32 = 0x1p-24;       ///< half an ulp of f32, as a relative error
inline constexpr double ulp32 = 0x1p-23;        ///< upper bound of one ulp, as a relative error
inline constexpr double smallest32 = 0x1p-126;  ///< the smallest normal number
inline constexpr double largest32 = 0x1.fffffep127;
inline constexpr double exp_ulp = 3, tanh_ulp = 5, erf_ulp = 16, divide_ulp = 3, rsqrt_ulp = 4;
/// Returns the error bound of n roundings in any order: Higham's gamma_n = n u / (1 - n u) ("Accuracy and Stability of
/// Numerical Algorithms", 2002, 3.1).
double gamma32(std::int64_t n);
/// Returns an upper bound of the difference between a device's result and f(x), for all x in the interval.
double device_error(Curve curve, Interval x);

}  // namespace tessera::verification
