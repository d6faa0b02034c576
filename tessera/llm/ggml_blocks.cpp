// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/ggml_blocks.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "tessera/base/error.h"

namespace tessera {
namespace {

// Blocks are written with memcpy because a file's data may be unaligned.
template <class Block, class Encode>
std::vector<std::byte> encode_all(std::span<const float> values, std::size_t block, Encode&& encode) {
  std::vector<std::byte> out(values.size() / block * sizeof(Block));
  for (std::size_t i = 0; i < values.size() / block; ++i) {
    const Block b = encode(values.data() + i * block);
    std::memcpy(out.data() + i * sizeof(Block), &b, sizeof(Block));
  }
  return out;
}

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
  const GgmlTypeInfo* const info = ggml_type_info(type);
  if (!info) refuse_type(asked, type);
  require_whole_blocks(asked, type, values.size(), info->block);
  switch (type) {
    case GgmlType::f32: return encode_all<float>(values, 1, [](const float* v) { return *v; });
    case GgmlType::f16: return encode_all<half>(values, 1, [](const float* v) { return half(*v); });
    case GgmlType::bf16: return encode_all<bfloat16>(values, 1, [](const float* v) { return bfloat16(*v); });
    case GgmlType::q8_0:
      return encode_all<BlockQ8_0>(values, 32,
                                   [](const float* v) { return quantize_q8_0(std::span<const float, 32>(v, 32)); });
    case GgmlType::q4_0:
      return encode_all<BlockQ4_0>(values, 32,
                                   [](const float* v) { return quantize_q4_0(std::span<const float, 32>(v, 32)); });
    default:
      fail<FormatError>({.operation = asked,
                         .with = {{"type", ggml_type_text(type)}},
                         .wrong = "quantising to this type is not supported; it can only be read",
                         .remedy = "Use f32, f16, bf16, q8_0 or q4_0"});
  }
}

}  // namespace tessera
