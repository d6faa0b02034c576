// SPDX-License-Identifier: Apache-2.0
// Compares Tessera's declarations of vendor functions with the vendors' headers. Handles and enumerations have
// different names in both, so only the way in which arguments are passed is compared.
#pragma once

#include <cstddef>
#include <type_traits>

namespace tessera::test {

template <class A, class B>
constexpr bool same_value() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    // If both point to numbers, compares their sizes. Handles are not compared.
    using P = std::remove_cv_t<std::remove_pointer_t<A>>;
    using Q = std::remove_cv_t<std::remove_pointer_t<B>>;
    if constexpr ((std::is_arithmetic_v<P> || std::is_enum_v<P>)&&(std::is_arithmetic_v<Q> || std::is_enum_v<Q>))
      return sizeof(P) == sizeof(Q);
    else if constexpr (std::is_pointer_v<P> && std::is_pointer_v<Q>)
      return same_value<P, Q>();
    else
      return std::is_pointer_v<P> == std::is_pointer_v<Q> || std::is_void_v<P> || std::is_void_v<Q>;
  } else if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
    return false;
  } else {
    return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
  }
}

template <class Ours, class Theirs>
struct Same : std::false_type {};
template <class R, class... A, class S, class... B>
struct Same<R(A...), S(B...)> {
  static constexpr bool arguments() {
    if constexpr (sizeof...(A) == sizeof...(B))
      return (same_value<A, B>() && ...);
    else
      return false;
  }
  static constexpr bool value = same_value<R, S>() && arguments();
};

}  // namespace tessera::test

/// An argument for the X-macros in the backends' headers that compares one function.
#define TESSERA_SAME(member, symbol, ...)                                    \
  static_assert(tessera::test::Same<__VA_ARGS__, decltype(::symbol)>::value, \
                #symbol " has a different signature in the vendor's header");
