// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/grammar/automaton.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::grammar {
namespace {

constexpr std::size_t most_steps = 4'000'000;    // bounds the time for repetitions of expressions without nodes
constexpr std::uint32_t inlined_size = 48;       // maximum number of nodes of a rule that is copied into its callers
constexpr std::uint32_t too_large = UINT32_MAX;  // size of rules that are not inlined
constexpr int inlined_depth = 6;

/// Estimates the number of nodes of finite expressions.
class Sizes {
 public:
  explicit Sizes(const Rules& rules) : of_rule(rules.rules.size(), too_large) {
    for (int pass = 0; pass < inlined_depth; ++pass)
      for (std::size_t i = 0; i < of_rule.size(); ++i) of_rule[i] = size(rules.rules[i].body);
  }
  std::vector<std::uint32_t> of_rule;

 private:
  std::uint32_t size(const Expression& e) const {
    switch (e.kind) {
      case Expression::Kind::literal: return bounded(e.text.size());
      case Expression::Kind::characters: return e.set.ranges().empty() || e.set.ranges().back().last < 0x80 ? 1 : 8;
      case Expression::Kind::rule: return of_rule[e.index];
      default: break;
    }
    std::uint64_t sum = 1;
    for (const Expression& child : e.children) {
      const std::uint32_t n = size(child);
      if (n == too_large) return too_large;
      sum += n;
    }
    return e.kind == Expression::Kind::repeat ? (e.max == unlimited ? too_large : bounded(sum * e.max)) : bounded(sum);
  }
  static std::uint32_t bounded(std::uint64_t n) { return n > inlined_size ? too_large : static_cast<std::uint32_t>(n); }
};

/// Builds nodes from the end of a rule to its beginning.
class Builder {
 public:
  Builder(const Rules& rules, std::string_view name) : rules_(rules), name_(name), sizes_(rules) {
    out_.nodes.push_back({Node::Kind::end});
  }

  Automaton build() {
    out_.root = rules_.root;
    for (const Rule& r : rules_.rules) {
      rule_ = &r;
      out_.starts.push_back(node(r.body, end_node));
    }
    return std::move(out_);
  }

 private:
  NodeId node(const Expression& e, NodeId next) {
    count();
    switch (e.kind) {
      case Expression::Kind::literal:
        for (std::size_t i = e.text.size(); i-- > 0;) {
          const auto byte = static_cast<std::uint8_t>(e.text[i]);
          next = bytes({{byte, byte, next}});
        }
        return next;
      case Expression::Kind::characters: return utf8(e.set, next);
      case Expression::Kind::sequence:
        for (std::size_t i = e.children.size(); i-- > 0;) next = node(e.children[i], next);
        return next;
      case Expression::Kind::choice: {
        std::vector<NodeId> targets;
        for (const Expression& child : e.children) targets.push_back(node(child, next));
        return split(targets);
      }
      case Expression::Kind::repeat: return repeated(e, next);
      default: return called(e.index, next);
    }
  }

  NodeId called(std::uint32_t index, NodeId next) {
    if (sizes_.of_rule[index] == too_large || depth_ == inlined_depth) return add({Node::Kind::call, index, next});
    ++depth_;
    const NodeId inlined = node(rules_.rules[index].body, next);
    --depth_;
    return inlined;
  }

  NodeId repeated(const Expression& e, NodeId next) {
    const Expression& child = e.children.front();
    std::uint32_t copies = e.min;
    NodeId at = next;
    if (e.max == unlimited) {
      const NodeId loop = add({Node::Kind::split});
      const NodeId body = node(child, loop);
      set_targets(loop, {body, next});
      at = copies > 0 ? body : loop;
      if (copies > 0) --copies;
    } else {
      for (std::uint32_t i = e.min; i < e.max; ++i) at = split({node(child, at), next});
    }
    for (; copies > 0; --copies) at = node(child, at);
    return at;
  }

