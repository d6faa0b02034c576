// SPDX-License-Identifier: Apache-2.0
// The members of a plain aggregate, one after the other, without a list of them: for moving structures between devices.
// At most 16 members; none may be an array of C, a reference or a base class (such types list their fields instead).
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace tessera::detail {

/// Stands for a member of any type while members are counted; never for a base class, nor the aggregate itself.
template <class T>
struct AnyMember {
  template <class M>
    requires(!std::is_base_of_v<M, T> && !std::is_same_v<M, T>)
  operator M() const noexcept;
};
template <class T>
struct OnlyBase {
  template <class B>
    requires(std::is_base_of_v<B, T> && !std::is_same_v<B, T>)
  operator B() const noexcept;
};

template <class T, std::size_t... I>
constexpr bool takes_members(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyMember<T>{})...}; };
}

inline constexpr std::size_t most_members = 16;

/// From `{}` for each member, which also stands for those with conversions of their own (std::optional).
template <class T>
constexpr std::size_t count_by_braces() {
  // clang-format off
  if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 17;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 16;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 15;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 14;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 13;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 12;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 11;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 10;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 9;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}, {}}; }) return 8;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}, {}}; }) return 7;
  else if constexpr (requires { T{{}, {}, {}, {}, {}, {}}; }) return 6;
  else if constexpr (requires { T{{}, {}, {}, {}, {}}; }) return 5;
  else if constexpr (requires { T{{}, {}, {}, {}}; }) return 4;
  else if constexpr (requires { T{{}, {}, {}}; }) return 3;
  else if constexpr (requires { T{{}, {}}; }) return 2;
  else if constexpr (requires { T{{}}; }) return 1;
  else return 0;
  // clang-format on
}
/// Is there a member behind N that take `{}`, which does not take it (an explicit default constructor)?
template <class T, std::size_t N>
constexpr bool one_more_behind_braces() {
  // clang-format off
  if constexpr (N == 0) return requires { T{AnyMember<T>{}}; };
  else if constexpr (N == 1) return requires { T{{}, AnyMember<T>{}}; };
  else if constexpr (N == 2) return requires { T{{}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 3) return requires { T{{}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 4) return requires { T{{}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 5) return requires { T{{}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 6) return requires { T{{}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 7) return requires { T{{}, {}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 8) return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 9) return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 10) return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 11) return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 12) return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 13) return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 14) return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 15) return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else if constexpr (N == 16) return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, AnyMember<T>{}}; };
  else return false;
  // clang-format on
}
/// From a stand-in for each member, which needs no default constructor of theirs.
template <class T, std::size_t N = most_members + 1>
constexpr std::size_t count_by_stand_ins() {
  if constexpr (N == 0)
    return 0;
  else if constexpr (takes_members<T>(std::make_index_sequence<N>()))
    return N;
  else
    return count_by_stand_ins<T, N - 1>();
}

/// 0: not an aggregate whose members can be taken apart.
template <class T>
constexpr std::size_t member_count() {
  if constexpr (!std::is_aggregate_v<T> || !std::is_class_v<T> || requires { T{OnlyBase<T>{}}; }) {
    return 0;
  } else {
    constexpr std::size_t n = [] {
      constexpr std::size_t braces = count_by_braces<T>();
      if constexpr (braces == 0 || one_more_behind_braces<T, braces>())
        return count_by_stand_ins<T>();  // (which would count each element of an array of C)
      else
        return braces;
    }();
    return n > most_members ? 0 : n;
  }
}

/// `use(member...)` with a reference to each.
template <class T, class F>
constexpr decltype(auto) with_members(T& x, F&& use) {
  constexpr std::size_t n = member_count<std::remove_const_t<T>>();
#define TESSERA_MEMBERS(N, ...) \
  if constexpr (n == N) {       \
    auto& [__VA_ARGS__] = x;    \
    return use(__VA_ARGS__);    \
  }
  // clang-format off
  TESSERA_MEMBERS(1, a)
  else TESSERA_MEMBERS(2, a, b)
  else TESSERA_MEMBERS(3, a, b, c)
  else TESSERA_MEMBERS(4, a, b, c, d)
  else TESSERA_MEMBERS(5, a, b, c, d, e)
  else TESSERA_MEMBERS(6, a, b, c, d, e, f)
  else TESSERA_MEMBERS(7, a, b, c, d, e, f, g)
  else TESSERA_MEMBERS(8, a, b, c, d, e, f, g, h)
  else TESSERA_MEMBERS(9, a, b, c, d, e, f, g, h, i)
  else TESSERA_MEMBERS(10, a, b, c, d, e, f, g, h, i, j)
  else TESSERA_MEMBERS(11, a, b, c, d, e, f, g, h, i, j, k)
  else TESSERA_MEMBERS(12, a, b, c, d, e, f, g, h, i, j, k, l)
  else TESSERA_MEMBERS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  else TESSERA_MEMBERS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, o)
  else TESSERA_MEMBERS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p)
  else TESSERA_MEMBERS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q)
  // clang-format on
#undef TESSERA_MEMBERS
}

}  // namespace tessera::detail
