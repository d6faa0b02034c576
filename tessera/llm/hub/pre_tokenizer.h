// SPDX-License-Identifier: Apache-2.0
// How tokenizer.json prepares text: the patterns of byte-level BPE, the spaces of BPE with byte fallback and of
// Unigram, and the normalisation of WordPiece. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/llm/hub/json_file.h"

namespace tessera::hub {

/// True if the text is split by a ByteLevel step.
bool is_byte_level(const JsonObject& tokenizer);

/// True if text is converted to Unicode's normalization form C first.
bool uses_nfc(const JsonObject& tokenizer);

/// Returns the name of the patterns in llm/tokenizer_split.h. Throws FormatError if there are none that split text in
/// the same way.
std::string pre_tokenizer_name(const JsonObject& tokenizer, bool ignores_merges);

/// Returns when a space is added before text (the values of `space_key`), or an empty string: never. Throws FormatError
/// if the text is prepared in another way than by replacing spaces.
std::string space_before(const JsonObject& tokenizer);

/// How BERT's normalizer changes text.
struct BertText {
  bool lowercase, strips_accents;
};
/// Reads the preparation of text for WordPiece. Throws FormatError if it is not that of BERT.
BertText bert_text(const JsonObject& tokenizer);

/// True if BERT's normalizer converts text to lowercase.
bool lowercases(const JsonObject& tokenizer);

/// Returns the bytes of SentencePiece's character map. Throws FormatError if the text is not prepared as by
/// SentencePiece: with a character map, one space before each word, and no other spaces.
std::vector<std::int32_t> unigram_charsmap(const JsonObject& tokenizer);

}  // namespace tessera::hub
