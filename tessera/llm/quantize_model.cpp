// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/quantize_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"

namespace tessera {
namespace {

// The type and its number in general.file_type (llama_ftype of llama.h).
constexpr std::pair<GgmlType, std::uint32_t> file_types[] = {
    {GgmlType::f32, 0}, {GgmlType::f16, 1}, {GgmlType::bf16, 32}, {GgmlType::q8_0, 7}, {GgmlType::q4_0, 2}};
constexpr std::uint64_t chunk = std::uint64_t{1} << 20;  ///< elements that are converted at a time, in whole blocks

/// Converts a tensor of `file` to `type`.
void convert(const GgufFile& file, const GgufTensor& tensor, GgmlType type, std::span<std::byte> to) {
  if (type == tensor.type) {
    file.read(tensor, 0, to);
    return;
  }
  const GgmlTypeInfo& from = *ggml_type_info(tensor.type);
  for (std::uint64_t at = 0; at < tensor.elements; at += chunk) {
    const std::uint64_t count = std::min(chunk, tensor.elements - at);
    std::vector<std::byte> data(count / from.block * from.bytes);
    file.read(tensor, at / from.block * from.bytes, data);
    const std::vector<std::byte> part = ggml_from_float(type, ggml_to_float(tensor.type, data));
    std::memcpy(to.data(), part.data(), part.size());
    to = to.subspan(part.size());
  }
}

bool is_copied(const std::string& key) {
  return !key.starts_with("split.") && key != "general.alignment" && key != "general.file_type" &&
         key != "general.quantization_version";
}

}  // namespace

std::vector<GgmlType> quantizable_types() {
  std::vector<GgmlType> types;
  for (const auto& [type, number] : file_types) types.push_back(type);
  return types;
}

bool is_quantizable(const GgufTensor& t) {
  // As in llama-quantize: small tables of routers, convolutions and positions stay as they are.
  static constexpr std::string_view kept[] = {"ffn_gate_inp.weight", "ssm_conv1d.weight", "shortconv.conv.weight",
                                              "position_embd.weight", "token_types.weight"};
  return t.elements != t.dims[0] && t.name.ends_with(".weight") &&
         std::ranges::none_of(kept, [&](std::string_view end) { return t.name.ends_with(end); });
}

GgmlType quantized_type(const GgufTensor& t, GgmlType type) {
  if (!is_quantizable(t)) return t.type;
  if (t.dims[0] % ggml_type_info(type)->block == 0) return type;
  return t.type == GgmlType::bf16 ? t.type : GgmlType::f16;
}

void quantize_model(const GgufFile& file, const std::string& path, GgmlType type, const QuantizeProgress& progress) {
  const auto* const known = std::ranges::find(file_types, type, &std::pair<GgmlType, std::uint32_t>::first);
  if (known == std::end(file_types))
    fail<ArgumentError>({.operation = "quantise",
                         .with = {{"type", ggml_type_text(type)}},
                         .wrong = "models cannot be quantised to this type",
                         .remedy = "Use f32, f16, bf16, q8_0 or q4_0"});
  GgufWriter out(3, static_cast<std::uint32_t>(file.alignment()));
  for (const GgufEntry& e : file.metadata())
    if (is_copied(e.key)) out.set(e.key, e.value);
  out.set("general.file_type", known->second);
  if (ggml_type_info(type)->block > 1) out.set("general.quantization_version", std::uint32_t{2});
  std::size_t index = 0;
  for (const GgufTensor& t : file.tensors()) {
    const GgmlType to = quantized_type(t, type);
    out.add_tensor(t.name, t.dims, to, [&file, &t, &progress, to, index](std::span<std::byte> bytes) {
      if (progress) progress(index, t, to);
      convert(file, t, to, bytes);
    });
    ++index;
  }
  out.write(path);
}

}  // namespace tessera
