// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/grammar.h"

#include "tessera/llm/grammar/automaton.h"
#include "tessera/llm/grammar/gbnf.h"
#include "tessera/llm/grammar/json_schema.h"
#include "tessera/llm/grammar/states.h"

namespace tessera {

using grammar::Automaton;

Grammar::Grammar(std::unique_ptr<const Automaton> automaton, std::vector<std::string> marks)
    : automaton_(std::move(automaton)), marks_(std::move(marks)) {}
Grammar::~Grammar() = default;

std::shared_ptr<const Grammar> Grammar::from_rules(const grammar::Rules& rules, const std::string& name) {
  return std::shared_ptr<const Grammar>(
      new Grammar(std::make_unique<const Automaton>(grammar::build_automaton(rules, name)), rules.marks));
}

std::shared_ptr<const Grammar> Grammar::from_gbnf(std::string_view text, const std::string& name) {
  return from_rules(grammar::parse_gbnf(text, name), name);
}

std::shared_ptr<const Grammar> Grammar::from_json_schema(std::string_view schema, const std::string& name) {
  return from_rules(grammar::rules_of_schema(schema, name), name);
}

std::shared_ptr<const Grammar> Grammar::json_object() {
  return from_rules(grammar::json_object_rules(), "JSON object");
}

bool Grammar::matches(std::string_view text) const {
  grammar::States states(*automaton_);
  grammar::StateId state = states.start();
  for (const char c : text) state = states.step(state, static_cast<std::uint8_t>(c));
  return states.accepts(state);
}

}  // namespace tessera
