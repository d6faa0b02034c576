// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tessera::verification {

namespace {

/// Bound of the relative and absolute error of functions on the host, including the arithmetic around them: a few f64
/// ulps.
constexpr double host = 1e-14;

/// The largest |f''|: 4 / (3 sqrt 3) for tanh, 1 / (6 sqrt 3) for sigmoid, 1/2 for silu (at 0), and sqrt(2 / pi) for
/// gelu (at 0).
double bend(CurveKind kind) {
  switch (kind) {
    case CurveKind::tanh: return 0.77;
    case CurveKind::sigmoid: return 0.0963;
    case CurveKind::silu: return 0.5001;
    default: return 0.7979;
  }
}
/// The position of the minimum of silu and gelu.
double turn(CurveKind kind) { return kind == CurveKind::silu ? -1.2784645427610738 : -0.7517915246935645; }
bool piecewise(CurveKind kind) { return kind == CurveKind::relu || kind == CurveKind::leaky; }

Lines lines_of_pieces(Curve c, Interval x) {
  const double left = c.kind == CurveKind::relu ? 0 : c.slope;
  if (x.lo >= 0) return {1, 0, 1, 0};
  if (x.hi <= 0) return {left, 0, left, 0};
  // The interval contains both pieces. f is convex, or concave if the left piece is steeper. The chord is the bound on
  // one side. On the other side, any slope between the slopes of the pieces is a valid bound.
  const double chord = (x.hi - left * x.lo) / (x.hi - x.lo);
  const double near = x.hi > -x.lo ? 1 : left;
  const double slack = host * (std::abs(left * x.lo) + x.hi + std::abs(chord) * (x.hi - x.lo));
  const double at_low = left * x.lo - chord * x.lo, at_high = x.hi - chord * x.hi;
  if (left <= 1) return {near, 0, chord, std::max(at_low, at_high) + slack};
  return {chord, std::min(at_low, at_high) - slack, near, 0};
}

}  // namespace

double value(Curve c, double x) {
  switch (c.kind) {
    case CurveKind::relu: return x > 0 ? x : 0;
    case CurveKind::leaky: return x > 0 ? x : c.slope * x;
    case CurveKind::tanh: return std::tanh(x);
    case CurveKind::sigmoid: return 1 / (1 + std::exp(-x));
    case CurveKind::silu: return x / (1 + std::exp(-x));
    default: return 0.5 * x * std::erfc(-x * 0.70710678118654752440);
  }
}

Interval range(Curve c, Interval x) {
  const double a = value(c, x.lo), b = value(c, x.hi);
  if (c.kind == CurveKind::relu) return {a, b};
  Interval out{std::min(a, b), std::max(a, b)};
  if (c.kind == CurveKind::leaky && x.lo < 0 && x.hi > 0) out.lo = std::min(out.lo, 0.0);
  if (c.kind == CurveKind::silu || c.kind == CurveKind::gelu) {
    const double t = turn(c.kind);
    if (x.lo < t && x.hi > t) out.lo = value(c, t);
  }
  const double slack = host * (1 + std::max(std::abs(a), std::abs(b)));
  out.lo -= slack, out.hi += slack;
  // Rounding cannot leave the range of the function.
  if (c.kind == CurveKind::tanh) out = {std::max(out.lo, -1.0), std::min(out.hi, 1.0)};
  if (c.kind == CurveKind::sigmoid) out = {std::max(out.lo, 0.0), std::min(out.hi, 1.0)};
  return out;
}

bool is_linear(Curve c, Interval x) { return piecewise(c.kind) && (x.lo >= 0 || x.hi <= 0); }

Lines lines(Curve c, Interval x) {
  if (piecewise(c.kind)) return lines_of_pieces(c, x);
  constexpr int pieces = 64;
  const double width = x.hi - x.lo, far = std::max(std::abs(x.lo), std::abs(x.hi));
  if (width <= 1e-9 * (1 + far)) {
    const Interval flat = range(c, x);
    return {0, flat.lo, 0, flat.hi};
  }
  // Between two neighbouring grid points, f(x) - slope x differs from its chord by at most bend h^2 / 8, for any slope.
  // Its extremes on the grid, widened by this amount, are therefore bounds.
  std::array<double, pieces + 1> at, f;
  for (int i = 0; i <= pieces; ++i) at[i] = i == pieces ? x.hi : x.lo + width * i / pieces, f[i] = value(c, at[i]);
  const double h = width / pieces * (1 + 1e-6), slack = bend(c.kind) * h * h / 8 + host * (1 + far) * 4;
  const Interval all = range(c, x);
  Lines best{0, all.lo, 0, all.hi};
  double below_best = all.lo, above_best = all.hi;
  const double middle = x.lo + width / 2;
  const auto offer = [&](double slope) {
    double low = f[0] - slope * at[0], high = low;
    for (int i = 1; i <= pieces; ++i) {
      const double g = f[i] - slope * at[i];
      low = std::min(low, g), high = std::max(high, g);
    }
    low -= slack, high += slack;
    if (low + slope * middle > below_best)
      below_best = low + slope * middle, best.below_slope = slope, best.below = low;
    if (high + slope * middle < above_best)
      above_best = high + slope * middle, best.above_slope = slope, best.above = high;
  };
  for (int i = 8; i <= pieces; i += 8) {
    offer((f[i] - f[0]) / (at[i] - at[0]));
    offer((f[pieces] - f[pieces - i]) / (at[pieces] - at[pieces - i]));
    offer((f[i] - f[i - 1]) / (at[i] - at[i - 1]));
  }
  offer((f[1] - f[0]) / (at[1] - at[0]));
  return best;
}

double gamma32(std::int64_t n) {
  const double nu = static_cast<double>(n) * unit32;
  return nu < 0.5 ? nu / (1 - nu) * (1 + 1e-12) : std::numeric_limits<double>::infinity();
}

double device_error(Curve c, Interval x) {
  const Interval y = range(c, x);
  const double most_x = std::max(std::abs(x.lo), std::abs(x.hi)), most_y = std::max(std::abs(y.lo), std::abs(y.hi));
  switch (c.kind) {
    case CurveKind::relu: return x.hi > 0 ? smallest32 : 0;  // exact, except for flushing to zero
    case CurveKind::leaky: return x.lo < 0 ? ulp32 * std::abs(c.slope * x.lo) + 2 * smallest32 : smallest32;
    case CurveKind::tanh: return (tanh_ulp + 0.5) * ulp32 * most_y + smallest32;
    // exp, an addition and a division. All of their errors are relative.
    case CurveKind::sigmoid: return (exp_ulp + 1 + divide_ulp + 1) * ulp32 * most_y + 2 * smallest32;
    // Like sigmoid. If exp(-x) overflows, the result is 0, and |f| is below 2^-121. The device may divide by computing
    // 1 / y, which may be flushed to zero; the error is then |x| 2^-126.
    case CurveKind::silu: return (exp_ulp + 1 + divide_ulp + 2) * ulp32 * most_y + 0x1p-120 + smallest32 * (2 + most_x);
    // Rounding the argument changes erf by less than an ulp. 1 + erf may cancel, so its error is absolute. It is
    // multiplied by |x| / 2.
    default: return (erf_ulp + 3) * ulp32 * 0.5 * most_x + ulp32 * most_y + smallest32 * (2 + most_x);
  }
}

}  // namespace tessera::verification
