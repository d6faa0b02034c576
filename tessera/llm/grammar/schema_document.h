// SPDX-License-Identifier: Apache-2.0
// A parsed JSON schema whose keywords are all known, references into it, and its error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera::grammar {

using SchemaJson = nlohmann::ordered_json;  // keeps the order of properties

/// Which values a keyword applies to.
enum class KeywordGroup { annotation, any, object, array, string, number };
/// Returns the group of a supported keyword, or nullptr for other keywords.
const KeywordGroup* find_keyword(std::string_view keyword);

class SchemaDocument {
 public:
  /// Parses a schema. Throws FormatError if it exceeds a limit, is not JSON, has an object with equal keys, or contains
  /// an unsupported keyword or a keyword with a value of the wrong type.
  SchemaDocument(std::string_view text, std::string_view name);

  const SchemaJson& root() const { return root_; }
  /// Returns the target of a reference such as "#/$defs/node". `at` is the pointer of the schema that contains it.
  const SchemaJson& resolve(const std::string& reference, const std::string& at) const;
  /// Throws FormatError for a part of the schema, such as "#/properties/age/minimum".
  [[noreturn]] void refuse(const std::string& at, std::string wrong, std::string remedy = {}) const;

 private:
  void check_schema(const SchemaJson& schema, const std::string& at) const;
  void check_keyword(const std::string& keyword, const SchemaJson& value, const std::string& at) const;
  void check_list(const SchemaJson& value, const std::string& at, bool schemas) const;

  std::string name_;
  SchemaJson root_;
};

/// Appends a key or index to a JSON pointer (RFC 6901).
std::string pointer_to(const std::string& at, std::string_view key);

}  // namespace tessera::grammar
