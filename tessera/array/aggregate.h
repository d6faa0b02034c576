// SPDX-License-Identifier: Apache-2.0
// Decomposes a plain aggregate into its members without a field list, so that structures can be traversed
// (array/traversal.h). An aggregate has at most 32 members. Members cannot be C arrays or references, and the type
// cannot have base classes. Such types must list their fields instead.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace tessera::detail {

inline constexpr std::size_t max_members = 32;

/// A placeholder for a member while members are counted. It converts to any type except a base class or the aggregate
/// itself. The conversion is never called, but compilers look for its definition when they examine a member's
/// constructor.
template <class T>
struct AnyMember {
  template <class M>
    requires(!std::is_base_of_v<M, T> && !std::is_same_v<M, T>)
  operator M() const noexcept {
    M (*const never)() = nullptr;
    return never();
  }
};
template <class T>
struct OnlyBase {
  template <class B>
    requires(std::is_base_of_v<B, T> && !std::is_same_v<B, T>)
  operator B() const noexcept;
};

/// `fits<T>`: true if T can be initialised from N times `{}`. `one_more<T>`: true if it also accepts an additional
/// AnyMember.
template <std::size_t N>
struct Braces;
// clang-format off
#define TESSERA_BRACES(N, ...)                                                                             \
  template <>                                                                                              \
  struct Braces<N> {                                                                                       \
    template <class T> static constexpr bool fits = requires { T{__VA_ARGS__}; };                          \
    template <class T> static constexpr bool one_more = requires { T{__VA_ARGS__, AnyMember<T>{}}; };      \
  };
#define TESSERA_4 {}, {}, {}, {}
#define TESSERA_8 TESSERA_4, TESSERA_4
#define TESSERA_16 TESSERA_8, TESSERA_8
template <>
struct Braces<0> {
  template <class T> static constexpr bool fits = requires { T{}; };
  template <class T> static constexpr bool one_more = requires { T{AnyMember<T>{}}; };
};
TESSERA_BRACES(1, {})
TESSERA_BRACES(2, {}, {})
TESSERA_BRACES(3, {}, {}, {})
TESSERA_BRACES(4, TESSERA_4)
TESSERA_BRACES(5, TESSERA_4, {})
TESSERA_BRACES(6, TESSERA_4, {}, {})
TESSERA_BRACES(7, TESSERA_4, {}, {}, {})
TESSERA_BRACES(8, TESSERA_8)
TESSERA_BRACES(9, TESSERA_8, {})
TESSERA_BRACES(10, TESSERA_8, {}, {})
TESSERA_BRACES(11, TESSERA_8, {}, {}, {})
TESSERA_BRACES(12, TESSERA_8, TESSERA_4)
TESSERA_BRACES(13, TESSERA_8, TESSERA_4, {})
TESSERA_BRACES(14, TESSERA_8, TESSERA_4, {}, {})
TESSERA_BRACES(15, TESSERA_8, TESSERA_4, {}, {}, {})
TESSERA_BRACES(16, TESSERA_16)
TESSERA_BRACES(17, TESSERA_16, {})
TESSERA_BRACES(18, TESSERA_16, {}, {})
TESSERA_BRACES(19, TESSERA_16, {}, {}, {})
TESSERA_BRACES(20, TESSERA_16, TESSERA_4)
TESSERA_BRACES(21, TESSERA_16, TESSERA_4, {})
TESSERA_BRACES(22, TESSERA_16, TESSERA_4, {}, {})
TESSERA_BRACES(23, TESSERA_16, TESSERA_4, {}, {}, {})
TESSERA_BRACES(24, TESSERA_16, TESSERA_8)
TESSERA_BRACES(25, TESSERA_16, TESSERA_8, {})
TESSERA_BRACES(26, TESSERA_16, TESSERA_8, {}, {})
TESSERA_BRACES(27, TESSERA_16, TESSERA_8, {}, {}, {})
TESSERA_BRACES(28, TESSERA_16, TESSERA_8, TESSERA_4)
TESSERA_BRACES(29, TESSERA_16, TESSERA_8, TESSERA_4, {})
TESSERA_BRACES(30, TESSERA_16, TESSERA_8, TESSERA_4, {}, {})
TESSERA_BRACES(31, TESSERA_16, TESSERA_8, TESSERA_4, {}, {}, {})
TESSERA_BRACES(32, TESSERA_16, TESSERA_16)
TESSERA_BRACES(33, TESSERA_16, TESSERA_16, {})
#undef TESSERA_16
#undef TESSERA_8
#undef TESSERA_4
#undef TESSERA_BRACES
// clang-format on

