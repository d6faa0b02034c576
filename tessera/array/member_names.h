// SPDX-License-Identifier: Apache-2.0
// The names of an aggregate's members, which C++20 does not tell: the compiler prints them where the address of a
// member is a template's argument. Where it prints something else (another compiler, a bit-field) there are none.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "tessera/array/aggregate.h"

namespace tessera::detail {

/// Letters that are a template's argument, which compilers print as they are: Text<6>{"weight"}.
template <std::size_t N>
struct Text {
  char letters[N + 1]{};
  consteval explicit Text(std::string_view text) {
    for (std::size_t i = 0; i < N; ++i) letters[i] = text[i];
  }
};

#if defined(__GNUC__)  // and clang
#define TESSERA_THIS_FUNCTION __PRETTY_FUNCTION__
#else
#define TESSERA_THIS_FUNCTION ""
#endif

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif
template <class T>
struct Outside {
  const T value;
};
/// Never defined: nothing but addresses is taken of it, and only when compiling. So T needs no constructor.
template <class T>
extern const Outside<T> outside;

struct Address {
  const void* of;
};
template <class T>
constexpr auto member_addresses() {
  return with_members(outside<T>.value, [](const auto&... member) {
    return std::array<Address, sizeof...(member)>{Address{std::addressof(member)}...};
  });
}
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

constexpr bool in_names(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}
consteval std::string_view last_name(const char* text, std::size_t end) {
  while (end > 0 && !in_names(text[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && in_names(text[begin - 1])) --begin;
  if (begin == end || (text[begin] >= '0' && text[begin] <= '9')) return {};
  return {text + begin, end - begin};
}
/// Of "auto member_name() [A = Address{&outside.value.weight}]". (With the type of what is given written out, g++ would
/// explain that type behind it.)
template <Address A>
consteval auto member_name() {
  return last_name(TESSERA_THIS_FUNCTION, sizeof(TESSERA_THIS_FUNCTION) - 1);
}

template <class T>
concept HasAddresses = requires { typename std::integral_constant<std::size_t, member_addresses<T>().size()>; };

template <class T>
inline constexpr auto printed_names = [] {
  if constexpr (HasAddresses<T>) {
    constexpr auto addresses = member_addresses<T>();
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::array<std::string_view, sizeof...(I)>{member_name<addresses[I]>()...};
    }(std::make_index_sequence<addresses.size()>());
  } else {
    return std::array<std::string_view, member_count<T>>();
  }
}();
struct KnownNames {
  int one;
  char another_name_2;
};
/// Does this compiler print what is expected? (A template, so that nobody pays who walks nothing.)
template <class T = KnownNames>
inline constexpr bool names_are_printed = printed_names<T>[0] == "one" && printed_names<T>[1] == "another_name_2";

/// All names one behind the other: of what the compiler printed nothing else stays in the program.
template <class T>
struct MemberNames {
  static consteval std::size_t bytes() {
    std::size_t sum = 0;
    if (names_are_printed<>)
      for (const std::string_view name : printed_names<T>) sum += name.size();
    return sum;
  }
  char letters[bytes() + 1]{};
  std::array<unsigned, member_count<T> + 1> begins{};
  consteval MemberNames() {
    unsigned at = 0;
    for (std::size_t i = 0; i < member_count<T>; ++i, begins[i] = at) {
      if (names_are_printed<>)
        for (const char c : printed_names<T>[i]) letters[at++] = c;
    }
  }
  /// Empty where a name cannot be had.
  constexpr std::string_view operator[](std::size_t i) const {
    return {letters + begins[i], begins[i + 1] - begins[i]};
  }
};
template <class T>
inline constexpr MemberNames<T> member_names;

/// What stands behind "T = ".
template <class T>
consteval auto type_name() {
  std::string_view text = TESSERA_THIS_FUNCTION;
  const std::size_t begin = text.find("T = ");
  if (begin == text.npos) return std::string_view("?");
  return text.substr(begin + 4, text.rfind(']') - begin - 4);
}
#undef TESSERA_THIS_FUNCTION

}  // namespace tessera::detail
