// SPDX-License-Identifier: Apache-2.0
// Folders of embedding models, as written by sentence-transformers: the models of tests/data/embeddings.json.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/gguf_values.h"
#include "tests/embedding/embedding_values.h"
#include "tests/hub/model_folder.h"

namespace tessera::test {

inline const nlohmann::json& embedding_case(std::string_view name) {
  const nlohmann::json& all = embedding_figures()["cases"];
  return *std::ranges::find_if(all, [&](const nlohmann::json& c) { return c["name"] == name; });
}

inline nlohmann::json added_tokens(const std::vector<std::string>& tokens, const std::vector<std::int32_t>& types) {
  nlohmann::json added = nlohmann::json::array();
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (types[i] != 1) added.push_back({{"id", i}, {"content", tokens[i]}, {"special", true}});
  return added;
}
inline nlohmann::json template_of(const char* before, const char* after) {
  const auto special = [](const char* id) { return nlohmann::json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}}; };
  const nlohmann::json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  return {{"type", "TemplateProcessing"}, {"single", {special(before), text, special(after)}}};
}

inline nlohmann::json word_piece(const std::vector<std::string>& tokens, const std::vector<std::int32_t>& types,
                                 bool lowercase = true, const nlohmann::json& strips = nullptr) {
  const std::string mark = "\u2581";
  nlohmann::json vocabulary = nlohmann::json::object();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string& t = tokens[i];
    vocabulary[types[i] != 1 ? t : t.starts_with(mark) ? t.substr(mark.size()) : "##" + t] = i;
  }
  return {{"added_tokens", added_tokens(tokens, types)},
          {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", lowercase}, {"strip_accents", strips}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", template_of("[CLS]", "[SEP]")},
          {"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}}};
}

inline nlohmann::json unigram(const nlohmann::json& c) {
  const auto tokens = c["tokens"].get<std::vector<std::string>>();
  nlohmann::json vocabulary = nlohmann::json::array();
  for (std::size_t i = 0; i < tokens.size(); ++i) vocabulary.push_back({tokens[i], c["scores"][i]});
  return {{"added_tokens", added_tokens(tokens, c["types"].get<std::vector<std::int32_t>>())},
          {"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", c["charsmap"]}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "WhitespaceSplit"}},
              {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}}}}}},
          {"post_processor", template_of("<s>", "</s>")},
          {"model", {{"type", "Unigram"}, {"unk_id", 3}, {"vocab", vocabulary}}}};
}

/// Returns the name of a tensor of an encoder in transformers.
inline std::string encoder_name(const std::string& name, bool is_nomic) {
  static const std::map<std::string, std::string> names = {{"token_embd", "embeddings.word_embeddings"},
                                                           {"position_embd", "embeddings.position_embeddings"},
                                                           {"token_types", "embeddings.token_type_embeddings"},
                                                           {"token_embd_norm", "embeddings.LayerNorm"},
                                                           {"attn_q", "attention.self.query"},
                                                           {"attn_k", "attention.self.key"},
                                                           {"attn_v", "attention.self.value"},
                                                           {"attn_output", "attention.output.dense"},
                                                           {"attn_output_norm", "attention.output.LayerNorm"},
                                                           {"ffn_up", "intermediate.dense"},
                                                           {"ffn_down", "output.dense"},
                                                           {"layer_output_norm", "output.LayerNorm"}};
  static const std::map<std::string, std::string> of_nomic = {{"token_embd", "embeddings.word_embeddings"},
                                                              {"token_types", "embeddings.token_type_embeddings"},
                                                              {"token_embd_norm", "emb_ln"},
                                                              {"attn_qkv", "attn.Wqkv"},
                                                              {"attn_output", "attn.out_proj"},
                                                              {"attn_output_norm", "norm1"},
                                                              {"ffn_up", "mlp.fc11"},
                                                              {"ffn_gate", "mlp.fc12"},
                                                              {"ffn_down", "mlp.fc2"},
                                                              {"layer_output_norm", "norm2"}};
  const std::size_t end = name.rfind('.'), begin = name.starts_with("blk.") ? name.find('.', 4) + 1 : 0;
  const std::string layer =
      begin > 0 ? (is_nomic ? "encoder.layers." : "encoder.layer.") + name.substr(4, begin - 4) : "";
  return layer + (is_nomic ? of_nomic : names).at(name.substr(begin, end - begin)) + name.substr(end);
}

