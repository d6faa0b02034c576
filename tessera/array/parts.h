// SPDX-License-Identifier: Apache-2.0
// Classifies the parts of a structure by their types.
#pragma once

#include <array>
#include <concepts>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/array/aggregate.h"
#include "tessera/array/array.h"
#include "tessera/array/member_names.h"

namespace tessera {

namespace detail {

/// For a class of the standard library, the name of its template: "deque", "chrono::duration"; else empty. Templates
/// are recognised by name if including their headers, some of which are long, is avoided.
template <class T>
consteval std::string_view std_name() {
  std::string_view name = type_name<T>();
  if (!name.starts_with("std::")) return {};
  name.remove_prefix(5);
  name = name.substr(0, name.find('<'));
  while (name.starts_with("__") && name.find("::") != name.npos) name.remove_prefix(name.find("::") + 2);
  return name;
}
template <class T>
consteval bool is_std(auto... names) {
  constexpr std::string_view name = std_name<T>();
  return ((name == names) || ...);
}

}  // namespace detail

/// Specialise it as `true` for a type that contains no arrays. Traversals skip such a type, and copies of structures
/// copy it.
template <class T>
inline constexpr bool holds_no_arrays =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_null_pointer_v<T> || std::is_member_pointer_v<T> ||
    (std::is_pointer_v<T> && std::is_function_v<std::remove_pointer_t<T>>) || std::is_same_v<T, const char*> ||
    (std::is_class_v<T> && std::is_empty_v<T>) || std::is_same_v<T, std::string> ||
    std::is_same_v<T, std::string_view> || std::is_same_v<T, Device> ||
    detail::is_std<T>("chrono::duration", "chrono::time_point", "complex", "ranges::iota_view");
template <>
inline constexpr bool holds_no_arrays<Shape> = true;

/// A class that is not a plain aggregate lists the parts that contain its arrays. It does so in a member function `auto
/// fields()`, or in a function found by argument-dependent lookup: `auto tessera_fields(Layer& l) { return
/// std::tie(l.weight, l.bias); }`. The function is also called on const objects, so it must only create references.
/// Parts that are not listed are assumed to contain no arrays.
///
/// `field` gives a part a name in paths: `return std::tuple(field("weight", l.weight));`. A part named "." adds nothing
/// to paths.
template <class T>
struct Field {
  const char* name;  ///< The name, which appears in paths.
  T& value;          ///< The member itself.
};
/// Names a member in the result of `fields()`.
template <class T>
Field<T> field(const char* name, T& value) {
  return {name, value};
}

namespace detail {

template <class T>
concept HasFieldsFunction = requires(T& x) { tessera_fields(x); };
template <class T>
concept HasFieldsMember = requires(T& x) { x.fields(); };

template <class T, template <class...> class Template>
inline constexpr bool is_a = false;
template <class... A, template <class...> class Template>
inline constexpr bool is_a<Template<A...>, Template> = true;
template <class T, template <class...> class... Templates>
inline constexpr bool is_one_of = (is_a<T, Templates> || ...);

template <class T>
inline constexpr bool is_sequence = is_a<T, std::vector> || is_std<T>("deque", "list");
template <class T>
inline constexpr bool is_unordered_map = is_std<T>("unordered_map", "unordered_multimap");
template <class T>
inline constexpr bool is_std_array = false;
template <class T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;
template <class T>
inline constexpr bool is_std_span = false;
template <class T, std::size_t N>
inline constexpr bool is_std_span<std::span<T, N>> = true;
template <class T>
inline constexpr bool is_plain_unique = false;
template <class T>
inline constexpr bool is_plain_unique<std::unique_ptr<T>> = !std::is_array_v<T>;
template <class T>
inline constexpr bool is_field = false;
template <class T>
inline constexpr bool is_field<Field<T>> = true;

/// The default for visitors without a member `leaves`: only arrays are visited. `leaves` selects the other types that
/// the visitor receives as a whole. Types, including Array, for which `leaves` defines `is_refused<T>` as true cannot
/// be traversed.
struct ArraysOnly {
  template <class T>
  static constexpr bool is_leaf = false;
};
template <class Leaves, class T>
concept Refuses = requires { requires Leaves::template is_refused<T>; };
template <class F>
struct LeavesOf {
  using type = ArraysOnly;
};
template <class F>
  requires requires { typename F::leaves; }
struct LeavesOf<F> {
  using type = typename F::leaves;
};

enum class PartKind : std::uint8_t {
  unknown,  ///< cannot be traversed
  nothing,  ///< contains no arrays
  array,    ///< an Array or a type derived from it
  leaf,     ///< another part that is visited as a whole
  optional,
  variant,
  unique,
  shared,
  tuple,
  sequence,
  map,
  fields,
  aggregate
};

template <class T, class Leaves>
constexpr PartKind kind_of();

/// True if T contains no arrays. A container of a type without arrays contains none either.
template <class T, class Leaves>
constexpr bool holds_nothing() {
  if constexpr (Leaves::template is_leaf<T>)
    return false;
  else if constexpr (holds_no_arrays<T>)
    return true;
  else if constexpr (is_std_array<T> || is_std_span<T> || is_sequence<T>)
    return holds_nothing<typename T::value_type, Leaves>();
  else if constexpr (is_std<T>("set", "multiset", "unordered_set", "unordered_multiset"))
    return holds_nothing<typename T::key_type, Leaves>();
  else
    return false;
}

template <class T, class Leaves>
constexpr PartKind kind_of() {
  if constexpr (Refuses<Leaves, T>)
    return PartKind::unknown;
  else if constexpr (std::is_same_v<T, Array>)
    return PartKind::array;
  else if constexpr (Leaves::template is_leaf<T>)
    return PartKind::leaf;
  else if constexpr (std::derived_from<T, Array>)
    return PartKind::array;
  else if constexpr (holds_nothing<T, Leaves>())
    return PartKind::nothing;
  else if constexpr (is_one_of<T, std::optional>)
    return PartKind::optional;
  else if constexpr (is_one_of<T, std::variant>)
    return PartKind::variant;
  else if constexpr (is_plain_unique<T>)
    return std::is_polymorphic_v<typename T::element_type> ? PartKind::unknown : PartKind::unique;
  else if constexpr (is_one_of<T, std::shared_ptr>)
    return std::is_polymorphic_v<typename T::element_type> || std::is_array_v<typename T::element_type>
               ? PartKind::unknown
               : PartKind::shared;
  else if constexpr (is_std_array<T> || is_one_of<T, std::tuple, std::pair>)
    return PartKind::tuple;
  else if constexpr (is_sequence<T>)
    return PartKind::sequence;
  else if constexpr (is_one_of<T, std::map, std::multimap> || is_unordered_map<T>)
    return holds_nothing<typename T::key_type, ArraysOnly>() ? PartKind::map : PartKind::unknown;
  else if constexpr (HasFieldsFunction<T> || HasFieldsMember<T>)
    return PartKind::fields;
  else if constexpr (member_count<T> != 0)
    return PartKind::aggregate;
  else
    return PartKind::unknown;
}

template <class T>
auto fields_of(T& x) {
  if constexpr (HasFieldsFunction<T>)
    return tessera_fields(x);
  else
    return x.fields();
}

}  // namespace detail

}  // namespace tessera
