// SPDX-License-Identifier: Apache-2.0
// The functions in f64, with the methods of math.cpp. Unless a comment says otherwise, polynomials are Taylor series
// with a truncation error below 2^-57 of the result. The polynomial for erf above 1 is a Chebyshev fit that was
// computed for Tessera. If the exact value of a product matters, the code uses fma, or factors that are cut to 26 bits.
#include <initializer_list>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/emit/expr.h"
#include "tessera/emit/inverse.h"
#include "tessera/emit/math.h"
#include "tessera/emit/pow_cases.h"

namespace tessera::emit {

namespace {

using ir::MathOp;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double ln2 = 0x1.62e42fefa39efp-1, ln2_low = 0x1.abc9e3b39803fp-56;
constexpr double log10_e = 0x1.bcb7b1526e50ep-2, log10_e_low = 0x1.95355baaafad3p-57;
constexpr double log2_e = 0x1.71547652b82fep+0, log2_e_low = 0x1.777d0ffda0d24p-56;

Expr polynomial(Expr x, std::initializer_list<double> c) {
  const double* k = c.end();
  Expr sum = x.like(*--k);
  while (k != c.begin()) sum = fma(sum, x, *--k);
  return sum;
}
Expr is_nan(Expr x) { return x != x; }
Expr to_real(Expr bits) { return bitcast(DType::f64, bits); }
Expr to_bits(Expr x) { return bitcast(DType::i64, x); }
Expr cut(Expr x) { return to_real(to_bits(x) & -0x1p+27); }  // keeps 26 bits; the mask prevents contraction

/// Returns p * 2^n for n between -1100 and 1100. Multiplies by two factors, so that results below the smallest normal
/// number are rounded only once.
Expr scale(Expr p, Expr n) {
  const Expr half = n >> 1;
  return p * to_real((half + 1023) << 52) * to_real((n - half + 1023) << 52);
}
Expr power_of_two(Expr n) { return to_real((n + 1023) << 52); }

// e^r - 1 for |r| <= ln(2)/2.
Expr exp_minus_one_reduced(Expr r) {
  const Expr g = polynomial(r, {1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
                                1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800});
  return fma(r * r, g, r);
}
/// x = n ln 2 + r.
struct Reduced {
  Expr n, r;
};
Reduced reduce(Expr x) {
  const Expr n = math(MathOp::rint, x * log2_e);
  return {cast(DType::i64, n), fma(n, -ln2_low, fma(n, -ln2, x))};
}
Expr exp_finite(Expr x) {
  const auto [n, r] = reduce(x);
  return scale(exp_minus_one_reduced(r) + 1, n);
}
Expr exp(Expr x) { return select(is_nan(x), x, exp_finite(min(max(x, -746.0), 710.0))); }

Expr exp2_reduced(Expr r) { return exp_minus_one_reduced(r * ln2) + 1; }  // |r| <= 1/2
Expr exp2(Expr x) {
  const Expr y = min(max(x, -1076.0), 1025.0);
  const Expr n = math(MathOp::rint, y);
  return select(is_nan(x), x, scale(exp2_reduced(y - n), cast(DType::i64, n)));
}

/// The decomposition x = 2^exponent * (1 + f) of a positive finite x, with 1 + f between sqrt(1/2) and sqrt(2).
struct Split {
  Expr f, exponent;
};
Split split(Expr x) {
  constexpr std::uint64_t root = 0x3fe6a09e667f3bcd;  // bits of sqrt(1/2)
  const Expr small = x < 0x1p-1022;
  const Expr raw = to_bits(select(small, x * 0x1p+54, x));
  const Expr bits = raw - raw.bits(root);
  const Expr mantissa = to_real((bits & bits.bits(0x000fffffffffffff)) + bits.bits(root));
  const Expr k = (bits >> 52) - select(small, bits.like(54), bits.like(0));
  return {mantissa - 1, cast(DType::f64, k)};
}
// log(1 + f) = f - tail. Uses log(1 + f) = log((1 + s) / (1 - s)) = 2 (s + s^3/3 + ...) with s = f / (2 + f).
Expr log_tail(Expr f) {
  const Expr s = f / (f + 2), z = s * s;
  const Expr p = polynomial(
      z, {2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23});
  const Expr half_square = f * f * 0.5;
  return half_square - s * fma(z, p, half_square);
}
Expr log_special(Expr x, Expr y) {
  y = select(x == 0, -infinity, y);
  y = select(x < 0, not_a_number, y);
  return select(x < infinity, y, select(x > 0, infinity, x));  // the last x is NaN
}
Expr log(Expr x) {
  const auto [f, k] = split(x);
  return log_special(x, fma(k, ln2, f - fma(k, -ln2_low, log_tail(f))));
}
Expr log2(Expr x) {
  const auto [f, k] = split(x);
  const Expr tail = log_tail(f);
  const Expr high = cut(f - tail);  // log(1 + f) as a sum of two parts
  const Expr low = (f - high) - tail;
  const Expr scaled = cut(high * log2_e);
  const Expr scaled_low = fma(low, log2_e, fma(high, log2_e_low, fma(high, log2_e, -scaled)));
  const Expr whole = k + scaled;
  return log_special(x, whole + ((scaled - (whole - k)) + scaled_low));
}
Expr log10(Expr x) {  // like log2
  const auto [f, k] = split(x);
  const Expr tail = log_tail(f);
  const Expr high = cut(f - tail);
  const Expr low = (f - high) - tail;
  const Expr scaled = cut(high * log10_e);
  const Expr scaled_low = fma(low, log10_e, fma(high, log10_e_low, fma(high, log10_e, -scaled)));
  // log10(2) is the sum of two parts. The first part has so few bits that its product with k is exact.
  const Expr exponent = k * 0x1.34413509f8p-2;
  const Expr whole = exponent + scaled;
  return log_special(x, whole + ((scaled - (whole - exponent)) + fma(k, -0x1.80433b83b532ap-44, scaled_low)));
}

/// Computes sin x if `shift` is 0, and cos x if it is 1.
Expr sine(Expr x, int shift) {
  const Expr n = math(MathOp::rint, x * 0x1.45f306dc9c883p-1);
  // Subtracts n * pi/2, where pi/2 is the sum of three parts. The first difference is exact, because it is below 1 and
  // a multiple of 2^-53. Above 1e12, n might not be the nearest integer.
  Expr r = fma(n, -0x1.921fb54442d18p+0, x);
  r = fma(n, -0x1.1a62633145c07p-54, r);
  r = fma(n, 0x1.f1976b7ed8fbcp-110, r);
  const Expr in_range = abs(x) < 1e12;
  r = select(in_range, r, x.like(0.5));
  const Expr z = r * r;
  const Expr s = fma(r * z,
                     polynomial(z, {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800,
                                    -1.0 / 1307674368000, 1.0 / 355687428096000}),
                     r);
  const Expr c = fma(z * z,
                     polynomial(z, {1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600,
                                    -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000}),
                     z * -0.5) +
                 1;
  const Expr quadrant = cast(DType::i64, n) + shift;
  const Expr y = select((quadrant & 1) == 0, s, c);
  const Expr signed_y = select((quadrant & 2) == 0, y, -y);
  const Expr finite = select(abs(x) < infinity, signed_y, not_a_number);
  return shift == 0 ? select(x == 0, x, finite) : finite;  // sin preserves the sign of zero
}

/// Computes sin r / cos r or -cos r / sin r. r, sin r and cos r are sums of two parts.
Expr tan(Expr x) {
  const Expr n = math(MathOp::rint, x * 0x1.45f306dc9c883p-1);
  const Expr first = fma(n, -0x1.921fb54442d18p+0, x), second = fma(n, -0x1.1a62633145c07p-54, first);
  Expr r = fma(n, 0x1.f1976b7ed8fbcp-110, second);
  Expr r_low = fma(n, -0x1.1a62633145c07p-54, first - second);
  const Expr in_range = abs(x) < 1e12;
  r = select(in_range, r, x.like(0.5)), r_low = select(in_range, r_low, x.like(0));
  const Expr z = r * r;
  const Expr sine_tail = r * z *
                         polynomial(z, {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800,
                                        1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000});
  const Expr cosine_tail = z * z *
                           polynomial(z, {1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600,
                                          -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000});
  const Expr s = r + sine_tail, half = z * -0.5, one_less = half + 1;
  const Expr half_low = fma(r, r, -z) * -0.5;
  const Expr s_low = fma(one_less, r_low, (r - s) + sine_tail);
  const Expr c_rest = fma(-s, r_low, ((1 - one_less) + half) + (cosine_tail + half_low));
  const Expr c = one_less + c_rest, c_low = (one_less - c) + c_rest;
  const Expr even = (cast(DType::i64, n) & 1) == 0;
  const Expr above = select(even, s, -c), above_low = select(even, s_low, -c_low);
  const Expr below = select(even, c, s), below_low = select(even, c_low, s_low);
  const Expr quotient = above / below;
  const Expr error = fma(-quotient, below_low, fma(-quotient, below, above) + above_low);
  const Expr y = quotient + error / below;
  return select(x == 0, x, select(abs(x) < infinity, y, not_a_number));  // preserves the sign of zero
}

constexpr HalfPi half_pi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};
// asin(s) - s for s between 0 and 1/2. A minimax fit, error 2^-59.9.
Expr asin_tail(Expr s, Expr z) {
  return s * z *
         polynomial(z, {0x1.5555555555577p-3, 0x1.333333332e131p-4, 0x1.6db6db721265bp-5, 0x1.f1c71a94f4611p-6,
                        0x1.6e8bdee00e32dp-6, 0x1.1c49f060713c4p-6, 0x1.ca1f8d212b19bp-7, 0x1.75858bcc0105p-7,
                        0x1.613c82ff52606p-7, 0x1.e5f5efeb7a835p-9, 0x1.639c5ddb8f889p-6, -0x1.57fd6de0f3845p-6,
                        0x1.0b46bd2966db1p-5});
}
// atan(q) = atan(c) + atan(t) for q between 0 and 1, with t = (q - c) / (1 + q c). c is 0, 1/2 or 1, so that |t| is
// below 7/16. atan(t) is a minimax fit, error 2^-57.7.
Expr atan_unit(Expr q) {
  const Expr from_half = q >= 0.4375, from_one = q >= 0.6875;
  const Expr above = select(from_one, q - 1, select(from_half, q + q - 1, q));
  const Expr below = select(from_one, q + 1, select(from_half, q + 2, q.like(1)));
  const Expr start = select(from_one, 0x1.921fb54442d18p-1, select(from_half, 0x1.dac670561bb4fp-2, q.like(0)));
  const Expr start_low = select(from_one, 0x1.1a62633145c07p-55, select(from_half, 0x1.a2b7f222f65e2p-56, q.like(0)));
  const Expr t = above / below, z = t * t;
  const Expr p =
      polynomial(z, {-0x1.555555555550bp-2, 0x1.999999998e7ecp-3, -0x1.2492491ff379cp-3, 0x1.c71c6fdb32cdep-4,
                     -0x1.745cdba6fc5a2p-4, 0x1.3b0f20843b93bp-4, -0x1.10d6031cf07d8p-4, 0x1.ddddc1514eeaep-5,
                     -0x1.97a0d1feef9fep-5, 0x1.2b18571e036bap-5, -0x1.0a7feda0080f2p-6});
  return start + (t + (t * z * p + start_low));
}

// e^x / 2 for x between 0 and 711. It is finite if sinh and cosh are finite.
Expr half_exp(Expr x) {
  const auto [n, r] = reduce(x);
  return scale(exp_minus_one_reduced(r) + 1, n - 1);
}
Expr cosh(Expr x) {
  const Expr h = half_exp(min(abs(x), 711.0));
  return select(is_nan(x), x, h + 0.25 / h);
}
// Computes (e + e / (e + 1)) / 2 with e = e^|x| - 1. For |x| above 22, e^-|x| is negligible.
Expr sinh(Expr x) {
  const Expr a = abs(x);
  const auto [n, r] = reduce(min(a, 22.0));
  const Expr power = power_of_two(n);
  const Expr e = fma(power, exp_minus_one_reduced(r), power - 1);
  const Expr y = select(a < 22, 0.5 * (e + e / (e + 1)), half_exp(min(a, 711.0)));
  return select((x == 0) | is_nan(x), x, with_sign_of(y, x));
}

// Uses e^(2|x|) - 1, which is also accurate near 0.
Expr tanh(Expr x) {
  const Expr a = min(abs(x), 22.0);  // for larger |x| the result is 1
  const auto [n, r] = reduce(a + a);
  const Expr power = power_of_two(n);
  const Expr e = fma(power, exp_minus_one_reduced(r), power - 1);
  return select((x == 0) | is_nan(x), x, with_sign_of(e / (e + 2), x));
}

Expr erf(Expr x) {
  const Expr a = abs(x), z = x * x;
  const Expr p =
      polynomial(z, {0x1.06eba8214db69p-3,  -0x1.812746b0379e7p-2,  0x1.ce2f21a042be2p-4,  -0x1.b82ce31288b51p-6,
                     0x1.565bcd0e6a53fp-8,  -0x1.c02db40040b86p-11, 0x1.f9a326f9b89b7p-14, -0x1.f4d25c3e0c2ebp-17,
                     0x1.b9e6c9dc651a3p-20, -0x1.5f742ec43e71ap-23, 0x1.fcc5720624c1cp-27, -0x1.51d7181c5d36dp-30,
                     0x1.9e6ad5e55a730p-34, -0x1.d8453cb0c46eap-38, 0x1.f683ae4a97007p-42, -0x1.f56f071a885cfp-46,
                     0x1.d70b3537f4765p-50, -0x1.a2007af3447f6p-54, 0x1.5f7919bc67b8cp-58, -0x1.18cc8a061c479p-62});
  const Expr small = fma(x, p, x);
  // For x >= 1, computes 1 - e^(-x^2) h, where h = e^(x^2) erfc(x) is a smooth function of (x - 2) / (x + 2). For x >=
  // 6, the result is 1.
  const Expr b = min(max(a, 1.0), 6.0);
  const Expr h = polynomial(
      (b - 2) / (b + 2),
      {0x1.058671b52c776p-2, -0x1.b57034efd3f74p-2, 0x1.eeea7dc8a78a1p-3, -0x1.437f0b68c0489p-4, 0x1.e9471597be87ap-9,
       0x1.ca95ed50b7c81p-8, -0x1.bc25a48873fcep-11, -0x1.016b5b63ce718p-10, 0x1.6d5ee91b53faep-15,
       0x1.6da887a28011dp-13, 0x1.cdd4519ae70bfp-16, -0x1.ce6ac975ae57ep-16, -0x1.d5b4578e3a615p-17,
       0x1.5e89dbd23e5f3p-20, 0x1.0d39558c57985p-18, 0x1.559a2f064d8e1p-20, -0x1.30be46f14c7b7p-20});
  const Expr large = 1 - exp_finite(-(b * b)) * h;
  return select(a < 1, small, select(is_nan(x), x, with_sign_of(large, x)));
}

/// A number, represented as the unevaluated sum of two doubles.
struct Pair {
  Expr high, low;
};
Pair product(Expr x, Expr y) {
  const Expr high = cut(x * y);
  return {high, fma(x, y, -high)};
}

// |x|^y = 2^(y log2 |x|). The logarithm has an error of about 2^-65. It is computed as log(1 + f) = 2 atanh(s) with s =
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
  const Expr rest = z * z * s *
                    polynomial(z, {2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19,
                                   2.0 / 21, 2.0 / 23, 2.0 / 25});
  const Pair third = product(cube.high, x.like(0x1.5555555555555p-1));
  const Expr third_low = fma(cube_low, 0x1.5555555555555p-1, fma(cube.high, 0x1.5555555555555p-55, third.low)) + rest;
  // log(1 + f) = 2 s + third, as a pair. The high part has few bits.
  const Expr two_s = s_high + s_high;
  const Expr log_high = cut(two_s + third.high);
  const Expr log_low = ((two_s - log_high) + third.high) + (third_low + (s_low + s_low));
  // log2 |x| = k + log(1 + f) / ln 2.
  const Pair scaled = product(log_high, x.like(log2_e));
  const Expr scaled_low = fma(log_high, log2_e_low, fma(log_low, log2_e, scaled.low));
  const Expr l_high = k + scaled.high;
  const Expr l_low = (scaled.high - (l_high - k)) + scaled_low;
  // Multiplies by y. Beyond these limits, the result is 0 or infinite.
  const Expr y_bounded = min(max(y, -0x1p+66), 0x1p+66);
  const Expr whole = (l_high + l_low) * y_bounded;
  const Expr bounded = min(max(whole, -1090.0), 1090.0);
  const Expr n = math(MathOp::rint, bounded);
  const Expr within = abs(whole) < 1090;
  const Expr r = fma(l_low, y_bounded, fma(l_high, y_bounded, -n));
  const Expr result = scale(exp2_reduced(select(within, r, x.like(0))), cast(DType::i64, n));

