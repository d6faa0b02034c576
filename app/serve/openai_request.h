// SPDX-License-Identifier: Apache-2.0
// Requests for text in the format of OpenAI's API.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "serve/json.h"
#include "tessera/llm/chat.h"
#include "tessera/llm/sampler.h"

namespace tessera {
class Grammar;
}

namespace tessera::app {

inline constexpr std::int64_t most_sequences = 8, most_log_probabilities = 20;
inline constexpr std::size_t most_stops = 16, most_prompts = 64, most_biases = 1024, most_required_tools = 128,
                             most_required_bytes = std::size_t{256} << 10;  ///< of the schemas of required tools

/// What a request does not specify, and what it is compared with.
struct RequestDefaults {
  std::string model;                  ///< the name of the model
  SamplerOptions sampling;            ///< the seed is not used
  std::optional<std::uint64_t> seed;  ///< if empty, each request gets a random seed
  std::vector<std::string> stop;      ///< additional stop strings of every request
  std::int64_t context = 0;           ///< maximum tokens of prompt and answer together
  std::int64_t vocabulary = 0;        ///< number of tokens
  std::int64_t width = 0;             ///< number of dimensions of embeddings
};

/// The members that both kinds of requests have.
struct SamplingRequest {
  SamplerOptions sampling;
  std::int64_t max_tokens = 0, sequences = 1;
  std::int64_t log_probabilities = -1;  ///< as GenerateOptions::log_probabilities
  std::vector<std::string> stop;
  std::shared_ptr<const Grammar> grammar;  ///< as TextRequest::grammar
  std::uint64_t salt = 0;                  ///< as TextRequest::salt
  bool stream = false, include_usage = false;
};

/// A function that the model can call.
struct CallableFunction {
  std::string name;
  std::string parameters;  ///< the JSON schema of its arguments; may be empty
  std::string path;        ///< the field of the schema, for errors
};

/// The tools of a request.
struct ToolRequest {
  std::string tools;  ///< as ChatPromptOptions::tools; empty if there are none or tool_choice is "none"
  /// The functions of which the answer must call one. Empty if tool_choice requires no call.
  std::vector<CallableFunction> required;
  bool is_named = false;  ///< tool_choice names the function
};

/// A request to /v1/chat/completions.
struct ChatRequest : SamplingRequest, ToolRequest {
  Conversation conversation;
  std::string template_arguments;  ///< as ChatPromptOptions::arguments
  bool parallel_calls = true;      ///< false: the answer has at most one tool call
};

using RequestPrompt = std::variant<std::string, std::vector<TokenId>>;  ///< a text, or its tokens

/// A request to /v1/completions.
struct CompletionRequest : SamplingRequest {
  std::vector<RequestPrompt> prompts;  ///< texts if there is a suffix
  std::string suffix;                  ///< the text after the answer; empty: any
  bool echo = false;
};

/// Parses a request. Unknown members are ignored. Throws ApiError 400, or 404 for an unknown model, if a member has the
/// wrong type, is out of range, or changes the result but is not supported.
ChatRequest parse_chat_request(const Json& body, const RequestDefaults& defaults);
CompletionRequest parse_completion_request(const Json& body, const RequestDefaults& defaults);

/// Parses "messages". Throws ApiError 400.
Conversation parse_messages(const Fields& fields);
/// Parses "tools" and "tool_choice". Throws ApiError 400.
ToolRequest parse_tools(const Fields& fields);
/// Parses "chat_template_kwargs" and "reasoning_effort". Returns a JSON object, or an empty string. Variables that the
/// server sets are rejected, and so are texts that could contain special tokens. Throws ApiError 400.
std::string parse_template_arguments(const Fields& fields);
/// Parses a list of token ids. Throws ApiError 400, also if a token is not in the vocabulary.
std::vector<TokenId> parse_tokens(const Fields& fields, const char* name, const Json& list, std::int64_t vocabulary);
/// Parses a prompt or a list of up to `most` prompts. Throws ApiError 400.
std::vector<RequestPrompt> parse_prompts(const Fields& fields, const char* name, std::size_t most,
                                         std::int64_t vocabulary);
/// Parses "cache_salt". Returns 0 if there is none. Throws ApiError 400.
std::uint64_t parse_salt(const Fields& fields);
/// Throws ApiError 404 if this is not the name of the server's model.
void require_model(const std::string& name, const RequestDefaults& defaults);
/// Describes the model for /v1/models. `created` is in seconds since 1970.
Json model_json(const RequestDefaults& defaults, std::int64_t created);
/// Parses "model". Throws ApiError 400, or 404 if it is not the server's model.
void check_model(const Fields& fields, const RequestDefaults& defaults);

}  // namespace tessera::app
