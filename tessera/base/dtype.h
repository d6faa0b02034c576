// SPDX-License-Identifier: Apache-2.0
// The element types of arrays, buffers and kernels, with their sizes, names and predicates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/base/half.h"

namespace tessera {

/// `index` exists only inside kernels: a signed integer of 32 or 64 bits, depending on the launch size.
enum class DType : std::uint8_t { boolean, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64, index };

/// All dtypes that can be stored in memory (every dtype except `index`).
inline constexpr std::array storable_dtypes = {DType::boolean, DType::i8,  DType::u8,  DType::i16, DType::u16,
                                               DType::i32,     DType::u32, DType::i64, DType::u64, DType::f16,
                                               DType::bf16,    DType::f32, DType::f64};

/// Bytes per element; 0 for `index`, which is never stored.
constexpr std::size_t dtype_size(DType t) {
  constexpr std::size_t sizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 0};
  return sizes[static_cast<std::size_t>(t)];
}
/// Name of the type: "f32", "bool", ...
constexpr std::string_view dtype_name(DType t) {
  constexpr std::string_view names[] = {"bool", "i8",  "u8",  "i16",  "u16", "i32", "u32",
                                        "i64",  "u64", "f16", "bf16", "f32", "f64", "index"};
  return names[static_cast<std::size_t>(t)];
}
/// True for f16, bf16, f32 and f64.
constexpr bool is_float(DType t) { return t >= DType::f16 && t <= DType::f64; }
/// True for i8 to i64 and index.
constexpr bool is_signed_int(DType t) {
  return t == DType::i8 || t == DType::i16 || t == DType::i32 || t == DType::i64 || t == DType::index;
}
/// True for u8 to u64.
constexpr bool is_unsigned_int(DType t) {
  return t == DType::u8 || t == DType::u16 || t == DType::u32 || t == DType::u64;
}
/// True for all integer types, including index.
constexpr bool is_int(DType t) { return is_signed_int(t) || is_unsigned_int(t); }

/// The inverse of `dtype_name`. Returns nullopt for an unknown name.
std::optional<DType> dtype_from_name(std::string_view name);

/// Maps a C++ type to its dtype; undefined for types without one.
template <class T>
struct dtype_of_type;
template <>
struct dtype_of_type<bool> {
  static constexpr DType value = DType::boolean;
};
template <>
struct dtype_of_type<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct dtype_of_type<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct dtype_of_type<std::int16_t> {
  static constexpr DType value = DType::i16;
};
template <>
struct dtype_of_type<std::uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct dtype_of_type<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of_type<std::uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct dtype_of_type<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of_type<std::uint64_t> {
  static constexpr DType value = DType::u64;
};
template <>
struct dtype_of_type<half> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of_type<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of_type<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of_type<double> {
  static constexpr DType value = DType::f64;
};

/// The DType of a C++ type: `dtype_v<float>` is DType::f32.
template <class T>
inline constexpr DType dtype_v = dtype_of_type<T>::value;

/// Satisfied by C++ types that can be elements of an array or a buffer.
template <class T>
concept Element = requires { dtype_of_type<T>::value; };

}  // namespace tessera