/// Returns the folder of a case of tests/data/embeddings.nlohmann::json.
inline ModelFolder embedding_folder(const std::string& name) {
  const bool is_encoder = name != "Qwen 3 Embedding", is_nomic = name == "Nomic Embed";
  ModelFolder m;
  m.config = {{"architectures",
               {name == "BERT"    ? "BertModel"
                : is_nomic        ? "NomicBertModel"
                : name == "XLM-R" ? "XLMRobertaModel"
                                  : "Qwen3ForCausalLM"}},
              {"vocab_size", 64},
              {"hidden_size", 32},
              {"intermediate_size", 64},
              {"num_hidden_layers", 3},
              {"num_attention_heads", 4}};
  if (is_nomic)
    m.config = {{"architectures", {"NomicBertModel"}},
                {"vocab_size", 64},
                {"n_embd", 32},
                {"n_inner", 64},
                {"n_layer", 3},
                {"n_head", 4},
                {"max_trained_positions", 2048},
                {"rotary_emb_base", 1000},
                {"activation_function", "swiglu"},
                {"layer_norm_epsilon", 1e-12},
                {"rotary_scaling_factor", nullptr}};
  else if (is_encoder)
    m.config.update(
        {{"max_position_embeddings", name == "BERT" ? 128 : 130}, {"hidden_act", "gelu"}, {"pad_token_id", 1}});
  else
    m.config.update({{"max_position_embeddings", 512},
                     {"num_key_value_heads", 2},
                     {"head_dim", 16},
                     {"rope_theta", 1e6},
                     {"tie_word_embeddings", true}});
  for (const nlohmann::json& t : embedding_case(name)["tensors"]) {
    const auto ours = t[0].get<std::string>();
    const auto dims = t[1].get<std::vector<std::uint64_t>>();
    std::vector<float> values = weights_of(ours, dims);
    std::vector<std::int64_t> shape(dims.rbegin(), dims.rend());
    if (name == "XLM-R" && ours == "position_embd.weight") {  // two positions are not used
      values.insert(values.begin(), 2 * dims[0], 7.0f);
      shape[0] += 2;
    }
    m.tensors.emplace(is_encoder ? encoder_name(ours, is_nomic) : transformers_name(ours, "Qwen3"),
                      folder_tensor(values, std::move(shape)));
  }
  if (is_encoder) {
    const auto pooler = folder_tensor(std::vector<float>(32), {32});
    m.tensors.emplace("pooler.dense.bias", pooler);
    if (name == "BERT") m.tensors.emplace("embeddings.position_ids", folder_tensor(std::vector<float>(128), {1, 128}));
  }
  GgufWriter words;
  set_word_pieces(words);
  const auto bytes = words.bytes();
  const GgufFile file = GgufFile::parse(bytes, "words");
  m.tokenizer =
      word_piece(file.get_strings("tokenizer.ggml.tokens"), file.get_array<std::int32_t>("tokenizer.ggml.token_type"));
  return m;
}

inline constexpr const char* transformer_module =
    R"({"idx":0,"path":"","type":"sentence_transformers.models.Transformer"})";
inline constexpr const char* pooling_module =
    R"({"idx":1,"path":"1_Pooling","type":"sentence_transformers.models.Pooling"})";
inline constexpr const char* normalize_module =
    R"({"idx":2,"path":"2_Normalize","type":"sentence_transformers.models.Normalize"})";

}  // namespace tessera::test
