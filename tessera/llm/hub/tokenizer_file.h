// SPDX-License-Identifier: Apache-2.0
// tokenizer.json as GGUF metadata. The file is written by Hugging Face's tokenizers
// (https://huggingface.co/docs/tokenizers). Internal.
#pragma once

#include "tessera/llm/hub/json_file.h"
#include "tessera/llm/hub/metadata.h"

namespace tessera::hub {

/// The files of a folder that describe its tokenizer. `settings` is tokenizer_config.json; it and `generation` may be
/// empty.
struct TokenizerFiles {
  JsonObject tokenizer, settings, config;
  JsonObject whole;  ///< config.json, of which `config` is a part in models of images
  JsonObject generation;
};

/// Adds the vocabulary, the merges and the special tokens as `tokenizer.ggml.*`, so that `Tokenizer` returns the same
/// ids as `tokenizers`. Throws FormatError with the key if the tokenizer is not byte-level BPE, BPE with byte fallback,
/// WordPiece or Unigram, or if it has a part that is not supported.
void add_tokenizer(const TokenizerFiles& files, Metadata& to);

}  // namespace tessera::hub
