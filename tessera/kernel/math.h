// SPDX-License-Identifier: Apache-2.0
// Functions on traced values: mathematics, selection, conversion and packed bytes. docs/kernels.md specifies the
// results for edge cases (NaN, zero, overflow). They are the same on every device.
#pragma once

#include "tessera/kernel/operators.h"

namespace tessera {

namespace detail {

template <class... U>
inline constexpr bool any_traced = (Traced<std::remove_cvref_t<U>> || ...);

template <class T>
constexpr void check_real() {
  static_assert(is_real<T>, "this function takes floats: use cast<float>(...)");
}
template <class T>
constexpr void check_number() {
  static_assert(is_number<T>, "this function takes numbers: convert a bool with cast<T>(...) or select(cond, a, b)");
}
template <class T>
constexpr void check_fixed_integer() {
  static_assert(is_integer<T> && !std::same_as<T, Index>,
                "this function takes integers of fixed width: use cast<T>(...)");
}

template <class A>
auto math1(ir::MathOp op, const char* file, int line, const std::remove_reference_t<A>& a) {
  using T = Computed<type_of<std::remove_cvref_t<A>>>;
  named<A>();
  check_real<T>();
  note(file, line);
  return Val<T>(NodeRef{math(op, a.node())});
}
/// Checks that two or three operands have a common type, with a readable error.
template <class A, class B>
constexpr void check_pair() {
  not_host_data<A>();
  not_host_data<B>();
  named<A>();
  named<B>();
  same_types<same_type<std::remove_cvref_t<A>, std::remove_cvref_t<B>>, std::remove_cvref_t<A>,
             std::remove_cvref_t<B>>();
}
template <class A, class B>
auto pair(ir::BinaryOp op, const char* file, int line, const std::remove_reference_t<A>& a,
          const std::remove_reference_t<B>& b) {
  check_pair<A, B>();
  note(file, line);
  using T = common_type<std::remove_cvref_t<A>, std::remove_cvref_t<B>>;
  if constexpr (same_type<std::remove_cvref_t<A>, std::remove_cvref_t<B>>)
    return Val<T>(NodeRef{binary(op, node_as<T>(a), node_as<T>(b))});
  else
    return Val<T>(NodeRef{ir::no_node});
}

// The type of select's result: the common type of the operands, or the type of the operand that is not a literal. For
// two literals it is the type of the first.
template <class A, class B>
struct SelectType {
  using type = common_type<A, B>;
};
template <Traced A, Traced B>
struct SelectType<A, B> {
  using type = std::conditional_t<std::same_as<type_of<A>, type_of<B>>, type_of<A>, Computed<type_of<A>>>;
};
template <Literal A, Literal B>
struct SelectType<A, B> {
  using type = std::conditional_t<std::same_as<std::common_type_t<A, B>, double>, float, std::common_type_t<A, B>>;
};

}  // namespace detail

#define TESSERA_FUNCTION(name, op)                                                     \
  template <class A>                                                                   \
    requires detail::any_traced<A>                                                     \
  auto name(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    return detail::math1<A>(ir::MathOp::op, file, line, a);                            \
  }
/// Returns the square root of `a`.
TESSERA_FUNCTION(sqrt, sqrt)
/// Returns 1 / sqrt(a).
TESSERA_FUNCTION(rsqrt, rsqrt)
/// Returns the largest integer that is at most `a`.
TESSERA_FUNCTION(floor, floor)
/// Returns the smallest integer that is at least `a`.
TESSERA_FUNCTION(ceil, ceil)
/// Returns `a` rounded towards zero.
TESSERA_FUNCTION(trunc, trunc)
/// Returns the integer nearest to `a`. Ties are rounded to even.
TESSERA_FUNCTION(rint, rint)
/// Returns e to the power of `a`.
TESSERA_FUNCTION(exp, exp)
/// Returns 2 to the power of `a`.
TESSERA_FUNCTION(exp2, exp2)
/// Returns the natural logarithm of `a`.
TESSERA_FUNCTION(log, log)
/// Returns the logarithm of `a` to base 2.
TESSERA_FUNCTION(log2, log2)
/// Returns the sine of `a`, an angle in radians.
TESSERA_FUNCTION(sin, sin)
/// Returns the cosine of `a`, an angle in radians.
TESSERA_FUNCTION(cos, cos)
/// Returns the hyperbolic tangent of `a`.
TESSERA_FUNCTION(tanh, tanh)
/// Returns the error function of `a`.
TESSERA_FUNCTION(erf, erf)
/// Returns the integer nearest to `a`. Ties are rounded to even, as in NumPy; C's round rounds them away from zero.
TESSERA_FUNCTION(round, rint)
/// Returns the tangent of `a`, an angle in radians.
TESSERA_FUNCTION(tan, tan)
/// Returns the inverse sine of `a`, in radians.
TESSERA_FUNCTION(asin, asin)
/// Returns the inverse cosine of `a`, in radians.
TESSERA_FUNCTION(acos, acos)
/// Returns the inverse tangent of `a`, in radians.
TESSERA_FUNCTION(atan, atan)
/// Returns the hyperbolic sine of `a`.
TESSERA_FUNCTION(sinh, sinh)
/// Returns the hyperbolic cosine of `a`.
TESSERA_FUNCTION(cosh, cosh)
/// Returns the logarithm of `a` to base 10.
TESSERA_FUNCTION(log10, log10)
#undef TESSERA_FUNCTION

#define TESSERA_QUESTION(name, function)                                               \
  template <class A>                                                                   \
    requires detail::any_traced<A>                                                     \
  auto name(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    detail::named<A>();                                                                \
    detail::check_real<detail::type_of<std::remove_cvref_t<A>>>();                     \
    detail::note(file, line);                                                          \
    return Val<bool>(detail::NodeRef{detail::function(a.node())});                     \
  }
/// Returns true if `a` is NaN.
TESSERA_QUESTION(isnan, is_nan)
/// Returns true if `a` is infinite.
TESSERA_QUESTION(isinf, is_infinite)
/// Returns true if `a` is neither NaN nor infinite.
TESSERA_QUESTION(isfinite, is_finite)
#undef TESSERA_QUESTION

#define TESSERA_FUNCTION(name, call)                                                          \
  template <class A, class B>                                                                 \
    requires detail::any_traced<A, B>                                                         \
  auto name(A&& a, B&& b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    using T = detail::common_type<std::remove_cvref_t<A>, std::remove_cvref_t<B>>;            \
    detail::check_pair<A, B>();                                                               \
    detail::check_real<T>();                                                                  \
    detail::note(file, line);                                                                 \
    const ir::NodeId x = detail::node_as<T>(a), y = detail::node_as<T>(b);                    \
    return Val<T>(detail::NodeRef{detail::call});                                             \
  }
/// Returns `a` to the power of `b`.
TESSERA_FUNCTION(pow, math(ir::MathOp::pow, x, y))
/// Returns the angle of the point (b, a), between -pi and pi.
TESSERA_FUNCTION(atan2, math(ir::MathOp::atan2, x, y))
/// Returns sqrt(a * a + b * b). The squares do not overflow.
TESSERA_FUNCTION(hypot, math(ir::MathOp::hypot, x, y))
/// Returns |a| with the sign of `b`.
TESSERA_FUNCTION(copysign, copysign(x, y))
#undef TESSERA_FUNCTION
/// Returns a * b + c, rounded once. Accepts only floats.
template <class A, class B, class C>
  requires detail::any_traced<A, B, C>
auto fma(A&& a, B&& b, C&& c, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using First = std::conditional_t<detail::any_traced<A>, A, std::conditional_t<detail::any_traced<B>, B, C>>;
  using T = detail::Computed<detail::type_of<std::remove_cvref_t<First>>>;
  detail::check_pair<First, A>();
  detail::check_pair<First, B>();
  detail::check_pair<First, C>();
  detail::check_real<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{
      detail::math(ir::MathOp::fma, detail::node_as<T>(a), detail::node_as<T>(b), detail::node_as<T>(c))});
}

