// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/chat_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/llm/estimate.h"

namespace tessera {
namespace {

constexpr std::int64_t default_max_context = 8192;

}  // namespace

std::int64_t default_context(const GgufFile& file, std::span<const Device> devices, const GenerateOptions& options) {
  const std::int64_t wanted = std::min(read_llama_config(file).context_length, default_max_context);
  const MemoryOptions memory{
      .context = wanted, .prompt = 0, .batch = options.batch, .cache_dtype = options.cache_dtype};
  if (estimate_memory(file, devices, memory).fits()) return wanted;
  return std::clamp<std::int64_t>(largest_context(file, devices, memory), 1, wanted);
}

void set_chat_ends(GenerateOptions& options, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                   bool tools) {
  if (const auto missing = chat_template.missing_tokens(tokenizer); !missing.empty())
    logging::warn(fmt::format(
        "{} needs the tokens {}, which are not in the vocabulary: the model was not trained with this template",
        chat_template.name(), fmt::join(missing, ", ")));
  if (const std::string end = chat_template.end_text(tokenizer); !end.empty()) options.stop.push_back(end);
  for (const ThinkingMarks& m : thinking_marks())
    for (const std::string_view mark : {m.open, m.close})
      if (const auto id = tokenizer.find(mark)) options.shown.push_back(*id);
  if (tokenizer.find("<|channel|>"))  // the marks of the harmony format consist of several tokens
    for (const char* token : {"<|start|>", "<|channel|>", "<|message|>", "<|end|>"})
      if (const auto id = tokenizer.find(token)) options.shown.push_back(*id);
  if (tools)
    for (const std::string_view mark : tool_call_marks())
      if (const auto id = tokenizer.find(mark)) options.shown.push_back(*id);
}

SamplerOptions sampling_of(const GgufFile& file, SamplerOptions otherwise) {
  const std::string prefix = "general.sampling.";
  const auto number = [&](const char* name, double& to) { to = file.get_or<double>(prefix + name, to); };
  SamplerOptions o = std::move(otherwise);
  number("temp", o.temperature);
  number("top_p", o.top_p);
  number("min_p", o.min_p);
  number("penalty_repeat", o.repeat_penalty);
  // Negative values mean unlimited, as in llama.cpp.
  o.top_k = std::max<std::int64_t>(0, file.get_or<std::int64_t>(prefix + "top_k", o.top_k));
  o.penalty_last = std::max<std::int64_t>(-1, file.get_or<std::int64_t>(prefix + "penalty_last_n", o.penalty_last));
  // A top_p of 0 keeps only the likeliest token, as in transformers and llama.cpp.
  if (o.top_p <= 0 && file.has(prefix + "top_p")) o.top_p = std::numeric_limits<double>::min();
  const auto warn = [&](const std::string& key) {
    logging::warn(fmt::format("{}: {} is ignored: this sampling method is not supported", file.name(), key));
  };
  if (file.get_or<double>(prefix + "xtc_probability", 0) > 0) warn(prefix + "xtc_probability");
  if (file.get_or<std::int64_t>(prefix + "mirostat", 0) != 0) warn(prefix + "mirostat");
  if (file.has(prefix + "sequence")) warn(prefix + "sequence");
  try {
    const Sampler checked(o);
  } catch (const ArgumentError& e) {
    fail<FormatError>({.operation = "load model",
                       .with = {{"file", file.name()}, {"keys", prefix + "*"}},
                       .wrong = fmt::format("the file's sampling options are invalid: {}", e.what())});
  }
  return o;
}

ChatSession::ChatSession(const LanguageModel& model, ChatTemplate chat_template, ChatOptions options)
    : model_(model),
      template_(std::move(chat_template)),
      options_(std::move(options)),
      session_(
          model,
          options_.context ? options_.context : std::min(model.model().config().context_length, default_max_context),
          options_.generate.cache_dtype, TextSession::Memory::in_pages, options_.generate.recorded) {
  const bool tools = !options_.prompt.tools.empty();
  if (tools) template_.require_tools();
  set_chat_ends(options_.generate, template_, model.tokenizer(), tools);
  require_generate(options_.generate);
}

void ChatSession::assign_call_ids(std::vector<ToolCall>& calls) const {
  std::vector<std::string> taken;
  for (const ChatMessage& m : conversation)
    for (const ToolCall& c : m.calls) taken.push_back(c.id);
  tessera::assign_call_ids(calls, std::move(taken));
}

std::size_t ChatSession::first_turn() const {
  std::size_t i = 0;
  while (i < conversation.size() && conversation[i].role == "system") ++i;
  return i;
}

ChatPrompt ChatSession::prompt_without(std::size_t left_out) const {
  if (left_out == 0) return template_.prompt(conversation, model_.tokenizer(), options_.prompt);
  Conversation rest = conversation;
  const auto from = rest.begin() + static_cast<std::ptrdiff_t>(first_turn());
  rest.erase(from, from + static_cast<std::ptrdiff_t>(left_out));
  return template_.prompt(rest, model_.tokenizer(), options_.prompt);
}

void ChatSession::require_system_fits() const {
  const auto end = conversation.begin() + static_cast<std::ptrdiff_t>(first_turn());
  if (end == conversation.begin()) return;
  Conversation system(conversation.begin(), end);
  system.push_back({"user", ""});
  std::int64_t tokens = 0;
  try {
    tokens = static_cast<std::int64_t>(template_.prompt(system, model_.tokenizer(), options_.prompt).tokens.size());
  } catch (const Error&) {  // the template rejects an empty message
  }
  if (tokens > context())
    fail<ArgumentError>(
        {.operation = "chat",
         .with = {{"tokens of the system prompt", std::to_string(tokens)}, {"context", std::to_string(context())}},
         .wrong = "the system prompt is longer than the context",
         .remedy = "Shorten it (/system TEXT), or increase the context (--ctx)"});
}

void ChatSession::require_fits(const ChatPrompt& prompt) const {
  const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
  if (tokens <= context()) return;
  require_system_fits();
  // Suggest only remedies that are possible and not yet in use.
  std::vector<std::string> ways;
  if (conversation.size() > first_turn() + 1) {
    ways.emplace_back("start over (/reset)");
    if (options_.when_full != WhenFull::shift) ways.emplace_back("drop the oldest messages (--when-full shift)");
  } else {
    ways.emplace_back("shorten the message");
  }
  if (const std::int64_t most = model_.model().config().context_length; context() < most)
    ways.push_back(fmt::format("increase the context (--ctx), at most to the model's {}", most));
  std::string remedy = fmt::format("{}", fmt::join(ways, ", or "));
  remedy[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(remedy[0])));
  fail<ArgumentError>(
      {.operation = "chat",
       .with = {{"tokens of the conversation", std::to_string(tokens)}, {"context", std::to_string(context())}},
       .wrong = "the conversation is longer than the context",
       .remedy = std::move(remedy)});
}

