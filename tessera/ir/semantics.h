// SPDX-License-Identifier: Apache-2.0
// Defines the results of pure operations on C++ scalars. Constant folding, the interpreter and all tests use these
// functions. docs/kernels.md has the table for users.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tessera/ir/node.h"

namespace tessera::ir {

namespace detail {
template <class T>
using unsigned_of = std::make_unsigned_t<T>;
/// An unsigned type of at least 32 bits, in which arithmetic wraps. Smaller types would be promoted to int.
template <class T>
using wrap_of = std::conditional_t<(sizeof(T) < 4), std::uint32_t, unsigned_of<T>>;
}  // namespace detail

/// `T` is bool, an integer, float or double. Integers wrap. x / 0 and x % 0 are 0. The smallest value divided by -1
/// wraps to itself, with remainder 0. Shift amounts are taken modulo the width. If one operand of a float min or max is
/// NaN, the result is the other operand.
template <class T>
T apply(BinaryOp op, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    switch (op) {
      case BinaryOp::and_:
      case BinaryOp::min:
      case BinaryOp::mul: return a && b;
      case BinaryOp::or_:
      case BinaryOp::max:
      case BinaryOp::add: return a || b;
      case BinaryOp::xor_: return a != b;
      default: return false;
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case BinaryOp::add: return a + b;
      case BinaryOp::sub: return a - b;
      case BinaryOp::mul: return a * b;
      case BinaryOp::div: return a / b;
      case BinaryOp::rem: return std::fmod(a, b);
      case BinaryOp::min:
        return a < b || b != b ? a : b;  // fmin in a form that compilers vectorise; for 0 and -0, returns b
      case BinaryOp::max: return a > b || b != b ? a : b;
      default: return T{};
    }
  } else {
    using W = detail::wrap_of<T>;
    constexpr int bits = 8 * sizeof(T);
    const int shift = static_cast<int>(static_cast<W>(b) & (bits - 1));
    switch (op) {
      case BinaryOp::add: return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
      case BinaryOp::sub: return static_cast<T>(static_cast<W>(a) - static_cast<W>(b));
      case BinaryOp::mul: return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
      case BinaryOp::div:
        if (b == 0) return 0;
        if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(W{0} - static_cast<W>(a));
        return static_cast<T>(a / b);
      case BinaryOp::rem:
        if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1))) return 0;
        return static_cast<T>(a % b);
      case BinaryOp::min: return std::min(a, b);
      case BinaryOp::max: return std::max(a, b);
      case BinaryOp::and_: return static_cast<T>(a & b);
      case BinaryOp::or_: return static_cast<T>(a | b);
      case BinaryOp::xor_: return static_cast<T>(a ^ b);
      case BinaryOp::shl: return static_cast<T>(static_cast<W>(a) << shift);
      case BinaryOp::shr: return static_cast<T>(a >> shift);  // arithmetic for signed types
      case BinaryOp::mul_hi:
        if constexpr (sizeof(T) <= 4) {
          using L = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
          return static_cast<T>((static_cast<L>(a) * static_cast<L>(b)) >> bits);
        } else {
          __extension__ using L = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
          return static_cast<T>((static_cast<L>(a) * static_cast<L>(b)) >> bits);
        }
      default: return T{};
    }
  }
}

template <class T>
T apply(UnaryOp op, T a) {
  if constexpr (std::is_same_v<T, bool>) {
    return op == UnaryOp::not_ ? !a : a;
  } else if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case UnaryOp::neg: return -a;
      case UnaryOp::abs: return std::fabs(a);
      default: return T{};
    }
  } else {
    using U = detail::unsigned_of<T>;
    using W = detail::wrap_of<T>;
    switch (op) {
      case UnaryOp::neg: return static_cast<T>(W{0} - static_cast<W>(a));
      case UnaryOp::abs: return a < T{0} ? static_cast<T>(W{0} - static_cast<W>(a)) : a;
      case UnaryOp::not_: return static_cast<T>(~static_cast<W>(a));
      case UnaryOp::popcount: return static_cast<T>(std::popcount(static_cast<U>(a)));
      case UnaryOp::clz: return static_cast<T>(std::countl_zero(static_cast<U>(a)));
      default: return T{};
    }
  }
}

/// Comparisons with NaN are false, except ne, which is true.
template <class T>
bool apply(CompareOp op, T a, T b) {
  switch (op) {
    case CompareOp::eq: return a == b;
    case CompareOp::ne: return a != b;
    case CompareOp::lt: return a < b;
    case CompareOp::le: return a <= b;
    case CompareOp::gt: return a > b;
    case CompareOp::ge: return a >= b;
    default: return false;
  }
}

