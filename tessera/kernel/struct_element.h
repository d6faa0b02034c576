// SPDX-License-Identifier: Apache-2.0
// Determines which C++ structs can be elements of a buffer, with readable errors for other structs. In memory and in
// the IR such a buffer consists of 32-bit words, so that devices do not need to know the struct.
#pragma once

#include <concepts>
#include <type_traits>

#include "tessera/base/dtype.h"

namespace tessera {

struct Index;

namespace detail {

/// A class that is neither an element type nor Index. check_struct reports whether it can be an element.
template <class S>
concept StructElement = std::is_class_v<S> && !Element<S> && !std::same_as<S, Index>;

/// The types that are allowed for the fields of a struct in a buffer.
template <class F>
concept StructField = Element<F> && (sizeof(F) == 4 || sizeof(F) == 8);

/// Reports why S cannot be an element. Called for its static_asserts.
template <class S>
constexpr void check_struct() {
  static_assert(!std::is_empty_v<S>, "this struct cannot be a buffer's element: it has no fields");
  static_assert(std::is_trivially_copyable_v<S>,
                "this struct cannot be a buffer's element: it is not trivially copyable");
  static_assert(
      std::is_standard_layout_v<S>,
      "this struct cannot be a buffer's element: it is not a standard-layout type (virtual functions, fields in "
      "a base and in the struct, or both public and private ones)");
  static_assert(std::is_aggregate_v<S>,
                "this struct cannot be a buffer's element: it is not an aggregate (constructors or private fields)");
  static_assert(std::is_empty_v<S> || alignof(S) % 4 == 0,
                "this struct cannot be a buffer's element: its size and field offsets must be multiples of 4 bytes, "
                "unlike in packed structs and structs with only 1- or 2-byte fields");
}

/// The number of 32-bit words per S, or 1 if S is an element type.
template <class S>
inline constexpr std::uint64_t words_of = StructElement<S> ? sizeof(S) / 4 : 1;

/// Returns the dtype of a buffer of S in memory.
template <class S>
constexpr DType stored_dtype() {
  if constexpr (StructElement<S>)
    return DType::u32;
  else
    return dtype_v<S>;
}

}  // namespace detail
}  // namespace tessera
