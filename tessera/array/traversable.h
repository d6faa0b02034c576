// SPDX-License-Identifier: Apache-2.0
// Determines at compile time whether a structure can be traversed, and if not, which part prevents it.
#pragma once

#include "tessera/array/member_names.h"
#include "tessera/array/parts.h"

namespace tessera::detail {

template <class... T>
struct Types {};
template <class T>
struct TypesOf;
template <class... T>
struct TypesOf<std::variant<T...>> {
  using type = Types<T...>;
};
template <class... T>
struct TypesOf<std::tuple<T...>> {
  using type = Types<T...>;
};
template <class T, class U>
struct TypesOf<std::pair<T, U>> {
  using type = Types<T, U>;
};
template <class T>
using MemberTypes = decltype(with_members(std::declval<const T&>(), [](const auto&... member) {
  return Types<std::remove_reference_t<decltype(member)>...>();
}));
template <class T>
struct PartType {
  using type = std::remove_cvref_t<T>;
};
template <class T>
struct PartType<Field<T>> {
  using type = std::remove_const_t<T>;
};

/// A type that is being examined, and how it was reached from the type above: by name, by number, or without either
/// (behind pointers and similar).
struct OpenType {
  const OpenType* above;
  std::string_view name;
  int number;
  const void* type;
};
template <class T>
inline constexpr char type_id = 0;

/// The location of a part that cannot be traversed: its type, and its path with "*" for every element of a container.
struct UnknownPart {
  struct Letters {
    char letters[256]{};
    std::size_t size = 0;
    constexpr void append(std::string_view text) {
      for (const char c : text)
        if (size < sizeof(letters)) letters[size++] = c;
    }
    constexpr std::string_view text() const { return {letters, size}; }
  };
  Letters type, path;
  constexpr bool found() const { return path.size != 0; }
  constexpr void append_path(const OpenType& at) {
    if (at.above != nullptr) append_path(*at.above);
    if (at.name.empty() && at.number < 0) return;
    if (path.size != 0) path.append(".");
    path.append(at.name);
    if (!at.name.empty()) return;
    const char digits[] = {static_cast<char>('0' + at.number / 10 % 10), static_cast<char>('0' + at.number % 10)};
    path.append({digits + (at.number < 10), at.number < 10 ? 1u : 2u});
  }
};

template <class T, class Leaves>
constexpr void find_unknown(UnknownPart& part, const OpenType* above, std::string_view name, int number = -1);

/// `name_of(i)` returns an empty name if parts are identified by their numbers.
template <class Leaves, class... P, class NameOf>
constexpr void find_unknown_among(UnknownPart& part, const OpenType& at, Types<P...>, NameOf name_of) {
  int i = 0;
  (((find_unknown<typename PartType<P>::type, Leaves>(part, &at, name_of(i), i)), ++i), ...);
}

template <class T, class Leaves>
constexpr void find_unknown(UnknownPart& part, const OpenType* above, std::string_view name, int number) {
  constexpr PartKind kind = kind_of<T, Leaves>();
  constexpr auto numbers = [](int) { return std::string_view(); };
  if (part.found()) return;
  const OpenType at{above, name, number, &type_id<T>};
  // A type that contains itself (behind a pointer) is skipped.
  for (const OpenType* open = above; open != nullptr; open = open->above)
    if (open->type == at.type) return;
  if constexpr (kind == PartKind::unknown) {
    part.append_path(at);
    part.type.append(type_name<T>());
  } else if constexpr (kind == PartKind::optional) {
    find_unknown<typename T::value_type, Leaves>(part, &at, {});
  } else if constexpr (kind == PartKind::variant) {
    [&]<class... P>(Types<P...>) { (find_unknown<P, Leaves>(part, &at, {}), ...); }(typename TypesOf<T>::type());
  } else if constexpr (kind == PartKind::unique || kind == PartKind::shared) {
    find_unknown<std::remove_const_t<typename T::element_type>, Leaves>(part, &at, {});
  } else if constexpr (is_std_array<T> || kind == PartKind::sequence) {
    find_unknown<typename T::value_type, Leaves>(part, &at, "*");
  } else if constexpr (kind == PartKind::tuple) {
    find_unknown_among<Leaves>(part, at, typename TypesOf<T>::type(), numbers);
  } else if constexpr (kind == PartKind::map) {
    find_unknown<typename T::mapped_type, Leaves>(part, &at, "*");
  } else if constexpr (kind == PartKind::fields) {
    // (The names in a list of fields are known only at run time.)
    using Fields = decltype(fields_of(std::declval<T&>()));
    find_unknown_among<Leaves>(part, at, typename TypesOf<Fields>::type(), numbers);
  } else if constexpr (kind == PartKind::aggregate) {
    find_unknown_among<Leaves>(part, at, MemberTypes<T>(), [](int i) { return member_names<T>[i]; });
  }
}

/// The first part of T that cannot be traversed, if any.
template <class T, class Leaves>
inline constexpr UnknownPart unknown_part = [] {
  UnknownPart part;
  find_unknown<T, Leaves>(part, nullptr, "value");
  return part;
}();

template <class T, class Leaves>
inline constexpr bool traversable = !unknown_part<T, Leaves>.found();

/// Reports a T that cannot be traversed. It instantiates `Refusal<Text type, Text path>`, in which a static_assert with
/// a message fails. The compiler prints the type and the path with the message.
template <class T, class Leaves, template <Text type, Text path> class Refusal>
constexpr void refuse() {
  constexpr const UnknownPart& part = unknown_part<T, Leaves>;
  static_cast<void>(sizeof(Refusal<Text<part.type.size>(part.type.text()), Text<part.path.size>(part.path.text())>));
}

}  // namespace tessera::detail
