// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/json_text.h"

#include <algorithm>

#include "tessera/base/unicode.h"

namespace tessera::grammar {
namespace {

constexpr std::uint32_t most_indent = 40;
constexpr std::uint32_t most_integer_digits = 18, most_number_digits = 16;

/// Characters with an escape of two characters, except for the slash, which needs none.
constexpr std::pair<char32_t, std::string_view> short_escapes[] = {
    {'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"}, {'\n', "\\n"}, {'\r', "\\r"}, {'\t', "\\t"}};

CodePointSet plain_characters() { return CodePointSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).complement(); }
Expression ascii(char first, char last) {
  return characters(CodePointSet({{static_cast<char32_t>(first), static_cast<char32_t>(last)}}));
}
Expression one_of(std::string_view chars) {
  std::vector<CodePointRange> ranges;
  for (const char c : chars) ranges.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  return characters(CodePointSet(std::move(ranges)));
}
Expression digits(std::uint32_t min, std::uint32_t max) { return repeat(ascii('0', '9'), min, max); }

/// The four digits of an escape, and a second escape if they are a surrogate.
Expression unicode_escape() {
  const auto hex = [](std::uint32_t n) { return repeat(one_of("0123456789abcdefABCDEF"), n, n); };
  return choice(
      {sequence({one_of("0123456789abcefABCEF"), hex(3)}), sequence({one_of("dD"), one_of("01234567"), hex(2)}),
       sequence({one_of("dD"), one_of("89abAB"), hex(2), literal("\\u"), one_of("dD"), one_of("cdefCDEF"), hex(2)})});
}

Expression any_string_character() {
  return choice(
      {characters(plain_characters()),
       sequence({literal("\\"), choice({one_of("\"\\/bfnrt"), sequence({literal("u"), unicode_escape()})})})});
}

std::u32string code_points(std::string_view text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Unit unit = utf8_unit(text.substr(at));
    out += unit.code;
    at += unit.size;
  }
  return out;
}

}  // namespace

Expression string_character(const CodePointSet& set) {
  std::vector<Expression> forms;
  CodePointSet plain = set.intersection(plain_characters());
  if (!plain.empty()) forms.push_back(characters(std::move(plain)));
  for (const auto& [code, escape] : short_escapes)
    if (set.contains(code)) forms.push_back(literal(escape));
  if (!forms.empty()) return choice(std::move(forms));
  constexpr std::string_view hex = "0123456789abcdef";
  for (char32_t code = 0; code < 0x20; ++code)
    if (set.contains(code)) forms.push_back(literal(std::string("\\u00") + hex[code / 16] + hex[code % 16]));
  return choice(std::move(forms));
}

Expression string_characters(std::uint32_t min, std::uint32_t max) {
  return repeat(string_character(CodePointSet::all()), min, max);
}

Expression quoted(Expression inner) { return sequence({literal("\""), std::move(inner), literal("\"")}); }

std::uint32_t JsonRules::add(std::string name, Expression body) {
  rules.rules.push_back({std::move(name), std::move(body)});
  return static_cast<std::uint32_t>(rules.rules.size() - 1);
}

template <class Body>
Expression JsonRules::shared(Shared which, const char* name, const Body& body) {
  if (!shared_[which]) {
    const std::uint32_t index = add(name);
    shared_[which] = index;
    Expression e = body();
    rules.rules[index].body = std::move(e);
  }
  return rule(*shared_[which]);
}

Expression JsonRules::space() {
  return shared(space_rule, "space", [] {
    return choice({sequence({}), literal(" "), sequence({literal("\n"), repeat(literal(" "), 0, most_indent)})});
  });
}
Expression JsonRules::string() {
  return shared(string_rule, "string", [] { return quoted(repeat(any_string_character(), 0, unlimited)); });
}
Expression JsonRules::integer() {
  return shared(integer_rule, "integer", [] {
    return choice(
        {literal("0"), sequence({optional(literal("-")), ascii('1', '9'), digits(0, most_integer_digits - 1)})});
  });
}
Expression JsonRules::number() {
  return shared(number_rule, "number", [] {
    return sequence({optional(literal("-")),
                     choice({literal("0"), sequence({ascii('1', '9'), digits(0, most_number_digits - 1)})}),
                     optional(sequence({literal("."), digits(1, most_number_digits)})),
                     optional(sequence({one_of("eE"), optional(one_of("+-")), digits(1, 2)}))});
  });
}
Expression JsonRules::value() {
  return shared(value_rule, "value", [&] {
    return choice({object(), array(), string(), number(), literal("true"), literal("false"), literal("null")});
  });
}
Expression JsonRules::object() {
  return shared(object_rule, "object", [&] {
    const Expression any = member(string(), value());
    return object_of(sequence({any, repeat(sequence({comma(), any}), 0, unlimited)}), true);
  });
}
Expression JsonRules::array() {
  return shared(array_rule, "array", [&] {
    return array_of(sequence({value(), repeat(sequence({comma(), value()}), 0, unlimited)}), true);
  });
}

Expression JsonRules::object_of(Expression members, bool can_be_empty) {
  Expression inner = sequence({std::move(members), space()});
  return sequence({literal("{"), space(), repeat(std::move(inner), can_be_empty ? 0 : 1, 1), literal("}")});
}
Expression JsonRules::array_of(Expression elements, bool can_be_empty) {
  Expression inner = sequence({std::move(elements), space()});
  return sequence({literal("["), space(), repeat(std::move(inner), can_be_empty ? 0 : 1, 1), literal("]")});
}
Expression JsonRules::member(Expression key, Expression value) {
  return sequence({std::move(key), literal(":"), optional(literal(" ")), std::move(value)});
}
Expression JsonRules::comma() { return sequence({literal(","), space()}); }

Expression JsonRules::string_except(const std::vector<std::string>& names) {
  if (names.empty()) return string();
  std::vector<std::u32string> sorted;
  for (const std::string& name : names) sorted.push_back(code_points(name));
  std::ranges::sort(sorted);
  // One rule for each prefix of the names: what can follow this prefix.
  struct Prefix {
    std::uint32_t rule;
    std::size_t first, last, length;  ///< the names with this prefix, and its length
  };
  const std::uint32_t start = add("other key");
  std::vector<Prefix> work = {{start, 0, sorted.size(), 0}};
  while (!work.empty()) {
    const Prefix p = work.back();
    work.pop_back();
    std::size_t i = p.first;
    while (i < p.last && sorted[i].size() == p.length) ++i;
    std::vector<Expression> next;
    if (i == p.first) next.push_back(literal("\""));  // the prefix is not a name
    std::vector<CodePointRange> used;
    while (i < p.last) {
      const char32_t code = sorted[i][p.length];
      const std::size_t first = i;
      while (i < p.last && sorted[i][p.length] == code) ++i;
      const std::uint32_t longer = add("other key");
      work.push_back({longer, first, i, p.length + 1});
      used.push_back({code, code});
      next.push_back(sequence({string_character(CodePointSet({{code, code}})), rule(longer)}));
    }
    next.push_back(sequence({string_character(CodePointSet(used).complement()), string_characters(), literal("\"")}));
    rules.rules[p.rule].body = choice(std::move(next));
  }
  return sequence({literal("\""), rule(start)});
}

}  // namespace tessera::grammar
