// SPDX-License-Identifier: Apache-2.0
// A pushdown automaton over bytes: one nondeterministic automaton for each rule of a grammar, in which a rule can call
// other rules. Characters are translated to the bytes of their UTF-8 form.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/grammar/expression.h"

namespace tessera::grammar {

/// The index of a node in Automaton::nodes.
using NodeId = std::uint32_t;

inline constexpr NodeId end_node = 0;  ///< the end of every rule

/// A transition of a `bytes` node: any byte from `first` to `last` leads to the node `to`.
struct ByteEdge {
  std::uint8_t first, last;
  NodeId to;
};

/// A node of the automaton.
struct Node {
  enum class Kind : std::uint8_t {
    end,    ///< returns to the node after the call of the rule
    bytes,  ///< reads a byte: `edges[first]` to `edges[last - 1]`
    split,  ///< continues at each of `targets[first]` to `targets[last - 1]`, without reading
    call,   ///< calls the rule `first` and continues at the node `last`
  };
  Kind kind;
  std::uint32_t first = 0, last = 0;
};

/// An immutable automaton. From every node, the end of the rule can be reached.
struct Automaton {
  std::vector<Node> nodes;
  std::vector<ByteEdge> edges;
  std::vector<NodeId> targets;
  std::vector<NodeId> starts;  ///< the first node of each rule
  std::vector<bool> nullable;  ///< for each rule: it matches the empty text
  std::vector<std::uint32_t>
      rank;                ///< if a rule can begin with a call of another rule, the other one has a higher rank
  std::uint32_t root = 0;  ///< the rule of the whole text
  std::array<std::uint8_t, 256> byte_class;  ///< bytes of the same class have the same transitions everywhere
  std::uint32_t classes = 0;                 ///< number of classes

  std::span<const ByteEdge> edges_of(const Node& n) const { return {edges.data() + n.first, edges.data() + n.last}; }
  std::span<const NodeId> targets_of(const Node& n) const {
    return {targets.data() + n.first, targets.data() + n.last};
  }
};

/// Builds the automaton of a grammar. Error messages call it `name`. Throws FormatError if it exceeds a limit, if no
/// text matches the root rule, or if a rule is left-recursive: if it can begin with a call of itself.
Automaton build_automaton(const Rules& rules, std::string_view name);

/// Removes the nodes from which no end can be reached, and computes `nullable`, `rank` and `byte_class`. Throws the
/// last two errors of build_automaton.
void finish_automaton(Automaton& automaton, const Rules& rules, std::string_view name);

}  // namespace tessera::grammar
