// SPDX-License-Identifier: Apache-2.0
// How tokenizer.json prepares text: the patterns of byte-level BPE, and the spaces of BPE with byte fallback. Internal.
#pragma once

#include <string>

#include "tessera/llm/hub/json_file.h"

namespace tessera::hub {

/// True if the text is split by a ByteLevel step.
bool is_byte_level(const JsonObject& tokenizer);

/// Returns the name of the patterns in llm/tokenizer_split.h. Throws FormatError if there are none that split text in
/// the same way.
std::string pre_tokenizer_name(const JsonObject& tokenizer, bool ignores_merges);

/// Returns when a space is added before text (the values of `space_key`), or an empty string: never. Throws FormatError
/// if the text is prepared in another way than by replacing spaces.
std::string space_before(const JsonObject& tokenizer);

}  // namespace tessera::hub
