// SPDX-License-Identifier: Apache-2.0
// Grammars of JSON schemas: valid and invalid documents for each keyword, random documents compared with a validator,
// and errors for everything that is not supported.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "tessera/base/test_seed.h"
#include "tests/grammar/grammar_text.h"
#include "tests/grammar/schema_validator.h"
#include "tests/support/errors.h"
#include "tests/support/fuzz_cases.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::accepts;
using test::expect_throw;

struct Case {
  const char* schema;
  std::vector<std::string> good, bad;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {R"({"type": "null"})", {"null"}, {"true", ""}},
      {R"({"type": "boolean"})", {"true", "false"}, {"null", "0"}},
      {R"({"type": "integer"})", {"0", "-1", "123456789012345678"}, {"01", "-0", "1.0", "1e3", "1234567890123456789"}},
      {R"({"type": "number"})", {"0", "-0.5", "12.25e-3", "1E9"}, {"01", ".5", "1.", "+1", "1e999"}},
      {R"({"type": "string"})", {R"("")", R"("é\u00e9\ud83d\ude00\n\/")"}, {R"("\ud83d")", R"("\x")", "\"\n\"", "\"a"}},
      {R"({"type": "array"})", {"[]", "[1, [2], {}]", "[\n    null\n]"}, {"[1,]", "[1  ,2]", "[   ]"}},
      {R"({"type": "object"})", {"{}", R"({"a": {"b": [1]}, "c": ""})"}, {"{\"a\"}", "{1:2}", "{\"a\" :1}"}},
      {R"({"type": ["integer", "null"], "minimum": 3})", {"null", "3", "40"}, {"2", "\"a\"", "-3"}},
      {R"({})", {"1.5", "[true]", R"({"a": null})"}, {"[", "undefined"}},
      {"true", {"1", "{}"}, {"x"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}, "c": true}})",
       {"{}", R"({"a":1})", R"({"b":null})", R"({"a": 1, "c": []})", "{\n  \"a\": 1,\n  \"b\": null\n}"},
       {R"({"b":null,"a":1})", R"({"a":"x"})", R"({"d":1})", R"({"a":1,})"}},
      {R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["b"]})",
       {R"({"b":null})", R"({"a":null,"b":null})"},
       {"{}", R"({"a":null})", R"({"b":null,"a":null})"}},
      {R"({"required": ["x"], "additionalProperties": {"type": "integer"}})",
       {R"({"x":1})", R"({"x":1,"y":2})"},
       {"{}", R"({"x":""})", R"({"y":2})"}},
      {R"({"properties": {"a": {"type": "null"}, "ab\n": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"a":null})", R"({"ab\n":null,"ab":1})", R"({"b":2,"":3,"a\n":4})"},
       {R"({"a":1})", R"({"ab\n":1})", R"({"\u0061":1})", R"({"b":null})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}", "{ }"}, {R"({"a":1})"}},
      {R"({"properties": {"a": {"type": "null"}}, "additionalProperties": true})",
       {R"({"a":null,"b":[]})", R"({"b":1})"},
       {R"({"a":1})"}},
      {R"({"enum": ["a", 1, null, {"x": [1, 2]}, "é\n"]})",
       {R"("a")", "1", "null", R"({"x":[1,2]})", R"("é\n")"},
       {"2", R"("b")", R"({"x":[1]})"}},
      {R"({"enum": ["a", 1, 2.5, null], "type": ["string", "integer"]})", {R"("a")", "1"}, {"null", "2.5"}},
      {R"({"const": {"k": true}})", {R"({"k":true})"}, {"{}", R"({"k":false})"}},
      {R"({"items": {"type": "boolean"}})", {"[]", "[true,false]"}, {"[1]"}},
      {R"({"items": {"type": "integer"}, "minItems": 2, "maxItems": 3})", {"[1,2]", "[1, 2, 3]"}, {"[1]", "[1,2,3,4]"}},
      {R"({"items": {"type": "integer"}, "minItems": 1})", {"[1]", "[1,2,3,4]"}, {"[]"}},
      {R"({"items": {"type": "integer"}, "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"maxItems": 1, "uniqueItems": true})", {"[]", "[{}]"}, {"[1,1]"}},
      {R"({"prefixItems": [{"type": "integer"}, {"type": "null"}]})",
       {"[]", "[1]", "[1,null]"},
       {"[null]", "[1,null,1]"}},
      {R"({"prefixItems": [{"type": "integer"}], "minItems": 2})", {"[1,\"x\"]"}, {"[1]", "[\"x\",1]", "[1,2,3]"}},
      {R"({"prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "minItems": 1})",
       {"[null]", "[null,1,2]"},
       {"[]", "[1]", "[null,null]"}},
      {R"({"prefixItems": [{"type": "null"}, {"type": "null"}], "maxItems": 1})", {"[]", "[null]"}, {"[null,null]"}},
      {R"({"minLength": 2, "maxLength": 3})", {R"("é\n")", R"("中中😀")"}, {R"("a")", R"("abcd")", R"("")"}},
      {R"({"type": "string", "minLength": 1})", {R"("a")", R"("aaaaaaaaaaaaaaa")"}, {R"("")"}},
      {R"({"type": "string", "maxLength": 0})", {R"("")"}, {R"("a")"}},
      {R"({"pattern": "^[a-c]+$|x{2}"})", {R"("abc")", R"("dxxé")"}, {R"("abd")", R"("")", R"("x")"}},
      {R"({"pattern": "^(\\d{3}-)?[^\\s\"]\\\\$"})", {R"("123-a\\")", R"("é\\")"}, {R"("\"\\")", R"("12-a\\")"}},
      {R"({"pattern": "^\\u00e9.\\.(?:a|b)*?\\w\\W$"})", {R"("é\t.abZ-")"}, {R"("é\n.abZ-")", R"("e1.aZ-")"}},
      {R"({"pattern": "b"})", {R"("abc")", R"("b")"}, {R"("ac")"}},
      {R"({"pattern": "^\\x01$"})", {R"("\u0001")"}, {R"("\u0002")", R"("a")"}},
      {R"({"format": "date"})",
       {R"("2024-02-29")", R"("2000-02-29")", R"("1999-12-31")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2024-04-31")", R"("2024-13-01")", R"("2024-00-10")"}},
      {R"({"format": "time"})", {R"("23:59:59Z")", R"("00:00:00.125+01:30")"}, {R"("24:00:00Z")", R"("12:00:00")"}},
      {R"({"format": "date-time"})",
       {R"("2024-04-30T23:59:59-08:00")"},
       {R"("2024-04-31T00:00:00Z")", R"("2024-04-30")"}},
      {R"({"format": "uuid"})",
       {R"("123e4567-e89b-12d3-A456-426614174000")"},
       {R"("123e4567e89b12d3a456426614174000")"}},
      {R"({"format": "ipv4"})", {R"("0.10.255.249")"}, {R"("256.0.0.1")", R"("1.2.3")", R"("01.2.3.4")"}},
      {R"({"type": "integer", "minimum": -17, "maximum": 1234})",
       {"0", "-17", "-1", "999", "1234"},
       {"-18", "1235", "-0", "9999"}},
      {R"({"type": "integer", "exclusiveMinimum": 9.5, "exclusiveMaximum": 100})", {"10", "99"}, {"9", "100"}},
      {R"({"type": "integer", "minimum": 10, "multipleOf": 7})", {"14", "700", "7000000000000007"}, {"7", "15", "-14"}},
      {R"({"type": "integer", "maximum": -5})", {"-5", "-1000"}, {"-4", "0", "5"}},
      {R"({"anyOf": [{"type": "integer"}, {"enum": ["x"]}]})", {"1", R"("x")"}, {"null"}},
      {R"({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
       {"{}"}},
      {R"({"oneOf": [{"type": "integer"}, {"type": ["string", "null"]}]})", {"1", R"("x")", "null"}, {"true"}},
      {R"({"type": "object", "oneOf": [{"properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k", "x"]},
           {"properties": {"k": {"enum": ["b", "c"]}}, "required": ["k"]}]})",
       {R"({"k":"a","x":1})", R"({"k":"c"})"},
       {R"({"k":"a"})", R"({"k":"b","x":1})", "{}"}},
      {R"({"allOf": [{"properties": {"a": {"type": "integer", "minimum": 2}}}, {"properties": {"a": {"maximum": 3}}, "required": ["a"]}]})",
       {R"({"a":2})", R"({"a":3})"},
       {"{}", R"({"a":1})", R"({"a":4})"}},
      {R"({"allOf": [{"type": ["integer", "string"]}, {"type": ["number", "null"]}], "maximum": 5})",
       {"1", "5"},
       {"6", "1.5", "null"}},
      {R"({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"v": {"type": "integer"}, "c": {"items": {"$ref": "#/$defs/n"}}}, "required": ["v"]}}})",
       {R"({"v":1,"c":[{"v":2},{"v":3,"c":[]}]})"},
       {R"({"v":1,"c":[{}]})"}},
      {R"({"$ref": "#/definitions/a~1b", "maximum": 9, "definitions": {"a/b": {"type": "integer", "minimum": 3}}})",
       {"3", "9"},
       {"2", "10"}},
      {R"({"items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "title": "t", "description": "d", "default": 1,
           "examples": [1], "$comment": "c", "deprecated": true, "readOnly": true, "writeOnly": false, "type": "null"})",
       {"null"},
       {"1"}},
  };
  return all;
}