  return pow_cases(x, y, a, result);
}

}  // namespace

MathBound math64_bound(MathOp op) {
  constexpr double most = std::numeric_limits<double>::max();
  switch (op) {
    case MathOp::sin:
    case MathOp::cos: return {2, -1e12, 1e12};
    case MathOp::tan: return {1.25, -1e12, 1e12};
    case MathOp::tanh: return {3, -most, most};
    case MathOp::hypot:
    case MathOp::asin:
    case MathOp::acos: return {1.25, -most, most};
    case MathOp::atan:
    case MathOp::atan2: return {1.75, -most, most};
    case MathOp::sinh: return {2.5, -most, most};
    case MathOp::cosh: return {1.5, -most, most};
    case MathOp::log10: return {1, -most, most};
    default: return {2, -most, most};
  }
}

ir::NodeId expand_math64(ir::Builder& b, MathOp op, ir::NodeId x_id, ir::NodeId y_id) {
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
    case MathOp::pow: return pow(x, y).id;
    case MathOp::tan: return tan(x).id;
    case MathOp::asin: return arcsine(x, half_pi, asin_tail).id;
    case MathOp::acos: return arccosine(x, half_pi, asin_tail).id;
    case MathOp::atan: return arctangent(x, half_pi, atan_unit).id;
    case MathOp::sinh: return sinh(x).id;
    case MathOp::cosh: return cosh(x).id;
    case MathOp::log10: return log10(x).id;
    case MathOp::atan2: return arctangent2(x, y, half_pi, 0x1p-900, 0x1p+100, atan_unit).id;
    case MathOp::hypot: return hypotenuse(x, y, 0x1p+500, 0x1p-600, 0x1p-400, 0x1p+700).id;
    default: fail<KernelError>({.operation = "lowering", .wrong = std::string(ir::name_of(op)) + " has no expansion"});
  }
}

}  // namespace tessera::emit