/// Returns the smaller value. If one of two floats is NaN, returns the other one.
template <class A, class B>
  requires detail::any_traced<A, B>
auto min(A&& a, B&& b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::check_number<detail::common_type<std::remove_cvref_t<A>, std::remove_cvref_t<B>>>();
  return detail::pair<A, B>(ir::BinaryOp::min, file, line, a, b);
}
/// Returns the larger value. If one of two floats is NaN, returns the other one.
template <class A, class B>
  requires detail::any_traced<A, B>
auto max(A&& a, B&& b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::check_number<detail::common_type<std::remove_cvref_t<A>, std::remove_cvref_t<B>>>();
  return detail::pair<A, B>(ir::BinaryOp::max, file, line, a, b);
}
/// Returns the high half of the product of two 32- or 64-bit integers.
template <class A, class B>
  requires detail::any_traced<A, B>
auto mul_hi(A&& a, B&& b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::common_type<std::remove_cvref_t<A>, std::remove_cvref_t<B>>;
  static_assert(detail::is_integer<T> && !std::same_as<T, Index> && sizeof(T) >= 4,
                "mul_hi takes 32- or 64-bit integers");
  return detail::pair<A, B>(ir::BinaryOp::mul_hi, file, line, a, b);
}

/// Returns the absolute value. The lowest signed integer maps to itself.
template <class A>
  requires detail::any_traced<A>
