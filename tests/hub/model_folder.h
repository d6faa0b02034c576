// SPDX-License-Identifier: Apache-2.0
// Writes model folders as downloaded from the Hugging Face hub. The models are those of tests/data/architectures.json,
// with the names and layouts of transformers.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/llm/architecture_values.h"

namespace tessera::test {

/// A tensor of a safetensors file.
struct FolderTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string data;
};
using FolderTensors = std::map<std::string, FolderTensor>;

/// The contents of a model folder. Tensors are divided among `shards` files; with one, there is no index.
struct ModelFolder {
  nlohmann::json config, tokenizer;
  std::map<std::string, std::string> further_files = {};
  FolderTensors tensors = {};
  std::size_t shards = 1;
};

inline void put_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string safetensors_text(const FolderTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, t] : tensors) {
    header[name] = {
        {"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {data.size(), data.size() + t.data.size()}}};
    data += t.data;
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + text + data;
}

inline void write_folder(const std::filesystem::path& folder, const ModelFolder& m) {
  std::filesystem::create_directories(folder);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) std::filesystem::remove(entry.path());
  put_file(folder / "config.json", m.config.dump());
  put_file(folder / "tokenizer.json", m.tokenizer.dump());
  for (const auto& [name, text] : m.further_files) put_file(folder / name, text);
  if (m.shards == 1) return put_file(folder / "model.safetensors", safetensors_text(m.tensors));
  std::vector<FolderTensors> parts(m.shards);
  nlohmann::json map;
  std::size_t next = 0;
  for (const auto& [name, t] : m.tensors) {
    map[name] = "part-" + std::to_string(next % m.shards) + ".safetensors";
    parts[next++ % m.shards].emplace(name, t);
  }
  for (std::size_t i = 0; i < parts.size(); ++i)
    put_file(folder / ("part-" + std::to_string(i) + ".safetensors"), safetensors_text(parts[i]));
  put_file(folder / "model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
}

/// A byte-level tokenizer with `size` tokens and no merges.
inline nlohmann::json plain_tokenizer(std::size_t size) {
  nlohmann::json vocabulary;
  for (std::size_t i = 0; i < size; ++i) vocabulary["t" + std::to_string(i)] = i;
  return {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}};
}

/// The class of a case in architectures.json, and its config.json in addition to the common keys. Some have the keys of
/// transformers 4, which are still common.
struct FolderCase {
  const char *name, *kind, *config;
};
inline constexpr FolderCase folder_cases[] = {
    {"Llama 2", "Llama", R"({"head_dim":null})"},
    {"Llama 3.1", "Llama", R"({"head_dim":16,"rope_theta":5000.0,"rope_scaling":{"rope_type":"llama3","factor":8.0,
      "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64}})"},
    {"Mistral", "Mistral", R"({"head_dim":16,"sliding_window":null,
      "rope_parameters":{"rope_type":"default","rope_theta":1000000.0}})"},
    {"Ministral 3", "Ministral3", R"({"head_dim":16,"rope_parameters":{"rope_type":"yarn","rope_theta":10000.0,
      "factor":4.0,"original_max_position_embeddings":16,"beta_fast":8.0,"beta_slow":1.0,"mscale":1.0,
      "mscale_all_dim":1.0,"llama_4_scaling_beta":0.5}})"},
    {"Qwen 2.5", "Qwen2", R"({"tie_word_embeddings":true,"rope_theta":1000000.0,"use_sliding_window":false})"},
    {"Qwen 2.5, YaRN", "Qwen2", R"({"rope_theta":1000.0,"rope_scaling":{"type":"yarn","factor":4.0,
      "original_max_position_embeddings":64}})"},
    {"Qwen 3", "Qwen3", R"({"head_dim":16,"rope_theta":1000000})"},
    {"SmolLM 3", "SmolLM3", R"({"num_hidden_layers":5,"rope_theta":50000.0,"no_rope_layers":[1,1,1,0,1]})"},
    {"Phi 4", "Phi3", R"({"sliding_window":null})"},
    {"Phi 3.5, short", "Phi3", R"({"original_max_position_embeddings":256,"rope_parameters":{"rope_type":"longrope",
      "rope_theta":10000.0,"partial_rotary_factor":0.75,"short_factor":[1.0,1.25,1.5],"long_factor":[1.125,2.5,6.0]}})"},
    {"Phi 3.5, long", "Phi3", R"({"original_max_position_embeddings":256,"partial_rotary_factor":0.75,"rope_scaling":{
      "type":"longrope","short_factor":[1.0,1.25,1.5],"long_factor":[1.125,2.5,6.0]}})"},
    {"Phi 3, window", "Phi3", R"({"sliding_window":8})"},
    {"Gemma", "Gemma", R"({"head_dim":16,"tie_word_embeddings":true,"hidden_act":"gelu","hidden_activation":null})"},
    {"Gemma 2", "Gemma2", R"({"num_hidden_layers":3,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":256,
      "sliding_window":8,"query_pre_attn_scalar":256,"attn_logit_softcapping":2.0,"final_logit_softcapping":3.0,
      "tie_word_embeddings":true,"hidden_activation":"gelu_pytorch_tanh"})"},
    {"Gemma 3", "Gemma3", R"({"num_hidden_layers":7,"head_dim":16,"sliding_window":8,"query_pre_attn_scalar":16,
      "tie_word_embeddings":true,"layer_types":["sliding_attention","sliding_attention","sliding_attention",
      "sliding_attention","sliding_attention","full_attention","sliding_attention"],"rope_parameters":{
      "full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":100000.0},
      "sliding_attention":{"rope_type":"default","rope_theta":10000.0}}})"},
    {"Mixtral", "Mixtral",
     R"({"intermediate_size":64,"num_local_experts":8,"num_experts_per_tok":3,"rope_theta":10000.0,
      "rms_norm_eps":1e-5})"},
    {"Qwen 3 MoE", "Qwen3Moe", R"({"head_dim":16,"num_experts":8,"num_experts_per_tok":3,"moe_intermediate_size":32,
      "norm_topk_prob":true,"mlp_only_layers":[]})"},
    {"Qwen 2 MoE", "Qwen2Moe", R"({"num_experts":8,"num_experts_per_tok":3,"moe_intermediate_size":32,
      "shared_expert_intermediate_size":48})"},
    {"OLMoE", "Olmoe", R"({"intermediate_size":64,"num_key_value_heads":null,"num_experts":8,"num_experts_per_tok":3,
      "norm_topk_prob":false,"clip_qkv":null})"},
    {"Granite 3", "Granite", R"({"embedding_multiplier":2.5,"residual_multiplier":0.3,"attention_multiplier":0.4,
      "logits_scaling":3.0})"},
    {"Granite 3 MoE", "GraniteMoe", R"({"embedding_multiplier":2.5,"residual_multiplier":0.3,"logits_scaling":3.0,
      "attention_multiplier":0.4,"intermediate_size":64,"num_local_experts":8,"num_experts_per_tok":3})"},
    {"Granite MoE, shared", "GraniteMoeShared", R"({"embedding_multiplier":2.5,"residual_multiplier":0.3,
      "attention_multiplier":0.4,"logits_scaling":3.0,"intermediate_size":64,"num_local_experts":8,
      "num_experts_per_tok":3,"shared_intermediate_size":48})"},
    {"Granite MoE, shared", "GraniteMoeHybrid", R"({"embedding_multiplier":2.5,"residual_multiplier":0.3,
      "attention_multiplier":0.4,"logits_scaling":3.0,"intermediate_size":64,"num_local_experts":8,
      "num_experts_per_tok":3,"shared_intermediate_size":48,"mamba_n_heads":8,"position_embedding_type":"rope",
      "layer_types":["attention","attention"]})"},
    {"Granite 4", "GraniteMoeHybrid", R"({"embedding_multiplier":2.5,"residual_multiplier":0.3,
      "attention_multiplier":0.4,"logits_scaling":3.0,"intermediate_size":64,"num_local_experts":0,
      "num_experts_per_tok":0,"shared_intermediate_size":48,"mamba_n_heads":8,"position_embedding_type":"rope",
      "layer_types":["attention","attention"]})"},
    {"OLMo 2", "Olmo2", R"({"rope_theta":10000.0})"},
    {"OLMo 3", "Olmo3", R"({"num_hidden_layers":5,"sliding_window":8,"rope_parameters":{"full_attention":{
      "rope_type":"yarn","rope_theta":1000.0,"factor":4.0,"original_max_position_embeddings":64},
      "sliding_attention":{"rope_type":"default","rope_theta":1000.0}}})"},
    {"OLMo 3", "Olmo3", R"({"num_hidden_layers":5,"sliding_window":8,"rope_theta":1000.0,"rope_scaling":{
      "rope_type":"yarn","factor":4.0,"original_max_position_embeddings":64}})"},
    {"GLM 4", "Glm", R"({"head_dim":8,"rms_norm_eps":1e-5})"},
    {"GLM 4 0414", "Glm4", R"({"head_dim":16,"partial_rotary_factor":0.5})"},
    {"EXAONE 4", "Exaone4", R"({"sliding_window":null,"layer_types":["full_attention","full_attention"]})"},
    {"EXAONE 4, windows", "Exaone4", R"({"num_hidden_layers":5,"sliding_window":8,"sliding_window_pattern":4,
      "rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
      "original_max_position_embeddings":64},"rope_theta":5000.0})"},
    {"ERNIE 4.5", "Ernie4_5", R"({"head_dim":8,"rope_theta":10000.0,"use_bias":false})"},
    {"Command R", "Cohere", R"({"logit_scale":0.3,"tie_word_embeddings":true,"rope_theta":10000.0})"},
    {"Command R7B", "Cohere2", R"({"num_hidden_layers":5,"logit_scale":0.3,"sliding_window":8,
      "tie_word_embeddings":true})"},
    {"gpt-oss", "GptOss", R"({"head_dim":16,"sliding_window":8,"intermediate_size":64,"num_local_experts":4,
      "num_experts_per_tok":2,"rope_theta":1000.0,"rope_scaling":{"rope_type":"yarn","factor":4.0,"truncate":false,
      "original_max_position_embeddings":64,"beta_fast":8.0,"beta_slow":1.0}})"},
    {"LFM2", "Lfm2", R"({"num_hidden_layers":4,"layer_types":["conv","full_attention","conv","conv"],"conv_L_cache":3,
      "block_auto_adjust_ff_dim":false,"tie_word_embeddings":true,"rope_theta":10000.0})"},
    {"LFM2", "Lfm2", R"({"num_hidden_layers":4,"full_attn_idxs":[1],"intermediate_size":null,"block_ff_dim":67,
      "block_multiple_of":16,"tie_embedding":true,"rope_theta":10000.0})"},
    {"Qwen 3.5", "Qwen3_5", R"({"num_hidden_layers":4,"head_dim":16,"linear_num_key_heads":2,"linear_num_value_heads":6,
      "linear_key_head_dim":8,"linear_value_head_dim":8,"linear_conv_kernel_dim":4,"layer_types":["linear_attention",
      "linear_attention","linear_attention","full_attention"],"rope_parameters":{"rope_type":"default",
      "rope_theta":10000.0,"partial_rotary_factor":0.5,"mrope_section":[2,1,1]}})"},
    {"Qwen 2.5 VL", "Qwen2_5_VL", R"({"rms_norm_eps":1e-6,"rope_theta":10000.0,"rope_scaling":{"type":"mrope",
      "mrope_section":[2,1,1]}})"},
    {"Qwen 3 VL", "Qwen3VL", R"({"head_dim":16,"rope_theta":10000.0,"rope_scaling":{"rope_type":"default",
      "mrope_interleaved":true,"mrope_section":[3,3,2]}})"},
    {"LFM2 MoE", "Lfm2Moe", R"({"num_hidden_layers":4,"layer_types":["conv","full_attention","conv","conv"],
      "num_experts":8,"num_experts_per_tok":3,"moe_intermediate_size":32,"num_dense_layers":1,
      "tie_word_embeddings":true,"rope_parameters":{"rope_type":"default","rope_theta":10000.0}})"},
    {"Qwen 3.5 MoE", "Qwen3_5Moe", R"({"num_hidden_layers":4,"head_dim":16,"linear_num_key_heads":2,
      "linear_num_value_heads":6,"linear_key_head_dim":8,"linear_value_head_dim":8,"num_experts":8,
      "num_experts_per_tok":3,"intermediate_size":null,"moe_intermediate_size":32,"shared_expert_intermediate_size":48,
      "rope_parameters":{"rope_type":"default","rope_theta":10000.0,"partial_rotary_factor":0.5}})"},
    {"Qwen 3 Next", "Qwen3Next", R"({"num_hidden_layers":4,"head_dim":16,"linear_num_key_heads":2,
      "linear_num_value_heads":6,"linear_key_head_dim":8,"linear_value_head_dim":8,"num_experts":8,
      "num_experts_per_tok":3,"moe_intermediate_size":32,"shared_expert_intermediate_size":48,
      "full_attention_interval":4,"partial_rotary_factor":0.5,"rope_theta":10000.0})"},
    {"Gemma 4", "Gemma4", R"({"num_hidden_layers":4,"head_dim":16,"sliding_window":8,"hidden_size_per_layer_input":0,
      "num_global_key_value_heads":1,"attention_k_eq_v":true,"final_logit_softcapping":30.0,
      "tie_word_embeddings":true,"use_bidirectional_attention":"vision",
      "layer_types":["sliding_attention","full_attention","sliding_attention","sliding_attention"]})"},
    {"Gemma 4, layer inputs", "Gemma4", R"({"num_hidden_layers":7,"head_dim":16,"sliding_window":8,
      "num_kv_shared_layers":3,"use_double_wide_mlp":true,"hidden_size_per_layer_input":16,
      "final_logit_softcapping":30.0,"tie_word_embeddings":true,"layer_types":["sliding_attention","full_attention",
      "sliding_attention","full_attention","sliding_attention","sliding_attention","full_attention"],
      "per_layer_config":{"01":{"head_dim":32},"3":{"head_dim":32},"6":{"head_dim":32,"num_key_value_heads":2}},
      "rope_parameters":{"full_attention":{"rope_type":"proportional","rope_theta":1000000.0,
      "partial_rotary_factor":0.25},"sliding_attention":{"rope_type":"default","rope_theta":10000.0}}})"},
    {"Gemma 4, experts", "Gemma4", R"({"head_dim":16,"global_head_dim":32,"sliding_window":8,"intermediate_size":64,
      "hidden_size_per_layer_input":0,"final_logit_softcapping":30.0,"tie_word_embeddings":true,
      "layer_types":["sliding_attention","full_attention"],"enable_moe_block":true,"num_experts":8,"top_k_experts":3,
      "moe_intermediate_size":32})"},
};

