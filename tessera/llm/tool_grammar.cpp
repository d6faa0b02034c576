// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/tool_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/llm/grammar/grammar.h"
#include "tessera/llm/grammar/json_schema.h"
#include "tessera/llm/grammar/schema_merge.h"

namespace tessera::grammar {
namespace {

constexpr std::uint32_t id_length = 9;  // Mistral's templates require it

/// The texts that can be control tokens. The index of a text is that of its mark in the grammar.
std::vector<std::string> all_marks() {
  std::vector<std::string> out;
  for (const std::string_view mark : tool_call_marks()) out.emplace_back(mark);
  for (const ThinkingMarks& m : thinking_marks()) out.emplace_back(m.close);
  return out;
}

/// Returns a mark as a text or as a control token.
Expression mark_expression(const std::vector<std::string>& marks, std::size_t index) {
  return choice({literal(marks[index]), literal(mark_bytes(index))});
}

/// Returns a part of ToolCallSyntax.
Expression part_expression(std::string_view text, const std::vector<std::string>& marks) {
  std::vector<Expression> parts;
  while (!text.empty()) {
    std::size_t at = text.find(id_place), mark = marks.size();
    for (std::size_t i = 0; i < marks.size(); ++i)
      if (const std::size_t here = text.find(marks[i]); here < at) at = here, mark = i;
    parts.push_back(literal(text.substr(0, at)));
    if (at == std::string_view::npos) break;
    if (mark < marks.size())
      parts.push_back(mark_expression(marks, mark));
    else
      parts.push_back(repeat(characters(CodePointSet({{'0', '9'}, {'a', 'z'}, {'A', 'Z'}})), id_length, id_length));
    text.remove_prefix(at + (mark < marks.size() ? marks[mark].size() : 1));
  }
  return sequence(std::move(parts));
}

/// Returns any text up to the first occurrence of a mark. The first character of the mark occurs in it only once.
Expression text_until(const std::vector<std::string>& marks, std::size_t index) {
  const std::string& mark = marks[index];
  const auto one = [](char c) { return CodePointSet({{static_cast<char32_t>(c), static_cast<char32_t>(c)}}); };
  const CodePointSet first = one(mark[0]);
  // Beginnings of the mark, and beginnings that are followed by a character that neither continues nor begins it.
  std::vector<Expression> begun, abandoned;
  for (std::size_t n = 1; n < mark.size(); ++n) {
    const Expression beginning = literal(mark.substr(0, n));
    begun.push_back(beginning);
    abandoned.push_back(sequence({beginning, characters(first.complement().without(one(mark[n])))}));
  }
  const Expression any_begun = repeat(choice(std::move(begun)), 0, unlimited);
  Expression other = choice({characters(first.complement()), sequence({any_begun, choice(std::move(abandoned))})});
  return sequence({repeat(std::move(other), 0, unlimited), any_begun, mark_expression(marks, index)});
}

void shift_rules(Expression& e, std::uint32_t by) {
  if (e.kind == Expression::Kind::rule) e.index += by;
  for (Expression& child : e.children) shift_rules(child, by);
}

/// Appends rules, and returns the new index of their root.
std::uint32_t append_rules(Rules& to, Rules from) {
  const auto by = static_cast<std::uint32_t>(to.rules.size());
  for (Rule& r : from.rules) {
    shift_rules(r.body, by);
    to.rules.push_back(std::move(r));
  }
  return from.root + by;
}

[[noreturn]] void refuse_function(const std::string& label, std::string wrong, std::string remedy) {
  fail<FormatError>(
      {.operation = "tool", .with = {{"file", label}}, .wrong = std::move(wrong), .remedy = std::move(remedy)});
}

/// Returns the schema of arguments, which are always an object.
std::string object_schema(std::string_view parameters, const std::string& label) {
  if (parameters.empty()) return R"({"type": "object", "properties": {}})";
  const std::optional<std::string> text = json_object(parameters);
  if (!text) return std::string(parameters);  // invalid; reported when it is compiled
  SchemaJson schema = SchemaJson::parse(*text);
  if (schema.contains("type") && !has_type(schema["type"], "object"))
    refuse_function(label, "the arguments of a function must be an object", R"(Use "type": "object")");
  schema["type"] = "object";
  return schema.dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
}

}  // namespace
}  // namespace tessera::grammar

namespace tessera {

using grammar::Expression;
using grammar::Rules;

void ToolGrammar::add(std::string_view name, std::string_view parameters, const std::string& label) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("_-./:").find(c) != std::string_view::npos;
  };
  if (name.empty() || !std::ranges::all_of(name, is_plain))
    grammar::refuse_function(label, "the name of the function contains a character that a required call cannot contain",
                             "Use letters, digits and _-./:");
  const std::string schema = grammar::object_schema(parameters, label);
  Rules rules = syntax_.members ? grammar::rules_of_members(schema, label, *syntax_.members)
                                : grammar::rules_of_schema(schema, label);
  Expression arguments = grammar::rule(grammar::append_rules(rules_, std::move(rules)));
  std::vector<Expression> parts = {grammar::literal(name)};
  if (!syntax_.members) parts.push_back(grammar::part_expression(syntax_.arguments, grammar::all_marks()));
  parts.push_back(std::move(arguments));
  functions_.push_back(grammar::sequence(std::move(parts)));
}

std::shared_ptr<const Grammar> ToolGrammar::compile(bool several, std::optional<std::size_t> thinking) const {
  Rules rules = rules_;
  rules.marks = grammar::all_marks();
  const auto call = static_cast<std::uint32_t>(rules.rules.size());
  rules.rules.push_back({"call", grammar::choice(functions_)});
  std::vector<Expression> parts;
  if (thinking) {
    parts.push_back(grammar::text_until(rules.marks, tool_call_marks().size() + *thinking));
    parts.push_back(grammar::repeat(grammar::literal("\n"), 0, 2));
  }
  parts.push_back(grammar::part_expression(syntax_.open, rules.marks));
  parts.push_back(grammar::rule(call));
  if (several && !syntax_.next.empty())
    parts.push_back(
        grammar::repeat(grammar::sequence({grammar::part_expression(syntax_.next, rules.marks), grammar::rule(call)}),
                        0, most_tool_calls - 1));
  parts.push_back(grammar::part_expression(syntax_.close, rules.marks));
  rules.root = static_cast<std::uint32_t>(rules.rules.size());
  rules.rules.push_back({"answer", grammar::sequence(std::move(parts))});
  return Grammar::from_rules(rules, "tool calls");
}

}  // namespace tessera
