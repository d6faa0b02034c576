// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/json_schema.h"

#include <algorithm>

#include "tessera/llm/grammar/schema_compiler.h"

namespace tessera::grammar {
namespace {

constexpr int most_schemas = 20'000;         // after schemas were combined; bounds the time for hostile schemas
constexpr std::size_t most_exclusive = 200;  // schemas in oneOf, which are compared in pairs

/// Returns the keywords that restrict values, without annotations.
std::vector<std::string> assertions_of(const SchemaJson& schema) {
  std::vector<std::string> out;
  for (const auto& [keyword, value] : schema.items())
    if (*find_keyword(keyword) != KeywordGroup::annotation) out.push_back(keyword);
  return out;
}

/// Returns the types that the keywords of a group apply to.
std::vector<std::string> types_of_group(KeywordGroup group) {
  switch (group) {
    case KeywordGroup::object: return {"object"};
    case KeywordGroup::array: return {"array"};
    case KeywordGroup::string: return {"string"};
    case KeywordGroup::number: return {"integer", "number"};
    default: return {};
  }
}

}  // namespace

Rules SchemaCompiler::compile() {
  const std::uint32_t root = json_.add("#");
  references_["#"] = root;
  open_references_.emplace_back("#", &document_.root());
  return compile_references(root);
}

Rules SchemaCompiler::compile_members(const MemberSyntax& syntax) {
  Expression body = compile_object_in(merger_.flatten(document_.root(), "#"), syntax);
  return compile_references(json_.add("members", std::move(body)));
}

Rules SchemaCompiler::compile_references(std::uint32_t root) {
  while (!open_references_.empty()) {
    const auto [reference, schema] = open_references_.back();
    open_references_.pop_back();
    Expression body = compile_schema(*schema, reference);
    json_.rules.rules[references_.at(reference)].body = std::move(body);
  }
  json_.rules.root = root;
  return std::move(json_.rules);
}

Expression SchemaCompiler::compile_schema(const SchemaJson& schema, const std::string& at) {
  if (++schemas_ > most_schemas) document_.refuse(at, "the schema is too large after its parts were combined");
  if (schema.is_boolean()) return schema.get<bool>() ? json_.value() : choice({});
  if (schema.contains("$ref")) return compile_reference(schema, at);
  if (schema.contains("allOf")) return compile_schema(merger_.flatten(schema, at), at);
  if (schema.contains("anyOf") && schema.contains("oneOf")) document_.refuse(at, "anyOf and oneOf cannot be combined");
  if (schema.contains("anyOf")) return compile_alternatives(schema, "anyOf", at);
  if (schema.contains("oneOf")) return compile_alternatives(schema, "oneOf", at);
  if (schema.contains("enum") || schema.contains("const")) return compile_values(schema, at);
  const std::vector<std::string> types = types_of(schema, at);
  if (types.empty()) return json_.value();
  std::vector<Expression> alternatives;
  for (const std::string& type : types) alternatives.push_back(compile_type(schema, type, at));
  return choice(std::move(alternatives));
}

Expression SchemaCompiler::compile_reference(const SchemaJson& schema, const std::string& at) {
  if (assertions_of(schema).size() > 1) return compile_schema(merger_.flatten(schema, at), at);
  const auto& reference = schema["$ref"].get_ref<const std::string&>();
  const auto [found, added] = references_.try_emplace(reference);
  if (added) {
    open_references_.emplace_back(reference, &document_.resolve(reference, at));
    found->second = json_.add(reference);
  }
  return rule(found->second);
}

Expression SchemaCompiler::compile_alternatives(const SchemaJson& schema, const std::string& keyword,
                                                const std::string& at) {
  SchemaJson base = SchemaJson::object();
  for (const auto& [key, value] : schema.items())
    if (key != keyword && *find_keyword(key) != KeywordGroup::annotation) base[key] = value;
  std::vector<SchemaJson> branches;
  std::vector<Expression> alternatives;
  std::size_t i = 0;
  for (const SchemaJson& branch : schema[keyword]) {
    const std::string where = pointer_to(pointer_to(at, keyword), std::to_string(i++));
    branches.push_back(base.empty() ? branch : merger_.merge(base, branch, where));
    alternatives.push_back(compile_schema(branches.back(), where));
  }
  if (keyword == "oneOf") require_disjoint(branches, pointer_to(at, keyword));
  return choice(std::move(alternatives));
}

void SchemaCompiler::require_disjoint(const std::vector<SchemaJson>& branches, const std::string& at) {
  if (branches.size() > most_exclusive)
    document_.refuse(at, "oneOf has more than " + std::to_string(most_exclusive) + " schemas", "Use anyOf");
  for (std::size_t i = 0; i < branches.size(); ++i)
    for (std::size_t j = i + 1; j < branches.size(); ++j)
      if (!merger_.are_disjoint(branches[i], branches[j], at))
        document_.refuse(at,
                         "the schemas " + std::to_string(i) + " and " + std::to_string(j) +
                             " of oneOf may both hold for the same value",
                         "Use anyOf, or give them different types, or a required property with different const values");
}

Expression SchemaCompiler::compile_values(const SchemaJson& schema, const std::string& at) {
  SchemaJson values = schema.contains("enum") ? schema["enum"] : SchemaJson::array({schema["const"]});
  for (const std::string& keyword : assertions_of(schema))
    if (keyword != "enum" && keyword != "const" && keyword != "type")
      document_.refuse(pointer_to(at, keyword), "\"" + keyword + "\" cannot be combined with enum or const",
                       "Remove the values that do not satisfy it from the list");
  std::vector<Expression> alternatives;
  for (const SchemaJson& value : values) {
    if (schema.contains("enum") && schema.contains("const") && value != schema["const"]) continue;
    if (schema.contains("type") && !value_has_type(value, schema["type"])) continue;
    alternatives.push_back(literal(value.dump()));
  }
  if (alternatives.empty()) document_.refuse(at, "no value satisfies enum, const and type");
  return choice(std::move(alternatives));
}

std::vector<std::string> SchemaCompiler::types_of(const SchemaJson& schema, const std::string& at) const {
  std::vector<std::string> types;
  if (schema.contains("type")) {
    if (schema["type"].is_string())
      types.push_back(schema["type"]);
    else
      for (const SchemaJson& type : schema["type"])
        if (std::ranges::find(types, type.get<std::string>()) == types.end()) types.push_back(type);
  }
  for (const std::string& keyword : assertions_of(schema)) {
    const std::vector<std::string> needed = types_of_group(*find_keyword(keyword));
    if (needed.empty()) continue;
    if (std::ranges::find_first_of(types, needed) != types.end()) continue;
    if (schema.contains("type"))
      document_.refuse(pointer_to(at, keyword), "\"" + keyword + "\" has no effect on values of the given type",
                       "Remove it, or change the type");
    if (needed.size() > 1)
      document_.refuse(pointer_to(at, keyword), "\"" + keyword + "\" requires a type", "Add \"type\": \"integer\"");
    types.push_back(needed.front());
  }
  return types;
}

Expression SchemaCompiler::compile_type(const SchemaJson& schema, const std::string& type, const std::string& at) {
  if (type == "object") return compile_object(schema, at);
  if (type == "array") return compile_array(schema, at);
  if (type == "string") return compile_string(schema, at);
  if (type == "integer") return compile_integer(schema, at);
  if (type == "number") return compile_number(schema, at);
  if (type == "boolean") return choice({literal("true"), literal("false")});
  return literal("null");
}

Expression SchemaCompiler::compile_rule(const SchemaJson& schema, const std::string& at) {
  Expression body = compile_schema(schema, at);
  if (body.kind == Expression::Kind::rule) return body;
  return rule(json_.add(at, std::move(body)));
}

Rules rules_of_schema(std::string_view schema, std::string_view name) {
  const SchemaDocument document(schema, name);
  return SchemaCompiler(document).compile();
}

Rules rules_of_members(std::string_view schema, std::string_view name, const MemberSyntax& syntax) {
  const SchemaDocument document(schema, name);
  return SchemaCompiler(document).compile_members(syntax);
}

Rules json_object_rules() {
  JsonRules json;
  const Expression object = json.object();
  json.rules.root = object.index;
  return std::move(json.rules);
}

}  // namespace tessera::grammar
