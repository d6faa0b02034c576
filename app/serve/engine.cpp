// SPDX-License-Identifier: Apache-2.0
#include "serve/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "serve/api_error.h"
#include "serve/embeddings.h"
#include "serve/tokenizer_requests.h"
#include "tessera/llm/chat_session.h"
#include "tessera/llm/tool_grammar.h"

namespace tessera::app {
namespace {

/// Shorter texts are always tokenised, so that the error contains the exact number of tokens.
constexpr std::size_t short_text = std::size_t{64} << 10;

/// Returns the number of bytes that every template renders: those of the texts that are not white space.
std::size_t rendered_bytes(const Conversation& conversation) {
  std::size_t bytes = 0;
  for (const ChatMessage& m : conversation)
    if (m.role != "assistant")
      bytes += static_cast<std::size_t>(std::ranges::count_if(m.text, [](unsigned char c) { return c > ' '; }));
  return bytes;
}

std::vector<std::string> call_ids(const Conversation& conversation) {
  std::vector<std::string> out;
  for (const ChatMessage& m : conversation)
    for (const ToolCall& c : m.calls) out.push_back(c.id);
  return out;
}

}  // namespace

Engine::Engine(const GgufFile& file, LanguageModel model, const std::string& chat_template, RequestDefaults defaults,
               const SchedulerOptions& options)
    : model_(std::move(model)),
      defaults_(std::move(defaults)),
      created_(std::time(nullptr)),
      scheduler_(model_, options) {
  try {
    chat_.emplace(load_chat(file, chat_template, false));
    if (ChatTemplate::of(file, chat_template, true).takes_tools())
      tool_chat_.emplace(load_chat(file, chat_template, true));
  } catch (const FormatError& e) {
    if (!chat_template.empty()) throw;
    no_template_ = e.what();
  }
  defaults_.context = scheduler_.context();
  const Tokenizer& t = model_.tokenizer();
  defaults_.vocabulary = static_cast<std::int64_t>(t.size());
  defaults_.width = model_.model().config().width;
  for (TokenId id = 0; id < defaults_.vocabulary; ++id)
    longest_token_ = std::max(longest_token_, t.decode(id, true).size());
}

Engine::Chat Engine::load_chat(const GgufFile& file, const std::string& name, bool tools) const {
  Chat out{ChatTemplate::of(file, name, tools), {}};
  set_chat_ends(out.ends, out.form, model_.tokenizer(), tools);
  if (tools) out.calls = detect_tool_call_syntax(out.form, model_.tokenizer());
  return out;
}

const Engine::Chat& Engine::chat(bool tools) const {
  if (!chat_) throw ApiError(400, no_template_, {}, "no_chat_template");
  return tools && tool_chat_ ? *tool_chat_ : *chat_;
}

ChatPrompt Engine::render(const Conversation& conversation, const std::string& tools,
                          const std::string& arguments) const {
  const ChatTemplate& chosen = chat(!tools.empty()).form;
  if (!tools.empty() && !chosen.takes_tools())
    throw ApiError(400, "tools: the model's chat template does not support tools.", "tools", "unsupported_field");
  ChatPromptOptions options;
  options.tools = tools;
  options.arguments = arguments;
  try {
    return chosen.prompt(conversation, model_.tokenizer(), options);
  } catch (const Error& e) {  // the template rejects the conversation, or fails
    throw ApiError(422, e.what(), "messages", "template_rejected");
  }
}

void Engine::require_fits(const std::vector<TokenId>& prompt, const char* field) const {
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length == 0) throw ApiError(400, fmt::format("{}: the prompt has no tokens.", field), field);
  if (length > defaults_.context)
    throw ApiError(
        400,
        fmt::format("{}: this model's maximum context length is {} tokens here, but the prompt has {}. Shorten the "
                    "prompt{}.",
                    field, defaults_.context, length,
                    defaults_.context < model_.model().config().context_length
                        ? ", or start the server with a larger --ctx"
                        : ""),
        field, "context_length_exceeded");
}

void Engine::require_may_fit(std::size_t bytes, const char* field) const {
  const std::size_t least = bytes / longest_token_;
  if (bytes > short_text && least > static_cast<std::size_t>(defaults_.context))
    throw ApiError(400,
                   fmt::format("{}: this model's maximum context length is {} tokens here, but the prompt has at "
                               "least {}.",
                               field, defaults_.context, least),
                   field, "context_length_exceeded");
}

TextRequest Engine::text_request(const SamplingRequest& r) const {
  TextRequest out;
  out.sampling = r.sampling;
  out.max_tokens = r.max_tokens;
  out.sequences = r.sequences;
  out.log_probabilities = r.log_probabilities;
  out.stop = r.stop;
  out.salt = r.salt;
  out.grammar = r.grammar;
  return out;
}

AnswerSettings Engine::answer_settings(const SamplingRequest& r) const {
  AnswerSettings out;
  out.model = defaults_.model;
  out.created = std::time(nullptr);
  out.tokenizer = &model_.tokenizer();
  out.stream = r.stream;
  out.include_usage = r.include_usage;
  out.sequences = static_cast<std::size_t>(r.sequences);
  out.log_probabilities = r.log_probabilities >= 0;
  return out;
}

