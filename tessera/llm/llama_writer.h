// SPDX-License-Identifier: Apache-2.0
// Writes a trained model as a GGUF file, which llm/llama.h, llama.cpp and others can run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/llm/llama.h"
#include "tessera/llm/train_tokenizer.h"

namespace tessera {

/// The weights of a Llama: f32 matrices (outputs, inputs) on any device. Rows of queries and keys are ordered for
/// rotation in adjacent pairs.
struct LlamaArrays {
  /// The arrays of one layer.
  struct Layer {
    /// Norms (width,), and matrices (outputs, inputs).
    Array attention_norm, query, key, value, attention_output, feed_forward_norm, gate, up, down;
  };
  Array embedding;                   ///< (vocabulary, width)
  std::vector<Layer> layers;         ///< First to last.
  Array output_norm;                 ///< (width,)
  std::optional<Array> output = {};  ///< (vocabulary, width); empty: tied to the embedding
};

/// Options of write_llama.
struct LlamaFileOptions {
  GgmlType type = GgmlType::f16;            ///< type of the matrices: f32, f16 or q8_0; norms are f32
  std::string name = {}, description = {};  ///< Values of `general.name` and `general.description`.
};

/// Writes a model to a file, which is replaced atomically. The sizes of `config` must match the arrays, and its
/// vocabulary the tokenizer. Throws ArgumentError for another type, rows of q8_0 that are not a multiple of 32,
/// mismatched shapes or dtypes, or if the file cannot be written.
void write_llama(const std::string& path, const LlamaConfig& config, const LlamaArrays& arrays,
                 const TrainedTokenizer& tokenizer, const LlamaFileOptions& options = {});

}  // namespace tessera
