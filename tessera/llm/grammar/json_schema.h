// SPDX-License-Identifier: Apache-2.0
// Translates a JSON schema (draft 2020-12) to rules. The keywords are listed in docs/llm.md; every other keyword is an
// error.
#pragma once

#include <string_view>

#include "tessera/llm/grammar/expression.h"

namespace tessera::grammar {

/// Returns rules whose texts are documents that are valid against the schema. Throws the errors of
/// Grammar::from_json_schema, except for those of the automaton.
Rules rules_of_schema(std::string_view schema, std::string_view name);

/// Returns the rules of all JSON objects.
Rules json_object_rules();

}  // namespace tessera::grammar
