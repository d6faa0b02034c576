// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/grammar.h"

#include "tessera/llm/grammar/automaton.h"
#include "tessera/llm/grammar/gbnf.h"
#include "tessera/llm/grammar/json_schema.h"

namespace tessera {

using grammar::Automaton;

Grammar::Grammar(std::unique_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {}
Grammar::~Grammar() = default;

std::shared_ptr<const Grammar> Grammar::of(const grammar::Rules& rules, const std::string& name) {
  return std::shared_ptr<const Grammar>(
      new Grammar(std::make_unique<const Automaton>(grammar::build_automaton(rules, name))));
}

std::shared_ptr<const Grammar> Grammar::from_gbnf(std::string_view text, const std::string& name) {
  return of(grammar::parse_gbnf(text, name), name);
}

std::shared_ptr<const Grammar> Grammar::from_json_schema(std::string_view schema, const std::string& name) {
  return of(grammar::rules_of_schema(schema, name), name);
}

std::shared_ptr<const Grammar> Grammar::json_object() { return of(grammar::json_object_rules(), "JSON object"); }

}  // namespace tessera
