// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/tool_call_stream.h"

#include <charconv>
#include <utility>

#include "tessera/base/unicode.h"
#include "tessera/llm/tool_call_text.h"

namespace tessera {

using namespace tool_call_text;
using Kind = ToolCallForm::Kind;

namespace {

/// The text between two calls, or before arguments, is parsed again for each piece, so it must not become long.
constexpr std::size_t longest_head = 4096;
/// Of the levels of nesting that parsed() accepts, some are around the arguments.
constexpr std::size_t most_levels = 60;

/// Returns the code unit of an escape sequence \uXXXX. Returns 0 if it is invalid.
unsigned code_unit(std::string_view escape) {
  unsigned code = 0;
  const char* const end = escape.data() + 6;
  return std::from_chars(escape.data() + 2, end, code, 16).ptr == end ? code : 0;
}

}  // namespace

void JsonCompactor::end_scalar(std::string& out) {
  if (scalar_.empty()) return;
  const nlohmann::ordered_json value = parsed(std::exchange(scalar_, {}));
  failed_ = value.is_discarded();
  if (!failed_) out += text_of(value);
  expected_ = Expected::separator;
}

void JsonCompactor::end_escape(std::string& out) {
  if (escape_.size() < 2) return;
  const bool is_code = escape_[1] == 'u';
  if (is_code && escape_.size() < 6) return;
  // The first half of a surrogate pair needs the second one.
  if (is_code && code_unit(escape_) >> 10 == 0xD800 >> 10 && escape_.size() < 12) return;
  const nlohmann::ordered_json value = parsed("\"" + std::exchange(escape_, {}) + "\"");
  failed_ = value.is_discarded();
  if (failed_) return;
  const std::string text = text_of(value);
  out.append(text, 1, text.size() - 2);
}

void JsonCompactor::push_quoted(char c, std::string& out) {
  if (!escape_.empty() || (c == '\\' && character_.empty())) {
    escape_ += c;
    return end_escape(out);
  }
  if (static_cast<unsigned char>(c) >= 0x80 || !character_.empty()) {
    character_ += c;
    const Utf8Unit unit = utf8_unit(character_);
    failed_ = unit.kind == Utf8Unit::Kind::invalid;
    if (unit.kind == Utf8Unit::Kind::character) out += std::exchange(character_, {});
    return;
  }
  failed_ = static_cast<unsigned char>(c) < 0x20;
  quoted_ = c != '"';
  if (!failed_) out += c;
}

bool JsonCompactor::push_structure(char c) {
  const bool is_value = expected_ == Expected::value || expected_ == Expected::value_or_end;
  const bool is_key = expected_ == Expected::key || expected_ == Expected::key_or_end;
  const bool in_object = open_.ends_with('{');
  switch (c) {
    case '{':
    case '[':
      if (!is_value || open_.size() == most_levels) return false;
      open_ += c;
      expected_ = c == '{' ? Expected::key_or_end : Expected::value_or_end;
      return true;
    case '}':
    case ']':
      if (in_object != (c == '}')) return false;
      if (expected_ != Expected::separator && expected_ != (in_object ? Expected::key_or_end : Expected::value_or_end))
        return false;
      open_.pop_back();
      expected_ = Expected::separator;
      return true;
    case ',':
      if (expected_ != Expected::separator) return false;
      expected_ = in_object ? Expected::key : Expected::value;
      return true;
    case ':':
      if (expected_ != Expected::colon) return false;
      expected_ = Expected::value;
      return true;
    default:  // a quotation mark
      if (!is_value && !is_key) return false;
      expected_ = is_key ? Expected::colon : Expected::separator;
      return true;
  }
}

void JsonCompactor::push_unquoted(char c, std::string& out) {
  constexpr std::string_view structure = "{}[],:\"";
  if (white.find(c) == white.npos && structure.find(c) == structure.npos) {
    scalar_ += c;
    failed_ = expected_ != Expected::value && expected_ != Expected::value_or_end;
    return;
  }
  end_scalar(out);
  if (failed_ || white.find(c) != white.npos) return;
  failed_ = !push_structure(c);
  if (failed_) return;
  quoted_ = c == '"';
  out += c;
  done_ = open_.empty();
}

std::size_t JsonCompactor::push(std::string_view text, std::string& out) {
  std::size_t i = 0;
  for (; i < text.size() && !done_ && !failed_; ++i) quoted_ ? push_quoted(text[i], out) : push_unquoted(text[i], out);
  return i;
}

void ToolCallStream::add(std::string arguments) {
  if (arguments.empty()) return;
  calls_.back().arguments += arguments;
  const std::size_t index = calls_.size() - 1;
  if (!deltas_.empty() && deltas_.back().index == index)
    deltas_.back().arguments += arguments;
  else
    deltas_.push_back({.index = index, .arguments = std::move(arguments)});
}

/// Reads what precedes the arguments of the next call. Returns false if it is incomplete.
bool ToolCallStream::begin_call(std::string_view& text, const ToolCallForm& form) {
  bare_ = form.open == llama;
  bool is_open = (bare_ && calls_.empty()) || form.kind == Kind::deepseek;  // no mark is needed, or each call has one
  int lists = lists_;
  for (bool more = true; more;) {
    skip_white(text);
    const bool marked = skip(text, form.open);
    if (marked) lists = 0;
    // Calls of a list are separated by commas, and calls of Llama by semicolons.
    const bool opens =
        marked || (!is_open && lists > 0 && skip(text, ",")) || (!is_open && bare_ && lists == 0 && skip(text, ";"));
    is_open = is_open || opens;
    if (form.kind == Kind::mistral && is_open && text.starts_with("[CALL_ID]")) break;
    const bool begins_list = is_open && form.kind != Kind::deepseek && skip(text, "[");
    const bool ends_list = !is_open && lists > 0 && skip(text, "]");
    lists += static_cast<int>(begins_list) - static_cast<int>(ends_list);
    more = opens || begins_list || ends_list ||
           ((!is_open || form.kind == Kind::deepseek) &&
            (skip(text, form.close) || skip(text, "```") || skip(text, deepseek_end)));
  }
  if (!is_open) {  // text follows the calls
    const std::size_t next = text.find(form.open);
    if (next == std::string_view::npos) return false;
    text.remove_prefix(next);
    return begin_call(text, form);
  }
  ToolCall call;
  const bool has_json = form.kind == Kind::json || form.kind == Kind::elements || lists > 0;
  const bool is_json = has_json && text.starts_with('{');
  braces_ = is_json ? take_json_head(text, call) : 0;
  const bool is_element = form.kind == Kind::elements && !is_json && lists == 0;
  const bool begins = is_json                       ? braces_ > 0
                      : is_element                  ? take_element_head(text, call)
                      : lists > 0                   ? false
                      : form.kind == Kind::mistral  ? take_mistral_head(text, call)
                      : form.kind == Kind::deepseek ? take_deepseek_head(text, call)
                                                    : false;
  if (!begins) return false;
  state_ = is_element ? State::elements : State::arguments;
  lists_ = lists;
  json_ = JsonCompactor();
  in_call_ = true;
  searched_ = 0;
  deltas_.push_back({.index = calls_.size(), .id = call.id, .name = call.name, .arguments = {}});
  calls_.push_back(std::move(call));
  return true;
}

void ToolCallStream::read_arguments(std::string_view& text) {
  std::string out;
  text.remove_prefix(json_.push(text, out));
  if (json_.failed()) state_ = State::stopped;
  const bool is_rest = state_ == State::rest;
  if (!is_rest) add(std::move(out));
  if (!json_.done()) return;
  in_call_ = false;
  const int open = std::exchange(braces_, 0);
  state_ = open > 0 && !is_rest ? State::rest : State::between;
  json_ = JsonCompactor(static_cast<std::size_t>(open));
}

/// Reads complete elements. A value that begins like JSON can contain the mark that ends an element.
void ToolCallStream::read_elements(std::string_view& text) {
  while (true) {
    skip_white(text);
    std::string& arguments = calls_.back().arguments;
    if (skip(text, elements_end)) {
      add(arguments.empty() ? "{}" : "}");
      in_call_ = false;
      state_ = State::between;
      return;
    }
    const std::size_t from = std::max(searched_, element_close.size()) - element_close.size();
    searched_ = text.size();
    if (!text.starts_with(element_open) || text.find(element_close, from) == std::string_view::npos) return;
    std::string_view rest = text.substr(std::min(text.find('>'), text.size() - 1) + 1);
    skip_white(rest);
    if (rest.starts_with('{') || rest.starts_with('[') || rest.starts_with('"')) {
      const std::size_t length = json_length(rest);
      rest.remove_prefix(length);
      skip_white(rest);
      if (length == 0 || (rest.size() < element_close.size() && element_close.starts_with(rest))) return;
    }
    std::string key;
    nlohmann::ordered_json value;
    if (!take_element(text, key, value)) return;
    add((arguments.empty() ? "{" : ",") + text_of(key) + ":" + text_of(value));
    searched_ = 0;
  }
}

std::vector<ToolCallDelta> ToolCallStream::read(std::string_view held, const ToolCallForm& form) {
  for (bool more = true; more && state_ != State::stopped;) {
    std::string_view text = held.substr(at_);
    const State before = state_;
    if (state_ == State::between) {
      if (!begin_call(text, form)) {
        if (text.size() > longest_head) state_ = State::stopped;
        break;
      }
    } else if (state_ == State::elements) {
      read_elements(text);
    } else {
      read_arguments(text);
    }
    at_ = held.size() - text.size();
    more = state_ != before;
  }
  return std::exchange(deltas_, {});
}

std::vector<ToolCallDelta> ToolCallStream::finish(ToolCallSplitter::End& end) {
  state_ = State::stopped;
  if (end.calls.size() < calls_.size()) {
    // Text after a call without marks is text. After other calls, it is an incomplete call.
    const bool is_text = bare_ && !in_call_ && at_ <= end.text.size();
    end = {is_text ? end.text.substr(at_) : std::string(), calls_};
    return {};
  }
  in_call_ = false;
  for (std::size_t i = 0; i < end.calls.size(); ++i) {
    ToolCall& call = end.calls[i];
    if (i >= calls_.size()) {
      deltas_.push_back({.index = i, .id = call.id, .name = call.name, .arguments = call.arguments});
      continue;
    }
    ToolCall& sent = calls_[i];
    if (call.name == sent.name && call.arguments.starts_with(sent.arguments)) {
      std::string rest = call.arguments.substr(sent.arguments.size());
      sent.arguments += rest;
      if (!rest.empty()) deltas_.push_back({.index = i, .arguments = std::move(rest)});
    }
    call = sent;
  }
  return std::exchange(deltas_, {});
}

}  // namespace tessera
