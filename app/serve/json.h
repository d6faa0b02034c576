// SPDX-License-Identifier: Apache-2.0
// JSON of requests and responses: parsing with limits, and typed access to members with errors that name the member.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::app {

using Json = nlohmann::ordered_json;

inline constexpr int deepest_json = 100;  ///< maximum nesting of a request

/// Parses the body of a request. Throws ApiError 400 if it is not a JSON object, or nested too deeply.
Json parse_body(std::string_view body);

/// Formats on one line. Invalid UTF-8 is replaced.
std::string json_text(const Json& value);

/// Returns a short text for the type of a value, such as "a string".
std::string_view json_type(const Json& value);

/// The members of an object. A member that is null is treated as missing. The functions throw ApiError 400 if a member
/// has the wrong type or is out of range.
class Fields {
 public:
  /// `path` precedes the names of members in errors, such as "messages[2].".
  explicit Fields(const Json& object, std::string path = {}) : object_(object), path_(std::move(path)) {}

  const Json* find(const char* name) const;  ///< the member, or a null pointer
  std::string path(const char* name) const { return path_ + name; }
  std::optional<double> number(const char* name, double lowest, double highest) const;
  std::optional<std::int64_t> integer(const char* name, std::int64_t lowest, std::int64_t highest) const;
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> string(const char* name) const;
  const Json* list(const char* name) const;    ///< a list, or a null pointer
  const Json* object(const char* name) const;  ///< an object, or a null pointer

  /// Throws ApiError 400 for a member.
  [[noreturn]] void reject(const char* name, const std::string& wrong, const std::string& code = {}) const;

 private:
  [[noreturn]] void reject_type(const char* name, std::string_view expected) const;
  const Json& object_;
  std::string path_;
};

}  // namespace tessera::app
