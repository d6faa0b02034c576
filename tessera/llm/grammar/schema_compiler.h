// SPDX-License-Identifier: Apache-2.0
// Translates the parts of a JSON schema to expressions. Internal to json_schema.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/llm/grammar/json_schema.h"
#include "tessera/llm/grammar/json_text.h"
#include "tessera/llm/grammar/schema_document.h"
#include "tessera/llm/grammar/schema_merge.h"

namespace tessera::grammar {

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const SchemaDocument& document) : document_(document), merger_(document) {}
  /// Translates the whole document.
  Rules compile();
  /// Translates the whole document, whose values are objects in another notation.
  Rules compile_members(const MemberSyntax& syntax);

 private:
  /// Translates the schemas of all references, and the schemas that these refer to.
  Rules compile_references(std::uint32_t root);
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
  /// Returns the declared and required members of an object, as JSON if `syntax` is null.
  std::vector<Member> members_of(const SchemaJson& schema, const std::string& at, const MemberSyntax* syntax = nullptr);
  /// Throws FormatError if a name cannot be written without quotation marks.
  void require_plain_name(const std::string& name, const std::string& at) const;
  /// Returns the member after a comma. It is optional if it is not required.
  Expression following_member(const Member& member, const Expression& comma);
  /// Returns the members from number `first` on, each after a comma, and then any number of `more`, if it is not null.
  Expression following_members(const std::vector<Member>& members, std::size_t first, const Expression* more,
                               const Expression& comma);
  Expression all_members(const std::vector<Member>& members, const Expression* more, const Expression& comma,
                         const std::string& at);
  /// Translates an object in another notation. `schema` is flat (SchemaMerger::flatten).
  Expression compile_object_in(const SchemaJson& schema, const MemberSyntax& syntax);

  const SchemaDocument& document_;
  SchemaMerger merger_;
  JsonRules json_;
  std::unordered_map<std::string, std::uint32_t> references_;               ///< the rules of references
  std::vector<std::pair<std::string, const SchemaJson*>> open_references_;  ///< whose rules have no body yet
  int schemas_ = 0;
};

}  // namespace tessera::grammar
