// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/grammar.h"

#include "tessera/llm/grammar/automaton.h"
#include "tessera/llm/grammar/gbnf.h"

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

}  // namespace tessera