TEST(JsonSchema, AcceptsValidAndRejectsInvalidDocuments) {
  for (const Case& c : cases()) {
    const auto g = Grammar::from_json_schema(c.schema);
    const test::SchemaValidator validator(json::parse(c.schema));
    for (const std::string& text : c.good) {
      EXPECT_TRUE(accepts(*g, text)) << c.schema << "\n" << text;
      EXPECT_TRUE(validator.is_valid(json::parse(text))) << c.schema << "\n" << text;
    }
    for (const std::string& text : c.bad) EXPECT_FALSE(accepts(*g, text)) << c.schema << "\n" << text;
  }
}

/// Expects that random texts of the grammar are valid. Returns their number.
int expect_valid_texts(const std::string& schema, const Grammar& g, int count, std::mt19937_64& random) {
  const test::SchemaValidator validator(json::parse(schema));
  int complete = 0;
  for (int i = 0; i < count; ++i) {
    const auto text = test::random_text(g, random);
    if (!text) continue;
    ++complete;
    const json v = json::parse(*text, nullptr, false);
    EXPECT_TRUE(!v.is_discarded() && validator.is_valid(v)) << schema << "\n" << *text;
  }
  return complete;
}

TEST(JsonSchema, RandomTextsAreValid) {
  std::mt19937_64 random(test_seed());
  int complete = 0;
  for (const Case& c : cases())
    complete += expect_valid_texts(c.schema, *Grammar::from_json_schema(c.schema), 8, random);
  EXPECT_GT(complete, static_cast<int>(cases().size()) * 6);
}

