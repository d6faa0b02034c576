// SPDX-License-Identifier: Apache-2.0
// The keys and values of a prompt in a safetensors file, so that a model need not read the prompt again. Internal.
//
// The tensors keys.N and values.N (key heads, tokens, row) are those of the cache of layer N, and `tokens` is i32
// (tokens,). The metadata identify the model, the device and the version of Tessera, because the bits of keys and
// values depend on them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/array/safetensors.h"
#include "tessera/llm/language_model.h"

namespace tessera {

/// Returns LanguageModel::fingerprint() of a model file.
std::string model_fingerprint(const GgufFile& file);

/// Writes the keys and values of the first `tokens.size()` tokens in the cache. The file is replaced when it is
/// complete. Throws the errors of save_safetensors.
void save_prompt(const std::string& path, const LanguageModel& model, const KeyValueCache& cache,
                 std::span<const TokenId> tokens);

/// Checks the file of a saved prompt before a model with this fingerprint is loaded. Throws ArgumentError if the file
/// cannot be written or its folder does not exist, if it belongs to another model, or if the model has recurrent
/// layers, and FormatError if it is not a saved prompt.
void check_prompt_cache(const std::string& path, const LlamaConfig& config, const std::string& fingerprint);

/// A saved prompt of a model.
class SavedPrompt {
 public:
  /// Opens a file, to load it into caches such as `cache`. Returns std::nullopt if the file does not exist. Warns and
  /// returns std::nullopt if the file was written with another device, type of cache, or version of Tessera. Throws
  /// FormatError if the file is damaged or not a saved prompt, ArgumentError if it belongs to another model, and the
  /// errors of InputFile.
  static std::optional<SavedPrompt> open(const std::string& path, const LanguageModel& model,
                                         const KeyValueCache& cache);
  /// Returns the number of tokens with which both the file and `prompt` begin.
  std::int64_t common_tokens(std::span<const TokenId> prompt) const;
  /// Loads the keys and values of the first `count` tokens into an empty cache.
  void load(KeyValueCache& cache, std::int64_t count) const;

 private:
  explicit SavedPrompt(SafetensorsFile file) : file_(std::move(file)) {}
  SafetensorsFile file_;
  std::vector<TokenId> tokens_;
};

}  // namespace tessera
