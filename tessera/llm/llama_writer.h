// SPDX-License-Identifier: Apache-2.0
// Writing a model that was trained as a GGUF file, which llm/llama.h, llama.cpp and others run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/llm/llama.h"
#include "tessera/llm/train_tokenizer.h"

namespace tessera {

/// The weights of a Llama, each (outputs, inputs), of f32 on any device. Rows of queries and keys turn in adjacent
/// pairs.
struct LlamaArrays {
  /// The arrays of one layer.
  struct Layer {
    /// Norms (width), and matrices (outputs, inputs).
    Array attention_norm, query, key, value, attention_output, feed_forward_norm, gate, up, down;
  };
  Array embedding;                   ///< (vocabulary, width)
  std::vector<Layer> layers;         ///< The layers, first to last.
  Array output_norm;                 ///< The norm before the output, (width).
  std::optional<Array> output = {};  ///< (vocabulary, width); nothing: the embedding
};

/// Options of write_llama.
struct LlamaFileOptions {
  GgmlType type = GgmlType::f16;            ///< of the matrices: f32, f16 or q8_0; norms are f32
  std::string name = {}, description = {};  ///< For `general.name` and `general.description`.
};

/// Writes the file in the place of an old one, in one step. `config` says the sizes; its vocabulary is the tokenizer's.
/// ArgumentError: another type; rows of q8_0 that are no multiple of 32; a vocabulary of another size; arrays of other
/// shapes or dtypes than the sizes ask for; the file cannot be written.
void write_llama(const std::filesystem::path& path, const LlamaConfig& config, const LlamaArrays& arrays,
                 const TrainedTokenizer& tokenizer, const LlamaFileOptions& options = {});

}  // namespace tessera