inline std::string transformers_name(const std::string& gguf, const std::string& kind) {
  static const std::map<std::string, std::string> names = {{"token_embd", "model.embed_tokens"},
                                                           {"output_norm", "model.norm"},
                                                           {"output", "lm_head"},
                                                           {"attn_norm", "input_layernorm"},
                                                           {"attn_q", "self_attn.q_proj"},
                                                           {"attn_k", "self_attn.k_proj"},
                                                           {"attn_v", "self_attn.v_proj"},
                                                           {"attn_qkv", "self_attn.qkv_proj"},
                                                           {"attn_output", "self_attn.o_proj"},
                                                           {"attn_q_norm", "self_attn.q_norm"},
                                                           {"attn_k_norm", "self_attn.k_norm"},
                                                           {"ffn_gate", "mlp.gate_proj"},
                                                           {"ffn_up", "mlp.up_proj"},
                                                           {"ffn_down", "mlp.down_proj"},
                                                           {"ffn_norm", "post_attention_layernorm"},
                                                           {"post_ffw_norm", "post_feedforward_layernorm"},
                                                           {"ffn_gate_inp", "mlp.gate"},
                                                           {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                                           {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                                           {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                                           {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                                                           {"attn_sinks", "self_attn.sinks"},
                                                           {"per_layer_token_embd", "model.embed_tokens_per_layer"},
                                                           {"per_layer_model_proj", "model.per_layer_model_projection"},
                                                           {"per_layer_proj_norm", "model.per_layer_projection_norm"},
                                                           {"inp_gate", "per_layer_input_gate"},
                                                           {"proj", "per_layer_projection"},
                                                           {"post_norm", "post_per_layer_input_norm"},
                                                           {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                                                           {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                                                           {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
                                                           {"post_attention_norm", "post_attention_layernorm"}};
  const std::size_t dot = gguf.rfind('.');
  if (ends_with(gguf, ".ssm_a")) return "model.layers." + gguf.substr(4, dot - 3) + "linear_attn.A_log";
  std::string stem = gguf.substr(0, dot), prefix;
  if (stem.starts_with("blk.")) {
    const std::size_t end = stem.find('.', 4);
    prefix = "model.layers." + stem.substr(4, end - 3);
    stem = stem.substr(end + 1);
  }
  const auto known = names.find(stem);
  std::string name = known != names.end() ? known->second : "";
  if (stem == "ffn_up" && (kind == "Phi3" || kind == "Glm" || kind == "Glm4")) name = "mlp.gate_up_proj";
  if (stem == "ffn_gate_inp" && kind == "GptOss") name = "mlp.router";
  if (stem == "ffn_gate_inp" && kind == "Mixtral") name = "block_sparse_moe.gate";
  if (stem == "ffn_gate_inp" && kind.starts_with("Granite")) name = "block_sparse_moe.router.layer";
  if (stem == "post_attention_norm" && kind == "Glm4") name = "post_self_attn_layernorm";
  if (stem == "post_ffw_norm" && kind == "Glm4") name = "post_mlp_layernorm";
  if (stem == "attn_sinks") return prefix + name;
  if (stem == "layer_output_scale") return prefix + "layer_scalar";
  if (stem == "exp_probs_b") return prefix + "feed_forward.expert_bias";
  if (gguf.ends_with("ffn_gate_inp.scale")) return prefix + "router.scale";
  if (gguf.ends_with("ffn_down_exps.scale")) return prefix + "router.per_expert_scale";
  if (stem == "ffn_gate_inp" && kind == "Gemma4") name = "router.proj";
  static const std::map<std::string, std::string> of_lfm2 = {{"attn_norm", "operator_norm"},
                                                             {"ffn_norm", "ffn_norm"},
                                                             {"attn_output", "self_attn.out_proj"},
                                                             {"attn_q_norm", "self_attn.q_layernorm"},
                                                             {"attn_k_norm", "self_attn.k_layernorm"},
                                                             {"shortconv.conv", "conv.conv"},
                                                             {"shortconv.in_proj", "conv.in_proj"},
                                                             {"shortconv.out_proj", "conv.out_proj"},
                                                             {"ffn_gate", "feed_forward.w1"},
                                                             {"ffn_down", "feed_forward.w2"},
                                                             {"ffn_up", "feed_forward.w3"},
                                                             {"ffn_gate_inp", "feed_forward.gate"},
                                                             {"token_embd_norm", "model.embedding_norm"}};
  static const std::map<std::string, std::string> of_qwen35 = {
      {"attn_qkv", "linear_attn.in_proj_qkv"}, {"attn_gate", "linear_attn.in_proj_z"},
      {"ssm_beta", "linear_attn.in_proj_b"},   {"ssm_alpha", "linear_attn.in_proj_a"},
      {"ssm_ba", "linear_attn.in_proj_ba"},    {"ssm_conv1d", "linear_attn.conv1d"},
      {"ssm_norm", "linear_attn.norm"},        {"ssm_out", "linear_attn.out_proj"}};
  if (stem == "ssm_dt") return prefix + "linear_attn.dt_bias";
  const bool delta = kind.starts_with("Qwen3_5") || kind == "Qwen3Next";
  if (const auto found = of_qwen35.find(stem); delta && found != of_qwen35.end()) name = found->second;
  if (const auto found = of_lfm2.find(stem); kind.starts_with("Lfm2") && found != of_lfm2.end()) name = found->second;
  if (stem == "ffn_norm" && kind.starts_with("Gemma") && kind != "Gemma") name = "pre_feedforward_layernorm";
  return prefix + name + gguf.substr(dot);
}

/// Returns the rows in the order of transformers. In GGUF files of some architectures, the elements of a rotary pair
/// are adjacent; in transformers, they are half a head apart.
inline std::vector<float> split_pairs(const std::vector<float>& values, std::size_t head, std::size_t columns) {
  std::vector<float> out(values.size());
  for (std::size_t row = 0; row < values.size() / columns; ++row) {
    const std::size_t in_head = row % head, to = row - in_head + in_head % 2 * (head / 2) + in_head / 2;
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row * columns), columns,
                out.begin() + static_cast<std::ptrdiff_t>(to * columns));
  }
  return out;
}

/// Returns the data of the case with this name in architectures.json.
inline const nlohmann::json& figures_of(const std::string& name) {
  for (const nlohmann::json& c : figures()["cases"])
    if (c["name"] == name) return c;
  throw std::logic_error("no such case: " + name);
}

/// Returns rows of six heads in the order of transformers, in which the three heads of a key head follow each other. In
/// GGUF files, the key heads are 0, 1, 0, 1, 0, 1. The first `begin` rows are not those of heads.
inline std::vector<float> group_heads(const std::vector<float>& values, std::size_t begin, std::size_t columns,
                                      std::size_t size) {
  std::vector<float> out = values;
  for (std::size_t row = begin; row < values.size() / columns; ++row) {
    const std::size_t head = (row - begin) / size, to = begin + (head % 2 * 3 + head / 2) * size + (row - begin) % size;
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(row * columns), columns,
                out.begin() + static_cast<std::ptrdiff_t>(to * columns));
  }
  return out;
}

/// The tensor of a case in the layout of GGUF files.
struct GgufValues {
  std::vector<std::uint64_t> dims;
  std::vector<float> values;
};

inline FolderTensor folder_tensor(const std::vector<float>& values, std::vector<std::int64_t> shape) {
  FolderTensor out{"F32", std::move(shape), std::string(values.size() * 4, '\0')};
  std::memcpy(out.data.data(), values.data(), out.data.size());
  return out;
}

/// Returns the rows of `first` and `second`, of `rows` rows per expert: those of an expert one after the other, or in
/// turn.
inline std::vector<float> join_rows(const GgufValues& first, const GgufValues& second, std::size_t rows, bool in_turn) {
  const std::size_t columns = first.dims.size() == 3 || (first.dims.size() == 2 && !in_turn) ? first.dims[0] : 1;
  const std::size_t experts = first.values.size() / (rows * columns);
  std::vector<float> out;
  const auto add = [&](const GgufValues& from, std::size_t row, std::size_t count) {
    const auto at = from.values.begin() + static_cast<std::ptrdiff_t>(row * columns);
    out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(count * columns));
  };
  for (std::size_t e = 0; e < experts; ++e) {
    for (std::size_t r = 0; r < (in_turn ? rows : 1); ++r)
      for (const GgufValues* each : {&first, &second}) add(*each, e * rows + r, in_turn ? 1 : rows);
  }
  return out;
}

/// Exchanges the rows and columns of each expert.
inline std::vector<float> transpose(const std::vector<float>& values, std::size_t rows, std::size_t columns) {
  std::vector<float> out(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t in = i % (rows * columns);
    out[i - in + in % columns * rows + in / columns] = values[i];
  }
  return out;
}

/// Adds the rows of the queries, keys, values and gates of the two key heads of Qwen 3 Next, which follow each other.
inline void add_heads(ModelFolder& m, const std::string& layer, const GgufValues& qkv, const GgufValues& gates) {
  std::vector<float> out;
  const auto add = [&](const GgufValues& from, std::size_t row, std::size_t count) {
    const auto at = from.values.begin() + static_cast<std::ptrdiff_t>(row * 32);
    out.insert(out.end(), at, at + static_cast<std::ptrdiff_t>(count * 32));
  };
  for (std::size_t head = 0; head < 2; ++head)
    add(qkv, 8 * head, 8), add(qkv, 16 + 8 * head, 8), add(qkv, 32 + 24 * head, 24), add(gates, 24 * head, 24);
  m.tensors.emplace(layer + "linear_attn.in_proj_qkvz.weight", folder_tensor(out, {128, 32}));
}

/// Adds tensors that are stored as several tensors in the folder, or as parts of others. Returns false for others.
inline bool add_special(ModelFolder& m, const std::string& kind, const std::string& name,
                        const std::map<std::string, GgufValues>& all) {
  const std::size_t dot = name.find('.', 4) + 1;
  const std::string layer = "model.layers." + name.substr(4, dot - 4), part = name.substr(dot);
  const GgufValues& t = all.at(name);
  const bool granite = kind.starts_with("GraniteMoe"),
             experts = part.find("_exps.") != std::string::npos && !part.ends_with(".scale");
  if (kind == "Qwen3Next" && part == "attn_gate.weight") return true;  // added together with the queries
  if (kind == "Qwen3Next" && part == "attn_qkv.weight") {
    add_heads(m, layer, t, all.at(name.substr(0, dot) + "attn_gate.weight"));
    return true;
  }
  if (!experts &&
      !(granite && part.starts_with("ffn_") && !part.starts_with("ffn_gate_inp") && part != "ffn_norm.weight"))
    return false;
  const auto sized = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
  if (kind == "Gemma4") {
    m.tensors.emplace(layer + (part.starts_with("ffn_down") ? "experts.down_proj" : "experts.gate_up_proj"),
                      folder_tensor(t.values, {sized(t.dims[2]), sized(t.dims[1]), sized(t.dims[0])}));
    return true;
  }
  const bool halves = granite || kind == "Qwen3_5Moe";  // the gate and its partner follow each other
  if (part.starts_with("ffn_up")) {
    if (halves || kind == "GptOss") return true;  // added together with the gate
  }
  const bool gate = part.starts_with("ffn_gate"), bias = ends_with(part, ".bias");
  if (halves || kind == "GptOss") {
    const std::size_t rows = t.dims[bias ? 0 : 1];
    std::vector<float> values = t.values;
    if (gate) {
      std::string other = name;
      values = join_rows(t, all.at(other.replace(dot, 8, "ffn_up")), rows, kind == "GptOss");
    }
    const std::size_t joined = gate ? 2 * rows : rows;
    if (halves) {
      const std::string stem = !granite ? layer + (gate ? "mlp.experts.gate_up_proj" : "mlp.experts.down_proj")
                                        : layer + (experts ? "block_sparse_moe." : "shared_mlp.") +
                                              (gate ? "input_linear.weight" : "output_linear.weight");
      std::vector<std::int64_t> shape = {sized(joined), sized(t.dims[0])};
      if (experts) shape.insert(shape.begin(), sized(t.dims[2]));
      m.tensors.emplace(stem, folder_tensor(values, shape));
    } else {
      const std::string to = layer + "mlp.experts." + (gate ? "gate_up_proj" : "down_proj");
      if (bias)
        m.tensors.emplace(to + "_bias", folder_tensor(values, {sized(t.dims[1]), sized(joined)}));
      else
        m.tensors.emplace(to, folder_tensor(transpose(values, joined, t.dims[0]),
                                            {sized(t.dims[2]), sized(t.dims[0]), sized(joined)}));
    }
    return true;
  }
  const bool mixtral = kind == "Mixtral", down = part.starts_with("ffn_down"), lfm2 = kind == "Lfm2Moe";
  const std::string module = mixtral || lfm2 ? (gate   ? "w1"
                                                : down ? "w2"
                                                       : "w3")
                             : gate          ? "gate_proj"
                             : down          ? "down_proj"
                                             : "up_proj";
  const auto size = static_cast<std::ptrdiff_t>(t.dims[0] * t.dims[1]);
  for (std::uint64_t e = 0; e < t.dims[2]; ++e) {
    const auto at = t.values.begin() + static_cast<std::ptrdiff_t>(e) * size;
    m.tensors.emplace(layer +
                          (mixtral ? "block_sparse_moe"
                           : lfm2  ? "feed_forward"
                                   : "mlp") +
                          ".experts." + std::to_string(e) + "." + module + ".weight",
                      folder_tensor({at, at + size}, {sized(t.dims[1]), sized(t.dims[0])}));
  }
  return true;
}

inline ModelFolder folder_of(const FolderCase& c) {
  const std::string kind = c.kind;
  ModelFolder m;
  m.config = {{"architectures", {kind + (kind.ends_with("VL") ? "ForConditionalGeneration" : "ForCausalLM")}},
              {"vocab_size", 64},
              {"hidden_size", 32},
              {"intermediate_size", 48},
              {"num_hidden_layers", 2},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"max_position_embeddings", 512},
              {"tie_word_embeddings", false},
              {"eos_token_id", 2}};
  m.config.update(nlohmann::json::parse(c.config));
  m.tokenizer = plain_tokenizer(64);
  const bool adjacent = kind == "Llama" || kind == "Mistral" || kind == "Ministral3" || kind == "SmolLM3" ||
                        kind == "Mixtral" || kind.starts_with("Granite");
  const std::size_t head =
      m.config.value("head_dim", nlohmann::json()).is_null() ? 8 : m.config["head_dim"].get<std::size_t>();
  std::map<std::string, GgufValues> all;
  for (const nlohmann::json& t : figures_of(c.name)["tensors"]) {
    const auto name = t[0].get<std::string>();
    const auto dims = t[1].get<std::vector<std::uint64_t>>();
    const bool decay = ends_with(name, "ssm_a");
    if (t.size() > 2 && !decay) continue;  // computed from config.json
    all.emplace(name, GgufValues{dims, decay ? t[2].get<std::vector<float>>() : weights_of(name, dims)});
  }
  for (auto& [name, t] : all) {
    if (name.starts_with("blk.") && add_special(m, kind, name, all)) continue;
    std::vector<float> values = t.values;
    const bool reorders = kind.starts_with("Qwen3_5");
    if (((kind.starts_with("Gemma") && kind != "Gemma4") || reorders || kind == "Qwen3Next") &&
        ends_with(name, "norm.weight") && !ends_with(name, "ssm_norm.weight"))
      for (float& v : values) v -= 1;
    if (ends_with(name, "ssm_a"))
      for (float& v : values) v = std::log(-v);
    if (reorders) {
      const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
      const std::size_t columns = t.dims.size() == 2 ? t.dims[0] : 1;
      if ((is("attn_qkv") || is("ssm_conv1d"))) values = group_heads(values, 32, columns, 8);
      if (is("attn_gate")) values = group_heads(values, 0, columns, 8);
      if (is("ssm_beta") || is("ssm_alpha") || is("ssm_a") || is("ssm_dt")) values = group_heads(values, 0, columns, 1);
      if (is("ssm_out"))
        values = transpose(group_heads(transpose(values, t.dims[1], columns), 0, t.dims[1], 8), columns, t.dims[1]);
    }
    if (adjacent && (name.find("attn_q.") != std::string::npos || name.find("attn_k.") != std::string::npos))
      values = split_pairs(values, head, t.dims.size() == 2 ? t.dims[0] : 1);
    std::vector<std::int64_t> shape(t.dims.rbegin(), t.dims.rend());
    if (name.ends_with("shortconv.conv.weight") || name.ends_with("ssm_conv1d.weight"))
      shape.insert(shape.begin() + 1, 1);
    m.tensors.emplace(transformers_name(name, kind), folder_tensor(values, std::move(shape)));
  }
  return m;
}

}  // namespace tessera::test
