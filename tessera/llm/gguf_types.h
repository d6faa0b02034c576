// SPDX-License-Identifier: Apache-2.0
// Types of GGUF files: types of metadata, ggml's tensor types, and descriptions of tensors. Shared by the reader
// (gguf.h) and the writer (gguf_writer.h); ggml's docs/gguf.md describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

/// Type ids of metadata values in the file.
enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
inline constexpr std::uint32_t gguf_type_count = 13;  ///< The number of metadata types.

/// Returns the name of a type, such as "u8" or "string". Returns "unknown" for invalid ids.
std::string_view gguf_type_name(GgufType type);
/// Returns the size of one value in the file, in bytes. Returns 0 for strings and arrays, because their size varies.
std::size_t gguf_type_size(GgufType type);

struct GgufArray;  // gguf_values.h
struct GgufEntry;  // gguf_values.h
/// A metadata value. The alternatives are in the order of `GgufType`, so the index is the type's id. Its array type is
/// defined in gguf_values.h.
using GgufValue = std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                               float, bool, std::string, GgufArray, std::uint64_t, std::int64_t, double>;

/// Returns the type of a value for messages, such as "u32" or "array of string".
std::string gguf_type_text(const GgufValue& value);

/// ggml's tensor types (ggml.h). The values are the ids in files; gaps are types that were removed from ggml.
enum class GgmlType : std::uint32_t {
  f32 = 0,       ///< 32-bit floats
  f16 = 1,       ///< 16-bit floats
  q4_0 = 2,      ///< blocks of 32 4-bit integers with a scale
  q4_1 = 3,      ///< blocks of 32 4-bit integers with a scale and a minimum
  q5_0 = 6,      ///< blocks of 32 5-bit integers with a scale
  q5_1 = 7,      ///< blocks of 32 5-bit integers with a scale and a minimum
  q8_0 = 8,      ///< blocks of 32 8-bit integers with a scale
  q8_1 = 9,      ///< blocks of 32 8-bit integers with a scale and a sum
  q2_K = 10,     ///< super-blocks of 256 with 2-bit integers
  q3_K = 11,     ///< super-blocks of 256 with 3-bit integers
  q4_K = 12,     ///< super-blocks of 256 with 4-bit integers
  q5_K = 13,     ///< super-blocks of 256 with 5-bit integers
  q6_K = 14,     ///< super-blocks of 256 with 6-bit integers
  q8_K = 15,     ///< super-blocks of 256 with 8-bit integers, for intermediate results only
  iq2_xxs = 16,  ///< 2.06 bits per element; indices into a table of vectors
  iq2_xs = 17,   ///< 2.31 bits per element; indices into a table of vectors
  iq3_xxs = 18,  ///< 3.06 bits per element; indices into a table of vectors
  iq1_s = 19,    ///< 1.56 bits per element; indices into a table of vectors
  iq4_nl = 20,   ///< blocks of 32 4-bit indices into a table of 16 values
  iq3_s = 21,    ///< 3.44 bits per element; indices into a table of vectors
  iq2_s = 22,    ///< 2.5 bits per element; indices into a table of vectors
  iq4_xs = 23,   ///< super-blocks of 256 4-bit indices into a table of 16 values
  i8 = 24,       ///< 8-bit integers
  i16 = 25,      ///< 16-bit integers
  i32 = 26,      ///< 32-bit integers
  i64 = 27,      ///< 64-bit integers
  f64 = 28,      ///< 64-bit floats
  iq1_m = 29,    ///< 1.75 bits per element; indices into a table of vectors
  bf16 = 30,     ///< bfloat16
  tq1_0 = 34,    ///< 1.69 bits per element; the values are -1, 0 and 1
  tq2_0 = 35,    ///< 2.06 bits per element; the values are -1, 0 and 1
  mxfp4 = 39,    ///< blocks of 32 4-bit floats with a scale that is a power of two
  nvfp4 = 40,    ///< blocks of 4-bit floats with 8-bit float scales
  q1_0 = 41,     ///< blocks of 1-bit numbers with a scale
  q2_0 = 42,     ///< blocks of 2-bit numbers with a scale
};

/// The layout of a tensor type in a file. A row is a sequence of blocks.
struct GgmlTypeInfo {
  GgmlType type;          ///< The type.
  std::string_view name;  ///< ggml's name, e.g. "q4_K"
  std::uint32_t block;    ///< elements per block
  std::uint32_t bytes;    ///< bytes per block
};

/// All types, by ascending id.
std::span<const GgmlTypeInfo> ggml_types();
/// Returns the type with this id, or null.
const GgmlTypeInfo* ggml_type_info(std::uint32_t id);
inline const GgmlTypeInfo* ggml_type_info(GgmlType type) { return ggml_type_info(static_cast<std::uint32_t>(type)); }
/// Returns a description such as "q4_K (12)" for messages. The text mentions if the id is unknown or was removed from
/// ggml.
std::string ggml_type_text(std::uint32_t id);
inline std::string ggml_type_text(GgmlType type) { return ggml_type_text(static_cast<std::uint32_t>(type)); }
/// True if Tessera can compute with tensors of this type. Tensors of other types can only be listed and copied.
bool ggml_type_supported(GgmlType type);
/// Returns "f32, f16, ..." for messages.
std::string supported_ggml_types();

/// The description of a tensor in the file.
struct GgufTensor {
  std::string name;                 ///< Its name, such as "token_embd.weight".
  std::vector<std::uint64_t> dims;  ///< one to four dimensions in ggml's order: dims[0] is the length of a row
  GgmlType type = GgmlType::f32;    ///< The type of its elements.
  std::uint64_t offset = 0;         ///< offset in the data section of its file, in bytes
  std::uint64_t bytes = 0;          ///< size of the data in bytes
  std::uint64_t elements = 0;       ///< product of dims
  std::uint32_t part = 0;           ///< index of the file that contains the data, if the model is split
};

/// Returns the size in bytes of a tensor with this type and shape. Returns std::nullopt if a dimension is 0, the row
/// length is not a multiple of the block size, or the number of elements or bytes exceeds 2^63 - 1.
std::optional<std::uint64_t> ggml_tensor_bytes(const GgmlTypeInfo& type, std::span<const std::uint64_t> dims);

/// Quotes text from a file for messages. Unprintable bytes are written as \xNN, and text is truncated after 64 bytes.
std::string quote_text(std::string_view text);

}  // namespace tessera
