// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/gguf_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <variant>

#include "tessera/llm/gguf_values.h"

namespace tessera {
namespace {

constexpr std::array type_table = {
    GgmlTypeInfo{GgmlType::f32, "f32", 1, 4},
    GgmlTypeInfo{GgmlType::f16, "f16", 1, 2},
    GgmlTypeInfo{GgmlType::q4_0, "q4_0", 32, 18},
    GgmlTypeInfo{GgmlType::q4_1, "q4_1", 32, 20},
    GgmlTypeInfo{GgmlType::q5_0, "q5_0", 32, 22},
    GgmlTypeInfo{GgmlType::q5_1, "q5_1", 32, 24},
    GgmlTypeInfo{GgmlType::q8_0, "q8_0", 32, 34},
    GgmlTypeInfo{GgmlType::q8_1, "q8_1", 32, 36},
    GgmlTypeInfo{GgmlType::q2_K, "q2_K", 256, 84},
    GgmlTypeInfo{GgmlType::q3_K, "q3_K", 256, 110},
    GgmlTypeInfo{GgmlType::q4_K, "q4_K", 256, 144},
    GgmlTypeInfo{GgmlType::q5_K, "q5_K", 256, 176},
    GgmlTypeInfo{GgmlType::q6_K, "q6_K", 256, 210},
    GgmlTypeInfo{GgmlType::q8_K, "q8_K", 256, 292},
    GgmlTypeInfo{GgmlType::iq2_xxs, "iq2_xxs", 256, 66},
    GgmlTypeInfo{GgmlType::iq2_xs, "iq2_xs", 256, 74},
    GgmlTypeInfo{GgmlType::iq3_xxs, "iq3_xxs", 256, 98},
    GgmlTypeInfo{GgmlType::iq1_s, "iq1_s", 256, 50},
    GgmlTypeInfo{GgmlType::iq4_nl, "iq4_nl", 32, 18},
    GgmlTypeInfo{GgmlType::iq3_s, "iq3_s", 256, 110},
    GgmlTypeInfo{GgmlType::iq2_s, "iq2_s", 256, 82},
    GgmlTypeInfo{GgmlType::iq4_xs, "iq4_xs", 256, 136},
    GgmlTypeInfo{GgmlType::i8, "i8", 1, 1},
    GgmlTypeInfo{GgmlType::i16, "i16", 1, 2},
    GgmlTypeInfo{GgmlType::i32, "i32", 1, 4},
    GgmlTypeInfo{GgmlType::i64, "i64", 1, 8},
    GgmlTypeInfo{GgmlType::f64, "f64", 1, 8},
    GgmlTypeInfo{GgmlType::iq1_m, "iq1_m", 256, 56},
    GgmlTypeInfo{GgmlType::bf16, "bf16", 1, 2},
    GgmlTypeInfo{GgmlType::tq1_0, "tq1_0", 256, 54},
    GgmlTypeInfo{GgmlType::tq2_0, "tq2_0", 256, 66},
    GgmlTypeInfo{GgmlType::mxfp4, "mxfp4", 32, 17},
    GgmlTypeInfo{GgmlType::nvfp4, "nvfp4", 64, 36},
    GgmlTypeInfo{GgmlType::q1_0, "q1_0", 128, 18},
    GgmlTypeInfo{GgmlType::q2_0, "q2_0", 64, 18},
};

// Types that occur in files from 2023 and 2024, but that current versions of ggml do not support.
constexpr std::array<std::pair<std::uint32_t, std::string_view>, 8> withdrawn_types = {{{4, "q4_2"},
                                                                                        {5, "q4_3"},
                                                                                        {31, "q4_0_4_4"},
                                                                                        {32, "q4_0_4_8"},
                                                                                        {33, "q4_0_8_8"},
                                                                                        {36, "iq4_nl_4_4"},
                                                                                        {37, "iq4_nl_4_8"},
                                                                                        {38, "iq4_nl_8_8"}}};

constexpr std::array supported_types = {
    GgmlType::f32,     GgmlType::f16,    GgmlType::bf16,   GgmlType::q8_0,  GgmlType::q4_0,    GgmlType::q4_1,
    GgmlType::q5_0,    GgmlType::q5_1,   GgmlType::q2_K,   GgmlType::q3_K,  GgmlType::q4_K,    GgmlType::q5_K,
    GgmlType::q6_K,    GgmlType::iq4_nl, GgmlType::iq4_xs, GgmlType::mxfp4, GgmlType::iq3_xxs, GgmlType::iq3_s,
    GgmlType::iq2_xxs, GgmlType::iq2_xs, GgmlType::iq2_s,  GgmlType::iq1_s, GgmlType::iq1_m,   GgmlType::tq2_0};

}  // namespace

std::size_t GgufArray::size() const {
  return std::visit([](const auto& v) { return v.size(); }, values);
}
bool operator==(const GgufArray& a, const GgufArray& b) { return a.values == b.values; }

std::string_view gguf_type_name(GgufType type) {
  constexpr std::array<std::string_view, gguf_type_count> names = {
      "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
  const auto id = static_cast<std::uint32_t>(type);
  return id < names.size() ? names[id] : "unknown";
}

std::size_t gguf_type_size(GgufType type) {
  constexpr std::array<std::size_t, gguf_type_count> sizes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  const auto id = static_cast<std::uint32_t>(type);
  return id < sizes.size() ? sizes[id] : 0;
}

std::string gguf_type_text(const GgufValue& value) {
  if (const auto* array = std::get_if<GgufArray>(&value))
    return fmt::format("array of {}", gguf_type_name(array->element_type()));
  return std::string(gguf_type_name(static_cast<GgufType>(value.index())));
}

std::span<const GgmlTypeInfo> ggml_types() { return type_table; }

const GgmlTypeInfo* ggml_type_info(std::uint32_t id) {
  const auto it =
      std::lower_bound(type_table.begin(), type_table.end(), id,
                       [](const GgmlTypeInfo& t, std::uint32_t v) { return static_cast<std::uint32_t>(t.type) < v; });
  return it != type_table.end() && static_cast<std::uint32_t>(it->type) == id ? &*it : nullptr;
}

std::string ggml_type_text(std::uint32_t id) {
  if (const auto* info = ggml_type_info(id)) return fmt::format("{} ({})", info->name, id);
  for (const auto& [withdrawn, name] : withdrawn_types)
    if (withdrawn == id) return fmt::format("{} ({}), which was removed from ggml", name, id);
  return fmt::format("{}, which is not a ggml type", id);
}

bool ggml_type_supported(GgmlType type) {
  return std::find(supported_types.begin(), supported_types.end(), type) != supported_types.end();
}

std::string supported_ggml_types() {
  std::string out;
  for (const GgmlType type : supported_types) {
    if (!out.empty()) out += ", ";
    out += ggml_type_info(type)->name;
  }
  return out;
}

std::optional<std::uint64_t> ggml_tensor_bytes(const GgmlTypeInfo& type, std::span<const std::uint64_t> dims) {
  constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
  if (dims.empty() || dims[0] % type.block != 0) return std::nullopt;
  std::uint64_t elements = 1;
  for (const std::uint64_t dim : dims) {
    if (dim == 0 || dim > limit / elements) return std::nullopt;
    elements *= dim;
  }
  const std::uint64_t blocks = elements / type.block;
  if (blocks > limit / type.bytes) return std::nullopt;
  return blocks * type.bytes;
}

std::string quote_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 64)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '"' || byte == '\\')
      out.append({'\\', c});
    else if (byte < 0x20 || byte >= 0x7f)
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    else
      out += c;
  }
  return out + (text.size() > 64 ? "\"..." : "\"");
}

}  // namespace tessera