/// Returns a random schema, which may contain keywords that cannot be combined.
json random_schema(std::mt19937_64& random, int depth) {
  const auto below = [&](std::size_t n) { return random() % n; };
  const auto child = [&] { return random_schema(random, depth - 1); };
  json out = json::object();
  switch (below(depth > 0 ? 10 : 5)) {
    case 0: return {{"enum", {below(3), "a", nullptr, std::string(below(3), 'b')}}};
    case 1:
      out["type"] = "integer";
      if (below(2)) out["minimum"] = static_cast<int>(below(300)) - 150;
      if (below(2)) out["exclusiveMaximum"] = static_cast<int>(below(400));
      if (below(3) == 0) out["multipleOf"] = 1 + below(12);
      return out;
    case 2:
      out["type"] = below(2) ? json("string") : json({"string", "null"});
      if (below(2)) out["minLength"] = below(3);
      if (below(2)) out["maxLength"] = below(5);
      return out;
    case 3: return {{"pattern", std::vector{"^a*b$", "x|^y", "[^a-f]\\d", "^(ab?){1,2}"}[below(4)]}};
    case 4:
      return std::vector<json>{true, false, {{"type", "number"}}, {{"const", "k"}}, {{"format", "date"}}}[below(5)];
    case 5:
      if (below(2)) out["items"] = child();
      if (below(3) == 0) out["prefixItems"] = {child(), child()};
      if (below(2)) out["minItems"] = below(3);
      if (below(2)) out["maxItems"] = below(4);
      if (below(2)) out["type"] = "array";
      return out;
    case 6: return {{"anyOf", {child(), child()}}};
    case 7: return {{std::vector{"oneOf", "allOf"}[below(2)], {child(), child()}}};
    default:
      for (const char* name : {"a", "b", "c"})
        if (below(2)) out["properties"][name] = child();
      for (const char* name : {"a", "c", "z"})
        if (below(3) == 0) out["required"].push_back(name);
      if (below(3) == 0) out["additionalProperties"] = child();
      if (below(3) == 0) out["anyOf"] = {child(), child()};
      if (below(2)) out["type"] = "object";
      return out;
  }
}

