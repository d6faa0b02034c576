// SPDX-License-Identifier: Apache-2.0
// The model of the server: prepares requests, and runs them with a scheduler.
#pragma once

#include <optional>
#include <string>

#include "serve/answer.h"
#include "serve/openai_request.h"
#include "tessera/llm/scheduler.h"
#include "tessera/llm/tool_call_syntax.h"

namespace tessera::app {

/// A loaded model. All functions are thread-safe.
class Engine {
 public:
  /// `chat_template` is as in ChatTemplate::of. If the file has no template and `chat_template` is empty, requests to
  /// chat are rejected. Throws the errors of ChatTemplate::of if `chat_template` is not empty, and of Scheduler.
  Engine(const GgufFile& file, LanguageModel model, const std::string& chat_template, RequestDefaults defaults,
         const SchedulerOptions& options);

  /// Parses a request and tokenises its prompt. Takes time in proportion to the prompt. Throws ApiError.
  PreparedRequest prepare_chat(const Json& body) const;
  PreparedRequest prepare_completion(const Json& body) const;
  PreparedRequest prepare_embeddings(const Json& body) const;

  Json tokenize(const Json& body) const;        ///< The answer of /tokenize. Throws ApiError.
  Json detokenize(const Json& body) const;      ///< The answer of /detokenize. Throws ApiError.
  Json apply_template(const Json& body) const;  ///< The answer of /apply-template. Throws ApiError.
  Json models() const;                          ///< The answer of /v1/models.
  /// The answer of /v1/models/{name}. Throws ApiError 404 if it is not the name of the model.
  Json model(const std::string& name) const;

  Scheduler& scheduler() { return scheduler_; }
  const RequestDefaults& defaults() const { return defaults_; }

 private:
  /// A chat template, and how its answers end.
  struct Chat {
    ChatTemplate form;
    GenerateOptions ends;  ///< set by set_chat_ends()
    std::optional<ToolCallSyntax> calls = {};
  };
  Chat load_chat(const GgufFile& file, const std::string& name, bool tools) const;
  const Chat& chat(bool tools) const;
  ChatPrompt render(const Conversation& conversation, const std::string& tools, const std::string& arguments) const;
  /// Returns the grammar of answers that call one of the required functions.
  std::shared_ptr<const Grammar> call_grammar(const ChatRequest& request, const Chat& chat,
                                              std::optional<std::size_t> thinking) const;
  /// Returns the tokens of a prompt in the field `field`.
  std::vector<TokenId> prompt_tokens(const RequestPrompt& prompt, const char* field, bool parse_special) const;
  /// Returns the tokens of a prompt whose answer is the text between `before` and `after`.
  std::vector<TokenId> gap_tokens(const std::string& before, const std::string& after) const;
  TextRequest text_request(const SamplingRequest& request) const;
  AnswerSettings answer_settings(const SamplingRequest& request) const;
  void require_fits(const std::vector<TokenId>& prompt, const char* field) const;
  /// Rejects texts that are much too long, before time is spent on their tokens.
  void require_may_fit(std::size_t bytes, const char* field) const;

  LanguageModel model_;
  std::optional<Chat> chat_, tool_chat_;  ///< without tools; with tools, if a template supports them
  std::string no_template_;               ///< why there is no template
  RequestDefaults defaults_;
  std::int64_t created_;
  std::size_t longest_token_ = 1;  ///< in bytes
  Scheduler scheduler_;
};

}  // namespace tessera::app
