// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/tool_call_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr std::string_view white_space = " \t\r\n";
constexpr std::size_t absent = std::string::npos;

// The texts of the examples. None of them is a part of another one, or occurs in a template.
constexpr std::string_view user_text = "tesserauser", result_text = "tesseraresult",
                           call_names[] = {"tesseraone", "tesseratwo"}, call_ids[] = {"call00001", "call00002"},
                           argument_keys[] = {"tesserakeya", "tesserakeyb"},
                           argument_values[] = {"tesseravaluea", "tesseravalueb"};

std::string arguments_text() {
  return fmt::format(R"({{"{}":"{}","{}":"{}"}})", argument_keys[0], argument_values[0], argument_keys[1],
                     argument_values[1]);
}

/// Returns calls of different functions.
std::vector<ToolCall> make_calls(std::size_t count, const std::string& arguments) {
  std::vector<ToolCall> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back({std::string(call_ids[i]), std::string(call_names[i]), arguments});
  return out;
}

/// Renders a conversation, with the calls and their results if there are any. Returns an empty text if the template
/// rejects it.
std::string render_example(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                           const std::vector<ToolCall>& calls) {
  Conversation conversation = {{"user", std::string(user_text)}};
  if (!calls.empty()) conversation.push_back({.role = "assistant", .text = "", .calls = calls});
  for (const ToolCall& c : calls)
    conversation.push_back({.role = "tool", .text = std::string(result_text), .call_id = c.id, .name = c.name});
  ChatPromptOptions options;
  options.add_generation_prompt = calls.empty();
  options.tools = tools_of_json(R"({"name": "tesseratool", "description": "A tool", "parameters": {"type": "object",
      "properties": {"tesserainput": {"type": "string"}}, "required": ["tesserainput"]}})",
                                "tools");
  try {
    return chat_template.prompt(conversation, tokenizer, options).text;
  } catch (const Error&) {
    return {};
  }
}

/// A range of a text.
struct Found {
  std::size_t begin = absent, end = absent;
  explicit operator bool() const { return begin != absent; }
};
Found find_part(std::string_view text, std::string_view part, std::size_t from) {
  const std::size_t at = text.find(part, from);
  return at == absent ? Found{} : Found{at, at + part.size()};
}

/// Finds the object {key: value, key: value} in JSON, after the position `from`.
Found find_json(std::string_view text, std::size_t from) {
  const Found key = find_part(text, argument_keys[0], from), value = find_part(text, argument_values[1], from);
  if (!key || !value || key.begin == 0 || text[key.begin - 1] != '"') return {};
  const std::size_t begin = text.find_last_not_of(white_space, key.begin - 2);
  const std::size_t end = text.find_first_not_of(white_space, value.end + 1);
  if (begin == absent || begin < from || text[begin] != '{' || end == absent || text[end] != '}') return {};
  return {begin, end + 1};
}

/// The position of the first token that ends an answer, after the position `from`.
std::size_t find_end(std::string_view text, const Tokenizer& tokenizer, std::size_t from) {
  std::size_t end = absent;
  for (const TokenId id : tokenizer.ends())
    if (const std::string_view mark = tokenizer.text(id); !mark.empty()) end = std::min(end, text.find(mark, from));
  if (end == absent || text.find(result_text, from) < end) return absent;
  return std::max(from, text.find_last_not_of(white_space, end - 1) + 1);
}

/// Replaces ids by `id_place`.
std::string without_ids(std::string_view text) {
  std::string out(text);
  for (const std::string_view id : call_ids)
    for (std::size_t at = 0; (at = out.find(id, at)) != absent;) out.replace(at, id.size(), 1, id_place);
  return out;
}

/// The position where the first call begins. It has an opening mark, or it begins the answer.
std::size_t find_open(const std::string& text, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                      std::size_t name) {
  const std::size_t from = find_part(text, user_text, 0).end;
  std::size_t open = absent;
  for (const ToolCallForm& form : chat_template.call_forms()) open = std::min(open, text.find(form.open, from));
  if (open < name) return open;
  const std::string before = render_example(chat_template, tokenizer, {});
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(text, before).in1 - text.begin());
  return same < from || same > name ? absent : text.find_first_not_of(white_space, same);
}

/// The parts of an example between names, arguments and ends.
class Example {
 public:
  Example(const ChatTemplate& chat_template, const Tokenizer& tokenizer, std::size_t count,
          const std::string& arguments)
      : text_(render_example(chat_template, tokenizer, make_calls(count, arguments))) {
    const Found user = find_part(text_, user_text, 0);
    if (!user) return;
    std::size_t from = user.end;
    for (std::size_t i = 0; i < count; ++i) {
      const Found name = find_part(text_, call_names[i], from);
      if (!name) return;
      names_.push_back(name);
      from = name.end;
    }
    begin_ = find_open(text_, chat_template, tokenizer, names_[0].begin);
    if (begin_ == absent) return;
    end_ = find_end(text_, tokenizer, from);
  }

  bool has_calls() const { return begin_ != absent; }
  bool has_end() const { return end_ != absent; }
  std::string_view text() const { return text_; }
  Found name(std::size_t i) const { return names_[i]; }
  std::string open() const { return part(begin_, names_[0].begin); }
  std::string rest(std::size_t from) const { return part(from, end_); }  ///< the text up to the end of the answer
  std::string part(std::size_t from, std::size_t to) const {
    return without_ids(std::string_view(text_).substr(from, to - from));
  }