std::shared_ptr<const Grammar> Engine::call_grammar(const ChatRequest& r, const Chat& chat,
                                                    std::optional<std::size_t> thinking) const {
  if (!chat.calls)
    throw ApiError(400,
                   "tool_choice: the model's chat template writes tool calls in a syntax that is not supported for "
                   "required calls. Use \"auto\".",
                   "tool_choice", "unsupported_field");
  ToolGrammar grammar(*chat.calls);
  for (const CallableFunction& f : r.required) try {
      grammar.add(f.name, f.parameters, "parameters");
    } catch (const FormatError& e) {
      throw ApiError(400, fmt::format("{}: {}", f.path, e.what()), f.path, "invalid_grammar");
    }
  try {
    return grammar.compile(r.parallel_calls && !r.is_named, thinking);
  } catch (const FormatError& e) {
    throw ApiError(400, fmt::format("tools: {}", e.what()), "tools", "invalid_grammar");
  }
}

std::vector<TokenId> Engine::prompt_tokens(const RequestPrompt& prompt, const char* field, bool parse_special) const {
  const auto* const text = std::get_if<std::string>(&prompt);
  if (text) require_may_fit(text->size(), field);
  std::vector<TokenId> tokens =
      text ? model_.tokenizer().encode(*text, {.add_special = true, .parse_special = parse_special})
           : std::get<std::vector<TokenId>>(prompt);
  require_fits(tokens, field);
  return tokens;
}

std::vector<TokenId> Engine::gap_tokens(const std::string& before, const std::string& after) const {
  if (!model_.tokenizer().fill_tokens())
    throw ApiError(400,
                   "suffix: the model's file has no tokens for filling in the middle. Use a model that was trained for "
                   "it, or omit the field.",
                   "suffix", "unsupported_field");
  require_may_fit(before.size() + after.size(), "prompt");
  std::vector<TokenId> tokens = model_.tokenizer().encode_gap(before, after);
  require_fits(tokens, "prompt");
  return tokens;
}

PreparedRequest Engine::prepare_chat(const Json& body) const {
  const ChatRequest r = parse_chat_request(body, defaults_);
  require_may_fit(rendered_bytes(r.conversation), "messages");
  ChatPrompt prompt = render(r.conversation, r.tools, r.template_arguments);
  require_fits(prompt.tokens, "messages");
  PreparedRequest out{text_request(r), answer_settings(r)};
  const Chat& chosen = chat(!r.tools.empty());
  out.text.stop.insert(out.text.stop.end(), chosen.ends.stop.begin(), chosen.ends.stop.end());
  out.text.shown = chosen.ends.shown;
  if (!r.required.empty()) out.text.grammar = call_grammar(r, chosen, prompt.thinking);
  out.text.prompts = {std::move(prompt.tokens)};
  out.answer.thinking = prompt.thinking;
  if (!r.tools.empty()) out.answer.call_forms = chosen.form.call_forms();
  out.answer.call_ids = call_ids(r.conversation);
  out.answer.parallel_calls = r.parallel_calls;
  return out;
}

PreparedRequest Engine::prepare_completion(const Json& body) const {
  const CompletionRequest r = parse_completion_request(body, defaults_);
  PreparedRequest out{text_request(r), answer_settings(r)};
  out.answer.kind = AnswerKind::completion;
  out.answer.prompts = r.prompts.size();
  out.answer.sequences *= r.prompts.size();
  for (const RequestPrompt& prompt : r.prompts) {
    const auto* const text = std::get_if<std::string>(&prompt);
    std::vector<TokenId> tokens =
        r.suffix.empty() ? prompt_tokens(prompt, "prompt", true) : gap_tokens(std::get<std::string>(prompt), r.suffix);
    const std::string echo = !r.echo ? "" : text ? *text : model_.tokenizer().decode(tokens, true);
    out.answer.echo.insert(out.answer.echo.end(), static_cast<std::size_t>(r.sequences), echo);
    out.text.prompts.push_back(std::move(tokens));
  }
  return out;
}

PreparedRequest Engine::prepare_embeddings(const Json& body) const {
  const EmbeddingRequest r = parse_embedding_request(body, defaults_);
  PreparedRequest out = prepare_embedding(r, defaults_);
  for (const RequestPrompt& input : r.inputs) out.text.prompts.push_back(prompt_tokens(input, "input", false));
  return out;
}

Json Engine::tokenize(const Json& body) const { return answer_tokenize(body, model_.tokenizer(), defaults_.context); }

Json Engine::detokenize(const Json& body) const { return answer_detokenize(body, model_.tokenizer()); }

Json Engine::apply_template(const Json& body) const {
  const Fields fields(body);
  const ChatPrompt prompt = render(parse_messages(fields), parse_tools(fields).tools, parse_template_arguments(fields));
  return {{"prompt", prompt.text}, {"tokens", prompt.tokens}};
}

Json Engine::models() const { return {{"object", "list"}, {"data", Json::array({model(defaults_.model)})}}; }

Json Engine::model(const std::string& name) const {
  require_model(name, defaults_);
  return model_json(defaults_, created_);
}

}  // namespace tessera::app
