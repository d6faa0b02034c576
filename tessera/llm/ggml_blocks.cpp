// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/ggml_blocks.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "tessera/base/error.h"

namespace tessera {
namespace {

// Reads and writes blocks through memcpy: a file's data need not be aligned for them.
template <class Block, class Decode>
std::vector<float> decode_all(std::span<const std::byte> data, std::size_t block, Decode&& decode) {
  std::vector<float> out(data.size() / sizeof(Block) * block);
  for (std::size_t i = 0; i < data.size() / sizeof(Block); ++i) {
    Block b;
    std::memcpy(&b, data.data() + i * sizeof(Block), sizeof(Block));
    decode(b, out.data() + i * block);
  }
  return out;
}

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
  fail<FormatError>({.asked = asked,
                     .with = {{"type", ggml_type_text(type)}},
                     .wrong = "this tensor type is not supported",
                     .todo = "Supported are " + ggml_supported_text()});
}

void require_whole(std::string_view asked, GgmlType type, std::size_t size, std::size_t unit) {
  if (size % unit != 0)
    fail<ArgumentError>({.asked = asked,
                         .with = {{"type", ggml_type_text(type)}, {"size", std::to_string(size)}},
                         .wrong = fmt::format("the size is no multiple of a block's {}", unit)});
}

}  // namespace

std::vector<float> ggml_to_float(GgmlType type, std::span<const std::byte> data) {
  constexpr std::string_view asked = "dequantise";
  if (!ggml_type_supported(type)) refuse_type(asked, type);
  require_whole(asked, type, data.size(), ggml_type_info(type)->bytes);
  switch (type) {
    case GgmlType::f32: return decode_all<float>(data, 1, [](float v, float* out) { *out = v; });
    case GgmlType::f16: return decode_all<half>(data, 1, [](half v, float* out) { *out = static_cast<float>(v); });
    case GgmlType::bf16:
      return decode_all<bfloat16>(data, 1, [](bfloat16 v, float* out) { *out = static_cast<float>(v); });
    case GgmlType::q8_0:
      return decode_all<BlockQ8_0>(
          data, 32, [](const BlockQ8_0& b, float* out) { dequantize(b, std::span<float, 32>(out, 32)); });
    case GgmlType::q4_0:
      return decode_all<BlockQ4_0>(
          data, 32, [](const BlockQ4_0& b, float* out) { dequantize(b, std::span<float, 32>(out, 32)); });
    default: refuse_type(asked, type);
  }
}

std::vector<std::byte> ggml_from_float(GgmlType type, std::span<const float> values) {
  constexpr std::string_view asked = "quantise";
  if (!ggml_type_supported(type)) refuse_type(asked, type);
  require_whole(asked, type, values.size(), ggml_type_info(type)->block);
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
    default: refuse_type(asked, type);
  }
}

}  // namespace tessera
