// SPDX-License-Identifier: Apache-2.0
// Small embedding models from tests/data/embeddings.json, with a vocabulary.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/llm/ggml_blocks.h"
#include "tessera/llm/gguf_writer.h"
#include "tests/llm/architecture_values.h"

namespace tessera::test {

inline const nlohmann::json& embedding_figures() {
  static const nlohmann::json all = nlohmann::json::parse(std::ifstream("tests/data/embeddings.json"));
  return all;
}

/// Returns the texts of the figures, as tokens.
inline std::vector<std::vector<std::int32_t>> embedding_texts() {
  const auto vocabulary = embedding_figures()["vocabulary"].get<std::uint32_t>();
  std::vector<std::vector<std::int32_t>> texts;
  for (const auto& length : embedding_figures()["lengths"]) {
    auto& text = texts.emplace_back();
    for (const std::uint32_t b : bits_of("text " + std::to_string(texts.size() - 1), length.get<std::size_t>()))
      text.push_back(static_cast<std::int32_t>(b % (vocabulary - 4) + 4));
  }
  return texts;
}

/// Sets a WordPiece vocabulary: special tokens, then letters as words and as parts of words.
inline void set_word_pieces(GgufWriter& w) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
  std::vector<std::int32_t> types(64, 1);
  for (char c = 'a'; c <= 'z'; ++c) tokens.push_back(std::string("\u2581") + c), tokens.push_back(std::string(1, c));
  while (tokens.size() < 64) tokens.push_back("\u2581word" + std::to_string(tokens.size()));
  for (std::size_t i = 0; i < 4; ++i) types[i] = 3;
  w.set("tokenizer.ggml.model", std::string("bert")).set("tokenizer.ggml.tokens", tokens);
  w.set("tokenizer.ggml.token_type", types);
}

/// Returns the model file of a case. Matrices of layers have the type `type`; with `exact`, they are the same numbers
/// as f32.
inline GgufWriter embedding_writer(const nlohmann::json& c, GgmlType type = GgmlType::f32, bool exact = false,
                                   const std::string& without = {}) {
  GgufWriter w;
  for (const auto& k : c["keys"])
    if (k[0] != without) w.set(k[0].get<std::string>(), value_of(k[1].get<std::string>(), k[2]));
  for (const auto& t : c["tensors"]) {
    const auto name = t[0].get<std::string>();
    const auto dims = t[1].get<std::vector<std::uint64_t>>();
    std::vector<float> values = weights_of(name, dims);
    if (dims.size() < 2 || type == GgmlType::f32) {
      w.add_tensor(name, dims, values);
      continue;
    }
    auto data = ggml_from_float(type, values);
    if (exact)
      w.add_tensor(name, dims, ggml_to_float(type, data));
    else
      w.add_tensor(name, dims, type, std::move(data));
  }
  set_word_pieces(w);
  return w;
}

}  // namespace tessera::test
