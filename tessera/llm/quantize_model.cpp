// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/quantize_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"

namespace tessera {
namespace {

using Type = GgmlType;

/// A mix: its number in general.file_type (llama_ftype of llama.h), and the type of most matrices.
struct Mix {
  std::string_view name;
  std::uint32_t number;
  Type type;
};
constexpr Mix mixes[] = {{"f32", 0, Type::f32},      {"f16", 1, Type::f16},      {"bf16", 32, Type::bf16},
                         {"q8_0", 7, Type::q8_0},    {"q6_k", 18, Type::q6_K},   {"q5_k_m", 17, Type::q5_K},
                         {"q5_k_s", 16, Type::q5_K}, {"q5_1", 9, Type::q5_1},    {"q5_0", 8, Type::q5_0},
                         {"q4_k_m", 15, Type::q4_K}, {"q4_k_s", 14, Type::q4_K}, {"q4_1", 3, Type::q4_1},
                         {"q4_0", 2, Type::q4_0},    {"q3_k_l", 13, Type::q3_K}, {"q3_k_m", 12, Type::q3_K},
                         {"q3_k_s", 11, Type::q3_K}, {"q2_k", 10, Type::q2_K}};
constexpr std::uint64_t chunk = std::uint64_t{1} << 20;  ///< elements that are converted at a time, in whole blocks

const Mix& find_mix(std::string_view name) {
  const auto* const known = std::ranges::find(mixes, name, &Mix::name);
  if (known == std::end(mixes))
    fail<ArgumentError>({.operation = "quantise",
                         .with = {{"type", printable_line(name)}},
                         .wrong = "models cannot be quantised to this type",
                         .remedy = fmt::format("Use one of {}", fmt::join(quantization_mixes(), ", "))});
  return *known;
}

/// What the rules of a mix depend on. Layers are counted among the tensors of the same kind.
struct Place {
  std::size_t layer = 0, layers = 0;
  std::uint64_t experts = 0;
  std::uint64_t queries_per_key = 1;
  bool is_70b = false;  ///< Llama or Qwen 2 of 70 billion parameters, whose attn_v matrices are small
  /// True for the first and the last eighth of the layers, and for every third one between them.
  bool gets_more_bits() const {
    const std::size_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
  }
};

// The rules of llama_tensor_get_type_impl in llama.cpp's src/llama-quant.cpp, without an importance matrix.

Type type_of_values(const Mix& mix, const Place& at) {
  if (at.experts == 8) return Type::q8_0;
  Type type = mix.type;
  if (mix.name == "q2_k") type = at.queries_per_key >= 4 ? Type::q4_K : Type::q3_K;
  if (mix.name == "q3_k_m") type = at.layer < 2 ? Type::q5_K : Type::q4_K;
  if (mix.name == "q3_k_l" || (mix.name == "q4_k_s" && at.layer < 4)) type = Type::q5_K;
  if ((mix.name == "q4_k_m" || mix.name == "q5_k_m") && at.gets_more_bits()) type = Type::q6_K;
  return at.is_70b && (type == Type::q3_K || type == Type::q4_K) ? Type::q5_K : type;
}

Type type_of_down(const Mix& mix, const Place& at) {
  if (mix.name == "q2_k") return Type::q3_K;
  if (mix.name == "q3_k_m") return at.layer < at.layers / 16 ? Type::q5_K : Type::q4_K;
  if (mix.name == "q3_k_l") return Type::q5_K;
  if (mix.name == "q4_k_s") return at.layer < at.layers / 8 ? Type::q5_K : mix.type;
  if (mix.name == "q4_k_m" || mix.name == "q5_k_m") return at.gets_more_bits() ? Type::q6_K : mix.type;
  return mix.type;
}

Type type_of_attention_output(const Mix& mix, const Place& at) {
  const bool few_bits = mix.type == Type::q2_K || mix.type == Type::q3_K || mix.type == Type::q4_K;
  if (at.experts == 8) return few_bits && mix.name != "q3_k_l" ? Type::q5_K : mix.type;
  if (mix.name == "q2_k") return Type::q3_K;
  if (mix.name == "q3_k_m") return Type::q4_K;
  return mix.name == "q3_k_l" ? Type::q5_K : mix.type;
}

enum class Kind { output, values, keys, down, attention_output, other };

Kind kind_of(const std::string& name, bool is_tied) {
  const auto contains = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (name == "output.weight") return Kind::output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return is_tied ? Kind::output : Kind::other;
  if (contains("attn_qkv.weight") || contains("attn_kv_b.weight") || contains("attn_v.weight")) return Kind::values;
  if (contains("attn_k.weight")) return Kind::keys;
  if (contains("attn_output.weight")) return Kind::attention_output;
  return contains("ffn_down") ? Kind::down : Kind::other;
}

/// Returns the types of a mix of K types, before rows are considered.
class MixTypes {
 public:
  MixTypes(const GgufFile& file, const Mix& mix) : mix_(mix) {
    const std::string architecture = file.get<std::string>("general.architecture");
    const auto number = [&](const std::string& key) -> std::uint64_t {
      const std::string whole = architecture + "." + key;
      if (!file.has(whole)) return 0;
      // Some models have an array with one number for each layer.
      if (!std::holds_alternative<GgufArray>(*file.find(whole))) return file.get<std::uint64_t>(whole);
      const auto each = file.get_array<std::uint64_t>(whole);
      return each.empty() ? 0 : each.front();
    };
    place_.experts = number("expert_count");
    const std::uint64_t heads = number("attention.head_count"), keys = number("attention.head_count_kv");
    place_.queries_per_key = keys == 0 ? 1 : heads / keys;
    blocks_ = number("block_count");
    place_.is_70b = blocks_ == 80 && place_.queries_per_key > 1 && (architecture == "llama" || architecture == "qwen2");
    is_tied_ = std::ranges::none_of(file.tensors(), [](const GgufTensor& t) { return t.name == "output.weight"; });
    std::map<Kind, std::vector<std::pair<std::uint64_t, std::string>>> by_layer;
    for (const GgufTensor& t : file.tensors())
      if (is_quantizable(t)) by_layer[kind_of(t.name, is_tied_)].emplace_back(layer_number(t.name), t.name);
    for (auto& [kind, tensors] : by_layer) {
      std::ranges::stable_sort(tensors, {}, &std::pair<std::uint64_t, std::string>::first);
      count_[kind] = tensors.size();
      for (std::size_t i = 0; i < tensors.size(); ++i) index_[tensors[i].second] = i;
    }
  }

