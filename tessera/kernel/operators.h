// SPDX-License-Identifier: Apache-2.0
// Operators of the kernel language. Both operands must have the same type, or one is a literal, which takes the other's
// type; 16-bit floats are computed as float.
#pragma once

#include "tessera/kernel/value.h"

namespace tessera {

namespace detail {

enum class Kind { number, bits, shift, order, equality, logic };

template <class T, Kind kind>
inline constexpr bool allowed = kind == Kind::number || kind == Kind::order ? is_number<T>
                                : kind == Kind::bits                        ? is_integer<T> || std::same_as<T, bool>
                                : kind == Kind::shift                       ? is_integer<T>
                                : kind == Kind::logic                       ? std::same_as<T, bool>
                                                                            : true;

/// Valid operands that carry their value: passed by value, so that copying them records the line.
template <class A, class B, Kind kind>
concept Direct = (Plain<A> || Literal<A>)&&(Plain<B> || Literal<B>)&&(Plain<A> || Plain<B>)&&same_type<A, B> &&
                 allowed<common_type<A, B>, kind>;
/// Operands that must first be read (a Var) or named (the result of an atomic), or that are invalid.
template <class A, class B, Kind kind>
concept Indirect = Operand<A> && Operand<B> && (Traced<A> || Traced<B>)&&!Direct<A, B, kind>;

template <class A, class B, Kind kind>
using Result =
    Val<std::conditional_t<kind == Kind::number || kind == Kind::bits || kind == Kind::shift, common_type<A, B>, bool>>;

template <class T, Kind kind>
constexpr void check_kind() {
  if constexpr (kind == Kind::number || kind == Kind::order)
    static_assert(allowed<T, kind>,
                  "this operator takes numbers: convert a bool with cast<T>(...) or select(cond, a, b)");
  else if constexpr (kind == Kind::bits || kind == Kind::shift)
    static_assert(allowed<T, kind>, "this operator takes integers: use cast<T>(...) or bitcast<T>(...)");
  else if constexpr (kind == Kind::logic)
    static_assert(allowed<T, kind>, "&&, || and ! take bools: compare first, as in x != 0");
}

inline ir::NodeId operation(ir::BinaryOp op, ir::NodeId a, ir::NodeId b) { return binary(op, a, b); }
inline ir::NodeId operation(ir::CompareOp op, ir::NodeId a, ir::NodeId b) { return compare(op, a, b); }

template <Kind kind, class A, class B, class Op>
Result<A, B, kind> direct(Op op, const A& a, const B& b) {
  using T = common_type<A, B>;
  return Result<A, B, kind>(NodeRef{operation(op, node_as<T>(a), node_as<T>(b))});
}
/// A, B: including references. Performs the operation or reports the mistake.
template <Kind kind, class A, class B, class Op>
auto indirect(Op op, const std::remove_reference_t<A>& a, const std::remove_reference_t<B>& b) {
  using X = std::remove_cvref_t<A>;
  using Y = std::remove_cvref_t<B>;
  not_host_data<A>();
  not_host_data<B>();
  named<A>();
  named<B>();
  using T = common_type<X, Y>;
  using R = Result<X, Y, kind>;
  if constexpr (kind == Kind::logic && !same_type<X, Y>) {
    check_kind<std::conditional_t<std::same_as<type_of<X>, bool>, type_of<Y>, type_of<X>>, kind>();
  } else {
    same_types<same_type<X, Y>, X, Y>();
  }
  if constexpr (same_type<X, Y>) {
    check_kind<T, kind>();
    return R(NodeRef{operation(op, node_as<T>(a), node_as<T>(b))});
  } else {
    return R(NodeRef{ir::no_node});
  }
}

}  // namespace detail

#define TESSERA_OPERATOR(symbol, kind, op)                                                                           \
  template <class A, class B>                                                                                        \
    requires detail::Direct<A, B, detail::Kind::kind>                                                                \
  detail::Result<A, B, detail::Kind::kind> operator symbol(A a, B b) {                                               \
    return detail::direct<detail::Kind::kind>(ir::op, a, b);                                                         \
  }                                                                                                                  \
  template <class A, class B>                                                                                        \
    requires detail::Indirect<std::remove_cvref_t<A>, std::remove_cvref_t<B>, detail::Kind::kind>                    \
  detail::Result<std::remove_cvref_t<A>, std::remove_cvref_t<B>, detail::Kind::kind> operator symbol(A&& a, B&& b) { \
    return detail::indirect<detail::Kind::kind, A, B>(ir::op, a, b);                                                 \
  }

/// The sum.
TESSERA_OPERATOR(+, number, BinaryOp::add)
/// The difference.
TESSERA_OPERATOR(-, number, BinaryOp::sub)
/// The product.
TESSERA_OPERATOR(*, number, BinaryOp::mul)
/// The quotient; integers round towards zero.
TESSERA_OPERATOR(/, number, BinaryOp::div)
/// The remainder, with the sign of the left operand.
TESSERA_OPERATOR(%, number, BinaryOp::rem)
/// The bitwise and; for bools the logical and.
TESSERA_OPERATOR(&, bits, BinaryOp::and_)
/// The bitwise or; for bools the logical or.
TESSERA_OPERATOR(|, bits, BinaryOp::or_)
/// The bitwise exclusive or; for bools the logical one.
TESSERA_OPERATOR(^, bits, BinaryOp::xor_)
/// The left operand shifted left.
TESSERA_OPERATOR(<<, shift, BinaryOp::shl)
/// The left operand shifted right; signed integers replicate the sign bit.
TESSERA_OPERATOR(>>, shift, BinaryOp::shr)
/// True if the left operand is less.
TESSERA_OPERATOR(<, order, CompareOp::lt)
/// True if the left operand is less than or equal to the right one.
TESSERA_OPERATOR(<=, order, CompareOp::le)
/// True if the left operand is greater.
TESSERA_OPERATOR(>, order, CompareOp::gt)
/// True if the left operand is greater than or equal to the right one.
TESSERA_OPERATOR(>=, order, CompareOp::ge)
/// True if the operands are equal.
TESSERA_OPERATOR(==, equality, CompareOp::eq)
/// True if the operands differ.
TESSERA_OPERATOR(!=, equality, CompareOp::ne)
// Unlike in C++, both sides are evaluated: guard a load by if_ or load_if.
/// The logical and; unlike in C++ both operands are evaluated.
TESSERA_OPERATOR(&&, logic, BinaryOp::and_)
/// The logical or; unlike in C++ both operands are evaluated.
TESSERA_OPERATOR(||, logic, BinaryOp::or_)
#undef TESSERA_OPERATOR

#define TESSERA_OPERATOR(symbol, kind, op)                                      \
  template <class A>                                                            \
    requires detail::Traced<std::remove_cvref_t<A>>                             \
  auto operator symbol(A&& a) {                                                 \
    using T = detail::Computed<detail::type_of<std::remove_cvref_t<A>>>;        \
    detail::named<A>();                                                         \
    detail::check_kind<T, detail::Kind::kind>();                                \
    if constexpr (detail::allowed<T, detail::Kind::kind>)                       \
      return Val<T>(detail::NodeRef{detail::unary(ir::UnaryOp::op, a.node())}); \
    else                                                                        \
      return Val<T>(detail::NodeRef{ir::no_node});                              \
  }

/// The negative.
TESSERA_OPERATOR(-, number, neg)
/// The bitwise complement.
TESSERA_OPERATOR(~, bits, not_)
/// The logical not.
TESSERA_OPERATOR(!, logic, not_)
#undef TESSERA_OPERATOR

}  // namespace tessera
