// SPDX-License-Identifier: Apache-2.0
// Activations as functions of real numbers: their ranges, lines below and above them, and how far from them a device
// may be. Internal.
#pragma once

#include <cstdint>

namespace tessera::verification {

struct Interval {
  double lo = 0, hi = 0;
};

enum class CurveKind : std::uint8_t { relu, leaky, tanh, sigmoid, silu, gelu };
struct Curve {
  CurveKind kind = CurveKind::relu;
  double slope = 0;  ///< of leaky, for what is below 0: a float's value
};

double value(Curve curve, double x);
/// All values over [lo, hi], rounded outward.
Interval range(Curve curve, Interval x);
/// below_slope x + below <= f(x) <= above_slope x + above for all x in the interval (finite), of small area.
struct Lines {
  double below_slope = 0, below = 0, above_slope = 0, above = 0;
};
Lines lines(Curve curve, Interval x);
/// Is f linear there, so that its lines meet?
bool is_linear(Curve curve, Interval x);

// What devices compute is f32. Errors are those of the least exact device in the table of docs/kernels.md, so a proof
// holds for all of them: exp 3, tanh 5, erf 16 units in the last place, division 3 (OpenCL has 2.5); results and
// operands below the smallest normal may be flushed to 0.
inline constexpr double unit32 = 0x1p-24;       ///< half a unit in the last place of f32, relative
inline constexpr double ulp32 = 0x1p-23;        ///< at most one unit in the last place, relative
inline constexpr double smallest32 = 0x1p-126;  ///< the smallest normal
inline constexpr double largest32 = 0x1.fffffep127;
inline constexpr double exp_ulp = 3, tanh_ulp = 5, erf_ulp = 16, divide_ulp = 3, rsqrt_ulp = 4;
/// Higham's gamma_n = n u / (1 - n u) ("Accuracy and Stability of Numerical Algorithms", 2002, 3.1): what n roundings
/// come to, in any order.
double gamma32(std::int64_t n);
/// What a device gives for f(x) differs by at most this from the number, for x in the interval.
double device_error(Curve curve, Interval x);

}  // namespace tessera::verification
