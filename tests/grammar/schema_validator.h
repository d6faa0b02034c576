// SPDX-License-Identifier: Apache-2.0
// A small validator for JSON schemas (draft 2020-12) that shares no code with the library, and random documents of a
// grammar.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <string_view>

#include "tessera/base/unicode.h"
#include "tests/grammar/grammar_text.h"

namespace tessera::test {

class SchemaValidator {
 public:
  using Json = nlohmann::json;
  explicit SchemaValidator(Json root) : root_(std::move(root)) {}

  bool is_valid(const Json& v) const { return is_valid(root_, v); }

 private:
  static bool has_type(const std::string& type, const Json& v) {
    if (type == "integer") return v.is_number() && v.get<double>() == std::floor(v.get<double>());
    return type == (v.is_number() ? "number" : v.type_name());
  }
  static std::size_t length(const std::string& text) {
    return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  }
  static std::wstring wide(std::string_view text) {
    std::wstring out;
    for (; !text.empty(); text.remove_prefix(utf8_unit(text).size)) out += static_cast<wchar_t>(utf8_unit(text).code);
    return out;
  }
  static bool matches(const std::string& text, const std::string& pattern) {
    return std::regex_search(wide(text), std::wregex(wide(pattern)));
  }
  static bool is_date(const std::string& text) {
    int year, month, day;
    if (!matches(text, "^\\d{4}-\\d\\d-\\d\\d$") || std::sscanf(text.c_str(), "%d-%d-%d", &year, &month, &day) != 3)
      return false;
    const int days[] = {
        31, year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
  }
  static bool is_time(const std::string& text) {
    const std::string hour = "([01]\\d|2[0-3])", minute = "[0-5]\\d";
    return matches(text, "^" + hour + ":" + minute + ":" + minute + "(\\.\\d+)?(Z|[-+]" + hour + ":" + minute + ")$");
  }
  static bool has_format(const std::string& format, const std::string& text) {
    if (format == "date") return is_date(text);
    if (format == "time") return is_time(text);
    if (format == "date-time")
      return text.size() > 11 && text[10] == 'T' && is_date(text.substr(0, 10)) && is_time(text.substr(11));
    if (format == "uuid") return matches(text, "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$");
    int a, b, c, d, end = 0;
    return std::sscanf(text.c_str(), "%3d.%3d.%3d.%3d%n", &a, &b, &c, &d, &end) == 4 &&
           end == static_cast<int>(text.size()) && std::max({a, b, c, d}) < 256;
  }

  bool is_valid(const Json& schema, const Json& v) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [keyword, value] : schema.items())
      if (!holds(schema, keyword, value, v)) return false;
    return true;
  }

  bool holds(const Json& schema, const std::string& keyword, const Json& value, const Json& v) const {
    const auto count = [&] {
      return std::ranges::count_if(value, [&](const Json& part) { return is_valid(part, v); });
    };
    if (keyword == "$ref") return is_valid(root_.at(Json::json_pointer(value.get<std::string>().substr(1))), v);
    if (keyword == "allOf") return count() == std::ssize(value);
    if (keyword == "anyOf") return count() > 0;
    if (keyword == "oneOf") return count() == 1;
    if (keyword == "const") return v == value;
    if (keyword == "enum") return std::ranges::find(value, v) != value.end();
    if (keyword == "type")
      return value.is_string() ? has_type(value, v)
                               : std::ranges::any_of(value, [&](const Json& t) { return has_type(t, v); });
    if (v.is_object()) return holds_for_object(schema, keyword, value, v);
    if (v.is_array()) return holds_for_array(schema, keyword, value, v);
    if (v.is_string()) return holds_for_string(keyword, value, v);
    if (keyword == "multipleOf" && v.is_number_integer()) return v.get<std::int64_t>() % value.get<std::int64_t>() == 0;
    return !v.is_number() || holds_for_number(keyword, value, v.get<double>());
  }

  bool holds_for_object(const Json& schema, const std::string& keyword, const Json& value, const Json& v) const {
    if (keyword == "required") return std::ranges::all_of(value, [&](const Json& name) { return v.contains(name); });
    for (const auto& [key, member] : v.items()) {
      const bool declared = schema.contains("properties") && schema["properties"].contains(key);
      if (keyword == "properties" && declared && !is_valid(value[key], member)) return false;
      if (keyword == "additionalProperties" && !declared && !is_valid(value, member)) return false;
    }
    return true;
  }

  bool holds_for_array(const Json& schema, const std::string& keyword, const Json& value, const Json& v) const {
    if (keyword == "minItems") return v.size() >= value;
    if (keyword == "maxItems") return v.size() <= value;
    const std::size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      if (keyword == "prefixItems" && i < prefix && !is_valid(value[i], v[i])) return false;
      if (keyword == "items" && i >= prefix && !is_valid(value, v[i])) return false;
    }
    return true;
  }

  static bool holds_for_string(const std::string& keyword, const Json& value, const std::string& v) {
    if (keyword == "minLength") return length(v) >= value;
    if (keyword == "maxLength") return length(v) <= value;
    if (keyword == "pattern") return matches(v, value);
    return keyword != "format" || has_format(value, v);
  }

  static bool holds_for_number(const std::string& keyword, const Json& value, double v) {
    if (keyword == "minimum") return v >= value;
    if (keyword == "maximum") return v <= value;
    if (keyword == "exclusiveMinimum") return v > value;
    if (keyword == "exclusiveMaximum") return v < value;
    return keyword != "multipleOf";  // of a fraction
  }

  Json root_;
};

/// Returns a random text of the grammar, or std::nullopt if it becomes too long.
inline std::optional<std::string> random_text(const Grammar& g, std::mt19937_64& random) {
  grammar::States states(g.automaton());
  grammar::StateId at = states.start();
  std::string text;
  while (text.size() < 2000) {
    if (states.accepts(at) && (random() % 4 == 0 || states.is_final(at))) return text;
    std::string allowed, closing;
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      if (states.step(at, static_cast<std::uint8_t>(byte)) == grammar::dead_state) continue;
      allowed += c;
      if (c == '"' || c == '}' || c == ']') closing += c;
    }
    const std::string& from = !closing.empty() && (random() % 4 == 0 || text.size() > 300) ? closing : allowed;
    const char next = from[random() % from.size()];
    text += next;
    at = states.step(at, static_cast<std::uint8_t>(next));
  }
  return std::nullopt;
}

}  // namespace tessera::test
