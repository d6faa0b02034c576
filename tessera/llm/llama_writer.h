// SPDX-License-Identifier: Apache-2.0
// Writes a trained model to a GGUF file, which llm/llama.h, llama.cpp and other programs can run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/llm/llama.h"
#include "tessera/llm/train_tokenizer.h"

namespace tessera {

/// The weights of a Llama model. All arrays are f32 and may be on any device. The rows of `query` and `key` are ordered
/// for rotary embeddings of adjacent pairs.
struct LlamaArrays {
  /// The arrays of one layer.
  struct Layer {
    /// The norms have shape (width,), and the matrices have shape (outputs, inputs).
    Array attention_norm, query, key, value, attention_output, feed_forward_norm, gate, up, down;
  };
  Array embedding;                   ///< (vocabulary, width)
  std::vector<Layer> layers;         ///< First to last.
  Array output_norm;                 ///< (width,)
  std::optional<Array> output = {};  ///< (vocabulary, width); empty if it is tied to the embedding
};

/// Options of write_llama.
struct LlamaFileOptions {
  GgmlType type = GgmlType::f16;            ///< type of the matrices: f32, f16 or q8_0; norms are always f32
  std::string name = {}, description = {};  ///< Values of `general.name` and `general.description`.
};

/// Writes a model to a file. An existing file is replaced atomically. Throws ArgumentError if the arrays or the size of
/// the vocabulary do not match `config`, if the type is not supported, if a row of a q8_0 matrix is not a multiple of
/// 32 elements, or if the file cannot be written.
void write_llama(const std::string& path, const LlamaConfig& config, const LlamaArrays& arrays,
                 const TrainedTokenizer& tokenizer, const LlamaFileOptions& options = {});

}  // namespace tessera
