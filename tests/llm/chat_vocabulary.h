// SPDX-License-Identifier: Apache-2.0
// Small byte-level vocabularies with the special tokens of chat templates.
#pragma once

#include <string>
#include <vector>

#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/tokenizer.h"

namespace tessera::test {

/// Sets the metadata of a "gpt2" vocabulary that consists of the control tokens `special` and a token for each byte.
inline void set_byte_vocabulary(GgufWriter& w, const std::vector<std::string>& special) {
  std::vector<std::string> tokens = special;
  std::vector<std::int32_t> types(special.size(), 3);
  for (int b = 0; b < 256; ++b) {
    tokens.push_back(byte_level_text(std::string(1, static_cast<char>(b))));
    types.push_back(1);
  }
  w.set("tokenizer.ggml.model", std::string("gpt2"));
  w.set("tokenizer.ggml.pre", std::string("gpt-2"));
  w.set("tokenizer.ggml.tokens", tokens);
  w.set("tokenizer.ggml.token_type", types);
  w.set("tokenizer.ggml.merges", std::vector<std::string>{});
}

/// A file that contains only metadata. Owns the bytes that the file refers to.
struct ParsedFile {
  std::vector<std::byte> bytes;
  GgufFile file;
  explicit ParsedFile(const GgufWriter& w) : bytes(w.bytes()), file(GgufFile::parse(bytes, "test.gguf")) {}
  ParsedFile(const ParsedFile&) = delete;
};

}  // namespace tessera::test
