// SPDX-License-Identifier: Apache-2.0
// The answers of /tokenize and /detokenize.
#pragma once

#include <cstdint>

#include "serve/json.h"
#include "tessera/llm/tokenizer.h"

namespace tessera::app {

/// Returns the tokens of the text in `body`. `context` is the model's context length. Throws ApiError 400.
Json answer_tokenize(const Json& body, const Tokenizer& tokenizer, std::int64_t context);
/// Returns the text of the tokens in `body`. Throws ApiError 400.
Json answer_detokenize(const Json& body, const Tokenizer& tokenizer);

}  // namespace tessera::app
