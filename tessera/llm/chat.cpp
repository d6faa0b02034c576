// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/chat.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/jinja/template.h"
#include "tessera/llm/chat_families.h"
#include "tessera/llm/gguf_values.h"

namespace tessera {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view template_key = "tokenizer.chat_template";
// The last entry is the channels of the harmony format (gpt-oss).
constexpr std::array<ThinkingMarks, 4> marks = {
    {{"<think>", "</think>"},
     {"[THINK]", "[/THINK]"},
     {"<seed:think>", "</seed:think>"},
     {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>",
      "<|channel|>final<|message|>"}}};
constexpr std::string_view white = " \t\r\n";

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Returns the names of the chat template variants in the file.
std::vector<std::string> variants_of(const GgufFile& file) {
  std::vector<std::string> names;
  const std::string prefix = std::string(template_key) + ".";
  for (const GgufEntry& e : file.metadata())
    if (e.key.compare(0, prefix.size(), prefix) == 0) names.push_back(e.key.substr(prefix.size()));
  return names;
}

/// Returns the families whose special tokens are all in the vocabulary.
std::vector<std::string> families_for(const GgufFile& file) {
  std::vector<std::string> names;
  if (!file.has("tokenizer.ggml.tokens")) return names;
  const std::vector<std::string>& tokens = file.get_strings("tokenizer.ggml.tokens");
  for (const ChatFamily& f : chat_families()) {
    const bool fits = !f.special.empty() && std::all_of(f.special.begin(), f.special.end(), [&](std::string_view t) {
      return std::find(tokens.begin(), tokens.end(), t) != tokens.end();
    });
    if (fits) names.emplace_back(f.name);
  }
  return names;
}

/// Returns the length of the longest suffix of `text` that is a prefix of `wanted`.
std::size_t begun(std::string_view text, std::string_view wanted) {
  for (std::size_t n = std::min(text.size(), wanted.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == wanted.substr(0, n)) return n;
  return 0;
}

/// Parses {"id": ..., "function": {"name": ..., "arguments": ...}}.
std::optional<ToolCall> call_of(const ordered_json& value) {
  ToolCall out;
  if (!value.is_object() || !value.contains("function") || !value["function"].is_object()) return std::nullopt;
  const ordered_json& function = value["function"];
  if (!function.contains("name") || !function["name"].is_string() || !function.contains("arguments"))
    return std::nullopt;
  if (value.contains("id") && value["id"].is_string()) out.id = value["id"].get<std::string>();
  out.name = function["name"].get<std::string>();
  const ordered_json& given = function["arguments"];
  const auto arguments =
      json_object(given.is_string() ? given.get<std::string>()
                                    : given.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  if (!arguments || out.name.empty()) return std::nullopt;
  out.arguments = *arguments;
  return out;
}

}  // namespace

std::vector<ToolCall> open_calls(const Conversation& conversation) {
  std::size_t at = conversation.size(), results = 0;
  while (at > 0 && conversation[at - 1].role == "tool") --at, ++results;
  if (at == 0 || conversation[at - 1].role != "assistant") return {};
  std::vector<ToolCall> out = conversation[at - 1].calls;
  for (std::size_t i = at; i < conversation.size(); ++i) {
    const std::string& id = conversation[i].call_id;
    const auto answered =
        std::find_if(out.begin(), out.end(), [&](const ToolCall& c) { return id.empty() || c.id == id; });
    if (answered != out.end()) out.erase(answered);
  }
  return out;
}

std::span<const ThinkingMarks> thinking_marks() { return marks; }

std::string to_json(const Conversation& conversation) {
  ordered_json out = ordered_json::array();
  for (const ChatMessage& m : conversation) {
    ordered_json one = {{"role", m.role}, {"content", m.text}};
    if (!m.thinking.empty()) one["reasoning_content"] = m.thinking;
    for (const ToolCall& c : m.calls)
      one["tool_calls"].push_back(
          {{"id", c.id}, {"type", "function"}, {"function", {{"name", c.name}, {"arguments", c.arguments}}}});
    if (!m.call_id.empty()) one["tool_call_id"] = m.call_id;
    if (!m.name.empty()) one["name"] = m.name;
    out.push_back(std::move(one));
  }
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Conversation conversation_of_json(std::string_view json, const std::string& name) {
  const auto bad = [&](const std::string& wrong) {
    fail<FormatError>({.operation = "read conversation",
                       .with = {{"file", name}},
                       .wrong = wrong,
                       .remedy = R"(It should be a list such as [{"role": "user", "content": "Hello"}])"});
  };
  const ordered_json all = ordered_json::parse(json, nullptr, false);
  if (all.is_discarded()) bad("the file is not valid JSON");
  if (!all.is_array()) bad("the file is not a JSON list");
  Conversation out;
  for (const ordered_json& one : all) {
    const std::string where = fmt::format("message {}", out.size() + 1);
    if (!one.is_object()) bad(where + " is not an object");
    ChatMessage m;
    for (const auto& [key, value] : one.items()) {
      std::string* const to = key == "role"                ? &m.role
                              : key == "content"           ? &m.text
                              : key == "reasoning_content" ? &m.thinking
                              : key == "tool_call_id"      ? &m.call_id
                              : key == "name"              ? &m.name
                                                           : nullptr;
      if (key == "tool_calls") {
        if (!value.is_array()) bad(fmt::format("\"tool_calls\" of {} is not a list", where));
        for (const ordered_json& call : value) {
          const auto read = call_of(call);
          if (!read) bad(fmt::format("a tool call of {} has no function with a name and arguments", where));
          m.calls.push_back(*read);
        }
        continue;
      }
      if (key == "content" && value.is_null() && one.contains("tool_calls")) continue;
      if (!to) bad(fmt::format("{} has an unknown member {}", where, quote_text(key)));
      if (!value.is_string()) bad(fmt::format("{} of {} is not a string", quote_text(key), where));
      *to = value.get<std::string>();
    }
    if (m.role.empty()) bad(where + " has no role");
    if (!one.contains("content") && m.calls.empty()) bad(where + " has no content");
    out.push_back(std::move(m));
  }
  return out;
}

ChatTemplate::ChatTemplate(std::string_view source, std::string name) : name_(std::move(name)) {
  try {
    template_ = std::make_shared<const jinja::Template>(source);
  } catch (const FormatError& e) {
    fail<FormatError>(
        {.operation = "chat",
         .wrong = fmt::format("{} cannot be used: {}", name_, e.what()),
         .remedy = fmt::format("Use a built-in template with --template: {}", fmt::join(families(), ", "))});
  }
  for (std::size_t i = marks.size(); i-- > 0;)
    if (has(source, marks[i].close) || has(source, marks[i].open)) marks_ = i;
  if (has(source, "reasoning_content"))
    thinking_style_ = ThinkingStyle::separate_field;
  else if (has(source, marks[marks_].close))
    thinking_style_ = ThinkingStyle::within;
  parts_ = expects_content_parts();
  call_forms_ = tool_call_forms(source);
  // Calls in the harmony format, in a channel of their own, are not parsed.
  if (has(source, "tools") && !has(source, "<|channel|>")) call_style_ = detect_call_style();
}

std::vector<std::string> ChatTemplate::families() {
  std::vector<std::string> names;
  for (const ChatFamily& f : chat_families()) names.emplace_back(f.name);
  return names;
}

ChatTemplate ChatTemplate::built_in(std::string_view family) {
  for (const ChatFamily& f : chat_families()) {
    if (f.name != family) continue;
    ChatTemplate made(f.source, fmt::format("the built-in chat template {}", f.name));
    made.built_in_ = true;
    made.special_.assign(f.special.begin(), f.special.end());
    return made;
  }
  fail<ArgumentError>({.operation = "chat template",
                       .with = {{"name", std::string(family)}},
                       .wrong = "there is no built-in chat template with this name",
                       .remedy = fmt::format("The built-in templates are {}", fmt::join(families(), ", "))});
}

ChatTemplate ChatTemplate::of(const GgufFile& file, std::string_view name, bool tools) {
  constexpr std::string_view for_tools = "tool_use";
  if (name.empty() && tools && file.has(fmt::format("{}.{}", template_key, for_tools))) name = for_tools;
  if (name.empty() && file.has(template_key))
    return ChatTemplate(file.get<std::string>(template_key), fmt::format("the chat template of {}", file.name()));
  const std::vector<std::string> variants = variants_of(file);
  if (name.empty()) {
    const std::vector<std::string> fitting = families_for(file);
    std::string remedy =
        variants.empty() ? "" : fmt::format("Use one of its variants with --template: {}. ", fmt::join(variants, ", "));
    remedy += fmt::format("Use a built-in template with --template NAME: {}", fmt::join(families(), ", "));
    if (!fitting.empty())
      remedy += fmt::format(". The vocabulary contains the special tokens of {}", fmt::join(fitting, " and "));
    fail<FormatError>({.operation = "chat",
                       .with = {{"file", file.name()}, {"key", std::string(template_key)}},
                       .wrong = "the file has no chat template, so the model was probably not trained for chat",
                       .remedy = remedy});
  }
  if (std::find(variants.begin(), variants.end(), name) != variants.end())
    return ChatTemplate(file.get<std::string>(fmt::format("{}.{}", template_key, name)),
                        fmt::format("the chat template {} of {}", name, file.name()));
  const std::vector<std::string> built_ins = families();
  if (std::find(built_ins.begin(), built_ins.end(), name) != built_ins.end()) return built_in(name);
  fail<ArgumentError>(
      {.operation = "chat",
       .with = {{"file", file.name()}, {"template", std::string(name)}},
       .wrong = "neither the file nor Tessera has a chat template with this name",
       .remedy = fmt::format("{}The built-in templates are {}",
                             variants.empty() ? "" : fmt::format("The file has {}. ", fmt::join(variants, ", ")),
                             fmt::join(built_ins, ", "))});
}

jinja::Value ChatTemplate::message(const ChatMessage& m) const {
  using jinja::Dict;
  using jinja::Text;
  using jinja::Value;
  // Only the names of known roles are trusted. Other roles may come from a file that the user loaded.
  const bool ours = m.role == "system" || m.role == "user" || m.role == "assistant" || m.role == "tool";
  Text text = Text::data(m.text);
  Dict out;
  out.set("role", ours ? Text(m.role) : Text::data(m.role));
  if (!m.thinking.empty() && thinking_style_ == ThinkingStyle::within) {
    // The thinking marks must become special tokens, so they are trusted text.
    Text whole(std::string(marks[marks_].open) + "\n");
    whole.append(Text::data(m.thinking));
    whole.append("\n" + std::string(marks[marks_].close) + "\n\n");
    whole.append(text);
    text = std::move(whole);
  }
  if (parts_) {
    Dict part;
    part.set("type", "text");
    part.set("text", std::move(text));
    out.set("content", Value::list({std::move(part)}));
  } else {
    out.set("content", std::move(text));
  }
  if (!m.thinking.empty() && thinking_style_ == ThinkingStyle::separate_field)
    out.set("reasoning_content", Text::data(m.thinking));
  if (!m.calls.empty()) {
    std::vector<Value> calls;
    for (const ToolCall& c : m.calls) {
      Dict function, call;
      function.set("name", Text::data(c.name));
      if (call_style_ == CallStyle::text || call_style_ == CallStyle::text_no_content)
        function.set("arguments", Text::data(c.arguments));
      else
        function.set("arguments", jinja::value_of_json(c.arguments, jinja::Origin::data));
      call.set("type", "function");
      call.set("id", Text::data(c.id));
      call.set("function", std::move(function));
      calls.emplace_back(std::move(call));
    }
    out.set("tool_calls", Value::list(std::move(calls)));
    if (m.text.empty() && (call_style_ == CallStyle::object_no_content || call_style_ == CallStyle::text_no_content))
      out.set("content", jinja::None{});
  }
  if (!m.call_id.empty()) out.set("tool_call_id", Text::data(m.call_id));
  if (!m.name.empty()) out.set("name", Text::data(m.name));
  return out;
}

// Templates expect different representations of a tool call. The only way to find the right one is to render a test
// conversation.
ChatTemplate::CallStyle ChatTemplate::detect_call_style() const {
  const auto written = [&](CallStyle way) -> std::string {
    ChatTemplate as = *this;
    as.call_style_ = way;
    std::vector<jinja::Value> messages;
    const Conversation probe = {
        {"user", "tesserauser"},
        {.role = "assistant",
         .text = "",
         .calls = {{"call00001", "tesseraprobe", R"({"tesserakey": "tesseravalue"})"}}},
        {.role = "tool", .text = "tesseraresult", .call_id = "call00001", .name = "tesseraprobe"}};
    for (const ChatMessage& m : probe) messages.push_back(as.message(m));
    jinja::Dict names;
    names.set("messages", jinja::Value::list(std::move(messages)));
    names.set("tools", jinja::value_of_json(R"([{"type": "function", "function": {"name": "tesseraprobe", "description":
                  "tesseratool", "parameters": {"type": "object", "properties": {"tesserakey": {"type": "string",
                  "description": "any"}}, "required": ["tesserakey"]}}}])",
                                            jinja::Origin::data));
    names.set("documents", jinja::None{});
    names.set("add_generation_prompt", true);
    names.set("bos_token", "<s>");
    names.set("eos_token", "</s>");
    try {
      std::string text = template_->render(names).bytes;
      const bool all = has(text, "tesserauser") && has(text, "tesseravalue") && has(text, "tesseraresult") &&
                       has(text, "tesseratool") && !has(text, "None");
      return all ? text : std::string();
    } catch (const Error&) {
      return {};
    }
  };
  // Without content, some templates write a shorter text, because they omit the empty answer before the call.
  for (const auto& [with, without] : {std::pair(CallStyle::object, CallStyle::object_no_content),
                                      std::pair(CallStyle::text, CallStyle::text_no_content)}) {
    const std::string a = written(with), b = written(without);
    if (!b.empty() && (a.empty() || b.size() < a.size())) return without;
    if (!a.empty()) return with;
  }
  return CallStyle::none;
}

