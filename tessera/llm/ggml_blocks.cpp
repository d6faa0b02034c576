// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/ggml_blocks.h"

#include <fmt/format.h>

#include <string>

#include "tessera/base/error.h"

namespace tessera {
namespace {

[[noreturn]] void refuse_type(std::string_view asked, GgmlType type) {
  fail<FormatError>({.operation = asked,
                     .with = {{"type", ggml_type_text(type)}},
                     .wrong = "this tensor type is not supported",
                     .remedy = "Supported types: " + supported_ggml_types()});
}

void require_whole_blocks(std::string_view asked, GgmlType type, std::size_t size, std::size_t unit) {
  if (size % unit != 0)
    fail<ArgumentError>({.operation = asked,
                         .with = {{"type", ggml_type_text(type)}, {"size", std::to_string(size)}},
                         .wrong = fmt::format("the size is not a multiple of the block size {}", unit)});
}

}  // namespace

std::optional<WeightFormat> weight_format(GgmlType type) {
  switch (type) {
    case GgmlType::f32: return WeightFormat::f32;
    case GgmlType::f16: return WeightFormat::f16;
    case GgmlType::bf16: return WeightFormat::bf16;
    case GgmlType::q8_0: return WeightFormat::q8_0;
    case GgmlType::q4_0: return WeightFormat::q4_0;
    case GgmlType::q4_1: return WeightFormat::q4_1;
    case GgmlType::q5_0: return WeightFormat::q5_0;
    case GgmlType::q5_1: return WeightFormat::q5_1;
    case GgmlType::iq4_nl: return WeightFormat::iq4_nl;
    case GgmlType::iq4_xs: return WeightFormat::iq4_xs;
    case GgmlType::mxfp4: return WeightFormat::mxfp4;
    case GgmlType::q2_K: return WeightFormat::q2_K;
    case GgmlType::q3_K: return WeightFormat::q3_K;
    case GgmlType::q4_K: return WeightFormat::q4_K;
    case GgmlType::q5_K: return WeightFormat::q5_K;
    case GgmlType::q6_K: return WeightFormat::q6_K;
    case GgmlType::iq3_xxs: return WeightFormat::iq3_xxs;
    case GgmlType::iq3_s: return WeightFormat::iq3_s;
    case GgmlType::iq2_xxs: return WeightFormat::iq2_xxs;
    case GgmlType::iq2_xs: return WeightFormat::iq2_xs;
    case GgmlType::iq2_s: return WeightFormat::iq2_s;
    case GgmlType::iq1_s: return WeightFormat::iq1_s;
    case GgmlType::iq1_m: return WeightFormat::iq1_m;
    case GgmlType::tq2_0: return WeightFormat::tq2_0;
    default: return std::nullopt;
  }
}

std::vector<float> ggml_to_float(GgmlType type, std::span<const std::byte> data) {
  constexpr std::string_view asked = "dequantise";
  const auto format = weight_format(type);
  if (!format) refuse_type(asked, type);
  require_whole_blocks(asked, type, data.size(), ggml_type_info(type)->bytes);
  return dequantize(*format, data);
}

std::vector<std::byte> ggml_from_float(GgmlType type, std::span<const float> values) {
  constexpr std::string_view asked = "quantise";
  const auto format = weight_format(type);
  if (!format) refuse_type(asked, type);
  if (!can_quantize(*format))
    fail<FormatError>({.operation = asked,
                       .with = {{"type", ggml_type_text(type)}},
                       .wrong = "quantising to this type is not supported; it can only be read",
                       .remedy = "Use one of " + writable_formats_text()});
  require_whole_blocks(asked, type, values.size(), ggml_type_info(type)->block);
  return quantize(*format, values);
}

}  // namespace tessera
