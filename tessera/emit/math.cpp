// SPDX-License-Identifier: Apache-2.0
// The polynomials are weighted minimax fits (Lawson's iteration), computed for Tessera. Coefficients were rounded to
// float one after another, and the remaining ones were fitted again after each step. Comments contain the maximum
// relative error of each polynomial. If the exact value of a product matters, the code uses fma, or factors that are
// cut to 12 bits. A compiler may therefore contract a * b + c.
#include "tessera/emit/math.h"

#include <initializer_list>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/emit/expr.h"
#include "tessera/emit/inverse.h"
#include "tessera/emit/pow_cases.h"

namespace tessera::emit {

namespace {

using ir::MathOp;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Computes c0 + c1 x + c2 x^2 + ... with Horner's rule.
Expr polynomial(Expr x, std::initializer_list<double> c) {
  const double* k = c.end();
  Expr sum = x.like(*--k);
  while (k != c.begin()) sum = fma(sum, x, *--k);
  return sum;
}
/// Like polynomial(), but with half as many dependent steps. Computes all pairs c0 + c1 x independently, then uses
/// Horner's rule with x^2.
Expr polynomial_in_pairs(Expr x, std::initializer_list<double> c) {
  const auto pair = [&](std::size_t i) {
    const double* k = c.begin() + i;
    return i + 1 < c.size() ? fma(x, k[1], x.like(k[0])) : x.like(k[0]);
  };
  const Expr square = x * x;
  std::size_t i = (c.size() - 1) / 2 * 2;
  Expr sum = pair(i);
  while (i > 0) i -= 2, sum = fma(sum, square, pair(i));
  return sum;
}
Expr is_nan(Expr x) { return x != x; }
Expr to_float(Expr bits) { return bitcast(DType::f32, bits); }
Expr to_bits(Expr x) { return bitcast(DType::i32, x); }

/// Returns p * 2^n for n between -252 and 254. Multiplies by two factors, so that results below the smallest normal
/// number are rounded only once.
Expr scale(Expr p, Expr n) {
  const Expr half = n >> 1;
  return p * to_float((half + 127) << 23) * to_float((n - half + 127) << 23);
}

// e^r for |r| <= ln(2)/2, error 2^-28.
Expr exp_reduced(Expr r) {
  const Expr g = polynomial(r, {0x1.fffffcp-2f, 0x1.55548cp-3f, 0x1.5558b8p-5f, 0x1.123e5ap-7f, 0x1.6a4da6p-10f});
  return fma(r * r, g, r) + 1;
}
// e^x for x between about -104 and 89.
Expr exp_finite(Expr x) {
  const Expr n = math(MathOp::rint, x * 0x1.715476p+0f);
  const Expr r = fma(n, 0x1.05c610p-29f, fma(n, -0x1.62e430p-1f, x));  // ln 2 as the sum of two parts (Cody and Waite)
  return scale(exp_reduced(r), cast(DType::i32, n));
}
Expr exp(Expr x) { return select(is_nan(x), x, exp_finite(min(max(x, -104.0), 89.0))); }

// 2^r for |r| <= 1/2, error 2^-28.
Expr exp2_reduced(Expr r) {
  const Expr p = polynomial(r, {0x1.ebfbdcp-3f, 0x1.c6af72p-5f, 0x1.3b2ddap-7f, 0x1.5f0f74p-10f, 0x1.417a36p-13f});
  return fma(r, fma(r, p, 0x1.62e430p-1f), 1);
}
Expr exp2(Expr x) {
  const Expr y = min(max(x, -151.0), 129.0);
  const Expr n = math(MathOp::rint, y);
  return select(is_nan(x), x, scale(exp2_reduced(y - n), cast(DType::i32, n)));
}

/// The decomposition x = 2^exponent * (1 + f) of a positive finite x, with 1 + f between sqrt(1/2) and sqrt(2).
struct Split {
  Expr f, exponent;
};
Split split(Expr x) {
  const Expr small = x < 0x1p-126;
  const Expr bits = to_bits(select(small, x * 0x1p+24, x)) - 0x3f3504f3;  // bits of sqrt(1/2)
  const Expr mantissa = to_float((bits & 0x007fffff) + 0x3f3504f3);
  const Expr k = (bits >> 23) - select(small, bits.like(24), bits.like(0));
  return {mantissa - 1, cast(DType::f32, k)};
}
// log(1 + f) = f - f^2/2 + f^3 P(f). The error of P is 2^-30 relative to the result.
Expr log_tail(Expr f) {  // returns the sum without the leading f
  const Expr p = polynomial(f, {0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a482p-3f, -0x1.555c50p-3f, 0x1.233a0cp-3f,
                                -0x1.fc23e8p-4f, 0x1.e6d9aap-4f, -0x1.de33aep-4f, 0x1.147148p-4f});
  const Expr f2 = f * f;
  return fma(f2, -0.5, f2 * f * p);
}
Expr log_special(Expr x, Expr y) {
  y = select(x == 0, -infinity, y);
  y = select(x < 0, not_a_number, y);
  return select(x < infinity, y, select(x > 0, infinity, x));  // the last x is NaN
}
Expr log(Expr x) {
  const auto [f, k] = split(x);
  const Expr low = fma(k, -0x1.05c610p-29f, log_tail(f));
  return log_special(x, fma(k, 0x1.62e430p-1f, f + low));
}
Expr log10(Expr x) {  // like log2
  const auto [f, k] = split(x);
  const Expr high = to_float(to_bits(f * 0x1.bcb7b2p-2f) & -4096);
  const Expr low = fma(f, -0x1.5b235ep-27f, fma(f, 0x1.bcb7b2p-2f, -high));
  const Expr tail = fma(log_tail(f), 0x1.bcb7b2p-2f, low);
  // log10(2) is the sum of two parts. The first part has so few bits that its product with k is exact.
  return log_special(x, fma(k, 0x1.344000p-2f, high + fma(k, 0x1.3509f8p-18f, tail)));
}
Expr log2(Expr x) {
  const auto [f, k] = split(x);
  // Computes f / ln 2 with its rounding error, because it is almost the whole result if k is 0.
  const Expr high = to_float(to_bits(f * 0x1.715476p+0f) & -4096);
  const Expr low = fma(f, 0x1.4ae0c0p-26f, fma(f, 0x1.715476p+0f, -high));
  const Expr tail = fma(log_tail(f), 0x1.715476p+0f, low);
  return log_special(x, select(k == 0, high + tail, k + (high + tail)));
}

/// Computes sin x if `shift` is 0, and cos x if it is 1.
Expr sine(Expr x, int shift) {
  const Expr n = math(MathOp::rint, x * 0x1.45f306p-1f);
  Expr r = fma(n, -0x1.921fb6p+0f, x);  // pi/2 as the sum of three parts; exact if n is below 2^22
  r = fma(n, 0x1.777a5cp-25f, r);
  r = fma(n, 0x1.ee59dap-50f, r);
  const Expr in_range = abs(x) < 4e6;
  r = select(in_range, r, x.like(0.5));
  const Expr z = r * r;
  const Expr s = fma(r * z, polynomial(z, {-0x1.555556p-3f, 0x1.111172p-7f, -0x1.a0561cp-13f, 0x1.7b13f0p-19f}), r);
  const Expr half = z * -0.5;
  const Expr c =
      fma(z * z, polynomial(z, {0x1.555556p-5f, -0x1.6c1756p-10f, 0x1.a068c8p-16f, -0x1.33b0b4p-22f}), half) + 1;
  const Expr quadrant = cast(DType::i32, n) + shift;
  const Expr y = select((quadrant & 1) == 0, s, c);
  const Expr signed_y = select((quadrant & 2) == 0, y, -y);
  const Expr finite = select(abs(x) < infinity, signed_y, not_a_number);
  return shift == 0 ? select(x == 0, x, finite) : finite;  // sin preserves the sign of zero
}

/// Computes tan r or -1 / tan r, depending on the quadrant. The quotient is corrected for the rounding error of the sum
/// tan r = r + ...
Expr tan(Expr x) {
  const Expr n = math(MathOp::rint, x * 0x1.45f306p-1f);
  Expr r = fma(n, -0x1.921fb6p+0f, x);
  r = fma(n, 0x1.777a5cp-25f, r);
  r = fma(n, 0x1.ee59dap-50f, r);
  r = select(abs(x) < 4e6, r, x.like(0.5));
  const Expr z = r * r;
  const Expr p = polynomial(z, {0x1.555560p-2f, 0x1.110d9cp-3f, 0x1.bada50p-5f, 0x1.5cb9b4p-6f, 0x1.62f588p-7f,
                                0x1.7e7de8p-14f, 0x1.1ed08cp-8f});  // 2^-29.5
  const Expr tail = r * z * p, t = r + tail;
  const Expr rest = tail - (t - r), inverse = -1 / t;
  const Expr error = fma(inverse, rest, fma(inverse, t, 1));
  const Expr y = select((cast(DType::i32, n) & 1) == 0, t, fma(inverse, error, inverse));
  return select(x == 0, x, select(abs(x) < infinity, y, not_a_number));  // preserves the sign of zero
}

constexpr HalfPi half_pi = {0x1.921fb6p+0f, -0x1.777a5cp-25f};
// asin(s) - s for s between 0 and 1/2, error 2^-30.
Expr asin_tail(Expr s, Expr z) {
  return s * z *
         polynomial(z,
                    {0x1.55554cp-3f, 0x1.3338acp-4f, 0x1.6ca756p-5f, 0x1.04d102p-5f, 0x1.d60476p-7f, 0x1.33fb62p-5f});
}
// atan(q) for q between 0 and 1, error 2^-27.9.
Expr atan_unit(Expr q) {
  const Expr z = q * q;
  const Expr p = polynomial(z, {-0x1.55553ep-2f, 0x1.9991e4p-3f, -0x1.2420b0p-3f, 0x1.c091acp-4f, -0x1.58280ep-4f,
                                0x1.dad594p-5f, -0x1.ff6a22p-6f, 0x1.66e38ap-7f, -0x1.d985dep-10f});
  return fma(q * z, p, q);
}

// e^x / 2 for x between 0 and 90. It is finite if sinh and cosh are finite.
Expr half_exp(Expr x) {
  const Expr n = math(MathOp::rint, x * 0x1.715476p+0f);
  const Expr r = fma(n, 0x1.05c610p-29f, fma(n, -0x1.62e430p-1f, x));
  return scale(exp_reduced(r), cast(DType::i32, n) - 1);
}
Expr cosh(Expr x) {
  const Expr h = half_exp(min(abs(x), 90.0));
  return select(is_nan(x), x, h + 0.25 / h);
}
Expr sinh(Expr x) {
  const Expr a = abs(x), z = x * x;
  const Expr p = polynomial(z, {0x1.555556p-3f, 0x1.1110e0p-7f, 0x1.a022bcp-13f, 0x1.756c1ep-19f});
  const Expr small = select(x == 0, x, fma(x * z, p, x));  // |x| < 1, error 2^-31.6; preserves the sign of zero
  const Expr h = half_exp(min(a, 90.0));
  return select(a < 1, small, select(is_nan(x), x, with_sign_of(h - 0.25 / h, x)));
}

Expr tanh(Expr x) {
  const Expr a = abs(x);
  const Expr z = x * x;
  const Expr p = polynomial(
      z, {-0x1.555554p-2f, 0x1.11107ap-3f, -0x1.b9f188p-5f, 0x1.63a550p-6f, -0x1.0c5ed0p-7f, 0x1.1a2816p-9f});
  const Expr small = select(x == 0, x, fma(x * z, p, x));  // |x| < 0.625, error 2^-32; preserves the sign of zero
  const Expr y = min(a, 10.0);
  const Expr large = 1 - 2 / (exp_finite(y + y) + 1);
  return select(a < 0.625, small, select(is_nan(x), x, with_sign_of(large, x)));
}

Expr erf(Expr x) {
  const Expr a = abs(x);
  const Expr z = x * x;
  const Expr p = polynomial(z, {0x1.06eba8p-3f, -0x1.812740p-2f, 0x1.ce2d64p-4f, -0x1.b80124p-6f, 0x1.544b08p-8f,
                                -0x1.a61810p-11f, 0x1.4fa924p-14f});
  const Expr small = fma(x, p, x);  // |x| < 0.93, error 2^-30
  // For larger |x|, computes 1 - e^-q, where q(x) = -log(1 - erf(x)) was fitted between 0.93 and 4. For larger
  // arguments, the nearest float is 1.
  const Expr q = polynomial(min(a, 4.0), {-0x1.73e562p-13f, 0x1.2128bap+0f, 0x1.4442a8p-1f, 0x1.bba1e0p-4f,
                                          -0x1.9bdc82p-6f, 0x1.11d234p-8f, -0x1.c91f02p-12f, 0x1.6416ecp-16f});
  const Expr large = 1 - exp_finite(-q);
  return select(a < 0.93, small, select(is_nan(x), x, with_sign_of(large, x)));
}

/// A number, represented as the unevaluated sum of two floats.
struct Pair {
  Expr high, low;
};
Expr cut(Expr x) { return to_float(to_bits(x) & -4096); }  // keeps 12 bits; the mask prevents contraction
Pair product(Expr x, Expr y) {
  const Expr high = cut(x * y);
  return {high, fma(x, y, -high)};
}
Pair sum(Expr large, Expr small) {  // requires |large| >= |small|; the caller has cut `large`
  const Expr high = large + small;
  return {high, small - (high - large)};
}

// |x|^y = 2^(y log2 |x|). The logarithm has an error of about 2^-33. It is computed as log(1 + f) = 2 atanh(s) with s =
// f / (2 + f).
Expr pow(Expr x, Expr y) {
  const Expr a = abs(x);
  const auto [f, k] = split(a);
  const Expr divisor = f + 2;
  const Expr s_high = cut(f / divisor);
  const Expr divisor_low = f - (divisor - 2);
  const Expr s_low = (fma(-s_high, divisor, f) - s_high * divisor_low) / divisor;
  const Expr s = s_high + s_low;
  const Expr z = s * s;
  // s^3 * 2/3 is computed as a pair, and the remaining terms as one number.
  const Pair z2 = product(s_high, s_high);
  const Expr z_low = fma(s_low, s_low, fma(s_high + s_high, s_low, z2.low));
  const Pair cube = product(z2.high, s_high);
  const Expr cube_low = fma(z_low, s_low, fma(z2.high, s_low, fma(z_low, s_high, cube.low)));
  const Expr rest = z * z * s * polynomial(z, {0x1.999a04p-2f, 0x1.2450d2p-2f, 0x1.dff4dap-3f});
  const Pair third = product(cube.high, x.like(0x1.555556p-1f));
  const Expr third_low = fma(cube_low, 0x1.555556p-1f, fma(cube.high, -0x1.555556p-26f, third.low)) + rest;
  // log(1 + f) = 2 s + third, as a pair. The high part has few bits.
  const Expr two_s = s_high + s_high;
  const Expr log_high = cut(two_s + third.high);
  const Expr log_low = ((two_s - log_high) + third.high) + (third_low + (s_low + s_low));
  // log2 |x| = k + log(1 + f) / ln 2.
  const Pair scaled = product(log_high, x.like(0x1.715476p+0f));
  const Expr scaled_low = fma(log_high, 0x1.4ae0c0p-26f, fma(log_low, 0x1.715476p+0f, scaled.low));
  const Pair log2_sum = sum(k, scaled.high);
  const Expr l_high = select(k == 0, scaled.high, log2_sum.high);
  const Expr l_low = select(k == 0, scaled_low, log2_sum.low + scaled_low);
  // Multiplies by y. Beyond these limits, the result is 0 or infinite.
  const Expr y_bounded = min(max(y, -0x1p+40), 0x1p+40);
  const Expr whole = (l_high + l_low) * y_bounded;
  const Expr bounded = min(max(whole, -160.0), 160.0);
  const Expr n = math(MathOp::rint, bounded);
  const Expr within = abs(whole) < 160;
  const Expr r = fma(l_low, y_bounded, fma(l_high, y_bounded, -n));
  const Expr result = scale(exp2_reduced(select(within, r, x.like(0))), cast(DType::i32, n));

  return pow_cases(x, y, a, result);
}

// pow in f64, which is precise enough without pairs. The relative error is 2^-33 for log2 and 2^-29 for 2^r. The result
// is rounded to f32 only once, even below the smallest normal number.
Expr pow_in_f64(Expr x, Expr y) {
  const Expr a = abs(x);
  const Expr finite = a < infinity;
  const auto [f, k] = split(a);
  const Expr exponent = select(finite, select(a == 0, -infinity, k), a);  // log2 of 0, infinity and NaN
  const Expr t = cast(DType::f64, f);
  const Expr p = polynomial_in_pairs(
      t, {0x1.71547652ef982p+0, -0x1.7154767bae769p-1, 0x1.ec709c00e1d69p-2, -0x1.715435ebab162p-2,
          0x1.277732d107c02p-2, -0x1.ec8d73dc9269ep-3, 0x1.a615cb085469ep-3, -0x1.6eb02a1bc233dp-3,
          0x1.45a2937a40f27p-3, -0x1.417ff0e5777bdp-3, 0x1.3d25fe1d99aefp-3, -0x1.61ac61b96d9fap-4});
  const Expr whole = fma(t, p, cast(DType::f64, exponent)) * cast(DType::f64, y);
  // Clamps the exponent to limits that f64 can represent and f32 cannot. NaN is preserved.
  const Expr low = select(whole < -1000, -1000, whole), bounded = select(low > 1000, 1000, low);
  const Expr shifted = bounded + 0x1.8p52;  // the low bits contain the nearest integer
  const Expr r = bounded - (shifted - 0x1.8p52);
  const Expr power =
      polynomial_in_pairs(r, {0x1.0000000261260p+0, 0x1.62e430c7ead5ap-1, 0x1.ebfbdadce29bap-3, 0x1.c6aed4b79ff45p-5,
                              0x1.3b2dbba7b7d0ap-7, 0x1.5f456b3682da9p-10, 0x1.41d341bbeff5dp-13});
  const Expr scaled = bitcast(DType::i64, power) + (bitcast(DType::i64, shifted) << 52);
  const Expr y_whole = math(MathOp::trunc, y) == y;  // true for infinities, which are treated as even
  const Expr half = y * 0.5;
  const Expr y_infinite = abs(y) == infinity;
  const Expr y_odd = y_whole & (math(MathOp::trunc, half) != half) & !y_infinite;
  const Expr bits = to_bits(cast(DType::f32, bitcast(DType::f64, scaled)));
  const Expr sign = to_bits(x) & select(y_odd, bits.like(-0x1p+31), bits.like(0));
  const Expr result = select((x < 0) & finite & !y_whole, not_a_number, to_float(bits ^ sign));
  return select((y == 0) | (x == 1) | ((x == -1) & y_infinite), 1, result);
}

}  // namespace

MathBound math_bound(MathOp op) {
  constexpr double most = std::numeric_limits<float>::max();
  switch (op) {
    case MathOp::exp2:
    case MathOp::log10:
    case MathOp::log: return {1, -most, most};
    case MathOp::exp: return {1.1, -most, most};
    case MathOp::asin:
    case MathOp::acos:
    case MathOp::hypot:
    case MathOp::log2:
    case MathOp::erf: return {1.25, -most, most};
    case MathOp::tanh: return {1.5, -most, most};
    case MathOp::sin:
    case MathOp::cos: return {1.75, -1e5, 1e5};
    case MathOp::tan: return {2, -1e5, 1e5};
    case MathOp::sinh:
    case MathOp::atan2: return {1.75, -most, most};
    default: return {1.5, -most, most};
  }
}

bool expands(MathOp op) { return op >= MathOp::exp; }
bool always_expands(MathOp op) { return op > MathOp::pow; }

ir::NodeId expand_math(ir::Builder& b, MathOp op, ir::NodeId x_id, ir::NodeId y_id, bool fast_f64) {
  const Expr x{&b, x_id}, y{&b, y_id};
  switch (op) {
    case MathOp::exp: return exp(x).id;
    case MathOp::exp2: return exp2(x).id;
    case MathOp::log: return log(x).id;
    case MathOp::log2: return log2(x).id;
    case MathOp::sin: return sine(x, 0).id;
    case MathOp::cos: return sine(x, 1).id;
    case MathOp::tanh: return tanh(x).id;
    case MathOp::erf: return erf(x).id;
    case MathOp::pow: return (fast_f64 ? pow_in_f64(x, y) : pow(x, y)).id;
    case MathOp::tan: return tan(x).id;
    case MathOp::asin: return arcsine(x, half_pi, asin_tail).id;
    case MathOp::acos: return arccosine(x, half_pi, asin_tail).id;
    case MathOp::atan: return arctangent(x, half_pi, atan_unit).id;
    case MathOp::sinh: return sinh(x).id;
    case MathOp::cosh: return cosh(x).id;
    case MathOp::log10: return log10(x).id;
    case MathOp::atan2: return arctangent2(x, y, half_pi, 0x1p-100, 0x1p+24, atan_unit).id;
    case MathOp::hypot: return hypotenuse(x, y, 0x1p+60, 0x1p-70, 0x1p-40, 0x1p+90).id;
    default: fail<KernelError>({.operation = "lowering", .wrong = std::string(ir::name_of(op)) + " has no expansion"});
  }
}

}  // namespace tessera::emit
