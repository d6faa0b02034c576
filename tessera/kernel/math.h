// SPDX-License-Identifier: Apache-2.0
// Functions on traced values: mathematics, selection, conversion, packed bytes. Edge cases (NaN, zero, overflow) are
// specified in docs/kernels.md and are the same on every device.
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
/// Checks the common type of two or three operands, with a readable error.
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

// The type of select's result: the operands' common type, or the type of the non-literal one; for two literals that of
// the first.
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
/// The square root.
TESSERA_FUNCTION(sqrt, sqrt)
/// 1 / sqrt(a).
TESSERA_FUNCTION(rsqrt, rsqrt)
/// The largest integer that is at most `a`.
TESSERA_FUNCTION(floor, floor)
/// The smallest integer that is at least `a`.
TESSERA_FUNCTION(ceil, ceil)
/// `a` rounded towards zero.
TESSERA_FUNCTION(trunc, trunc)
/// The nearest integer, ties to even.
TESSERA_FUNCTION(rint, rint)
/// e to the power of `a`.
TESSERA_FUNCTION(exp, exp)
/// 2 to the power of `a`.
TESSERA_FUNCTION(exp2, exp2)
/// The natural logarithm.
TESSERA_FUNCTION(log, log)
/// The logarithm to base 2.
TESSERA_FUNCTION(log2, log2)
/// The sine of an angle in radians.
TESSERA_FUNCTION(sin, sin)
/// The cosine of an angle in radians.
TESSERA_FUNCTION(cos, cos)
/// The hyperbolic tangent.
TESSERA_FUNCTION(tanh, tanh)
/// The error function.
TESSERA_FUNCTION(erf, erf)
/// The nearest integer, ties to even as in NumPy, unlike C's round.
TESSERA_FUNCTION(round, rint)
/// The tangent of an angle in radians.
TESSERA_FUNCTION(tan, tan)
/// The inverse sine, in radians.
TESSERA_FUNCTION(asin, asin)
/// The inverse cosine, in radians.
TESSERA_FUNCTION(acos, acos)
/// The inverse tangent, in radians.
TESSERA_FUNCTION(atan, atan)
/// The hyperbolic sine.
TESSERA_FUNCTION(sinh, sinh)
/// The hyperbolic cosine.
TESSERA_FUNCTION(cosh, cosh)
/// The logarithm to base 10.
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
/// True if `a` is NaN.
TESSERA_QUESTION(isnan, is_nan)
/// True if `a` is infinite.
TESSERA_QUESTION(isinf, is_infinite)
/// True if `a` is neither NaN nor infinite.
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
/// `a` to the power of `b`.
TESSERA_FUNCTION(pow, math(ir::MathOp::pow, x, y))
/// The angle of the point (b, a), between -pi and pi.
TESSERA_FUNCTION(atan2, math(ir::MathOp::atan2, x, y))
/// sqrt(a * a + b * b), without overflow of the squares.
TESSERA_FUNCTION(hypot, math(ir::MathOp::hypot, x, y))
/// |a| with the sign of `b`.
TESSERA_FUNCTION(copysign, copysign(x, y))
#undef TESSERA_FUNCTION
/// a * b + c, rounded once. Floats only.
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

/// The smaller value; for floats the one that is not NaN.
template <class A, class B>
  requires detail::any_traced<A, B>
auto min(A&& a, B&& b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::check_number<detail::common_type<std::remove_cvref_t<A>, std::remove_cvref_t<B>>>();
  return detail::pair<A, B>(ir::BinaryOp::min, file, line, a, b);
}
/// The larger value; for floats the one that is not NaN.
template <class A, class B>
  requires detail::any_traced<A, B>
auto max(A&& a, B&& b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::check_number<detail::common_type<std::remove_cvref_t<A>, std::remove_cvref_t<B>>>();
  return detail::pair<A, B>(ir::BinaryOp::max, file, line, a, b);
}
/// The high half of the product of two 32- or 64-bit integers.
template <class A, class B>
  requires detail::any_traced<A, B>
auto mul_hi(A&& a, B&& b, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::common_type<std::remove_cvref_t<A>, std::remove_cvref_t<B>>;
  static_assert(detail::is_integer<T> && !std::same_as<T, Index> && sizeof(T) >= 4,
                "mul_hi takes 32- or 64-bit integers");
  return detail::pair<A, B>(ir::BinaryOp::mul_hi, file, line, a, b);
}

/// The absolute value. The lowest signed integer maps to itself.
template <class A>
  requires detail::any_traced<A>
auto abs(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::Computed<detail::type_of<std::remove_cvref_t<A>>>;
  detail::named<A>();
  detail::check_number<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::unary(ir::UnaryOp::abs, a.node())});
}
/// -1, 0 or 1; NaN for NaN, and the same zero for a zero.
template <class A>
  requires detail::any_traced<A>
auto sign(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::Computed<detail::type_of<std::remove_cvref_t<A>>>;
  detail::named<A>();
  detail::check_number<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::sign(a.node())});
}
/// The number of bits that are set.
template <class A>
  requires detail::any_traced<A>
auto popcount(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::type_of<std::remove_cvref_t<A>>;
  detail::named<A>();
  detail::check_fixed_integer<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::unary(ir::UnaryOp::popcount, a.node())});
}
/// The number of leading zero bits; the width for 0.
template <class A>
  requires detail::any_traced<A>
auto clz(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::type_of<std::remove_cvref_t<A>>;
  detail::named<A>();
  detail::check_fixed_integer<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::unary(ir::UnaryOp::clz, a.node())});
}

/// The number of trailing zero bits; the width for 0.
template <class A>
  requires detail::any_traced<A>
auto ctz(A&& a, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::type_of<std::remove_cvref_t<A>>;
  detail::named<A>();
  detail::check_fixed_integer<T>();
  detail::note(file, line);
  return Val<T>(detail::NodeRef{detail::ctz(a.node())});
}

/// `a` where the condition holds, else `b`. Both are evaluated.
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

/// Converts to T: float to integer rounds towards zero and saturates, NaN becomes 0; to bool tests for non-zero.
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

/// c plus the four products of the bytes packed in a and b, lowest byte first; wraps. Both contain signed bytes.
inline Val<std::int32_t> dot4(detail::Arg<std::uint32_t> a, detail::Arg<std::uint32_t> b, detail::Arg<std::int32_t> c) {
  return Val<std::int32_t>(detail::NodeRef{detail::dot4(ir::Dot4Signs::signed_signed, a.node(), b.node(), c.node())});
}
/// Same for unsigned bytes in a and signed bytes in b.
inline Val<std::int32_t> dot4_us(detail::Arg<std::uint32_t> a, detail::Arg<std::uint32_t> b,
                                 detail::Arg<std::int32_t> c) {
  return Val<std::int32_t>(detail::NodeRef{detail::dot4(ir::Dot4Signs::unsigned_signed, a.node(), b.node(), c.node())});
}
/// Same for unsigned bytes in both.
inline Val<std::int32_t> dot4_uu(detail::Arg<std::uint32_t> a, detail::Arg<std::uint32_t> b,
                                 detail::Arg<std::int32_t> c) {
  return Val<std::int32_t>(
      detail::NodeRef{detail::dot4(ir::Dot4Signs::unsigned_unsigned, a.node(), b.node(), c.node())});
}

}  // namespace tessera