  Type of(const GgufTensor& t) const {
    const Kind kind = kind_of(t.name, is_tied_);
    Place at = place_;
    at.layer = index_.at(t.name), at.layers = count_.at(kind);
    if (kind == Kind::down) {
      at.layers = blocks_;
      if (at.experts > 1) at.layer = layer_number(t.name);  // a layer can have several such matrices
    }
    switch (kind) {
      case Kind::output: return Type::q6_K;
      case Kind::values: return type_of_values(mix_, at);
      case Kind::keys: return at.experts == 8 ? Type::q8_0 : mix_.type;
      case Kind::down: return type_of_down(mix_, at);
      case Kind::attention_output: return type_of_attention_output(mix_, at);
      case Kind::other: break;
    }
    return mix_.type;
  }

 private:
  /// The number in "blk.N.", or 0.
  static std::uint64_t layer_number(const std::string& name) {
    return name.starts_with("blk.") ? std::strtoull(name.c_str() + 4, nullptr, 10) : 0;
  }
  const Mix& mix_;
  Place place_;
  std::size_t blocks_ = 0;  ///< layers of the model
  bool is_tied_ = false;
  std::map<std::string, std::size_t> index_;  ///< of a tensor among those of its kind, by layer
  std::map<Kind, std::size_t> count_;
};

bool has_k_type(const Mix& mix) { return ggml_type_info(mix.type)->block == 256; }

/// The scales of blocks are f16, and so are the minimums of some types.
void require_in_range(const GgufFile& file, const GgufTensor& tensor, std::span<const float> values) {
  constexpr float most = 65504;  // of f16
  const auto bad = std::ranges::find_if_not(values, [](float v) { return std::fabs(v) <= most; });
  if (bad == values.end()) return;
  fail<FormatError>({.operation = "quantise",
                     .with = {{"file", file.name(tensor)}, {"tensor", printable_line(tensor.name)}},
                     .wrong = fmt::format("the tensor contains {}, and numbers from -65504 to 65504 can be quantised",
                                          std::isnan(*bad)   ? "NaN"
                                          : std::isinf(*bad) ? "infinite numbers"
                                                             : fmt::format("{}", *bad)),
                     .remedy = "Use f32 or bf16, or a file without such numbers"});
}

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
    const std::vector<float> values = ggml_to_float(tensor.type, data);
    if (ggml_type_info(type)->block > 1 || type == Type::f16) require_in_range(file, tensor, values);
    const std::vector<std::byte> part = ggml_from_float(type, values);
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
  return {Type::f32,  Type::f16,  Type::bf16, Type::q8_0, Type::q6_K, Type::q5_1, Type::q5_K,
          Type::q5_0, Type::q4_1, Type::q4_K, Type::q4_0, Type::q3_K, Type::q2_K};
}

bool is_quantizable(const GgufTensor& t) {
  // As in llama-quantize: small tables of routers, convolutions and positions stay as they are.
  static constexpr std::string_view kept[] = {
      "_norm.weight",          "ffn_gate_inp.weight",  "per_layer_model_proj.weight", "ssm_conv1d.weight",
      "shortconv.conv.weight", "position_embd.weight", "token_types.weight"};
  return t.elements != t.dims[0] && t.name.ends_with(".weight") &&
         std::ranges::none_of(kept, [&](std::string_view end) { return t.name.ends_with(end); });
}

GgmlType type_for_rows(GgmlType type, std::uint64_t row) {
  const auto fits = [&](GgmlType t) { return row % ggml_type_info(t)->block == 0; };
  if (fits(type)) return type;
  switch (type) {
    case Type::q4_K: type = Type::q5_0; break;
    case Type::q5_K: type = Type::q5_1; break;
    case Type::q6_K: type = Type::q8_0; break;
    case Type::q2_K:
    case Type::q3_K: type = Type::q4_0; break;
    default: break;
  }
  return fits(type) ? type : Type::f16;
}

std::vector<std::string> quantization_mixes() {
  std::vector<std::string> names;
  for (const Mix& m : mixes) names.emplace_back(m.name);
  return names;
}

std::uint32_t quantization_block(std::string_view mix) { return ggml_type_info(find_mix(mix).type)->block; }

std::vector<GgmlType> quantized_types(const GgufFile& file, std::string_view name) {
  const Mix& mix = find_mix(name);
  const std::optional<MixTypes> of_mix = has_k_type(mix) ? std::optional<MixTypes>({file, mix}) : std::nullopt;
  std::vector<GgmlType> types;
  for (const GgufTensor& t : file.tensors()) {
    const GgmlType type = is_quantizable(t) ? type_for_rows(of_mix ? of_mix->of(t) : mix.type, t.dims[0]) : t.type;
    const bool stays_bf16 = type == Type::f16 && t.type == Type::bf16 && mix.type != Type::f16;
    types.push_back(stays_bf16 ? t.type : type);
  }
  return types;
}

void quantize_model(const GgufFile& file, const std::string& path, std::string_view name,
                    const QuantizeProgress& progress) {
  const std::vector<GgmlType> types = quantized_types(file, name);
  const Mix& mix = find_mix(name);
  GgufWriter out(3, static_cast<std::uint32_t>(file.alignment()));
  for (const GgufEntry& e : file.metadata())
    if (is_copied(e.key)) out.set(e.key, e.value);
  out.set("general.file_type", mix.number);
  if (ggml_type_info(mix.type)->block > 1) out.set("general.quantization_version", std::uint32_t{2});
  for (std::size_t i = 0; i < types.size(); ++i) {
    const GgufTensor& t = file.tensors()[i];
    out.add_tensor(t.name, t.dims, types[i], [&file, &t, &progress, type = types[i], i](std::span<std::byte> bytes) {
      if (progress) progress(i, t, type);
      convert(file, t, type, bytes);
    });
  }
  out.write(path);
}

}  // namespace tessera