// Some templates accept content only as a list of parts. They omit content that is a plain string.
bool ChatTemplate::expects_content_parts() const {
  constexpr std::string_view word = "tesseraprobe";
  const auto shows = [&](jinja::Value content) {
    jinja::Dict user, names;
    user.set("role", "user");
    user.set("content", std::move(content));
    names.set("messages", jinja::Value::list({std::move(user)}));
    names.set("tools", jinja::None{});
    names.set("add_generation_prompt", true);
    names.set("bos_token", "<s>");
    names.set("eos_token", "</s>");
    try {
      return has(template_->render(names).bytes, word);
    } catch (const Error&) {
      return false;
    }
  };
  if (shows(std::string(word))) return false;
  jinja::Dict part;
  part.set("type", "text");
  part.set("text", std::string(word));
  return shows(jinja::Value::list({std::move(part)}));
}

void ChatTemplate::require_tools() const {
  if (takes_tools()) return;
  fail<ArgumentError>({.operation = "chat",
                       .wrong = fmt::format("{} does not support tools", name_),
                       .remedy = is_built_in() ? "Models that are trained to call functions contain their own template"
                                               : "The model is not trained to call functions; use it without tools"});
}

ChatPrompt ChatTemplate::prompt(const Conversation& conversation, const Tokenizer& tokenizer,
                                const ChatPromptOptions& options) const {
  jinja::Dict names;
  std::vector<jinja::Value> messages;
  for (const ChatMessage& m : conversation) messages.push_back(message(m));
  names.set("messages", jinja::Value::list(std::move(messages)));
  if (options.tools.empty())
    names.set("tools", jinja::None{});
  else
    names.set("tools", jinja::value_of_json(options.tools, jinja::Origin::data));
  names.set("documents", jinja::None{});
  names.set("add_generation_prompt", options.add_generation_prompt);
  for (const auto& [name, id] : {std::pair("bos_token", tokenizer.bos()), {"eos_token", tokenizer.eos()}})
    names.set(name, id ? std::string(tokenizer.text(*id)) : std::string());
  if (!options.arguments.empty()) {
    std::optional<jinja::Value> arguments;
    try {
      arguments = jinja::value_of_json(options.arguments, jinja::Origin::ours);
    } catch (const FormatError&) {}
    if (!arguments || !arguments->dict())
      fail<ArgumentError>({.operation = "chat",
                           .with = {{"arguments", options.arguments}},
                           .wrong = "the template's arguments are not a JSON object",
                           .remedy = R"(Example: {"enable_thinking": false})"});
    for (const auto& [name, value] : arguments->dict()->entries()) names.set(name, value);
  }

  ChatPrompt out;
  jinja::Text text;
  try {
    text = template_->render(names, {.now = options.now});
  } catch (const jinja::Refused& e) {
    fail<ArgumentError>(
        {.operation = "chat", .wrong = fmt::format("{} rejects this conversation: {}", name_, e.what())});
  } catch (const FormatError& e) {
    fail<FormatError>(
        {.operation = "chat",
         .wrong = fmt::format("{} fails: {}", name_, e.what()),
         .remedy = fmt::format("Use a built-in template with --template: {}", fmt::join(families(), ", "))});
  }
  out.text = std::move(text.bytes);
  for (const jinja::Span s : text.given) out.plain.push_back({s.begin, s.end});
  out.tokens = tokenizer.encode(out.text, {.add_special = false, .parse_special = true, .plain = out.plain});
  if (const auto bos = tokenizer.bos()) {
    const std::size_t written = static_cast<std::size_t>(
        std::find_if(out.tokens.begin(), out.tokens.end(), [&](TokenId t) { return t != *bos; }) - out.tokens.begin());
    if (written > 1)
      out.tokens.erase(out.tokens.begin() + 1, out.tokens.begin() + static_cast<std::ptrdiff_t>(written));
    if (written == 0 && tokenizer.adds_bos()) out.tokens.insert(out.tokens.begin(), *bos);
  }
  const std::string_view seen = std::string_view(out.text).substr(0, out.text.find_last_not_of(white) + 1);
  const bool by_user = !out.plain.empty() && out.plain.back().end >= seen.size();
  if (options.add_generation_prompt && !by_user)
    for (std::size_t i = 0; i < marks.size(); ++i)
      if (seen.ends_with(marks[i].open)) out.thinking = i;
  return out;
}

