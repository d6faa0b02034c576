// SPDX-License-Identifier: Apache-2.0
// The names of an aggregate's members. C++20 has no reflection, but compilers print a member's name if its address is a
// template argument. Names are empty if the output has another form, for example because of another compiler or a
// bit-field.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "tessera/array/aggregate.h"

namespace tessera::detail {

/// A string as a template argument, in a form that compilers print verbatim: Text<6>{"weight"}.
template <std::size_t N>
struct Text {
  char letters[N + 1]{};
  consteval explicit Text(std::string_view text) {
    for (std::size_t i = 0; i < N; ++i) letters[i] = text[i];
  }
};

#if defined(__GNUC__)  // also clang
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
/// Declared, but never defined. Only the addresses of its members are used, at compile time, so T needs no constructor.
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
/// Parses "auto member_name() [A = Address{&outside.value.weight}]". With an explicit return type, g++ would append an
/// explanation of that type.
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
/// Checks that this compiler prints the expected form. It is a template, so that it is compiled only if structures are
/// traversed.
template <class T = KnownNames>
inline constexpr bool names_are_printed = printed_names<T>[0] == "one" && printed_names<T>[1] == "another_name_2";

/// All names, concatenated. Copying them keeps the other parts of the compiler's output out of the binary.
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
  /// Empty if the name is unknown.
  constexpr std::string_view operator[](std::size_t i) const {
    return {letters + begins[i], begins[i + 1] - begins[i]};
  }
};
template <class T>
inline constexpr MemberNames<T> member_names;

/// The text after "T = ".
template <class T>
consteval auto type_name() {
  std::string_view text = TESSERA_THIS_FUNCTION;
  const std::size_t begin = text.find("T = ");
  if (begin == text.npos) return std::string_view("?");
  return text.substr(begin + 4, text.rfind(']') - begin - 4);
}
#undef TESSERA_THIS_FUNCTION

}  // namespace tessera::detail