auto abs(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::Computed<detail::type_of<std::remove_cvref_t<A>>>;
  detail::named<A>();
  detail::check_number<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::unary(ir::UnaryOp::abs, a.node())});
}
/// Returns -1, 0 or 1. Zeros and NaN are returned unchanged.
template <class A>
  requires detail::any_traced<A>
auto sign(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::Computed<detail::type_of<std::remove_cvref_t<A>>>;
  detail::named<A>();
  detail::check_number<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::sign(a.node())});
}
/// Returns the number of bits that are set.
template <class A>
  requires detail::any_traced<A>
auto popcount(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::type_of<std::remove_cvref_t<A>>;
  detail::named<A>();
  detail::check_fixed_integer<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::unary(ir::UnaryOp::popcount, a.node())});
}
/// Returns the number of leading zero bits. For 0 this is the width of the type.
template <class A>
  requires detail::any_traced<A>
auto clz(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::type_of<std::remove_cvref_t<A>>;
  detail::named<A>();
  detail::check_fixed_integer<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::unary(ir::UnaryOp::clz, a.node())});
}

/// Returns the number of trailing zero bits. For 0 this is the width of the type.
template <class A>
  requires detail::any_traced<A>
auto ctz(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::type_of<std::remove_cvref_t<A>>;
  detail::named<A>();
  detail::check_fixed_integer<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::ctz(a.node())});
}

/// Returns `a` if the condition is true, otherwise `b`. Both operands are evaluated.
template <class C, class A, class B>
  requires detail::any_traced<C, A, B>
auto select(C&& condition, A&& a, B&& b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using X = std::remove_cvref_t<A>;
  using Y = std::remove_cvref_t<B>;
  const detail::Arg<bool> c(std::forward<C>(condition), file, line);
  if constexpr (!(detail::Literal<X> && detail::Literal<Y>)) detail::check_pair<A, B>();
  using T = typename detail::SelectType<X, Y>::type;
  return Val<T>(detail::NodeRef{detail::select(c.node(), detail::node_as<T>(a), detail::node_as<T>(b))});
}

/// Converts to T. Conversions from float to integer round towards zero and saturate, and NaN becomes 0. Conversion to
/// bool tests for non-zero.
template <class T, class A>
  requires detail::any_traced<A>
Val<T> cast(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::named<A>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::cast(detail::dtype_of<T>, a.node())});
}
/// Reinterprets the bits as another type of the same size.
template <class T, class A>
  requires detail::any_traced<A>
Val<T> bitcast(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using S = detail::type_of<std::remove_cvref_t<A>>;
  static_assert(dtype_size(detail::dtype_of<T>) == dtype_size(detail::dtype_of<S>) && detail::is_number<T> &&
                    detail::is_number<S> && !std::same_as<T, Index> && !std::same_as<S, Index>,
                "bitcast requires numbers of equal size");
  detail::named<A>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::bitcast(detail::dtype_of<T>, a.node())});
}

/// Returns c plus the sum of the four products of the bytes packed in a and b. Both contain signed bytes. The sum
/// wraps.
inline Val<std::int32_t> dot4(detail::Arg<std::uint32_t> a, detail::Arg<std::uint32_t> b, detail::Arg<std::int32_t> c) {
  return Val<std::int32_t>(detail::NodeRef{detail::dot4(ir::Dot4Signs::signed_signed, a.node(), b.node(), c.node())});
}
/// Like `dot4`, but with unsigned bytes in a and signed bytes in b.
inline Val<std::int32_t> dot4_us(detail::Arg<std::uint32_t> a, detail::Arg<std::uint32_t> b,
                                 detail::Arg<std::int32_t> c) {
  return Val<std::int32_t>(detail::NodeRef{detail::dot4(ir::Dot4Signs::unsigned_signed, a.node(), b.node(), c.node())});
}
/// Like `dot4`, but with unsigned bytes in a and b.
inline Val<std::int32_t> dot4_uu(detail::Arg<std::uint32_t> a, detail::Arg<std::uint32_t> b,
                                 detail::Arg<std::int32_t> c) {
  return Val<std::int32_t>(
      detail::NodeRef{detail::dot4(ir::Dot4Signs::unsigned_unsigned, a.node(), b.node(), c.node())});
}

}  // namespace tessera
