// SPDX-License-Identifier: Apache-2.0
#include "serve/answer.h"

#include <algorithm>

#include "serve/embeddings.h"
#include "tessera/base/unicode.h"

namespace tessera::app {
namespace {

const char* finish_reason(StopReason reason) {
  if (reason == StopReason::cancelled) return "cancelled";  // only in the log: clients receive an error
  return reason == StopReason::max_tokens || reason == StopReason::context_full ? "length" : "stop";
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// JSON has no infinity.
double finite(double log_probability) { return std::max(log_probability, -9999.0); }

Json call_json(const ToolCall& call) {
  return {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

}  // namespace

Answer::Sequence::Sequence(const AnswerSettings& settings) : thinking_splitter(settings.thinking) {
  if (settings.call_forms) call_splitter.emplace(*settings.call_forms);
}

Answer::Answer(AnswerSettings settings) : settings_(std::move(settings)) {
  for (std::size_t i = 0; i < settings_.sequences; ++i) sequences_.emplace_back(settings_);
}

std::vector<Json> Answer::take(std::int64_t sequence, const TextEvent& event) {
  const auto index = static_cast<std::size_t>(sequence);
  Sequence& s = sequences_.at(index);
  std::vector<Json> chunks;
  if (const auto* started = std::get_if<TextStarted>(&event))
    start(s, index, *started, chunks);
  else if (const auto* piece = std::get_if<TextPiece>(&event))
    add(s, index, *piece, chunks);
  else if (const auto* ended = std::get_if<TextEnded>(&event))
    end(s, index, *ended, chunks);
  else if (const auto* embedding = std::get_if<TextEmbedding>(&event))
    s.embedding = embedding->values;
  else
    error_ = std::get<TextFailed>(event).message, ++ended_;
  if (!settings_.stream) chunks.clear();
  return chunks;
}

void Answer::start(Sequence& s, std::size_t index, const TextStarted& event, std::vector<Json>& chunks) {
  // The prompt of several sequences is counted once, as in OpenAI's API.
  if (index % (settings_.sequences / settings_.prompts) == 0)
    prompt_tokens_ += event.prompt_tokens, cached_tokens_ += event.cached_tokens;
  if (is_chat()) {
    chunks.push_back(chunk(s, index, {{"role", "assistant"}, {"content", ""}}));
  } else if (index < settings_.echo.size() && !settings_.echo[index].empty()) {
    s.text = settings_.echo[index];
    s.offset = characters(s.text);
    chunks.push_back(chunk(s, index, s.text));
  }
}

void Answer::add(Sequence& s, std::size_t index, const TextPiece& piece, std::vector<Json>& chunks) {
  s.tokens += static_cast<std::int64_t>(piece.tokens.size());
  generated_tokens_ += static_cast<std::int64_t>(piece.tokens.size());
  if (settings_.log_probabilities) add_log_probabilities(s, piece);
  std::string_view text = piece.text;
  if (!is_chat()) {
    s.text += text;
    if (!text.empty()) chunks.push_back(chunk(s, index, text));
    return;
  }
  // The tokenizer of some models adds a space before a text.
  if (s.at_start && settings_.tokenizer->adds_space() && text.starts_with(' ')) text.remove_prefix(1);
  s.at_start = s.at_start && piece.text.empty();
  add_parts(s, index, s.thinking_splitter.push(text), chunks);
}

void Answer::add_parts(Sequence& s, std::size_t index, ThinkingSplitter::Parts parts, std::vector<Json>& chunks) {
  if (s.call_splitter) parts.text = s.call_splitter->push(parts.text);
  s.thinking += parts.thinking;
  s.text += parts.text;
  if (!parts.thinking.empty()) chunks.push_back(chunk(s, index, {{"reasoning_content", parts.thinking}}));
  if (!parts.text.empty()) chunks.push_back(chunk(s, index, {{"content", parts.text}}));
  if (settings_.stream && s.call_splitter)
    if (const ToolCallForm* const form = s.call_splitter->form())
      add_calls(s, index, s.call_stream.read(s.call_splitter->held(), *form), chunks);
}

void Answer::add_calls(Sequence& s, std::size_t index, const std::vector<ToolCallDelta>& deltas,
                       std::vector<Json>& chunks) {
  for (const ToolCallDelta& d : deltas) {
    if (d.index > 0 && !settings_.parallel_calls) return;
    Json call = {{"index", d.index}};
    if (d.index == s.calls.size()) {
      s.calls.push_back({d.id, d.name, d.arguments});
      assign_call_ids(s.calls, settings_.call_ids);
      call.update(call_json(s.calls.back()));
    } else {
      s.calls[d.index].arguments += d.arguments;
      call["function"] = {{"arguments", d.arguments}};
    }
    chunks.push_back(chunk(s, index, {{"tool_calls", Json::array({std::move(call)})}}));
  }
}

void Answer::end_calls(Sequence& s, std::size_t index, std::vector<Json>& chunks) {
  ToolCallSplitter::End rest = s.call_splitter->finish();
  const std::vector<ToolCallDelta> deltas = s.call_stream.finish(rest);
  s.text += rest.text;
  if (!rest.text.empty()) chunks.push_back(chunk(s, index, {{"content", rest.text}}));
  add_calls(s, index, deltas, chunks);
  // The white space between the text and the calls is a part of the call format.
  if (!s.calls.empty()) s.text.erase(s.text.find_last_not_of(" \t\r\n") + 1);
}

void Answer::end(Sequence& s, std::size_t index, const TextEnded& event, std::vector<Json>& chunks) {
  ++ended_;
  prompt_seconds_ += event.prompt_seconds;
  generate_seconds_ += event.generate_seconds;
  cancelled_ = cancelled_ || event.reason == StopReason::cancelled;
  if (is_chat()) {
    add_parts(s, index, s.thinking_splitter.flush(), chunks);
    if (s.call_splitter) end_calls(s, index, chunks);
  }
  if (settings_.kind == AnswerKind::embeddings)
    s.finish_reason = s.embedding.empty() ? finish_reason(event.reason) : "stop";
  else
    s.finish_reason = s.calls.empty() || s.call_stream.is_cut() ? finish_reason(event.reason) : "tool_calls";
  Json last = is_chat() ? chunk(s, index, Json::object()) : chunk(s, index, "");
  if (done()) last["timings"] = timings();
  chunks.push_back(std::move(last));
}

std::string Answer::token_bytes(TokenId id) const {
  const Tokenizer& t = *settings_.tokenizer;
  return static_cast<std::size_t>(id) < t.size() ? std::string(t.decode(id, true)) : std::string();
}

Json Answer::chat_log_probability(const std::vector<TokenProbability>& of_token) const {
  const auto entry = [&](const TokenProbability& p) {
    const std::string bytes = token_bytes(p.id);
    Json numbers = Json::array();
    for (const unsigned char c : bytes) numbers.push_back(c);
    return Json{{"token", bytes}, {"logprob", finite(p.log_probability)}, {"bytes", std::move(numbers)}};
  };
  Json out = entry(of_token.front());
  out["top_logprobs"] = Json::array();
  for (std::size_t i = 1; i < of_token.size(); ++i) out["top_logprobs"].push_back(entry(of_token[i]));
  return out;
}

void Answer::add_completion_log_probability(Sequence& s, const std::vector<TokenProbability>& of_token) const {
  const std::string text = token_bytes(of_token.front().id);
  s.log_probabilities["tokens"].push_back(text);
  s.log_probabilities["token_logprobs"].push_back(finite(of_token.front().log_probability));
  Json likeliest = Json::object();
  for (std::size_t i = 1; i < of_token.size(); ++i)
    likeliest[token_bytes(of_token[i].id)] = finite(of_token[i].log_probability);
  s.log_probabilities["top_logprobs"].push_back(std::move(likeliest));
  s.log_probabilities["text_offset"].push_back(s.offset);
  s.offset += characters(text);
}

void Answer::add_log_probabilities(Sequence& s, const TextPiece& piece) {
  for (const auto& of_token : piece.log_probabilities)
    if (is_chat())
      s.log_probabilities["content"].push_back(chat_log_probability(of_token));
    else
      add_completion_log_probability(s, of_token);
}

Json Answer::take_log_probabilities(Sequence& s) const { return std::exchange(s.log_probabilities, nullptr); }

Json Answer::head(const char* object) const {
  return {{"id", settings_.id}, {"object", object}, {"created", settings_.created}, {"model", settings_.model}};
}

Json Answer::chunk(Sequence& s, std::size_t index, Json content) const {
  if (!settings_.stream) return nullptr;
  Json choice = {{"index", index}};
  choice[is_chat() ? "delta" : "text"] = std::move(content);
  choice["logprobs"] = take_log_probabilities(s);
  choice["finish_reason"] = s.finish_reason.empty() ? Json(nullptr) : Json(s.finish_reason);
  Json out = head(is_chat() ? "chat.completion.chunk" : "text_completion");
  out["choices"] = Json::array({std::move(choice)});
  if (settings_.include_usage) out["usage"] = nullptr;
  return out;
}

Json Answer::usage() const {
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", generated_tokens_},
          {"total_tokens", prompt_tokens_ + generated_tokens_},
          {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}}}};
}

Json Answer::timings() const {
  const std::int64_t read = prompt_tokens_ - cached_tokens_;
  const auto rate = [](std::int64_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; };
  return {{"cache_n", cached_tokens_},
          {"prompt_n", read},
          {"prompt_ms", prompt_seconds_ * 1e3},
          {"prompt_per_second", rate(read, prompt_seconds_)},
          {"predicted_n", generated_tokens_},
          {"predicted_ms", generate_seconds_ * 1e3},
          {"predicted_per_second", rate(generated_tokens_, generate_seconds_)}};
}

Json Answer::usage_chunk() const {
  Json out = head(is_chat() ? "chat.completion.chunk" : "text_completion");
  out["choices"] = Json::array();
  out["usage"] = usage();
  return out;
}

Json Answer::embeddings() const {
  Json data = Json::array();
  for (std::size_t i = 0; i < sequences_.size(); ++i)
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", embedding_json(sequences_[i].embedding, settings_.is_base64)}});
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", settings_.model},
          {"usage", {{"prompt_tokens", prompt_tokens_}, {"total_tokens", prompt_tokens_}}}};
}

