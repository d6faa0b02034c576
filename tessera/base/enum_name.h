// SPDX-License-Identifier: Apache-2.0
// Converts enumerators to strings.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tessera {

namespace detail {

/// Extracts the template argument from a compiler's function signature: "tessera::Verdict::proven". The result is
/// "(tessera::Verdict)7" if the value has no enumerator.
constexpr std::string_view argument_text(std::string_view function) {
  constexpr std::string_view before = "argument = ";
  function.remove_prefix(function.find(before) + before.size());
  return function.substr(0, function.find_first_of(";]"));
}
template <auto argument>
constexpr std::string_view enumerator_name() {
  const std::string_view text = argument_text(__PRETTY_FUNCTION__);
  return text.front() == '(' ? std::string_view() : text.substr(text.rfind(':') + 1);
}
template <class argument>
constexpr std::string_view enum_type_text() {
  return argument_text(__PRETTY_FUNCTION__);
}
template <class E>
inline constexpr std::array enumerator_names = []<std::size_t... i>(std::index_sequence<i...>) {
  return std::array{enumerator_name<static_cast<E>(i)>()...};
}(std::make_index_sequence<64>());

}  // namespace detail

/// Returns the name of a Tessera enumerator, such as "early" for FitResult::End::early. Returns the number if no
/// enumerator has this value. Enumerations with other display names, such as DType ("f32") and Backend, have their own
/// overloads.
template <class E>
  requires(std::is_enum_v<E> && detail::enum_type_text<E>().starts_with("tessera::"))
std::string to_string(E value) {
  const auto at = static_cast<std::size_t>(value);
  const bool named = at < detail::enumerator_names<E>.size() && !detail::enumerator_names<E>[at].empty();
  return named ? std::string(detail::enumerator_names<E>[at])
               : std::to_string(+static_cast<std::underlying_type_t<E>>(value));
}

}  // namespace tessera
