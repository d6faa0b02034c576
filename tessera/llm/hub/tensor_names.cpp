// SPDX-License-Identifier: Apache-2.0
// Sources: the modules of transformers (modeling_*.py), and llama.cpp's names (gguf-py/gguf/constants.py).
#include "tessera/llm/hub/tensor_names.h"

#include <charconv>
#include <utility>

namespace tessera::hub {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;

constexpr NamePair layer_names[] = {{"input_layernorm", "attn_norm"},
                                    {"self_attn.q_proj", "attn_q"},
                                    {"self_attn.k_proj", "attn_k"},
                                    {"self_attn.v_proj", "attn_v"},
                                    {"self_attn.qkv_proj", "attn_qkv"},
                                    {"self_attn.o_proj", "attn_output"},
                                    {"self_attn.q_norm", "attn_q_norm"},
                                    {"self_attn.k_norm", "attn_k_norm"},
                                    {"mlp.gate_proj", "ffn_gate"},
                                    {"mlp.up_proj", "ffn_up"},
                                    {"mlp.gate_up_proj", "ffn_up"},
                                    {"mlp.down_proj", "ffn_down"},
                                    {"mlp.gate", "ffn_gate_inp"},
                                    {"block_sparse_moe.gate", "ffn_gate_inp"},
                                    {"pre_feedforward_layernorm", "ffn_norm"},
                                    {"post_feedforward_layernorm", "post_ffw_norm"}};
constexpr NamePair expert_names[] = {{"gate_proj", "ffn_gate_exps"}, {"w1", "ffn_gate_exps"},
                                     {"down_proj", "ffn_down_exps"}, {"w2", "ffn_down_exps"},
                                     {"up_proj", "ffn_up_exps"},     {"w3", "ffn_up_exps"}};

template <std::size_t N>
std::string_view find_name(const NamePair (&names)[N], std::string_view name) {
  for (const auto& [theirs, ours] : names)
    if (theirs == name) return ours;
  return {};
}

bool skip(std::string_view& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

/// Reads a number and the dot after it.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest == end || *rest != '.') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest + 1 - text.data()));
  return value;
}

}  // namespace

std::optional<TensorName> gguf_name(std::string_view name, bool post_norms) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  std::string_view stem = name.substr(0, dot);
  const std::string what(name.substr(dot));
  if (what != ".weight" && what != ".bias") return std::nullopt;
  if (stem == "model.embed_tokens") return TensorName{"token_embd" + what, {}};
  if (stem == "model.norm") return TensorName{"output_norm" + what, {}};
  if (stem == "lm_head") return TensorName{"output" + what, {}};
  if (!skip(stem, "model.layers.")) return std::nullopt;
  const auto layer = take_number(stem);
  if (!layer) return std::nullopt;
  std::optional<std::uint64_t> expert;
  std::string_view part;
  if (skip(stem, "mlp.experts.") || skip(stem, "block_sparse_moe.experts.")) {
    expert = take_number(stem);
    if (expert) part = find_name(expert_names, stem);
  } else if (stem == "post_attention_layernorm") {
    part = post_norms ? "post_attention_norm" : "ffn_norm";
  } else {
    part = find_name(layer_names, stem);
  }
  if (part.empty()) return std::nullopt;
  return TensorName{"blk." + std::to_string(*layer) + "." + std::string(part) + what, expert};
}

bool is_redundant(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

}  // namespace tessera::hub
