// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/schema_merge.h"

#include <algorithm>
#include <cmath>

#include "tessera/llm/grammar/expression.h"

namespace tessera::grammar {
namespace {

constexpr int most_merges = 1000;
constexpr int deepest_merge = 50;

SchemaJson type_list(const SchemaJson& type) { return type.is_array() ? type : SchemaJson::array({type}); }

bool contains_value(const SchemaJson& list, const SchemaJson& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// The types that are in both lists. An integer is also a number.
SchemaJson common_types(const SchemaJson& a, const SchemaJson& b) {
  SchemaJson out = SchemaJson::array();
  for (const SchemaJson& type : type_list(a)) {
    const auto& name = type.get_ref<const std::string&>();
    if (has_type(b, name))
      out.push_back(type);
    else if (name == "number" && has_type(b, "integer"))
      out.push_back("integer");
  }
  return out;
}

/// Adds the names of `more` to the list `names`.
void add_names(SchemaJson& names, const SchemaJson& more) {
  for (const SchemaJson& name : more)
    if (!contains_value(names, name)) names.push_back(name);
}

bool declares_no_more_than(const SchemaJson& a, const SchemaJson& b) {
  if (!a.contains("properties")) return true;
  const auto properties = a["properties"].items();
  return std::all_of(properties.begin(), properties.end(),
                     [&](const auto& p) { return b.contains("properties") && b["properties"].contains(p.key()); });
}

}  // namespace

bool has_type(const SchemaJson& type, std::string_view name) {
  const SchemaJson list = type_list(type);
  return std::any_of(list.begin(), list.end(),
                     [&](const SchemaJson& t) { return t == name || (t == "number" && name == "integer"); });
}

bool value_has_type(const SchemaJson& value, const SchemaJson& type) {
  if (value.is_number_integer()) return has_type(type, "integer");
  if (value.is_number()) {
    const double v = value.get<double>();
    return has_type(type, v == std::floor(v) ? "integer" : "number");
  }
  return has_type(type, value.type_name());
}

SchemaJson SchemaMerger::flatten(const SchemaJson& schema, const std::string& at) {
  if (!schema.is_object()) return schema;
  if (schema.contains("$ref") || schema.contains("allOf")) count(at);
  ++depth_;
  SchemaJson out = SchemaJson::object();
  std::vector<SchemaJson> more;
  for (const auto& [keyword, value] : schema.items()) {
    if (keyword == "$ref")
      more.push_back(flatten(document_.resolve(value.get<std::string>(), at), value.get<std::string>()));
    else if (keyword == "const")
      more.push_back({{"enum", SchemaJson::array({value})}});
    else if (keyword == "allOf")
      for (const SchemaJson& part : value) more.push_back(flatten(part, at));
    else if (*find_keyword(keyword) != KeywordGroup::annotation)
      out[keyword] = value;
  }
  for (const SchemaJson& part : more) out = merge_flat(std::move(out), part, at);
  --depth_;
  return out;
}

void SchemaMerger::count(const std::string& at) {
  if (++merges_ > most_merges || depth_ == deepest_merge)
    document_.refuse(at, "too many schemas are combined by allOf, anyOf, oneOf and $ref",
                     "A schema that refers to itself in allOf cannot be expressed");
}

SchemaJson SchemaMerger::merge(const SchemaJson& a, const SchemaJson& b, const std::string& at) {
  count(at);
  return merge_flat(flatten(a, at), flatten(b, at), at);
}

SchemaJson SchemaMerger::merge_flat(SchemaJson a, const SchemaJson& b, const std::string& at) {
  if (a.is_boolean()) return a.get<bool>() ? b : a;
  if (b.is_boolean()) return b.get<bool>() ? a : b;
  // Forbidding other properties depends on the properties of the same schema.
  for (const auto& [x, y] : {std::pair<const SchemaJson&, const SchemaJson&>(a, b), {b, a}})
    if (x.contains("additionalProperties") && x["additionalProperties"] != true && !declares_no_more_than(y, x))
      document_.refuse(at, "schemas cannot be combined if one has additionalProperties and the other more properties",
                       "Declare all properties in the schema with additionalProperties");
  for (const auto& [x, y] : {std::pair<const SchemaJson&, const SchemaJson&>(a, b), {b, a}})
    if (x.contains("prefixItems") && !y.contains("prefixItems") && y.contains("items"))
      document_.refuse(at, "a schema with prefixItems and another one with items cannot be combined");
  for (const auto& [keyword, value] : b.items()) {
    if (!a.contains(keyword))
      a[keyword] = value;
    else if (a[keyword] != value)
      merge_keyword(a, keyword, value, at);
  }
  const bool nothing = (a.contains("type") && a["type"].empty()) || (a.contains("enum") && a["enum"].empty());
  return nothing ? SchemaJson(false) : a;
}

void SchemaMerger::merge_keyword(SchemaJson& a, const std::string& keyword, const SchemaJson& value,
                                 const std::string& at) {
  SchemaJson& mine = a[keyword];
  const auto both = [](const SchemaJson& x, const SchemaJson& y) {
    return SchemaJson{{"allOf", SchemaJson::array({x, y})}};
  };
  if (keyword == "type") {
    mine = common_types(mine, value);
  } else if (keyword == "required") {
    add_names(mine, value);
  } else if (keyword == "properties") {
    for (const auto& [key, schema] : value.items())
      mine[key] = mine.contains(key) && mine[key] != schema ? both(mine[key], schema) : schema;
  } else if (keyword == "items" || keyword == "additionalProperties") {
    mine = both(mine, value);
  } else if (keyword == "enum") {
    std::erase_if(mine.get_ref<SchemaJson::array_t&>(), [&](const SchemaJson& v) { return !contains_value(value, v); });
  } else if (keyword == "uniqueItems") {
    mine = true;
  } else if (keyword.starts_with("min") || keyword == "exclusiveMinimum") {
    mine = std::max(mine, value);
  } else if (keyword.starts_with("max") || keyword == "exclusiveMaximum") {
    mine = std::min(mine, value);
  } else {
    document_.refuse(at, "schemas with different values of \"" + keyword + "\" cannot be combined");
  }
}

bool SchemaMerger::are_disjoint(const SchemaJson& x, const SchemaJson& y, const std::string& at, int depth) {
  if (depth > 3) return false;
  const SchemaJson a = flatten(x, at), b = flatten(y, at);
  if (a == false || b == false) return true;
  if (!a.is_object() || !b.is_object()) return false;
  if (a.contains("enum") && b.contains("enum"))
    return std::none_of(a["enum"].begin(), a["enum"].end(),
                        [&](const SchemaJson& v) { return contains_value(b["enum"], v); });
  for (const auto& [list, other] : {std::pair<const SchemaJson&, const SchemaJson&>(a, b), {b, a}})
    if (list.contains("enum") && other.contains("type") &&
        std::none_of(list["enum"].begin(), list["enum"].end(),
                     [&](const SchemaJson& v) { return value_has_type(v, other["type"]); }))
      return true;
  if (!a.contains("type") || !b.contains("type")) return false;
  const SchemaJson types = common_types(a["type"], b["type"]);
  return types.empty() || (types == SchemaJson::array({"object"}) && have_disjoint_members(a, b, at, depth));
}

/// True if an object cannot be valid for both schemas because of one of its members.
bool SchemaMerger::have_disjoint_members(const SchemaJson& a, const SchemaJson& b, const std::string& at, int depth) {
  for (const auto& [x, y] : {std::pair<const SchemaJson&, const SchemaJson&>(a, b), {b, a}}) {
    if (!x.contains("required")) continue;
    for (const SchemaJson& name : x["required"]) {
      const auto& key = name.get_ref<const std::string&>();
      const bool in_x = x.contains("properties") && x["properties"].contains(key);
      const bool in_y = y.contains("properties") && y["properties"].contains(key);
      if (!in_y && y.contains("additionalProperties") && y["additionalProperties"] == false) return true;
      if (in_x && in_y && are_disjoint(x["properties"][key], y["properties"][key], at, depth + 1)) return true;
    }
  }
  return false;
}

}  // namespace tessera::grammar