Json Answer::result() const {
  if (settings_.kind == AnswerKind::embeddings) return embeddings();
  Json out = head(is_chat() ? "chat.completion" : "text_completion");
  out["choices"] = Json::array();
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& s = sequences_[i];
    Json choice = {{"index", i}};
    if (is_chat()) {
      Json message = {{"role", "assistant"}, {"content", s.text}};
      if (!s.thinking.empty()) message["reasoning_content"] = s.thinking;
      for (const ToolCall& c : s.calls) message["tool_calls"].push_back(call_json(c));
      if (s.text.empty() && !s.calls.empty()) message["content"] = nullptr;
      choice["message"] = std::move(message);
    } else {
      choice["text"] = s.text;
    }
    choice["logprobs"] = s.log_probabilities;
    choice["finish_reason"] = s.finish_reason;
    out["choices"].push_back(std::move(choice));
  }
  out["usage"] = usage();
  out["timings"] = timings();
  return out;
}

std::string Answer::finish_reasons() const {
  std::string out;
  for (const Sequence& s : sequences_) {
    const std::string reason = s.finish_reason.empty() ? "none" : s.finish_reason;
    if (settings_.kind == AnswerKind::embeddings && out.ends_with(reason)) continue;  // there may be thousands
    out += (out.empty() ? "" : ",") + reason;
  }
  return out;
}

}  // namespace tessera::app
