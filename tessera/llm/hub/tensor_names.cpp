// SPDX-License-Identifier: Apache-2.0
// Sources: the modules of transformers (modeling_*.py), and llama.cpp's names (gguf-py/gguf/constants.py).
#include "tessera/llm/hub/tensor_names.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "tessera/llm/architectures.h"

namespace tessera::hub {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;

constexpr NamePair model_names[] = {{"model.embed_tokens", "token_embd"},
                                    {"model.norm", "output_norm"},
                                    {"lm_head", "output"},
                                    {"model.embedding_norm", "token_embd_norm"},
                                    {"model.embed_tokens_per_layer", "per_layer_token_embd"},
                                    {"model.per_layer_model_projection", "per_layer_model_proj"},
                                    {"model.per_layer_projection_norm", "per_layer_proj_norm"}};
constexpr NamePair layer_names[] = {{"input_layernorm", "attn_norm"},
                                    {"self_attn.q_proj", "attn_q"},
                                    {"self_attn.k_proj", "attn_k"},
                                    {"self_attn.v_proj", "attn_v"},
                                    {"self_attn.qkv_proj", "attn_qkv"},
                                    {"self_attn.o_proj", "attn_output"},
                                    {"self_attn.q_norm", "attn_q_norm"},
                                    {"self_attn.k_norm", "attn_k_norm"},
                                    {"post_self_attn_layernorm", "post_attention_norm"},
                                    {"post_mlp_layernorm", "post_ffw_norm"},
                                    {"mlp.gate_proj", "ffn_gate"},
                                    {"mlp.up_proj", "ffn_up"},
                                    {"mlp.gate_up_proj", "ffn_up"},
                                    {"mlp.down_proj", "ffn_down"},
                                    {"mlp.gate", "ffn_gate_inp"},
                                    {"operator_norm", "attn_norm"},
                                    {"ffn_norm", "ffn_norm"},
                                    {"self_attn.out_proj", "attn_output"},
                                    {"self_attn.q_layernorm", "attn_q_norm"},
                                    {"self_attn.k_layernorm", "attn_k_norm"},
                                    {"conv.conv", "shortconv.conv"},
                                    {"conv.in_proj", "shortconv.in_proj"},
                                    {"conv.out_proj", "shortconv.out_proj"},
                                    {"feed_forward.w1", "ffn_gate"},
                                    {"feed_forward.w2", "ffn_down"},
                                    {"feed_forward.w3", "ffn_up"},
                                    {"feed_forward.gate", "ffn_gate_inp"},
                                    {"linear_attn.in_proj_qkv", "attn_qkv"},
                                    {"linear_attn.in_proj_z", "attn_gate"},
                                    {"linear_attn.in_proj_b", "ssm_beta"},
                                    {"linear_attn.in_proj_a", "ssm_alpha"},
                                    {"linear_attn.in_proj_ba", "ssm_ba"},
                                    {"linear_attn.conv1d", "ssm_conv1d"},
                                    {"linear_attn.norm", "ssm_norm"},
                                    {"linear_attn.out_proj", "ssm_out"},
                                    {"mlp.router", "ffn_gate_inp"},
                                    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                    {"block_sparse_moe.gate", "ffn_gate_inp"},
                                    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
                                    {"pre_feedforward_layernorm", "ffn_norm"},
                                    {"post_feedforward_layernorm", "post_ffw_norm"},
                                    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
                                    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
                                    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
                                    {"router.proj", "ffn_gate_inp"},
                                    {"per_layer_input_gate", "inp_gate"},
                                    {"per_layer_projection", "proj"},
                                    {"post_per_layer_input_norm", "post_norm"}};
constexpr NamePair expert_names[] = {{"gate_proj", "ffn_gate_exps"}, {"w1", "ffn_gate_exps"},
                                     {"down_proj", "ffn_down_exps"}, {"w2", "ffn_down_exps"},
                                     {"up_proj", "ffn_up_exps"},     {"w3", "ffn_up_exps"}};

/// A tensor with other rows than in GGUF files, or without an ending.
struct SpecialName {
  std::string_view theirs, first, second = {};                               ///< `second` has the other rows
  RowPart of_first = RowPart::first_half, of_second = RowPart::second_half;  ///< if there is a second
  bool transposed = false;
  std::string_view architecture = {};  ///< the only one in which the name has this meaning
};
constexpr SpecialName special_names[] = {
    {.theirs = "self_attn.sinks", .first = "attn_sinks.weight"},
    {.theirs = "linear_attn.A_log", .first = "ssm_a"},
    {.theirs = "linear_attn.dt_bias", .first = "ssm_dt.bias"},
    {.theirs = "linear_attn.in_proj_qkvz.weight",
     .first = "attn_qkv.weight",
     .second = "attn_gate.weight",
     .of_first = RowPart::queries_keys_values,
     .of_second = RowPart::gates,
     .architecture = "qwen3next"},
    {.theirs = "feed_forward.expert_bias", .first = "exp_probs_b.bias"},
    {.theirs = "layer_scalar", .first = "layer_output_scale.weight"},
    {.theirs = "router.scale", .first = "ffn_gate_inp.scale"},
    {.theirs = "router.per_expert_scale", .first = "ffn_down_exps.scale"},
    {.theirs = "experts.gate_up_proj", .first = "ffn_gate_up_exps.weight"},
    {.theirs = "experts.down_proj", .first = "ffn_down_exps.weight"},
    {.theirs = "block_sparse_moe.input_linear.weight", .first = "ffn_gate_exps.weight", .second = "ffn_up_exps.weight"},
    {.theirs = "block_sparse_moe.output_linear.weight", .first = "ffn_down_exps.weight"},
    {.theirs = "shared_mlp.input_linear.weight", .first = "ffn_gate_shexp.weight", .second = "ffn_up_shexp.weight"},
    {.theirs = "shared_mlp.output_linear.weight", .first = "ffn_down_shexp.weight"},
    {.theirs = "mlp.experts.gate_up_proj",
     .first = "ffn_gate_exps.weight",
     .second = "ffn_up_exps.weight",
     .of_first = RowPart::even,
     .of_second = RowPart::odd,
     .transposed = true,
     .architecture = "gpt-oss"},
    {.theirs = "mlp.experts.gate_up_proj", .first = "ffn_gate_exps.weight", .second = "ffn_up_exps.weight"},
    {.theirs = "mlp.experts.gate_up_proj_blocks",
     .first = "ffn_gate_exps.weight",
     .second = "ffn_up_exps.weight",
     .of_first = RowPart::even,
     .of_second = RowPart::odd},
    {.theirs = "mlp.experts.gate_up_proj_bias",
     .first = "ffn_gate_exps.bias",
     .second = "ffn_up_exps.bias",
     .of_first = RowPart::even,
     .of_second = RowPart::odd},
    {.theirs = "mlp.experts.down_proj", .first = "ffn_down_exps.weight", .transposed = true, .architecture = "gpt-oss"},
    {.theirs = "mlp.experts.down_proj", .first = "ffn_down_exps.weight"},
    {.theirs = "mlp.experts.down_proj_blocks", .first = "ffn_down_exps.weight"},
    {.theirs = "mlp.experts.down_proj_bias", .first = "ffn_down_exps.bias"}};

// Encoders: names of the embeddings, and of the parts of a layer. The names of old files end with gamma and beta.
constexpr NamePair encoder_names[] = {{"word_embeddings", "token_embd"},
                                      {"position_embeddings", "position_embd"},
                                      {"token_type_embeddings", "token_types"},
                                      {"LayerNorm", "token_embd_norm"},
                                      {"emb_ln", "token_embd_norm"}};
constexpr NamePair encoder_layer_names[] = {{"attention.self.query", "attn_q"},
                                            {"attention.self.key", "attn_k"},
                                            {"attention.self.value", "attn_v"},
                                            {"attention.output.dense", "attn_output"},
                                            {"attention.output.LayerNorm", "attn_output_norm"},
                                            {"intermediate.dense", "ffn_up"},
                                            {"output.dense", "ffn_down"},
                                            {"output.LayerNorm", "layer_output_norm"},
                                            {"attn.Wqkv", "attn_qkv"},
                                            {"attn.out_proj", "attn_output"},
                                            {"norm1", "attn_output_norm"},
                                            {"mlp.fc11", "ffn_up"},
                                            {"mlp.fc12", "ffn_gate"},
                                            {"mlp.fc2", "ffn_down"},
                                            {"norm2", "layer_output_norm"}};

/// The parts of models of images and sound, in addition to the text model.
constexpr std::string_view of_other_media[] = {"visual.",       "vision_tower.", "multi_modal_projector.",
                                               "embed_vision.", "audio_tower.",  "embed_audio."};

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

std::vector<TensorName> special_tensors(const std::string& block, const SpecialName& s, bool experts) {
  std::vector<TensorName> out;
  for (const std::string_view ours : {s.first, s.second}) {
    if (ours.empty()) continue;
    std::string name = block + std::string(ours);
    if (const std::size_t shared = name.find("_shexp"); shared != std::string::npos && !experts) name.erase(shared, 6);
    const RowPart rows = s.second.empty() ? RowPart::all : ours == s.first ? s.of_first : s.of_second;
    out.push_back({std::move(name), {}, rows, s.transposed});
  }
  return out;
}

/// Removes the name of the model, such as "bert.", before the parts of an encoder.
std::string_view without_encoder(std::string_view name) {
  for (const std::string_view model : {"bert.", "roberta."})
    if (skip(name, model)) break;
  return name;
}

std::vector<TensorName> encoder_tensors(std::string_view name) {
  name = without_encoder(name);
  std::string block;
  const bool is_embedding = skip(name, "embeddings.") || name.starts_with("emb_ln.");
  if (!is_embedding) {
    if (!skip(name, "encoder.layer.") && !skip(name, "encoder.layers.")) return {};
    const auto layer = take_number(name);
    if (!layer) return {};
    block = "blk." + std::to_string(*layer) + ".";
  }
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  std::string_view what = name.substr(dot);
  if (what == ".gamma") what = ".weight";
  if (what == ".beta") what = ".bias";
  const std::string_view stem = name.substr(0, dot),
                         ours = is_embedding ? find_name(encoder_names, stem) : find_name(encoder_layer_names, stem);
  if (ours.empty() || (what != ".weight" && what != ".bias")) return {};
  return {TensorName{block + std::string(ours) + std::string(what), {}}};
}

}  // namespace

