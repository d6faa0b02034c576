// SPDX-License-Identifier: Apache-2.0
// Which C++ structs can be elements of a buffer, and the sentences for those that cannot. In memory and in the IR such
// a buffer is one of 32-bit words, so that no device needs to know the struct.
#pragma once

#include <concepts>
#include <type_traits>

#include "tessera/base/dtype.h"

namespace tessera {

struct Index;

namespace detail {

/// A class that is neither an element by itself nor Index: what check_struct has something to say about.
template <class S>
concept StructElement = std::is_class_v<S> && !Element<S> && !std::same_as<S, Index>;

/// What a field of such a struct may be.
template <class F>
concept StructField = Element<F> && (sizeof(F) == 4 || sizeof(F) == 8);

/// Says what is wrong with S; called for its static_asserts.
template <class S>
constexpr void check_struct() {
  static_assert(!std::is_empty_v<S>, "this struct cannot be a buffer's element: it has no fields");
  static_assert(std::is_trivially_copyable_v<S>,
                "this struct cannot be a buffer's element: it is not trivially copyable");
  static_assert(std::is_standard_layout_v<S>,
                "this struct cannot be a buffer's element: it has no standard layout (virtual functions, or fields in "
                "a base and in the struct, or both public and private ones)");
  static_assert(std::is_aggregate_v<S>,
                "this struct cannot be a buffer's element: it is not an aggregate (constructors or private fields)");
  static_assert(std::is_empty_v<S> || alignof(S) % 4 == 0,
                "this struct cannot be a buffer's element: its size and the places of its fields have to be multiples "
                "of 4 bytes, which those of packed structs and of structs of 1- and 2-byte fields are not");
}

/// 32-bit words of one S; 1 for what is an element by itself.
template <class S>
inline constexpr std::uint64_t words_of = StructElement<S> ? sizeof(S) / 4 : 1;

/// The dtype that a buffer of S has in memory.
template <class S>
constexpr DType stored_dtype() {
  if constexpr (StructElement<S>)
    return DType::u32;
  else
    return dtype_v<S>;
}

}  // namespace detail
}  // namespace tessera
