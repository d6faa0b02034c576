// SPDX-License-Identifier: Apache-2.0
// The formats of calls are defined by the chat templates of the model families (see llama.cpp's models/templates).
#include "tessera/llm/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/llm/gguf_types.h"
#include "tessera/llm/tool_call_text.h"

namespace tessera {
namespace {

using nlohmann::ordered_json;
using Kind = ToolCallForm::Kind;
using namespace tool_call_text;

constexpr std::array forms = {ToolCallForm{"<tool_call>", "</tool_call>", Kind::elements},
                              ToolCallForm{"[TOOL_CALLS]", "", Kind::mistral},
                              ToolCallForm{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", Kind::deepseek},
                              ToolCallForm{"<|tool_call|>", "<|/tool_call|>", Kind::json},
                              ToolCallForm{"<|START_ACTION|>", "<|END_ACTION|>", Kind::json},
                              ToolCallForm{"<TOOLCALL>", "</TOOLCALL>", Kind::json},
                              ToolCallForm{"<tool_calls>", "</tool_calls>", Kind::json},
                              ToolCallForm{"<|python_tag|>", "", Kind::json}};
constexpr std::array<std::string_view, 20> marks = {"<tool_call>",
                                                    "</tool_call>",
                                                    "[TOOL_CALLS]",
                                                    "[CALL_ID]",
                                                    "[ARGS]",
                                                    "<｜tool▁calls▁begin｜>",
                                                    "<｜tool▁calls▁end｜>",
                                                    deepseek_call,
                                                    deepseek_separator,
                                                    deepseek_end,
                                                    "<|tool_call|>",
                                                    "<|/tool_call|>",
                                                    "<|START_ACTION|>",
                                                    "<|END_ACTION|>",
                                                    "<TOOLCALL>",
                                                    "</TOOLCALL>",
                                                    "<tool_calls>",
                                                    "</tool_calls>",
                                                    llama,
                                                    "<|tool_calls|>"};

/// Serialises the arguments of a call, which are a JSON object or a string that contains one.
std::optional<std::string> arguments_of(const ordered_json& value) {
  if (value.is_object()) return text_of(value);
  if (value.is_null()) return "{}";
  if (!value.is_string()) return std::nullopt;
  const ordered_json inner = parsed(value.get<std::string>());
  if (!inner.is_object()) return std::nullopt;
  return text_of(inner);
}

/// Parses {"name": ..., "arguments": ...} and its variants.
bool add_call(const ordered_json& value, std::vector<ToolCall>& to) {
  if (value.is_array())
    return !value.empty() && std::ranges::all_of(value, [&](const ordered_json& v) { return add_call(v, to); });
  if (!value.is_object()) return false;
  if (value.contains("function") && value["function"].is_object()) {
    ordered_json inner = value["function"];
    if (value.contains("id")) inner["id"] = value["id"];
    return add_call(inner, to);
  }
  ToolCall call;
  for (const char* key : {"name", "tool_name", "function"})
    if (call.name.empty() && value.contains(key) && value[key].is_string()) call.name = value[key].get<std::string>();
  for (const char* key : {"id", "tool_call_id"})
    if (call.id.empty() && value.contains(key) && value[key].is_string()) call.id = value[key].get<std::string>();
  const char* const where = value.contains("arguments") ? "arguments" : "parameters";
  const auto arguments = arguments_of(value.contains(where) ? value[where] : ordered_json());
  if (call.name.empty() || !arguments) return false;
  call.arguments = *arguments;
  to.push_back(std::move(call));
  return true;
}

/// Parses <function=NAME><parameter=KEY>VALUE</parameter>...</function>.
bool take_elements(std::string_view& text, std::vector<ToolCall>& to) {
  ToolCall call;
  if (!take_element_head(text, call)) return false;
  ordered_json arguments = ordered_json::object();
  std::string key;
  for (skip_white(text); text.starts_with(element_open); skip_white(text))
    if (ordered_json value; take_element(text, key, value))
      arguments[key] = std::move(value);
    else
      return false;
  if (!skip(text, elements_end)) return false;
  call.arguments = text_of(arguments);
  to.push_back(std::move(call));
  return true;
}

/// Parses the text after [TOOL_CALLS].
bool take_mistral(std::string_view& text, std::vector<ToolCall>& to) {
  skip_white(text);
  if (is_mistral_list(text)) {
    const auto value = take_json(text);
    return value && add_call(*value, to);
  }
  ToolCall call;
  if (!take_mistral_head(text, call)) return false;
  const auto value = take_json(text);
  if (!value || !value->is_object()) return false;
  call.arguments = text_of(*value);
  to.push_back(std::move(call));
  return true;
}

/// Parses one or more calls of the form: function SEP NAME ```json {...} ``` (V3, R1), or NAME SEP {...} (V3.1).
bool take_deepseek(std::string_view& text, std::vector<ToolCall>& to) {
  bool any = false;
  for (skip_white(text); text.starts_with(deepseek_call); skip_white(text)) {
    ToolCall call;
    if (!take_deepseek_head(text, call)) return false;
    const auto value = take_json(text);
    if (!value) return false;
    call.arguments = text_of(*value);
    skip_white(text);
    skip(text, "```");
    skip_white(text);
    skip(text, deepseek_end);
    to.push_back(std::move(call));
    any = true;
  }
  return any;
}

/// Parses everything after the first opening mark of `form`. Appends calls to `to` and the text between calls to
/// `rest`.
bool take_all(std::string_view text, const ToolCallForm& form, std::vector<ToolCall>& to, std::string& rest) {
  while (true) {
    skip_white(text);
    bool good = false;
    switch (form.kind) {
      case Kind::mistral: good = take_mistral(text, to); break;
      case Kind::deepseek: good = take_deepseek(text, to); break;
      case Kind::elements:
        if (text.starts_with("<function=")) {
          good = take_elements(text, to);
          break;
        }
        [[fallthrough]];
      case Kind::json: {
        const auto value = take_json(text);
        good = value && add_call(*value, to);
      }
    }
    if (!good) return false;
    skip_white(text);
    skip(text, form.close);
    skip_white(text);
    skip(text, ";");  // Llama separates calls by semicolons
    skip_white(text);
    const bool more = skip(text, form.open) || (form.open == llama && text.starts_with('{'));
    if (more) continue;
    const std::size_t next = text.find(form.open);
    rest += text.substr(0, next);
    if (next == std::string_view::npos) return true;
    text.remove_prefix(next + form.open.size());
  }
}

}  // namespace

std::string tools_of_json(std::string_view json, const std::string& name) {
  const auto bad = [&](const std::string& wrong) {
    fail<FormatError>({.operation = "read tools",
                       .with = {{"file", name}},
                       .wrong = wrong,
                       .remedy = R"(It should be a list such as [{"type": "function", "function": {"name": "add", )"
                                 R"("description": "Adds", "parameters": {"type": "object", "properties": {}}}}])"});
  };
  ordered_json all = parsed(json);
  if (all.is_discarded()) bad("the file is not valid JSON");
  if (all.is_object()) all = ordered_json::array({all});
  if (!all.is_array()) bad("the file is not a JSON list");
  if (all.empty()) bad("the list is empty");
  std::set<std::string> names;
  ordered_json out = ordered_json::array();
  for (const ordered_json& one : all) {
    const std::string where = fmt::format("tool {}", out.size() + 1);
    if (!one.is_object()) bad(where + " is not an object");
    ordered_json full = one;
    if (!one.contains("function")) full = {{"type", "function"}, {"function", one}};
    if (!full.contains("type")) full["type"] = "function";
    if (full["type"] != "function") bad(where + " has a type that is not \"function\"");
    const ordered_json& function = full["function"];
    if (!function.is_object()) bad("\"function\" of " + where + " is not an object");
    if (!function.contains("name") || !function["name"].is_string() || function["name"].get<std::string>().empty())
      bad(where + " has no name");
    const auto& called = function["name"].get_ref<const std::string&>();
    if (!names.insert(called).second) bad("two tools have the name " + quote_text(called));
    if (function.contains("parameters") && !function["parameters"].is_object())
      bad("\"parameters\" of " + where + " is not an object");
    if (function.contains("description") && !function["description"].is_string())
      bad("\"description\" of " + where + " is not a string");
    out.push_back(std::move(full));
  }
  return text_of(out);
}

std::optional<std::string> json_object(std::string_view value) {
  const ordered_json read = parsed(value);
  if (!read.is_object()) return std::nullopt;
  return text_of(read);
}

void assign_call_ids(std::vector<ToolCall>& calls, std::vector<std::string> taken) {
  const auto is_taken = [&](const std::string& id) { return std::ranges::find(taken, id) != taken.end(); };
  std::size_t number = 0;
  for (ToolCall& c : calls) {
    while (c.id.empty() || is_taken(c.id)) c.id = fmt::format("call{:05}", ++number);
    taken.push_back(c.id);
  }
}

std::vector<ToolCallForm> tool_call_forms(std::string_view template_source) {
  std::vector<ToolCallForm> out;
  for (const ToolCallForm& f : forms)
    if (template_source.find(f.open) != std::string_view::npos) out.push_back(f);
  return out;
}

std::span<const std::string_view> tool_call_marks() { return marks; }

ToolCallSplitter::ToolCallSplitter(std::vector<ToolCallForm> given) : forms_(std::move(given)) {
  bare_ = std::ranges::all_of(forms_, [](const ToolCallForm& f) { return f.open == llama; });
}

std::string ToolCallSplitter::push(std::string_view piece) {
  held_ += piece;
  if (open_ || in_bare_) return {};
  std::size_t at = std::string::npos;
  for (std::size_t i = 0; i < forms_.size(); ++i)
    if (const std::size_t here = held_.find(forms_[i].open); here < at) at = here, open_ = i;
  if (!started_) {
    const std::size_t first = held_.find_first_not_of(white);
    started_ = first != std::string::npos;
    if (started_ && bare_ && first < at && held_[first] == '{') {
      in_bare_ = true;
      open_.reset();
      return {};
    }
    if (!started_) return {};  // hold back leading white space, because it may be a part of a call
  }
  std::size_t give = std::min(at, held_.size());
  if (!open_)  // hold back what may become a mark
    for (const ToolCallForm& f : forms_)
      for (std::size_t n = std::min(f.open.size() - 1, held_.size()); n > 0; --n)
        if (std::string_view(held_).ends_with(f.open.substr(0, n))) {
          give = std::min(give, held_.size() - n);
          break;
        }
  std::string out = held_.substr(0, give);
  held_.erase(0, give);
  return out;
}

const ToolCallForm* ToolCallSplitter::form() const {
  static constexpr ToolCallForm without_marks{llama, "", Kind::json};
  return in_bare_ ? &without_marks : open_ ? &forms_[*open_] : nullptr;
}

ToolCallSplitter::End ToolCallSplitter::finish() {
  End out;
  std::string_view text = held_;
  const ToolCallForm* const found = form();
  if (found != nullptr && !in_bare_) text.remove_prefix(found->open.size());
  const bool good = found != nullptr && take_all(text, *found, out.calls, out.text);
  // A JSON object without a function name, or with text after it, is not a call but an answer in JSON.
  if (!good || (in_bare_ && !is_white(out.text))) out = {held_, {}};
  if (is_white(out.text) && !out.calls.empty()) out.text.clear();
  held_.clear();
  return out;
}

}  // namespace tessera