 private:
  std::string text_;
  std::vector<Found> names_;
  std::size_t begin_ = absent, end_ = absent;
};

/// The parts of arguments that are not JSON.
struct MemberParts {
  std::string open, between, next;
  std::size_t end = absent;  ///< the position after the last value
};
std::optional<MemberParts> find_members(const Example& example, std::size_t name) {
  const std::string_view text = example.text();
  std::size_t from = name;
  Found found[4];
  for (std::size_t i = 0; i < 4; ++i) {
    found[i] = find_part(text, i % 2 == 0 ? argument_keys[i / 2] : argument_values[i / 2], from);
    if (!found[i]) return std::nullopt;
    from = found[i].end;
  }
  MemberParts out{example.part(name, found[0].begin), example.part(found[0].end, found[1].begin),
                  example.part(found[1].end, found[2].begin), found[3].end};
  if (example.part(found[2].end, found[3].begin) != out.between) return std::nullopt;
  return out;
}

std::size_t common_suffix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

/// The syntax of calls whose arguments are JSON.
std::optional<ToolCallSyntax> json_syntax(const Example& one, const Example& two) {
  const Found first = find_json(one.text(), one.name(0).end);
  ToolCallSyntax out{.open = one.open(), .arguments = one.part(one.name(0).end, first.begin)};
  if (two.has_calls() && two.has_end()) {
    const Found a = find_json(two.text(), two.name(0).end), b = find_json(two.text(), two.name(1).end);
    if (a && b && two.part(two.name(1).end, b.begin) == out.arguments) {
      out.next = two.part(a.end, two.name(1).begin);
      out.close = two.rest(b.end);
      return out;
    }
  }
  if (!one.has_end()) return std::nullopt;
  out.close = one.rest(first.end);
  return out;
}

/// The syntax of calls with an element for each argument. `no_arguments` is a call without arguments.
std::optional<ToolCallSyntax> member_syntax(const Example& one, const Example& two, const Example& no_arguments) {
  const std::optional<MemberParts> parts = find_members(one, one.name(0).end);
  if (!parts || !one.has_end() || !no_arguments.has_calls() || !no_arguments.has_end()) return std::nullopt;
  const std::string rest = one.rest(parts->end), empty = no_arguments.rest(no_arguments.name(0).end);
  const std::size_t same = common_suffix(rest, empty);
  ToolCallSyntax out{.open = one.open(), .close = rest.substr(rest.size() - same)};
  out.members = grammar::MemberSyntax{.empty = empty.substr(0, empty.size() - same),
                                      .open = parts->open,
                                      .between = parts->between,
                                      .next = parts->next,
                                      .close = rest.substr(0, rest.size() - same)};
  if (!two.has_calls() || !two.has_end()) return out;
  const std::optional<MemberParts> first = find_members(two, two.name(0).end);
  if (!first || first->end > two.name(1).begin) return out;
  const std::string between = two.part(first->end, two.name(1).begin);
  if (between.starts_with(out.members->close)) out.next = between.substr(out.members->close.size());
  return out;
}

/// Writes calls with the arguments of arguments_text(), or without arguments.
std::string write_calls(const ToolCallSyntax& syntax, std::size_t count, bool has_arguments) {
  std::string arguments = syntax.arguments + (has_arguments ? arguments_text() : "{}");
  if (const auto& m = syntax.members)
    arguments = !has_arguments ? m->empty
                               : fmt::format("{}{}{}\"{}\"{}{}{}\"{}\"{}", m->open, argument_keys[0], m->between,
                                             argument_values[0], m->next, argument_keys[1], m->between,
                                             argument_values[1], m->close);
  std::string out;
  for (std::size_t i = 0; i < count; ++i)
    out += (i == 0 ? syntax.open : syntax.next) + std::string(call_names[i]) + arguments;
  out += syntax.close;
  for (std::size_t at = 0; (at = out.find(id_place, at)) != absent;) out.replace(at, 1, call_ids[0]);
  return out;
}

bool is_parsed(const ToolCallSyntax& syntax, const std::vector<ToolCallForm>& forms, std::size_t count,
               bool has_arguments) {
  ToolCallSplitter splitter(forms);
  std::string text = splitter.push(write_calls(syntax, count, has_arguments));
  const ToolCallSplitter::End end = splitter.finish();
  text += end.text;
  if (text.find_first_not_of(white_space) != absent || end.calls.size() != count) return false;
  for (std::size_t i = 0; i < count; ++i)
    if (end.calls[i].name != call_names[i] || end.calls[i].arguments != (has_arguments ? arguments_text() : "{}"))
      return false;
  return true;
}

}  // namespace

std::optional<ToolCallSyntax> detect_tool_call_syntax(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  if (!chat_template.takes_tools()) return std::nullopt;
  const Example one(chat_template, tokenizer, 1, arguments_text()), two(chat_template, tokenizer, 2, arguments_text());
  if (!one.has_calls()) return std::nullopt;
  std::optional<ToolCallSyntax> out = find_json(one.text(), one.name(0).end)
                                          ? json_syntax(one, two)
                                          : member_syntax(one, two, Example(chat_template, tokenizer, 1, "{}"));
  if (!out) return std::nullopt;
  const std::vector<ToolCallForm>& forms = chat_template.call_forms();
  if (!out->next.empty() && !is_parsed(*out, forms, 2, true)) out->next.clear();
  if (!is_parsed(*out, forms, 1, true) || !is_parsed(*out, forms, 1, false)) return std::nullopt;
  return out;
}

}  // namespace tessera
