// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/schema_document.h"

#include <set>

#include "tessera/base/error.h"
#include "tessera/llm/grammar/expression.h"
#include "tessera/llm/grammar/text_position.h"

namespace tessera::grammar {
namespace {

constexpr std::size_t shown_pointer = 200;  // bytes at the beginning and at the end of a long pointer

constexpr std::pair<std::string_view, KeywordGroup> keywords[] = {
    {"$comment", KeywordGroup::annotation},
    {"$defs", KeywordGroup::annotation},
    {"$id", KeywordGroup::annotation},
    {"$ref", KeywordGroup::any},
    {"$schema", KeywordGroup::annotation},
    {"additionalProperties", KeywordGroup::object},
    {"allOf", KeywordGroup::any},
    {"anyOf", KeywordGroup::any},
    {"const", KeywordGroup::any},
    {"default", KeywordGroup::annotation},
    {"definitions", KeywordGroup::annotation},
    {"deprecated", KeywordGroup::annotation},
    {"description", KeywordGroup::annotation},
    {"enum", KeywordGroup::any},
    {"examples", KeywordGroup::annotation},
    {"exclusiveMaximum", KeywordGroup::number},
    {"exclusiveMinimum", KeywordGroup::number},
    {"format", KeywordGroup::string},
    {"items", KeywordGroup::array},
    {"maxItems", KeywordGroup::array},
    {"maxLength", KeywordGroup::string},
    {"maximum", KeywordGroup::number},
    {"minItems", KeywordGroup::array},
    {"minLength", KeywordGroup::string},
    {"minimum", KeywordGroup::number},
    {"multipleOf", KeywordGroup::number},
    {"oneOf", KeywordGroup::any},
    {"pattern", KeywordGroup::string},
    {"prefixItems", KeywordGroup::array},
    {"properties", KeywordGroup::object},
    {"readOnly", KeywordGroup::annotation},
    {"required", KeywordGroup::object},
    {"title", KeywordGroup::annotation},
    {"type", KeywordGroup::any},
    {"uniqueItems", KeywordGroup::array},
    {"writeOnly", KeywordGroup::annotation},
};

bool is_type_name(const SchemaJson& v) {
  static const std::set<std::string> names = {"array", "boolean", "integer", "null", "number", "object", "string"};
  return v.is_string() && names.contains(v.get_ref<const std::string&>());
}

/// Parses JSON with a limited depth and without equal keys.
SchemaJson parse_schema(std::string_view text, std::string_view name) {
  const auto refuse = [&](std::size_t at, std::string wrong) {
    fail<FormatError>(
        {.operation = "JSON schema", .with = {{"position", position_name(name, text, at)}}, .wrong = std::move(wrong)});
  };
  if (text.size() > longest_schema)
    fail<FormatError>({.operation = "JSON schema",
                       .with = {{"file", std::string(name)},
                                {"bytes", std::to_string(text.size())},
                                {"maximum", std::to_string(longest_schema)}},
                       .wrong = "the schema is too long"});
  std::vector<std::set<std::string>> keys;
  bool deep = false;
  std::string twice;
  const auto look = [&](int depth, SchemaJson::parse_event_t event, const SchemaJson& value) {
    deep = deep || depth > deepest_nesting;
    if (event == SchemaJson::parse_event_t::object_start) keys.emplace_back();
    if (event == SchemaJson::parse_event_t::object_end) keys.pop_back();
    if (event == SchemaJson::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  try {
    SchemaJson out = SchemaJson::parse(text, look);
    if (deep) refuse(0, "the schema is nested more than " + std::to_string(deepest_nesting) + " levels deep");
    if (!twice.empty()) refuse(0, "an object of the schema has two members with the key \"" + twice + "\"");
    return out;
  } catch (const SchemaJson::parse_error& e) {
    refuse(e.byte > 0 ? e.byte - 1 : 0, "the schema is not valid JSON");
  } catch (const SchemaJson::exception& e) {  // a number is too large
    refuse(0, std::string("the schema is not valid JSON: ") + e.what());
  }
  return {};
}

}  // namespace

const KeywordGroup* find_keyword(std::string_view keyword) {
  for (const auto& [name, group] : keywords)
    if (name == keyword) return &group;
  return nullptr;
}

std::string pointer_to(const std::string& at, std::string_view key) {
  std::string out = at + "/";
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

SchemaDocument::SchemaDocument(std::string_view text, std::string_view name)
    : name_(name), root_(parse_schema(text, name)) {
  check_schema(root_, "#");
}

void SchemaDocument::refuse(const std::string& at, std::string wrong, std::string remedy) const {
  const bool is_long = at.size() > 2 * shown_pointer;
  fail<FormatError>(
      {.operation = "JSON schema",
       .with = {{"file", name_},
                {"pointer", is_long ? at.substr(0, shown_pointer) + "..." + at.substr(at.size() - shown_pointer) : at}},
       .wrong = std::move(wrong),
       .remedy = std::move(remedy)});
}

void SchemaDocument::check_schema(const SchemaJson& schema, const std::string& at) const {
  if (schema.is_boolean()) return;
  if (!schema.is_object()) refuse(at, "a schema must be an object or a boolean");
  for (const auto& [keyword, value] : schema.items()) check_keyword(keyword, value, pointer_to(at, keyword));
}

void SchemaDocument::check_keyword(const std::string& keyword, const SchemaJson& value, const std::string& at) const {
  const auto require = [&](bool good, const char* expected) {
    if (!good) refuse(at, "the value of \"" + keyword + "\" must be " + expected);
  };
  if (find_keyword(keyword) == nullptr)
    refuse(at, "the keyword \"" + keyword + "\" is not supported",
           "Remove it. No keyword is ignored, because the output would not be restricted as the schema requires");
  if (keyword == "properties" || keyword == "$defs" || keyword == "definitions") {
    require(value.is_object(), "an object");
    for (const auto& [key, schema] : value.items()) check_schema(schema, pointer_to(at, key));
  } else if (keyword == "additionalProperties" || keyword == "items") {
    require(!value.is_array(), "a schema; for a list of schemas, use prefixItems");
    check_schema(value, at);
  } else if (keyword == "allOf" || keyword == "anyOf" || keyword == "oneOf" || keyword == "prefixItems") {
    check_list(value, at, true);
  } else if (keyword == "enum") {
    check_list(value, at, false);
  } else if (keyword == "type") {
    bool good = is_type_name(value) || (value.is_array() && !value.empty());
    if (value.is_array())
      for (const SchemaJson& v : value) good = good && is_type_name(v);
    require(good, "a type or a list of types: array, boolean, integer, null, number, object, string");
  } else if (keyword == "required") {
    bool good = value.is_array();
    if (good)
      for (const SchemaJson& v : value) good = good && v.is_string();
    require(good, "a list of strings");
  } else if (keyword == "uniqueItems") {
    require(value.is_boolean(), "a boolean");
  } else if (keyword == "$ref" || keyword == "pattern" || keyword == "format") {
    require(value.is_string(), "a string");
  } else if (keyword == "$id") {
    if (at != "#/$id") refuse(at, "\"$id\" is supported only at the root of the schema");
  } else if (const KeywordGroup group = *find_keyword(keyword);
             group != KeywordGroup::annotation && keyword != "const") {
    require(value.is_number(), "a number");  // bounds and lengths
  }
}

void SchemaDocument::check_list(const SchemaJson& value, const std::string& at, bool schemas) const {
  if (!value.is_array() || value.empty()) refuse(at, "the value must be a list with at least one element");
  std::size_t i = 0;
  if (schemas)
    for (const SchemaJson& schema : value) check_schema(schema, pointer_to(at, std::to_string(i++)));
}

const SchemaJson& SchemaDocument::resolve(const std::string& reference, const std::string& at) const {
  const std::string where = pointer_to(at, "$ref");
  const bool local = reference == "#" || reference.starts_with("#/$defs/") || reference.starts_with("#/definitions/");
  if (!local || reference.find('%') != std::string::npos)
    refuse(where, "the reference \"" + reference + "\" is not supported",
           "Use \"#\", \"#/$defs/NAME\" or \"#/definitions/NAME\", without percent encoding");
  const SchemaJson* found = nullptr;
  try {
    found = &root_.at(SchemaJson::json_pointer(reference.substr(1)));
  } catch (const SchemaJson::exception&) {
    refuse(where, "the reference \"" + reference + "\" has no target");
  }
  check_schema(*found, reference);
  return *found;
}

}  // namespace tessera::grammar
