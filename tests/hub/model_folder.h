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
                                                           {"post_attention_norm", "post_attention_layernorm"}};
  const std::size_t dot = gguf.rfind('.');
  std::string stem = gguf.substr(0, dot), prefix;
  if (stem.starts_with("blk.")) {
    const std::size_t end = stem.find('.', 4);
    prefix = "model.layers." + stem.substr(4, end - 3);
    stem = stem.substr(end + 1);
  }
  std::string name = names.at(stem);
  if (stem == "ffn_up" && kind == "Phi3") name = "mlp.gate_up_proj";
  if (stem == "ffn_norm" && (kind == "Gemma2" || kind == "Gemma3")) name = "pre_feedforward_layernorm";
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

inline ModelFolder folder_of(const FolderCase& c) {
  const std::string kind = c.kind;
  ModelFolder m;
  m.config = {{"architectures", {kind + "ForCausalLM"}},
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
  const bool adjacent = kind == "Llama" || kind == "Mistral" || kind == "Ministral3" || kind == "SmolLM3";
  const std::size_t head =
      m.config.value("head_dim", nlohmann::json()).is_null() ? 8 : m.config["head_dim"].get<std::size_t>();
  for (const nlohmann::json& t : figures_of(c.name)["tensors"]) {
    if (t.size() > 2) continue;  // computed from config.json
    const auto name = t[0].get<std::string>();
    const auto dims = t[1].get<std::vector<std::uint64_t>>();
    std::vector<float> values = weights_of(name, dims);
    if (kind.starts_with("Gemma") && ends_with(name, "norm.weight"))
      for (float& v : values) v -= 1;
    if (adjacent && (name.find("attn_q.") != std::string::npos || name.find("attn_k.") != std::string::npos))
      values = split_pairs(values, head, dims.size() == 2 ? dims[0] : 1);
    FolderTensor out{"F32", {dims.rbegin(), dims.rend()}, std::string(values.size() * 4, '\0')};
    std::memcpy(out.data.data(), values.data(), out.data.size());
    m.tensors.emplace(transformers_name(name, kind), std::move(out));
  }
  return m;
}

}  // namespace tessera::test
