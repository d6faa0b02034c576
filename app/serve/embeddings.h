// SPDX-License-Identifier: Apache-2.0
// Requests to /v1/embeddings in the format of OpenAI's API, and the format of embeddings.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "serve/answer.h"
#include "serve/openai_request.h"

namespace tessera::app {

/// A request to /v1/embeddings.
struct EmbeddingRequest {
  std::vector<RequestPrompt> inputs;
  bool is_base64 = false;  ///< embeddings are sent as base64
  std::uint64_t salt = 0;  ///< as TextRequest::salt
};

/// Parses a request. Throws ApiError 400 or 404, as parse_chat_request.
EmbeddingRequest parse_embedding_request(const Json& body, const RequestDefaults& defaults);

/// Returns a request without the tokens of its texts.
PreparedRequest prepare_embedding(const EmbeddingRequest& request, const RequestDefaults& defaults);

/// Formats an embedding as a list of numbers, or as the base64 of its floats (IEEE 754, little endian).
Json embedding_json(std::span<const float> values, bool is_base64);

}  // namespace tessera::app