/// `T` is float or double. Floats are computed in double, so that results are nearly always correctly rounded.
template <class T>
T apply(MathOp op, T a, T b = T{}, T c = T{}) {
  const double x = static_cast<double>(a);
  switch (op) {
    case MathOp::fma: return std::fma(a, b, c);
    case MathOp::sqrt: return std::sqrt(a);
    case MathOp::rsqrt: return static_cast<T>(1.0 / std::sqrt(x));
    case MathOp::floor: return std::floor(a);
    case MathOp::ceil: return std::ceil(a);
    case MathOp::trunc: return std::trunc(a);
    case MathOp::rint: return std::nearbyint(a);
    case MathOp::exp: return static_cast<T>(std::exp(x));
    case MathOp::exp2: return static_cast<T>(std::exp2(x));
    case MathOp::log: return static_cast<T>(std::log(x));
    case MathOp::log2: return static_cast<T>(std::log2(x));
    case MathOp::sin: return static_cast<T>(std::sin(x));
    case MathOp::cos: return static_cast<T>(std::cos(x));
    case MathOp::tanh: return static_cast<T>(std::tanh(x));
    case MathOp::erf: return static_cast<T>(std::erf(x));
    case MathOp::pow: return static_cast<T>(std::pow(x, static_cast<double>(b)));
    case MathOp::tan: return static_cast<T>(std::tan(x));
    case MathOp::asin: return static_cast<T>(std::asin(x));
    case MathOp::acos: return static_cast<T>(std::acos(x));
    case MathOp::atan: return static_cast<T>(std::atan(x));
    case MathOp::sinh: return static_cast<T>(std::sinh(x));
    case MathOp::cosh: return static_cast<T>(std::cosh(x));
    case MathOp::log10: return static_cast<T>(std::log10(x));
    case MathOp::atan2: return static_cast<T>(std::atan2(x, static_cast<double>(b)));
    case MathOp::hypot: return static_cast<T>(std::hypot(x, static_cast<double>(b)));
    default: return T{};
  }
}

/// Numeric conversion. Conversions from float to integer truncate and saturate; NaN becomes 0. Integers wrap.
/// Conversion to bool tests for non-zero.
template <class To, class From>
To convert(From a) {
  if constexpr (std::is_same_v<To, bool>) {
    return a != From{};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (a != a) return To{};
    // When converted to float, the limits may be rounded up to a value that is out of range, so both comparisons
    // include equality.
    if (a <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (a >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(a);
  } else {
    return static_cast<To>(a);
  }
}

/// Returns c + the sum of the four products of the bytes packed in a and b. The sum wraps.
inline std::int32_t apply(Dot4Signs signs, std::uint32_t a, std::uint32_t b, std::int32_t c) {
  std::uint32_t sum = static_cast<std::uint32_t>(c);
  for (int i = 0; i < 4; ++i) {
    const std::uint8_t x = static_cast<std::uint8_t>(a >> (8 * i)), y = static_cast<std::uint8_t>(b >> (8 * i));
    const int p = a_is_signed(signs) ? static_cast<std::int8_t>(x) : static_cast<int>(x);
    const int q = b_is_signed(signs) ? static_cast<std::int8_t>(y) : static_cast<int>(y);
    sum += static_cast<std::uint32_t>(p * q);
  }
  return static_cast<std::int32_t>(sum);
}

/// Calls f with a value of the C++ type that is used to compute with a dtype: float for f16 and bf16, int64 for index.
template <class F>
decltype(auto) with_compute_type(DType t, F&& f) {
  switch (t) {
    case DType::boolean: return f(bool{});
    case DType::i8: return f(std::int8_t{});
    case DType::u8: return f(std::uint8_t{});
    case DType::i16: return f(std::int16_t{});
    case DType::u16: return f(std::uint16_t{});
    case DType::i32: return f(std::int32_t{});
    case DType::u32: return f(std::uint32_t{});
    case DType::i64: return f(std::int64_t{});
    case DType::u64: return f(std::uint64_t{});
    case DType::f64: return f(double{});
    case DType::index: return f(std::int64_t{});
    default: return f(float{});
  }
}

/// Encodes a value like a `constant` node: in the width of the dtype, with integers extended to 64 bits.
template <class T>
std::uint64_t to_bits(DType t, T value) {
  if (t == DType::f16) return half_bits(static_cast<float>(value));
  if (t == DType::bf16) return bfloat16_bits(static_cast<float>(value));
  if (t == DType::f32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (t == DType::f64) return std::bit_cast<std::uint64_t>(static_cast<double>(value));
  return with_compute_type(t, [&](auto tag) -> std::uint64_t {
    using D = decltype(tag);
    if constexpr (std::is_floating_point_v<D>)
      return 0;
    else
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(convert<D>(value)));
  });
}
/// Decodes bits that `to_bits` returned. `T` is the type chosen by `with_compute_type`.
template <class T>
T from_bits(DType t, std::uint64_t bits) {
  if (t == DType::f16) return static_cast<T>(half_value(static_cast<std::uint16_t>(bits)));
  if (t == DType::bf16) return static_cast<T>(bfloat16_value(static_cast<std::uint16_t>(bits)));
  if (t == DType::f32) return static_cast<T>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  if (t == DType::f64) return static_cast<T>(std::bit_cast<double>(bits));
  if (t == DType::boolean) return static_cast<T>(bits != 0);
  return static_cast<T>(bits);
}

}  // namespace tessera::ir
