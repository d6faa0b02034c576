// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/tool_call_text.h"

#include <algorithm>

namespace tessera::tool_call_text {

using nlohmann::ordered_json;

bool is_white(std::string_view text) { return text.find_first_not_of(white) == std::string_view::npos; }

void skip_white(std::string_view& text) { text.remove_prefix(std::min(text.find_first_not_of(white), text.size())); }

bool skip(std::string_view& text, std::string_view part) {
  if (part.empty() || !text.starts_with(part)) return false;
  text.remove_prefix(part.size());
  return true;
}

std::string_view trimmed(std::string_view text) {
  skip_white(text);
  return text.substr(0, text.find_last_not_of(white) + 1);
}

ordered_json parsed(std::string_view text) {
  bool deep = false;
  const auto look = [&](int depth, ordered_json::parse_event_t, const ordered_json&) {
    deep = deep || depth > 64;
    return true;
  };
  ordered_json value = ordered_json::parse(text, look, false);
  return deep ? ordered_json(ordered_json::value_t::discarded) : value;
}

std::size_t json_length(std::string_view text) {
  if (text.empty() || (text[0] != '{' && text[0] != '[' && text[0] != '"')) return 0;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
      continue;
    }
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '{' || c == '[')) ++depth;
    if (!quoted && (c == '}' || c == ']')) --depth;
    if (!quoted && depth == 0) return i + 1;
  }
  return 0;
}

std::optional<ordered_json> take_json(std::string_view& text) {
  skip_white(text);
  const std::size_t length = json_length(text);
  if (length == 0 || text[0] == '"') return std::nullopt;
  ordered_json value = parsed(text.substr(0, length));
  if (value.is_discarded()) return std::nullopt;
  text.remove_prefix(length);
  return value;
}

std::string text_of(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

namespace {

/// Parses a JSON string.
std::optional<std::string> take_json_string(std::string_view& text) {
  const std::size_t length = text.starts_with('"') ? json_length(text) : 0;
  const ordered_json value = length == 0 ? ordered_json() : parsed(text.substr(0, length));
  if (!value.is_string()) return std::nullopt;
  text.remove_prefix(length);
  return value.get<std::string>();
}

/// Skips a JSON value. Returns false if it may be incomplete.
bool skip_json(std::string_view& text) {
  const std::size_t length =
      text.starts_with('{') || text.starts_with('[') ? json_length(text) : text.find_first_of(",}]");
  if (length == 0 || length == std::string_view::npos) return false;
  text.remove_prefix(length);
  return true;
}

}  // namespace

int take_json_head(std::string_view& text, ToolCall& call) {
  const std::string_view whole = text;
  int braces = 0;
  while (skip(text, "{")) {
    ++braces;
    while (true) {
      skip_white(text);
      skip(text, ",");
      skip_white(text);
      const auto key = take_json_string(text);
      if (!key) return 0;
      skip_white(text);
      if (!skip(text, ":")) return 0;
      skip_white(text);
      if (text.starts_with('{') && (*key == "arguments" || *key == "parameters")) {
        const std::string head(whole.substr(0, whole.size() - text.size()));
        const bool valid = !parsed(head + "{}" + std::string(static_cast<std::size_t>(braces), '}')).is_discarded();
        return call.name.empty() || !valid ? 0 : braces;
      }
      if (text.starts_with('{') && *key == "function") break;  // the name and the arguments are in it
      if (!text.starts_with('"')) {
        if (!skip_json(text)) return 0;
        continue;
      }
      const auto value = take_json_string(text);
      if (!value) return 0;
      if (*key == "name" || *key == "tool_name" || *key == "function") call.name = *value;
      if (*key == "id" || *key == "tool_call_id") call.id = *value;
    }
  }
  return 0;
}

bool is_mistral_list(std::string_view text) {
  return text.starts_with('[') && !text.starts_with("[CALL_ID]") && !text.starts_with("[ARGS]");
}

bool take_mistral_head(std::string_view& text, ToolCall& call) {
  const std::size_t brace = text.find('{');
  if (brace == std::string_view::npos) return false;
  std::string_view head = text.substr(0, brace);
  text.remove_prefix(brace);
  if (const std::size_t at = head.find("[ARGS]"); at != std::string_view::npos) head = head.substr(0, at);
  if (const std::size_t at = head.find("[CALL_ID]"); at != std::string_view::npos) {
    call.id = trimmed(head.substr(at + std::string_view("[CALL_ID]").size()));
    head = head.substr(0, at);
  }
  call.name = trimmed(head);
  return !call.name.empty();
}

// function SEP NAME ```json {...} ``` (V3, R1), or NAME SEP {...} (V3.1).
bool take_deepseek_head(std::string_view& text, ToolCall& call) {
  if (!skip(text, deepseek_call)) return false;
  const std::size_t at = text.find(deepseek_separator);
  if (at == std::string_view::npos) return false;
  call.name = trimmed(text.substr(0, at));
  text.remove_prefix(at + deepseek_separator.size());
  const std::size_t brace = text.find('{');
  if (brace == std::string_view::npos) return false;
  std::string_view between = text.substr(0, brace);
  text.remove_prefix(brace);
  if (const std::size_t fence = between.find("```"); fence != std::string_view::npos)
    between = between.substr(0, fence);
  if (!is_white(between)) call.name = trimmed(between);
  return !call.name.empty();
}

bool take_element_head(std::string_view& text, ToolCall& call) {
  const std::size_t end = text.find('>');
  if (end == std::string_view::npos || !text.starts_with(elements_begin)) return false;
  call.name = trimmed(text.substr(0, end).substr(elements_begin.size()));
  text.remove_prefix(end + 1);
  return !call.name.empty();
}

std::size_t find_element_end(std::string_view text, std::size_t from) {
  const std::size_t begin = std::min(text.find_first_not_of(white, from), text.size());
  const std::size_t end = text.find_first_not_of(white, begin + json_length(text.substr(begin)));
  const bool is_json = end != std::string_view::npos && text.substr(end).starts_with(element_close);
  return is_json ? end : text.find(element_close, from);
}

bool take_element(std::string_view& text, std::string& key, ordered_json& value) {
  const std::size_t key_end = text.find('>');
  if (!text.starts_with(element_open) || key_end == std::string_view::npos) return false;
  const std::size_t end = find_element_end(text, key_end + 1);
  if (end == std::string_view::npos) return false;
  key = trimmed(text.substr(0, key_end).substr(element_open.size()));
  std::string_view inner = text.substr(key_end + 1, end - key_end - 1);
  // The format has one line end before and after the value.
  if (inner.starts_with('\n')) inner.remove_prefix(1);
  if (inner.ends_with('\n')) inner.remove_suffix(1);
  value = parsed(inner);
  if (value.is_discarded()) value = std::string(inner);
  text.remove_prefix(end + element_close.size());
  return true;
}

}  // namespace tessera::tool_call_text
