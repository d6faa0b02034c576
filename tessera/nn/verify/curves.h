// SPDX-License-Identifier: Apache-2.0
// Activations as real functions: their ranges, linear bounds, and the error of a device. Internal.
#pragma once

#include <cstdint>

namespace tessera::verification {

struct Interval {
  double lo = 0, hi = 0;
};

enum class CurveKind : std::uint8_t { relu, leaky, tanh, sigmoid, silu, gelu };
struct Curve {
  CurveKind kind = CurveKind::relu;
  double slope = 0;  ///< of leaky, below 0: a float's value
};

double value(Curve curve, double x);
/// The range over [lo, hi], rounded outward.
Interval range(Curve curve, Interval x);
/// below_slope x + below <= f(x) <= above_slope x + above for all x in the (finite) interval, with a small area between
/// the lines.
struct Lines {
  double below_slope = 0, below = 0, above_slope = 0, above = 0;
};
Lines lines(Curve curve, Interval x);
/// Whether f is linear on the interval, so that both lines are equal.
bool is_linear(Curve curve, Interval x);

// Devices compute in f32. Errors are those of the least accurate device in the table of docs/kernels.md, so that a
// proof holds for all of them: exp 3, tanh 5, erf 16 ulp, division 3 (OpenCL has 2.5); results and operands below the
// smallest normal number may be flushed to 0.
inline constexpr double unit32 = 0x1p-24;       ///< half an ulp of f32, relative
inline constexpr double ulp32 = 0x1p-23;        ///< at most one ulp, relative
inline constexpr double smallest32 = 0x1p-126;  ///< the smallest normal number
inline constexpr double largest32 = 0x1.fffffep127;
inline constexpr double exp_ulp = 3, tanh_ulp = 5, erf_ulp = 16, divide_ulp = 3, rsqrt_ulp = 4;
/// Higham's gamma_n = n u / (1 - n u) ("Accuracy and Stability of Numerical Algorithms", 2002, 3.1): the error of n
/// roundings, in any order.
double gamma32(std::int64_t n);
/// Bound of the difference between a device's result and f(x), for x in the interval.
double device_error(Curve curve, Interval x);

}  // namespace tessera::verification
