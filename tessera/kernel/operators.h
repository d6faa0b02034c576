// SPDX-License-Identifier: Apache-2.0
// Operators of the kernel language. Both operands must have the same type, or one must be a literal, which takes the
// type of the other. 16-bit floats are computed as float.
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

/// Valid operands that need no conversion. They are passed by value, because copying a Val records the caller's line.
template <class A, class B, Kind kind>
concept Direct = (Plain<A> || Literal<A>)&&(Plain<B> || Literal<B>)&&(Plain<A> || Plain<B>)&&same_type<A, B> &&
                 allowed<common_type<A, B>, kind>;
/// Operands that must be read first (a Var) or stored in a variable first (the result of an atomic), and invalid
/// operands.
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
/// Performs the operation, or reports the mistake at compile time. A and B include references.
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

/// Returns the sum.
TESSERA_OPERATOR(+, number, BinaryOp::add)
/// Returns the difference.
TESSERA_OPERATOR(-, number, BinaryOp::sub)
/// Returns the product.
TESSERA_OPERATOR(*, number, BinaryOp::mul)
/// Returns the quotient. For integers it is rounded towards zero.
TESSERA_OPERATOR(/, number, BinaryOp::div)
/// Returns the remainder, with the sign of the left operand.
TESSERA_OPERATOR(%, number, BinaryOp::rem)
/// Returns the bitwise and; for bools the logical and.
TESSERA_OPERATOR(&, bits, BinaryOp::and_)
/// Returns the bitwise or; for bools the logical or.
TESSERA_OPERATOR(|, bits, BinaryOp::or_)
/// Returns the bitwise exclusive or; for bools the logical exclusive or.
TESSERA_OPERATOR(^, bits, BinaryOp::xor_)
/// Returns the left operand shifted left.
TESSERA_OPERATOR(<<, shift, BinaryOp::shl)
/// Returns the left operand shifted right. Signed integers replicate the sign bit.
TESSERA_OPERATOR(>>, shift, BinaryOp::shr)
/// Returns true if the left operand is less than the right one.
TESSERA_OPERATOR(<, order, CompareOp::lt)
/// Returns true if the left operand is less than or equal to the right one.
TESSERA_OPERATOR(<=, order, CompareOp::le)
/// Returns true if the left operand is greater than the right one.
TESSERA_OPERATOR(>, order, CompareOp::gt)
/// Returns true if the left operand is greater than or equal to the right one.
TESSERA_OPERATOR(>=, order, CompareOp::ge)
/// Returns true if the operands are equal.
TESSERA_OPERATOR(==, equality, CompareOp::eq)
/// Returns true if the operands are not equal.
TESSERA_OPERATOR(!=, equality, CompareOp::ne)
// Both sides are evaluated, so a load that may be out of bounds must be guarded by if_ or load_if.
/// Returns the logical and. Both operands are evaluated, in contrast to C++.
TESSERA_OPERATOR(&&, logic, BinaryOp::and_)
/// Returns the logical or. Both operands are evaluated, in contrast to C++.
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

/// Returns the negated value.
TESSERA_OPERATOR(-, number, neg)
/// Returns the bitwise complement.
TESSERA_OPERATOR(~, bits, not_)
/// Returns the logical not.
TESSERA_OPERATOR(!, logic, not_)
#undef TESSERA_OPERATOR

}  // namespace tessera
