// SPDX-License-Identifier: Apache-2.0
// The rules of a grammar as syntax trees. GBNF and JSON schemas are translated into these rules, which the automaton is
// built from (automaton.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/llm/grammar/code_points.h"

namespace tessera::grammar {

/// Limits of grammars. They bound the time and memory for compiling and running a grammar from an untrusted source.
inline constexpr std::size_t longest_gbnf = std::size_t{1} << 20;     ///< bytes of a grammar's text
inline constexpr std::size_t longest_schema = std::size_t{64} << 10;  ///< bytes of a JSON schema
inline constexpr int deepest_nesting = 100;                           ///< nested groups, or levels of a schema
inline constexpr std::uint32_t most_repetitions = 100'000;            ///< in {m,n}, minLength, maxItems and so on
inline constexpr std::size_t most_nodes = 250'000;                    ///< nodes of an automaton
inline constexpr std::size_t most_items = 20'000;                     ///< alternatives that are followed at a time

inline constexpr std::uint32_t unlimited = UINT32_MAX;  ///< the maximum of a repetition without a limit

/// The first byte of a control token in a text. UTF-8 does not contain it, so a control token never matches characters.
inline constexpr std::uint8_t mark_byte = 0xFF;

/// A part of a rule. The nesting of expressions is bounded by `deepest_nesting` times a small constant.
struct Expression {
  enum class Kind : std::uint8_t {
    literal,     ///< the bytes of `text`
    characters,  ///< one character of `set`
    sequence,    ///< all children, in order; empty text if there are none
    choice,      ///< one of the children; nothing matches if there are none
    repeat,      ///< the only child, `min` to `max` times
    rule,        ///< the rule with the index `index`
  };
  Kind kind = Kind::sequence;
  std::string text = {};
  CodePointSet set = {};
  std::vector<Expression> children = {};
  std::uint32_t min = 0, max = 0;
  std::uint32_t index = 0;
};

inline Expression literal(std::string_view text) {
  return {.kind = Expression::Kind::literal, .text = std::string(text)};
}
inline Expression characters(CodePointSet set) { return {.kind = Expression::Kind::characters, .set = std::move(set)}; }
inline Expression sequence(std::vector<Expression> children) {
  return {.kind = Expression::Kind::sequence, .children = std::move(children)};
}
inline Expression choice(std::vector<Expression> children) {
  if (children.size() == 1) return std::move(children.front());
  return {.kind = Expression::Kind::choice, .children = std::move(children)};
}
inline Expression repeat(Expression child, std::uint32_t min, std::uint32_t max) {
  Expression e{.kind = Expression::Kind::repeat, .min = min, .max = max};
  e.children.push_back(std::move(child));
  return e;
}
inline Expression optional(Expression child) { return repeat(std::move(child), 0, 1); }
inline Expression rule(std::uint32_t index) { return {.kind = Expression::Kind::rule, .index = index}; }

/// A named rule.
struct Rule {
  std::string name;
  Expression body;
};

/// All rules of a grammar.
struct Rules {
  std::vector<Rule> rules;
  std::uint32_t root = 0;               ///< index of the rule that a whole text must match
  std::vector<std::string> marks = {};  ///< the texts of control tokens that the rules contain; at most 256
};

/// Returns the bytes that represent the control token with this index in Rules::marks.
inline std::string mark_bytes(std::size_t index) {
  return {static_cast<char>(mark_byte), static_cast<char>(static_cast<std::uint8_t>(index))};
}

}  // namespace tessera::grammar