/// Finds the number of `{}` initialisers by binary search. `{}` also initialises types with their own conversions, such
/// as std::optional. Requires that Low initialisers fit and High do not.
template <class T, std::size_t Low = 0, std::size_t High = max_members + 2>
consteval std::size_t count_by_braces() {
  constexpr std::size_t middle = (Low + High) / 2;
  if constexpr (High - Low == 1)
    return Low;
  else if constexpr (Braces<middle>::template fits<T>)
    return count_by_braces<T, middle, High>();
  else
    return count_by_braces<T, Low, middle>();
}
template <class T, std::size_t... I>
consteval bool takes_members(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyMember<T>{})...}; };
}
/// Counts AnyMember initialisers. This also works for members without a default constructor.
template <class T, std::size_t N = max_members + 1>
consteval std::size_t count_by_stand_ins() {
  if constexpr (N == 0)
    return 0;
  else if constexpr (takes_members<T>(std::make_index_sequence<N>()))
    return N;
  else
    return count_by_stand_ins<T, N - 1>();
}

template <class T>
consteval std::size_t count_members() {
  if constexpr (!std::is_aggregate_v<T> || !std::is_class_v<T> || requires { T{OnlyBase<T>{}}; }) {
    return 0;
  } else {
    constexpr std::size_t braces = count_by_braces<T>();
    // The first member that is not counted may have an explicit default constructor, which rejects `{}`. Only such
    // types are counted with AnyMember, because AnyMember would count each element of a C array.
    constexpr std::size_t count = [] {
      if constexpr (braces > max_members)
        return braces;
      else if constexpr (braces == 0 || Braces<braces>::template one_more<T>)
        return count_by_stand_ins<T>();
      else
        return braces;
    }();
    return count > max_members ? 0 : count;
  }
}
/// The number of members; 0 if the type cannot be decomposed.
template <class T>
inline constexpr std::size_t member_count = count_members<T>();

/// Calls `use(member...)` with a reference to each member. (A bit-field can be bound only by a const reference.)
template <class T, class Use>
constexpr decltype(auto) with_members(T& x, Use&& use) {
  constexpr std::size_t count = member_count<std::remove_const_t<T>>;
  static_assert(count != 0);
  // clang-format off
#define TESSERA_MEMBERS(N, ...) \
  if constexpr (count == N) {   \
    auto& [__VA_ARGS__] = x;    \
    return use(__VA_ARGS__);    \
  }
#define TESSERA_4 a, b, c, d
#define TESSERA_8 TESSERA_4, e, f, g, h
#define TESSERA_12 TESSERA_8, i, j, k, l
#define TESSERA_16 TESSERA_12, m, n, o, p
#define TESSERA_20 TESSERA_16, q, r, s, t
#define TESSERA_24 TESSERA_20, u, v, w, y
#define TESSERA_28 TESSERA_24, A, B, C, D
  TESSERA_MEMBERS(1, a)
  else TESSERA_MEMBERS(2, a, b)
  else TESSERA_MEMBERS(3, a, b, c)
  else TESSERA_MEMBERS(4, TESSERA_4)
  else TESSERA_MEMBERS(5, TESSERA_4, e)
  else TESSERA_MEMBERS(6, TESSERA_4, e, f)
  else TESSERA_MEMBERS(7, TESSERA_4, e, f, g)
  else TESSERA_MEMBERS(8, TESSERA_8)
  else TESSERA_MEMBERS(9, TESSERA_8, i)
  else TESSERA_MEMBERS(10, TESSERA_8, i, j)
  else TESSERA_MEMBERS(11, TESSERA_8, i, j, k)
  else TESSERA_MEMBERS(12, TESSERA_12)
  else TESSERA_MEMBERS(13, TESSERA_12, m)
  else TESSERA_MEMBERS(14, TESSERA_12, m, n)
  else TESSERA_MEMBERS(15, TESSERA_12, m, n, o)
  else TESSERA_MEMBERS(16, TESSERA_16)
  else TESSERA_MEMBERS(17, TESSERA_16, q)
  else TESSERA_MEMBERS(18, TESSERA_16, q, r)
  else TESSERA_MEMBERS(19, TESSERA_16, q, r, s)
  else TESSERA_MEMBERS(20, TESSERA_20)
  else TESSERA_MEMBERS(21, TESSERA_20, u)
  else TESSERA_MEMBERS(22, TESSERA_20, u, v)
  else TESSERA_MEMBERS(23, TESSERA_20, u, v, w)
  else TESSERA_MEMBERS(24, TESSERA_24)
  else TESSERA_MEMBERS(25, TESSERA_24, A)
  else TESSERA_MEMBERS(26, TESSERA_24, A, B)
  else TESSERA_MEMBERS(27, TESSERA_24, A, B, C)
  else TESSERA_MEMBERS(28, TESSERA_28)
  else TESSERA_MEMBERS(29, TESSERA_28, E)
  else TESSERA_MEMBERS(30, TESSERA_28, E, F)
  else TESSERA_MEMBERS(31, TESSERA_28, E, F, G)
  else TESSERA_MEMBERS(32, TESSERA_28, E, F, G, H)
#undef TESSERA_28
#undef TESSERA_24
#undef TESSERA_20
#undef TESSERA_16
#undef TESSERA_12
#undef TESSERA_8
#undef TESSERA_4
#undef TESSERA_MEMBERS
  // clang-format on
}

}  // namespace tessera::detail
