// SPDX-License-Identifier: Apache-2.0
// The files that sentence-transformers adds to a model folder (https://sbert.net). Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/llm/hub/json_file.h"
#include "tessera/llm/hub/metadata.h"
#include "tessera/llm/hub/tokenizer_file.h"

namespace tessera::hub {

/// Adds the pooling type, whether embeddings are normalised, and the maximum number of tokens of a text, if the folder
/// has modules.json. Throws FormatError if the modules are other than a transformer, pooling and normalisation, if the
/// pooling is not supported, if texts are converted to lowercase but not by the tokenizer, or if there is a default
/// prompt.
void add_embedding_modules(const std::string& folder, const std::string& architecture, const TokenizerFiles& files,
                           Metadata& to);

}  // namespace tessera::hub
