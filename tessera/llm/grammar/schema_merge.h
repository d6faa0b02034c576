// SPDX-License-Identifier: Apache-2.0
// Combines schemas that must hold at the same time, and detects schemas that cannot hold at the same time.
#pragma once

#include <string>

#include "tessera/llm/grammar/schema_document.h"

namespace tessera::grammar {

/// Combines and compares schemas of one document. The work is limited, so hostile schemas are rejected quickly.
class SchemaMerger {
 public:
  explicit SchemaMerger(const SchemaDocument& document) : document_(document) {}

  /// Returns a schema that is valid for a value if `a` and `b` are. It has neither `allOf` nor `const`, and has no
  /// `$ref` unless it is the only keyword. Throws FormatError, at the pointer `at`, if the schemas cannot be combined.
  SchemaJson merge(const SchemaJson& a, const SchemaJson& b, const std::string& at);
  /// Returns an equivalent schema in the form that merge() returns, also without `$ref`.
  SchemaJson flatten(const SchemaJson& schema, const std::string& at);
  /// True if it is certain that no value is valid for both schemas.
  bool are_disjoint(const SchemaJson& a, const SchemaJson& b, const std::string& at, int depth = 0);

 private:
  void count(const std::string& at);  ///< Limits the number of merged schemas.
  SchemaJson merge_flat(SchemaJson a, const SchemaJson& b, const std::string& at);
  void merge_keyword(SchemaJson& a, const std::string& keyword, const SchemaJson& value, const std::string& at);
  bool have_disjoint_members(const SchemaJson& a, const SchemaJson& b, const std::string& at, int depth);

  const SchemaDocument& document_;
  int merges_ = 0;
  int depth_ = 0;
};

/// True if a value of this type ("integer", ...) is described by `type` or by an element of the list `type`.
bool has_type(const SchemaJson& type, std::string_view name);
/// True if the JSON value has the type or one of the types in the list.
bool value_has_type(const SchemaJson& value, const SchemaJson& type);

}  // namespace tessera::grammar