ChatPrompt ChatSession::prompt() const {
  ChatPrompt all = prompt_without(0);
  require_fits(all);
  return all;
}

ChatAnswer ChatSession::answer(const AnswerCallback& on_parts) {
  ChatAnswer out;
  out.message.role = "assistant";
  const auto size = [](const std::vector<TokenId>& t) { return static_cast<std::int64_t>(t.size()); };
  // Messages are dropped up to the next user message. Messages that were dropped for the last answer are dropped again,
  // because the cache contains the conversation without them.
  const std::size_t first = first_turn();
  std::size_t left_out = 0;
  if (left_out_.size() < conversation.size() - first &&
      std::equal(left_out_.begin(), left_out_.end(), conversation.begin() + static_cast<std::ptrdiff_t>(first)))
    left_out = left_out_.size();
  const auto leave_out_more = [&] {
    std::size_t next = first + left_out + 1;
    while (next < conversation.size() && conversation[next].role != "user") ++next;
    if (next >= conversation.size()) return false;
    left_out = next - first;
    return true;
  };

  ChatPrompt prompt = prompt_without(left_out);
  const auto part = [&](std::int64_t n) { return std::max<std::int64_t>(1, context() / n); };
  if (options_.when_full == WhenFull::shift) {
    // Reserve an eighth of the context for the answer. If less is available, drop messages until half is available,
    // because each drop invalidates the cache and the model has to read the remaining prompt again.
    if (size(prompt.tokens) + std::min(options_.generate.max_tokens, part(8)) > context())
      while (size(prompt.tokens) + part(2) > context() && leave_out_more()) prompt = prompt_without(left_out);
  }
  require_fits(prompt);

  ThinkingSplitter splitter(prompt.thinking);
  std::optional<ToolCallSplitter> calls;
  if (!options_.prompt.tools.empty()) calls.emplace(template_.call_forms());
  const auto give = [&](ThinkingSplitter::Parts parts) {
    if (calls) parts.text = calls->push(parts.text);
    out.message.thinking += parts.thinking;
    out.message.text += parts.text;
    return (parts.thinking.empty() && parts.text.empty()) || !on_parts || on_parts(parts);
  };
  ContextShift shift_context;
  if (options_.when_full == WhenFull::shift)
    shift_context = [&](std::span<const TokenId> answer) {
      std::vector<TokenId> tokens;
      while (leave_out_more()) {
        tokens = prompt_without(left_out).tokens;
        tokens.insert(tokens.end(), answer.begin(), answer.end());
        if (size(tokens) + part(2) <= context()) return tokens;
      }
      return size(tokens) < context() ? tokens : std::vector<TokenId>();
    };
  bool begins = model_.tokenizer().adds_space();  // remove the leading space that the tokenizer adds
  out.result = session_.generate(
      prompt.tokens, options_.generate,
      [&](std::string_view piece) {
        if (begins && piece.starts_with(' ')) piece.remove_prefix(1);
        begins = false;
        return give(splitter.push(piece));
      },
      shift_context);
  give(splitter.flush());
  if (calls) {
    ToolCallSplitter::End end = calls->finish();
    if (!end.text.empty() && on_parts) on_parts({.thinking = "", .text = end.text});
    out.message.text += end.text;
    out.message.calls = std::move(end.calls);
    assign_call_ids(out.message.calls);
    // The white space between the text and the calls is a part of the call format.
    if (!out.message.calls.empty()) out.message.text.erase(out.message.text.find_last_not_of(" \t\r\n") + 1);
  }
  out.left_out = static_cast<std::int64_t>(left_out);
  const auto from = conversation.begin() + static_cast<std::ptrdiff_t>(first);
  left_out_.assign(from, from + static_cast<std::ptrdiff_t>(left_out));
  const bool nothing = out.result.reason == StopReason::cancelled && out.message.text.empty() &&
                       out.message.thinking.empty() && out.message.calls.empty();
  if (!nothing) conversation.push_back(out.message);
  return out;
}

}  // namespace tessera
