// SPDX-License-Identifier: Apache-2.0
// Translates a JSON schema (draft 2020-12) to rules. The keywords are listed in docs/llm.md; every other keyword is an
// error.
#pragma once

#include <string>
#include <string_view>

#include "tessera/llm/grammar/expression.h"

namespace tessera::grammar {

/// Returns rules whose texts are documents that are valid against the schema. Throws the errors of
/// Grammar::from_json_schema, except for those of the automaton.
Rules rules_of_schema(std::string_view schema, std::string_view name);

/// A notation for the members of an object other than JSON. The values are JSON.
struct MemberSyntax {
  std::string empty = {};    ///< an object without members
  std::string open = {};     ///< before the first name
  std::string between = {};  ///< between a name and its value
  std::string next = {};     ///< between a value and the next name
  std::string close = {};    ///< after the last value
};

/// Returns rules whose texts are objects in another notation that are valid against the schema. Members that the schema
/// neither declares nor requires are not generated. Throws the errors of rules_of_schema, also for anyOf, oneOf, enum
/// and const at the root, and for names that contain angle brackets, line breaks, or spaces at their ends.
Rules rules_of_members(std::string_view schema, std::string_view name, const MemberSyntax& syntax);

/// Returns the rules of all JSON objects.
Rules json_object_rules();

}  // namespace tessera::grammar
