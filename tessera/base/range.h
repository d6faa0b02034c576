// SPDX-License-Identifier: Apache-2.0
// Ranges for public headers, which do not include <ranges>. Internal.
#pragma once

#include <iterator>
#include <span>  // declares std::ranges::enable_view
#include <type_traits>
#include <utility>

namespace tessera::detail {

/// Types that a range-based for loop accepts because they are arrays or have begin() and end().
template <class R>
concept Range = requires(R& range) {
  std::begin(range);
  std::end(range);
};
template <class R>
using IteratorOf = decltype(std::begin(std::declval<R&>()));
/// The type of a range's elements, without references.
template <class R>
using ElementOf = std::remove_cvref_t<decltype(*std::begin(std::declval<R&>()))>;

/// Refers to a range, as std::ranges::ref_view.
template <class R>
struct RangeReference {
  R* range;
  auto begin() const { return std::begin(*range); }
  auto end() const { return std::end(*range); }
};

/// What std::views::all gives: views are copied, other ranges are moved if they are rvalues, and referred to if not.
template <class R>
using ViewOf = std::conditional_t<std::is_lvalue_reference_v<R> && !std::ranges::enable_view<std::remove_cvref_t<R>>,
                                  RangeReference<std::remove_reference_t<R>>, std::remove_cvref_t<R>>;
template <class R>
ViewOf<R> view_of(R&& range) {
  if constexpr (std::is_same_v<ViewOf<R>, RangeReference<std::remove_reference_t<R>>>)
    return {&range};
  else
    return std::forward<R>(range);
}

}  // namespace tessera::detail

template <class R>
inline constexpr bool std::ranges::enable_view<tessera::detail::RangeReference<R>> = true;