std::vector<TensorName> gguf_names(std::string_view name, const Family& family, bool experts) {
  if (find_encoder_architecture(family.architecture) != nullptr) return encoder_tensors(name);
  std::string block, whole;
  if (family.sees && (skip(name, "model.language_model.") || skip(name, "language_model.model.")))
    name = whole = "model." + std::string(name);
  else if (family.sees)
    skip(name, "language_model.");  // the output matrix in older files
  if (skip(name, "model.layers.")) {
    const auto layer = take_number(name);
    if (!layer) return {};
    block = "blk." + std::to_string(*layer) + ".";
    for (const SpecialName& s : special_names)
      if (s.theirs == name && (s.architecture.empty() || s.architecture == family.architecture))
        return special_tensors(block, s, experts);
  }
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  std::string_view stem = name.substr(0, dot);
  const std::string what(name.substr(dot));
  if (what != ".weight" && what != ".bias") return {};
  if (block.empty()) {
    const std::string_view ours = find_name(model_names, stem);
    if (ours.empty()) return {};
    return {TensorName{std::string(ours) + what, {}}};
  }
  std::optional<std::uint64_t> expert;
  std::string_view part;
  if (skip(stem, "mlp.experts.") || skip(stem, "block_sparse_moe.experts.") || skip(stem, "feed_forward.experts.")) {
    expert = take_number(stem);
    if (expert) part = find_name(expert_names, stem);
  } else if (stem == "post_attention_layernorm") {
    part = family.after_attention;
  } else {
    part = find_name(layer_names, stem);
  }
  if (part.empty()) return {};
  return {TensorName{block + std::string(part) + what, expert}};
}

bool is_redundant(std::string_view name, const Family& family) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  if (find_encoder_architecture(family.architecture) != nullptr) {
    name = without_encoder(name);
    return name == "embeddings.position_ids" || name.starts_with("pooler.") || name.starts_with("cls.") ||
           name.starts_with("lm_head.");
  }
  if (name.starts_with("mtp.")) return find_architecture(family.architecture)->recurrent == LayerKind::delta_rule;
  if (!family.sees) return false;
  skip(name, "model.");
  return std::ranges::any_of(of_other_media, [&](std::string_view part) { return name.starts_with(part); });
}

}  // namespace tessera::hub
