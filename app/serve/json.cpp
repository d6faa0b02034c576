// SPDX-License-Identifier: Apache-2.0
#include "serve/json.h"

#include <fmt/format.h>

#include <cmath>

#include "serve/api_error.h"

namespace tessera::app {

Json parse_body(std::string_view body) {
  const auto check_depth = [](int depth, Json::parse_event_t, const Json&) {
    if (depth > deepest_json)
      throw ApiError(400, fmt::format("The body has more than {} levels of nesting.", deepest_json));
    return true;
  };
  Json out;
  try {
    out = Json::parse(body, check_depth);
  } catch (const Json::parse_error& e) {
    throw ApiError(400, fmt::format("The body is not valid JSON: there is an error at byte {}.", e.byte));
  } catch (const Json::exception&) {  // such as a number that is out of range
    throw ApiError(400, "The body is not valid JSON.");
  }
  if (!out.is_object()) throw ApiError(400, "The body must be a JSON object.");
  return out;
}

std::string json_text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string_view json_type(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "a list";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a boolean";
    default: return "a number";
  }
}

const Json* Fields::find(const char* name) const {
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

void Fields::reject(const char* name, const std::string& wrong, const std::string& code) const {
  throw ApiError(400, fmt::format("{}: {}", path(name), wrong), path(name), code);
}

void Fields::reject_type(const char* name, std::string_view expected) const {
  reject(name, fmt::format("expected {}, but it is {}.", expected, json_type(*find(name))));
}

std::optional<double> Fields::number(const char* name, double lowest, double highest) const {
  const Json* const value = find(name);
  if (!value) return {};
  if (!value->is_number()) reject_type(name, "a number");
  const double out = value->get<double>();
  if (!(out >= lowest && out <= highest))
    reject(name, fmt::format("{} is out of range; it must be from {} to {}.", json_text(*value), lowest, highest));
  return out;
}

std::optional<std::int64_t> Fields::integer(const char* name, std::int64_t lowest, std::int64_t highest) const {
  const Json* const value = find(name);
  if (!value) return {};
  if (!value->is_number()) reject_type(name, "an integer");
  const double approximate = value->get<double>();
  if (value->is_number_float() && approximate != std::floor(approximate)) reject_type(name, "an integer");
  // Some clients write integers as 1.0. The bounds are checked first, because large values cannot be converted.
  const bool large = value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t{INT64_MAX};
  const bool outside = value->is_number_float() && !(std::abs(approximate) < 9e18);
  const std::int64_t out = large || outside ? 0 : value->get<std::int64_t>();
  if (large || outside || out < lowest || out > highest)
    reject(name, fmt::format("{} is out of range; it must be from {} to {}.", json_text(*value), lowest, highest));
  return out;
}

std::optional<bool> Fields::boolean(const char* name) const {
  const Json* const value = find(name);
  if (!value) return {};
  if (!value->is_boolean()) reject_type(name, "true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::string(const char* name) const {
  const Json* const value = find(name);
  if (!value) return {};
  if (!value->is_string()) reject_type(name, "a string");
  return value->get<std::string>();
}

const Json* Fields::list(const char* name) const {
  const Json* const value = find(name);
  if (value && !value->is_array()) reject_type(name, "a list");
  return value;
}

const Json* Fields::object(const char* name) const {
  const Json* const value = find(name);
  if (value && !value->is_object()) reject_type(name, "an object");
  return value;
}

}  // namespace tessera::app