std::vector<std::string> ChatTemplate::missing_tokens(const Tokenizer& tokenizer) const {
  std::vector<std::string> out;
  for (const std::string& text : special_)
    if (!tokenizer.find(text)) out.push_back(text);
  return out;
}

std::string ChatTemplate::end_text(const Tokenizer& tokenizer) const {
  return special_.empty() || tokenizer.find(special_.front()) ? std::string() : special_.front();
}

ThinkingSplitter::ThinkingSplitter(std::optional<std::size_t> inside)
    : state_(inside ? State::inside : State::start), marks_(inside.value_or(0)) {}

ThinkingSplitter::Parts ThinkingSplitter::push(std::string_view piece) {
  held_ += piece;
  return take(false);
}

ThinkingSplitter::Parts ThinkingSplitter::flush() { return take(true); }

ThinkingSplitter::Parts ThinkingSplitter::take(bool end) {
  Parts out;
  const auto without_space = [&] { held_.erase(0, std::min(held_.find_first_not_of(white), held_.size())); };
  if (state_ == State::start) {
    const std::size_t first = held_.find_first_not_of(white);
    const std::string_view seen = first == std::string::npos ? "" : std::string_view(held_).substr(first);
    bool may_be = seen.empty();
    for (std::size_t i = 0; i < marks.size() && state_ == State::start; ++i) {
      if (seen.starts_with(marks[i].open)) {
        state_ = State::inside, marks_ = i;
        held_.erase(0, first + marks[i].open.size());
      } else if (const std::string_view instead = marks[i].instead; !instead.empty() && seen.starts_with(instead)) {
        state_ = State::answer_start;
        held_.erase(0, first + instead.size());
      } else {
        may_be = may_be || marks[i].open.starts_with(seen) || instead.starts_with(seen);
      }
    }
    if (state_ == State::start && may_be && !end) return out;
    if (state_ == State::start) state_ = State::answer;
  }
  if (state_ == State::inside) {
    if (!thought_) without_space();
    const std::string_view close = marks[marks_].close;
    const std::size_t at = held_.find(close);
    // Hold back a suffix that may become the closing mark, and the white space before it.
    std::size_t whole = at != std::string::npos ? at : end ? held_.size() : held_.size() - begun(held_, close);
    const std::size_t last = held_.find_last_not_of(white, whole == 0 ? 0 : whole - 1);
    const std::size_t give = whole == 0 || last == std::string::npos ? 0 : last + 1;
    out.thinking = held_.substr(0, give);
    thought_ = thought_ || give != 0;
    if (at != std::string::npos) {
      held_.erase(0, at + close.size());
      state_ = State::answer_start;
    } else {
      held_.erase(0, end ? held_.size() : give);
    }
  }
  if (state_ == State::answer_start) {
    without_space();
    if (!held_.empty()) state_ = State::answer;
  }
  if (state_ == State::answer) out.text = std::move(held_), held_.clear();
  return out;
}

}  // namespace tessera
