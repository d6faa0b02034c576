// SPDX-License-Identifier: Apache-2.0
// Arrays and objects of a JSON schema.
#include <algorithm>
#include <optional>

#include "tessera/llm/grammar/schema_compiler.h"

namespace tessera::grammar {

Expression SchemaCompiler::compile_array(const SchemaJson& schema, const std::string& at) {
  auto [min, max] = counts_of(schema, "minItems", "maxItems", at);
  if (schema.contains("uniqueItems") && schema["uniqueItems"] == true && max > 1)
    document_.refuse(pointer_to(at, "uniqueItems"), "\"uniqueItems\" cannot be expressed by a grammar",
                     "Remove it, or set maxItems to 1");
  std::vector<Expression> first;  // elements with schemas of their own
  if (schema.contains("prefixItems"))
    for (const SchemaJson& item : schema["prefixItems"])
      first.push_back(compile_rule(item, pointer_to(pointer_to(at, "prefixItems"), std::to_string(first.size()))));
  // Without `items`, other elements may have any value, but are only written if minItems requires them.
  if (!first.empty() && !schema.contains("items"))
    max = std::min(max, std::max(min, static_cast<std::uint32_t>(first.size())));
  if (first.size() > max) first.resize(max);
  const auto given = static_cast<std::uint32_t>(first.size());

  Expression after;  // elements after the first one, each with a comma
  if (max > std::max(given, 1u) || given == 0) {
    const Expression item =
        schema.contains("items") ? compile_rule(schema["items"], pointer_to(at, "items")) : json_.value();
    if (given == 0 && max > 0) first.push_back(item);
    const auto count = static_cast<std::uint32_t>(first.size());
    if (max > count)
      after = repeat(sequence({json_.comma(), item}), min > count ? min - count : 0,
                     max == unlimited ? unlimited : max - count);
  }
  // An element is written only if all elements before it are.
  for (std::size_t i = first.size(); i-- > 0;) {
    Expression element = i == 0 ? std::move(first[i]) : sequence({json_.comma(), std::move(first[i])});
    after = sequence({std::move(element), std::move(after)});
    if (i > 0 && i >= min) after = optional(std::move(after));
    after = rule(json_.add(at, std::move(after)));
  }
  if (first.empty()) after = choice({});  // only the empty array
  return json_.array_of(std::move(after), min == 0);
}

void SchemaCompiler::require_plain_name(const std::string& name, const std::string& at) const {
  constexpr std::string_view white = " \t\r\n";
  const bool is_plain = !name.empty() && name.find_first_of("<>\r\n") == std::string::npos &&
                        white.find(name.front()) == std::string_view::npos &&
                        white.find(name.back()) == std::string_view::npos;
  if (!is_plain)
    document_.refuse(at, "the name of this property cannot be written in the model's notation",
                     "Use a name without angle brackets, line breaks, and spaces at its ends");
}

std::vector<SchemaCompiler::Member> SchemaCompiler::members_of(const SchemaJson& schema, const std::string& at,
                                                               const MemberSyntax* syntax) {
  static const SchemaJson nothing = SchemaJson::object(), no_names = SchemaJson::array();
  const SchemaJson& properties = schema.contains("properties") ? schema["properties"] : nothing;
  const SchemaJson& required = schema.contains("required") ? schema["required"] : no_names;
  std::vector<Member> out;
  const auto add = [&](const std::string& name, const SchemaJson& of_value, const std::string& where) {
    const bool is_required = std::find(required.begin(), required.end(), name) != required.end();
    if (is_required && of_value == false) document_.refuse(where, "a required property can have no value");
    Expression value = compile_rule(of_value, where);
    if (syntax != nullptr) {
      require_plain_name(name, where);
      out.push_back({sequence({literal(name), literal(syntax->between), std::move(value)}), is_required});
    } else {
      out.push_back({json_.member(literal(SchemaJson(name).dump()), std::move(value)), is_required});
    }
  };
  for (const auto& [name, of_value] : properties.items())
    add(name, of_value, pointer_to(pointer_to(at, "properties"), name));
  const SchemaJson others = schema.contains("additionalProperties") ? schema["additionalProperties"] : SchemaJson(true);
  std::vector<std::string> added;
  for (const SchemaJson& value : required) {
    const auto& name = value.get_ref<const std::string&>();
    if (properties.contains(name) || std::ranges::find(added, name) != added.end()) continue;
    if (others == false)
      document_.refuse(pointer_to(at, "required"),
                       "the property \"" + name + "\" is required, but additionalProperties forbids it");
    added.push_back(name);
    add(name, others, pointer_to(at, "additionalProperties"));
  }
  return out;
}

Expression SchemaCompiler::compile_object(const SchemaJson& schema, const std::string& at) {
  const bool declares = schema.contains("properties") || schema.contains("required");
  if (!declares && !schema.contains("additionalProperties")) return json_.object();
  const std::vector<Member> members = members_of(schema, at);
  std::optional<Expression> other;
  if (schema.contains("additionalProperties") && schema["additionalProperties"] != false) {
    std::vector<std::string> names;
    for (const char* list : {"properties", "required"})
      if (schema.contains(list))
        for (const auto& [key, value] : schema[list].items())
          names.push_back(schema[list].is_object() ? key : value.get<std::string>());
    const std::string where = pointer_to(at, "additionalProperties");
    const Expression value = compile_rule(schema["additionalProperties"], where);
    other = rule(json_.add(where, json_.member(json_.string_except(names), value)));
  }
  const bool can_be_empty = std::ranges::none_of(members, &Member::required);
  return json_.object_of(all_members(members, other ? &*other : nullptr, json_.comma(), at), can_be_empty);
}

Expression SchemaCompiler::compile_object_in(const SchemaJson& schema, const MemberSyntax& syntax) {
  const std::string at = "#";
  if (!schema.is_object()) document_.refuse(at, "no object is valid");
  for (const char* keyword : {"anyOf", "oneOf", "enum"})
    if (schema.contains(keyword))
      document_.refuse(pointer_to(at, keyword),
                       "alternatives for all parameters together cannot be written in the model's notation",
                       "Use alternatives inside of properties");
  types_of(schema, at);  // refuses keywords that have no effect on objects
  const std::vector<Member> members = members_of(schema, at, &syntax);
  const bool can_be_empty = std::ranges::none_of(members, &Member::required);
  Expression some =
      sequence({literal(syntax.open), all_members(members, nullptr, literal(syntax.next), at), literal(syntax.close)});
  return can_be_empty ? choice({std::move(some), literal(syntax.empty)}) : some;
}

Expression SchemaCompiler::following_member(const Member& member, const Expression& comma) {
  Expression text = sequence({comma, member.text});
  return member.required ? text : optional(std::move(text));
}

Expression SchemaCompiler::following_members(const std::vector<Member>& members, std::size_t first,
                                             const Expression* more, const Expression& comma) {
  std::vector<Expression> parts;
  for (std::size_t i = first; i < members.size(); ++i) parts.push_back(following_member(members[i], comma));
  if (more != nullptr) parts.push_back(repeat(sequence({comma, *more}), 0, unlimited));
  return sequence(std::move(parts));
}

/// The first member that is written can be any of the optional ones at the beginning, or the first required one.
Expression SchemaCompiler::all_members(const std::vector<Member>& members, const Expression* more,
                                       const Expression& comma, const std::string& at) {
  const auto first_required =
      static_cast<std::size_t>(std::ranges::find_if(members, &Member::required) - members.begin());
  const std::size_t last = std::min(first_required, members.size() - 1);
  std::vector<Expression> starts;
  if (!members.empty()) {
    // Each rule contains the members after one of the possible first members, and ends with the next rule.
    std::uint32_t after = json_.add(at, following_members(members, last + 1, more, comma));
    for (std::size_t i = last + 1; i-- > 0;) {
      starts.push_back(sequence({members[i].text, rule(after)}));
      if (i > 0) after = json_.add(at, sequence({following_member(members[i], comma), rule(after)}));
    }
  }
  if (first_required == members.size() && more != nullptr)
    starts.push_back(sequence({*more, following_members(members, members.size(), more, comma)}));
  return choice(std::move(starts));
}

}  // namespace tessera::grammar