TEST(JsonSchema, RandomTextsOfRandomSchemasAreValid) {
  std::mt19937_64 random(test_seed());
  int complete = 0;
  for (int i = 0; i < 600; ++i) {
    const std::string schema = random_schema(random, 3).dump();
    std::shared_ptr<const Grammar> g;
    try {
      g = Grammar::from_json_schema(schema);
    } catch (const FormatError&) {  // it cannot be expressed, or nothing is valid
      continue;
    }
    complete += expect_valid_texts(schema, *g, 4, random);
  }
  EXPECT_GT(complete, 500);
}

TEST(JsonSchema, UnsupportedKeywordsAreErrorsWithTheirPointer) {
  for (const char* keyword : {"not",
                              "if",
                              "then",
                              "else",
                              "patternProperties",
                              "propertyNames",
                              "minProperties",
                              "maxProperties",
                              "contains",
                              "minContains",
                              "maxContains",
                              "dependentRequired",
                              "dependentSchemas",
                              "dependencies",
                              "unevaluatedProperties",
                              "unevaluatedItems",
                              "additionalItems",
                              "contentEncoding",
                              "contentMediaType",
                              "contentSchema",
                              "$anchor",
                              "$dynamicRef",
                              "$dynamicAnchor",
                              "$vocabulary",
                              "nullable",
                              "discriminator",
                              "id",
                              "Type",
                              "x-order"}) {
    const json schema = {{"properties", {{"a/b", {{"items", {{keyword, true}}}}}}}};
    expect_throw<FormatError>([&] { Grammar::from_json_schema(schema.dump(), "s.json"); },
                              {"\"" + std::string(keyword) + "\" is not supported", "s.json",
                               "pointer = #/properties/a~1b/items/" + std::string(keyword)});
    // Also in definitions that are not used.
    const json unused = {{"type", "null"}, {"$defs", {{"d", {{keyword, 1}}}}}};
    expect_throw<FormatError>([&] { Grammar::from_json_schema(unused.dump()); }, {"#/$defs/d/" + std::string(keyword)});
  }
}

