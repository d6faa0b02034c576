// SPDX-License-Identifier: Apache-2.0
// Translates the parts of a JSON schema to expressions. Internal to json_schema.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/llm/grammar/json_text.h"
#include "tessera/llm/grammar/schema_document.h"
#include "tessera/llm/grammar/schema_merge.h"

namespace tessera::grammar {

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const SchemaDocument& document) : document_(document), merger_(document) {}
  /// Translates the whole document.
  Rules compile();

 private:
  Expression compile_schema(const SchemaJson& schema, const std::string& at);
  Expression compile_reference(const SchemaJson& schema, const std::string& at);
  Expression compile_alternatives(const SchemaJson& schema, const std::string& keyword, const std::string& at);
  Expression compile_values(const SchemaJson& schema, const std::string& at);
  Expression compile_type(const SchemaJson& schema, const std::string& type, const std::string& at);
  /// Translates the schema as a rule of its own.
  Expression compile_rule(const SchemaJson& schema, const std::string& at);
  void require_disjoint(const std::vector<SchemaJson>& branches, const std::string& at);
  /// Returns the types of the schema: those of `type`, or those that its keywords apply to; empty: all types.
  std::vector<std::string> types_of(const SchemaJson& schema, const std::string& at) const;

  // schema_values.cpp
  Expression compile_string(const SchemaJson& schema, const std::string& at);
  Expression compile_pattern(const SchemaJson& schema, const std::string& at);
  Expression compile_integer(const SchemaJson& schema, const std::string& at);
  Expression compile_number(const SchemaJson& schema, const std::string& at);
  /// Returns the value of a keyword such as minItems, or `missing`.
  std::uint32_t count_of(const SchemaJson& schema, const char* keyword, std::uint32_t missing,
                         const std::string& at) const;
  /// Returns the values of keywords such as minItems and maxItems.
  std::pair<std::uint32_t, std::uint32_t> counts_of(const SchemaJson& schema, const char* min, const char* max,
                                                    const std::string& at) const;

  // schema_structures.cpp
  struct Member {
    Expression text;  ///< key and value
    bool required;
  };
  Expression compile_array(const SchemaJson& schema, const std::string& at);
  Expression compile_object(const SchemaJson& schema, const std::string& at);
  std::vector<Member> members_of(const SchemaJson& schema, const std::string& at);
  Expression following_member(const Member& member);  ///< after a comma; optional if it is not required
  /// Returns the members from number `first` on, each after a comma, and then any number of `more`, if it is not null.
  Expression following_members(const std::vector<Member>& members, std::size_t first, const Expression* more);
  Expression all_members(const std::vector<Member>& members, const Expression* more, const std::string& at);

  const SchemaDocument& document_;
  SchemaMerger merger_;
  JsonRules json_;
  std::unordered_map<std::string, std::uint32_t> references_;               ///< the rules of references
  std::vector<std::pair<std::string, const SchemaJson*>> open_references_;  ///< whose rules have no body yet
  int schemas_ = 0;
};

}  // namespace tessera::grammar
