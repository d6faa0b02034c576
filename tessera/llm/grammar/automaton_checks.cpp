// SPDX-License-Identifier: Apache-2.0
// Properties of the rules of an automaton: which match no text, which match the empty text, and left recursion.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/llm/grammar/automaton.h"

namespace tessera::grammar {
namespace {

/// Returns the nodes from which the end can be reached, without reading bytes if `empty` is true.
std::vector<bool> nodes_that_end(const Automaton& a, bool empty) {
  // A node is found when the end is reached from one of its successors. A call also requires that the rule can end.
  std::vector<std::vector<NodeId>> before(a.nodes.size()), callers(a.starts.size());
  std::vector<std::vector<std::uint32_t>> rules_of_start(a.nodes.size());
  for (NodeId id = 0; id < a.nodes.size(); ++id) {
    const Node& n = a.nodes[id];
    if (n.kind == Node::Kind::bytes && !empty)
      for (const ByteEdge& e : a.edges_of(n)) before[e.to].push_back(id);
    if (n.kind == Node::Kind::split)
      for (const NodeId to : a.targets_of(n)) before[to].push_back(id);
    if (n.kind == Node::Kind::call) before[n.last].push_back(id), callers[n.first].push_back(id);
  }
  for (std::uint32_t r = 0; r < a.starts.size(); ++r) rules_of_start[a.starts[r]].push_back(r);
  std::vector<bool> found(a.nodes.size());
  std::vector<NodeId> work;
  const auto find = [&](NodeId id) {
    const Node& n = a.nodes[id];
    if (found[id] || (n.kind == Node::Kind::call && (!found[a.starts[n.first]] || !found[n.last]))) return;
    found[id] = true;
    work.push_back(id);
  };
  find(end_node);
  while (!work.empty()) {
    const NodeId id = work.back();
    work.pop_back();
    for (const NodeId other : before[id]) find(other);
    for (const std::uint32_t r : rules_of_start[id])
      for (const NodeId other : callers[r]) find(other);
  }
  return found;
}

/// Removes edges and targets that lead to nodes outside `good`.
void prune(Automaton& a, const std::vector<bool>& good) {
  std::vector<ByteEdge> edges;
  std::vector<NodeId> targets;
  for (NodeId id = 0; id < a.nodes.size(); ++id) {
    Node& n = a.nodes[id];
    if (n.kind == Node::Kind::bytes) {
      const auto first = static_cast<std::uint32_t>(edges.size());
      for (const ByteEdge& e : a.edges_of(n))
        if (good[e.to]) edges.push_back(e);
      n.first = first, n.last = static_cast<std::uint32_t>(edges.size());
    } else if (n.kind == Node::Kind::split) {
      const auto first = static_cast<std::uint32_t>(targets.size());
      for (const NodeId to : a.targets_of(n))
        if (good[to]) targets.push_back(to);
      n.first = first, n.last = static_cast<std::uint32_t>(targets.size());
    } else if (n.kind == Node::Kind::call && !good[id]) {
      n = {Node::Kind::split};  // not reached
    }
  }
  a.edges = std::move(edges);
  a.targets = std::move(targets);
}

/// Returns, for each rule, the rules that can be called before a byte is read.
std::vector<std::vector<std::uint32_t>> first_calls(const Automaton& a) {
  std::vector<std::vector<std::uint32_t>> out(a.starts.size());
  std::vector<std::uint32_t> seen(a.nodes.size(), UINT32_MAX);
  std::vector<NodeId> work;
  for (std::uint32_t r = 0; r < a.starts.size(); ++r) {
    const auto visit = [&](NodeId id) {
      if (std::exchange(seen[id], r) != r) work.push_back(id);
    };
    visit(a.starts[r]);
    while (!work.empty()) {
      const Node n = a.nodes[work.back()];
      work.pop_back();
      if (n.kind == Node::Kind::split)
        for (const NodeId to : a.targets_of(n)) visit(to);
      if (n.kind != Node::Kind::call) continue;
      out[r].push_back(n.first);
      if (a.nullable[n.first]) visit(n.last);
    }
    std::ranges::sort(out[r]);
    out[r].erase(std::ranges::unique(out[r]).begin(), out[r].end());
  }
  return out;
}

[[noreturn]] void refuse_cycle(std::span<const std::uint32_t> path, std::uint32_t again, const Rules& rules,
                               std::string_view name) {
  std::string cycle;
  for (std::size_t i = static_cast<std::size_t>(std::ranges::find(path, again) - path.begin()); i < path.size(); ++i) {
    cycle += rules.rules[path[i]].name + " -> ";
    if (cycle.size() > 1000) cycle += "... -> ", i = path.size() - 1;
  }
  fail<FormatError>({.operation = "grammar",
                     .with = {{"file", std::string(name)}, {"cycle", cycle + rules.rules[again].name}},
                     .wrong = "a rule is left-recursive: it can begin with itself, before any character",
                     .remedy = "Use a repetition such as (...)*, or let the rule begin with something else"});
}

/// Sets `rank` to a topological order. Throws if the calls are cyclic.
void rank_rules(Automaton& a, const Rules& rules, std::string_view name) {
  const auto calls = first_calls(a);
  enum : std::uint8_t { unvisited, active, done };
  std::vector<std::uint8_t> state(calls.size(), unvisited);
  a.rank.assign(calls.size(), 0);
  auto next_rank = static_cast<std::uint32_t>(calls.size());
  std::vector<std::uint32_t> path;
  std::vector<std::size_t> at(calls.size());
  for (std::uint32_t r = 0; r < calls.size(); ++r) {
    if (state[r] != unvisited) continue;
    path.push_back(r), state[r] = active;
    while (!path.empty()) {
      const std::uint32_t top = path.back();
      if (at[top] == calls[top].size()) {
        state[top] = done, a.rank[top] = --next_rank, path.pop_back();
        continue;
      }
      const std::uint32_t called = calls[top][at[top]++];
      if (state[called] == active) refuse_cycle(path, called, rules, name);
      if (state[called] == unvisited) path.push_back(called), state[called] = active;
    }
  }
}

void classify_bytes(Automaton& a) {
  bool starts[257] = {true};  // a class begins at this byte
  for (const ByteEdge& e : a.edges) starts[e.first] = starts[e.last + 1] = true;
  std::uint32_t current = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte > 0 && starts[byte]) ++current;
    a.byte_class[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(current);
  }
  a.classes = current + 1;
}

}  // namespace

void finish_automaton(Automaton& a, const Rules& rules, std::string_view name) {
  const std::vector<bool> good = nodes_that_end(a, false);
  if (!good[a.starts[a.root]])
    fail<FormatError>({.operation = "grammar",
                       .with = {{"file", std::string(name)}, {"rule", rules.rules[a.root].name}},
                       .wrong = "no finite text matches the rule"});
  prune(a, good);
  const std::vector<bool> empty = nodes_that_end(a, true);
  a.nullable.resize(a.starts.size());
  for (std::size_t r = 0; r < a.starts.size(); ++r) a.nullable[r] = empty[a.starts[r]];
  rank_rules(a, rules, name);
  classify_bytes(a);
}

}  // namespace tessera::grammar