TEST(JsonSchema, ReportsWhatCannotBeExpressed) {
  const std::pair<std::string, std::vector<std::string_view>> errors[] = {
      {R"({"type": "object",)", {"not valid JSON", "s:1:19"}},
      {"{\"type\":\n \"nul\"}", {"#/type", "type or a list of types"}},
      {R"({"type": []})", {"#/type"}},
      {R"({"minLength": 1, "minLength": 2})", {"two members with the key \"minLength\""}},
      {"3", {"#", "object or a boolean"}},
      {R"({"properties": {"a": 3}})", {"#/properties/a"}},
      {R"({"type": "string", "minimum": 3})", {"#/minimum", "no effect"}},
      {R"({"type": "number", "minimum": 3})", {"#/minimum", "only for integers"}},
      {R"({"type": ["integer", "number"], "multipleOf": 2})", {"#/multipleOf", "only for integers"}},
      {R"({"minimum": 3})", {"#/minimum", "\"type\": \"integer\""}},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", {"no integer"}},
      {R"({"type": "integer", "multipleOf": 0.5})", {"#/multipleOf"}},
      {R"({"type": "integer", "multipleOf": 12345})", {"#/multipleOf", "too large"}},
      {R"({"type": "integer", "exclusiveMinimum": true})", {"#/exclusiveMinimum", "must be a number"}},
      {R"({"minLength": -1})", {"#/minLength", "0 or more"}},
      {R"({"minLength": 1.5})", {"#/minLength"}},
      {R"({"maxLength": 1e9})", {"#/maxLength", "too large"}},
      {R"({"minItems": 3, "maxItems": 2})", {"greater than"}},
      {R"({"pattern": "a", "maxLength": 3})", {"cannot be combined"}},
      {R"({"format": "email"})", {"#/format", "\"email\" is not supported"}},
      {R"({"uniqueItems": true})", {"#/uniqueItems"}},
      {R"({"items": [{}]})", {"#/items", "prefixItems"}},
      {R"({"enum": []})", {"#/enum"}},
      {R"({"enum": [1], "type": "string"})", {"no value"}},
      {R"({"enum": ["a"], "minLength": 2})", {"#/minLength", "enum or const"}},
      {R"({"required": ["x"], "additionalProperties": false})", {"#/required", "forbids"}},
      {R"({"properties": {"x": false}, "required": ["x"]})", {"#/properties/x"}},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", {"#/oneOf", "schemas 0 and 1"}},
      {R"({"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]})", {"#/oneOf"}},
      {R"({"anyOf": [{}], "oneOf": [{}]})", {"anyOf and oneOf"}},
      {R"({"anyOf": []})", {"#/anyOf"}},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", {"different values of \"pattern\""}},
      {R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}}]})",
       {"additionalProperties"}},
      {R"({"$ref": "other.json"})", {"#/$ref", "not supported"}},
      {R"({"$ref": "#/$defs/x"})", {"#/$ref", "no target"}},
      {R"({"$ref": "#"})", {"no finite text"}},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", {"left-recursive"}},
      {R"({"required": ["x"], "properties": {"x": {"$ref": "#"}}})", {"no finite text"}},
      {R"({"properties": {"a": {"$id": "x"}}})", {"#/properties/a/$id", "root"}},
      {"false", {"no finite text"}},
  };
  for (const auto& [schema, parts] : errors) {
    SCOPED_TRACE(schema);
    expect_throw<FormatError>([&schema = schema] { Grammar::from_json_schema(schema, "s"); }, parts);
  }
  for (const char* pattern :
       {"(?=a)", "(?<n>a)", "(?!a)", "\\b", "\\1",   "\\p{L}",  "a**", "*",       "a{2",  "[b-a]",  "[",   "(", ")",
        "(^a)",  "(a$)",    "a^",    "\\",  "\\u12", "\\ud800", "]",   "[\\d-z]", "\\cA", "a{2,1}", "\\0", "[]"}) {
    SCOPED_TRACE(pattern);
    const json schema = {{"pattern", pattern}};
    expect_throw<FormatError>([&] { Grammar::from_json_schema(schema.dump()); }, {"#/pattern", "at byte"});
  }
}

TEST(JsonSchema, JsonObjectAcceptsAllObjects) {
  const auto g = Grammar::json_object();
  EXPECT_TRUE(accepts(*g, R"({"a": [1, {"b": "é"}], "c": null})"));
  EXPECT_FALSE(accepts(*g, "[]"));
  std::mt19937_64 random(test_seed());
  EXPECT_GT(expect_valid_texts(R"({"type": "object"})", *g, 30, random), 20);
}

TEST(JsonSchema, HostileSchemasAreRejectedQuickly) {
  const auto start = std::chrono::steady_clock::now();
  const auto compile = [](const std::string& schema) { Grammar::from_json_schema(schema); };
  const auto repeated = [](const std::string& text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  expect_throw<FormatError>([&] { compile(std::string(60'000, '[')); }, {"schema"});
  expect_throw<FormatError>([&] { compile(repeated("[", 30'000) + repeated("]", 30'000)); }, {"100 levels"});
  expect_throw<FormatError>([&] { compile(repeated("{\"items\":", 200) + "{}" + repeated("}", 200)); }, {"100 levels"});
  expect_throw<FormatError>([&] { compile("\"" + std::string(70'000, 'a') + "\""); }, {"too long"});
  expect_throw<FormatError>([&] { compile(R"({"type": "string", "maxLength": 100000})"); }, {"too large"});
  expect_throw<FormatError>(
      [&] { compile(R"({"items": {"items": {"type": "null"}, "minItems": 90000}, "minItems": 90000})"); },
      {"too large"});
  expect_throw<FormatError>([&] { compile(R"({"pattern": "((((a{99}){99}){99}){99}){99}"})"); }, {"too large"});
  expect_throw<FormatError>([&] { compile(R"({"pattern": ")" + std::string(30'000, '(') + R"("})"); }, {"too deeply"});
  // Each definition contains the next one twice.
  std::string doubled = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 40; ++i) {
    const std::string next = R"({"$ref": "#/$defs/d)" + std::to_string(i + 1) + R"("})";
    doubled += "\"d" + std::to_string(i) + R"(": {"allOf": [)" + next + ", " + next + R"(], "minLength": 1}, )";
  }
  expect_throw<FormatError>([&] { compile(doubled + R"("d40": {"type": "string"}}})"); }, {"too many schemas"});
  // The combination of two recursive schemas does not end.
  expect_throw<FormatError>(
      [&] {
        compile(R"({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
            "a": {"properties": {"c": {"$ref": "#/$defs/a"}}}, "b": {"properties": {"c": {"$ref": "#/$defs/b"}}}}})");
      },
      {"too many schemas", "refers to itself"});
  expect_throw<FormatError>([&] { compile(R"({"allOf": [{"$ref": "#"}]})"); }, {"too many schemas"});
  expect_throw<FormatError>([&] { compile("{\"oneOf\": [true" + repeated(",true", 9'000) + "]}"); }, {"oneOf"});
  // Many properties and alternatives are possible.
  std::string wide = R"({"additionalProperties": {"type": "null"}, "properties": {)";
  for (int i = 0; i < 1500; ++i) wide += "\"property" + std::to_string(i) + "\": {\"type\": \"null\"}, ";
  const auto g = Grammar::from_json_schema(wide + "\"last\": true}}");
  EXPECT_TRUE(accepts(*g, R"({"property3": null, "property1499": null, "last": 1, "property": null})"));
  EXPECT_FALSE(accepts(*g, R"({"property3": null, "property2": null})"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(JsonSchema, RandomMutationsCompileOrThrow) {
  std::uint64_t compiled = 0;
  test::run_fuzz_cases([&](std::mt19937_64& random) {
    const std::string seed = cases()[random() % cases().size()].schema;
    const std::string schema = test::mutated(seed, random, "\"{}[]:,0123-.ea$#/ \\");
    try {
      const auto g = Grammar::from_json_schema(schema);
      test::match(*g, R"({"a": 1})");
      ++compiled;
    } catch (const Error&) {}
  });
  EXPECT_GE(compiled, test::fuzz_cases() / 200);
}

}  // namespace
}  // namespace tessera