  NodeId utf8(const CodePointSet& set, NodeId next) {
    // The first byte of a character of 2, 3 or 4 bytes has these leading bits, and each following byte has 6 bits.
    static constexpr struct {
      char32_t first, last;
      std::uint8_t lead;
      int following;
    } lengths[] = {{0, 0x7F, 0, 0}, {0x80, 0x7FF, 0xC0, 1}, {0x800, 0xFFFF, 0xE0, 2}, {0x10000, 0x10FFFF, 0xF0, 3}};
    NodeId rest[4] = {next, 0, 0, 0};  // any 0 to 3 following bytes
    std::vector<ByteEdge> edges;
    for (const auto& length : lengths) {
      const auto part = set.intersection(CodePointSet({{length.first, length.last}}));
      add_edges(part.ranges(), length.following, length.lead, rest, edges);
    }
    return bytes(edges);
  }

  /// Adds the edges of the byte before `following` other bytes, for the values in `ranges`.
  void add_edges(const std::vector<CodePointRange>& ranges, int following, std::uint8_t marker, NodeId (&rest)[4],
                 std::vector<ByteEdge>& edges) {
    const int shift = 6 * following;
    const char32_t low = (char32_t{1} << shift) - 1;
    char32_t partial = 0;               // a value of this byte with which only some of the following bytes are allowed
    std::vector<CodePointRange> below;  // the values of these following bytes
    const auto flush = [&] {
      if (below.empty()) return;
      std::vector<ByteEdge> inner;
      add_edges(below, following - 1, 0x80, rest, inner);
      edges.push_back(edge(marker, partial, partial, bytes(inner)));
      below.clear();
    };
    for (const CodePointRange& r : ranges)
      for (char32_t at = r.first; at <= r.last;) {
        const char32_t high = at >> shift, end = (high << shift) | low;
        if ((at & low) == 0 && end <= r.last) {
          const char32_t last = ((r.last + 1) >> shift) - 1;
          edges.push_back(edge(marker, high, last, following_bytes(following, rest)));
          at = (last + 1) << shift;
          continue;
        }
        if (partial != high) flush();
        partial = high;
        below.push_back({at & low, std::min(r.last, end) & low});
        at = std::min(r.last, end) + 1;
      }
    flush();
  }

  static ByteEdge edge(std::uint8_t marker, char32_t first, char32_t last, NodeId to) {
    return {static_cast<std::uint8_t>(marker | first), static_cast<std::uint8_t>(marker | last), to};
  }

  NodeId following_bytes(int count, NodeId (&rest)[4]) {
    for (int i = 1; i <= count; ++i)
      if (rest[i] == 0) rest[i] = bytes({{0x80, 0xBF, rest[i - 1]}});
    return rest[count];
  }

  NodeId bytes(const std::vector<ByteEdge>& edges) {
    const auto first = static_cast<std::uint32_t>(out_.edges.size());
    out_.edges.insert(out_.edges.end(), edges.begin(), edges.end());
    return add({Node::Kind::bytes, first, static_cast<std::uint32_t>(out_.edges.size())});
  }
  NodeId split(const std::vector<NodeId>& targets) {
    const NodeId id = add({Node::Kind::split});
    set_targets(id, targets);
    return id;
  }
  void set_targets(NodeId id, const std::vector<NodeId>& targets) {
    out_.nodes[id].first = static_cast<std::uint32_t>(out_.targets.size());
    out_.targets.insert(out_.targets.end(), targets.begin(), targets.end());
    out_.nodes[id].last = static_cast<std::uint32_t>(out_.targets.size());
  }
  NodeId add(Node n) {
    count();
    if (out_.nodes.size() == most_nodes) refuse();
    out_.nodes.push_back(n);
    return static_cast<NodeId>(out_.nodes.size() - 1);
  }
  void count() {
    if (++steps_ > most_steps) refuse();
  }
  [[noreturn]] void refuse() const {
    fail<FormatError>({.operation = "grammar",
                       .with = {{"file", std::string(name_)},
                                {"rule", rule_->name},
                                {"maximum number of states", std::to_string(most_nodes)}},
                       .wrong = "the grammar is too large",
                       .remedy = "Use fewer or smaller repetitions, such as maxLength, maxItems or {m,n}"});
  }

  const Rules& rules_;
  std::string_view name_;
  Sizes sizes_;
  Automaton out_;
  const Rule* rule_ = nullptr;
  std::size_t steps_ = 0;
  int depth_ = 0;
};

}  // namespace

Automaton build_automaton(const Rules& rules, std::string_view name) {
  Automaton out = Builder(rules, name).build();
  finish_automaton(out, rules, name);
  return out;
}

}  // namespace tessera::grammar
