// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/codegen/access.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace tessera::cpu {

using namespace ir;

namespace {

// A linear combination of node values plus a constant. It is computed modulo 2^64, like the index.
struct Sum {
  std::map<NodeId, std::int64_t> terms;
  std::int64_t constant = 0;
};

class Finder {
 public:
  Finder(const Function& fn, const Analysis& analysis) : fn_(fn), analysis_(analysis) {
    out_.places.resize(fn.nodes.size());
  }
  Accesses run() {
    for (BlockId b = 0; b < fn_.blocks.size(); ++b) list(b);
    return std::move(out_);
  }

 private:
  bool constant(NodeId id, std::int64_t& value) const {
    value = static_cast<std::int64_t>(fn_[id].imm);
    return fn_[id].op == Op::constant;
  }
  // Adds `times` * (the value of a node) to `sum`. Returns false if this takes too many steps or a factor is too large.
  bool add(Sum& sum, NodeId id, std::int64_t times, int& steps) const {
    const Node& n = fn_[id];
    std::int64_t c = 0;
    if (--steps < 0 || times > (1 << 30) || times < -(1 << 30)) return false;
    if (constant(id, c)) {
      if (c > (1 << 30) || c < -(1 << 30)) return false;
      sum.constant += times * c;
      return true;
    }
    if (n.op == Op::unary && n.kind<UnaryOp>() == UnaryOp::neg) return add(sum, n.args[0], -times, steps);
    if (n.op == Op::binary) {
      switch (n.kind<BinaryOp>()) {
        case BinaryOp::add: return add(sum, n.args[0], times, steps) && add(sum, n.args[1], times, steps);
        case BinaryOp::sub: return add(sum, n.args[0], times, steps) && add(sum, n.args[1], -times, steps);
        case BinaryOp::mul:
          if (constant(n.args[1], c) && c < (1 << 30) && c > -(1 << 30)) return add(sum, n.args[0], times * c, steps);
          if (constant(n.args[0], c) && c < (1 << 30) && c > -(1 << 30)) return add(sum, n.args[1], times * c, steps);
          break;
        case BinaryOp::shl:
          if (constant(n.args[1], c) && c >= 0 && c < 30) return add(sum, n.args[0], times << c, steps);
          break;
        default: break;
      }
    }
    sum.terms[id] += times;
    return true;
  }

  void list(BlockId b) {
    using Key = std::tuple<NodeId, std::int64_t, NodeId, std::vector<std::pair<NodeId, std::int64_t>>>;
    struct Family {
      std::uint32_t number;
      std::vector<NodeId> loads, stores;
    };
    std::map<Key, Family> families;
    for (NodeId id : fn_.blocks[b]) {
      const Node& n = fn_[id];
      if ((!is_load(n.op) && n.op != Op::store) || fn_[n.args[0]].op == Op::local) continue;
      const Shape shape = analysis_.shapes[n.args[1]];
      if (shape.kind != ShapeKind::linear) continue;
      if (shape.by ? n.op != Op::store : shape.stride == 1 || std::abs(shape.stride) > most_stride) continue;
      Sum sum;
      int steps = 48;
      if (!add(sum, n.args[1], 1, steps)) sum = {{{n.args[1], 1}}, 0};
      Key key{n.args[0], shape.stride, shape.by, {}};
      for (const auto& term : sum.terms)
        if (term.second != 0) std::get<3>(key).push_back(term);
      auto [it, fresh] = families.try_emplace(std::move(key), Family{});
      if (fresh) it->second.number = families_++;
      out_.places[id].family = it->second.number;
      out_.places[id].constant = sum.constant;
      if (n.op == Op::load_if)
        window({&id, 1}, std::abs(shape.stride));  // a conditional load has its own mask, so it gets its own window
      else
        (n.op == Op::load ? it->second.loads : it->second.stores).push_back(id);
    }
    for (auto& [key, family] : families) {
      const bool rows = std::get<2>(key) != no_node;
      const std::int64_t stride = rows ? row_part : std::abs(std::get<1>(key));
      window(family.loads, stride);
      window(family.stores, stride);
      for (NodeId id : family.stores)
        if (std::uint32_t& w = out_.places[id].window; rows && out_.windows[w].members != row_part) w = Place::none;
    }
  }

  // Splits the accesses of a family into windows that are shorter than the stride.
  void window(std::span<const NodeId> ids, std::int64_t stride) {
    std::vector<NodeId> sorted(ids.begin(), ids.end());
    std::ranges::stable_sort(sorted, {}, [&](NodeId id) { return out_.places[id].constant; });
    for (NodeId id : sorted) {
      Place& place = out_.places[id];
      const bool fits = id != sorted[0] && place.constant < out_.windows.back().low + stride;
      if (!fits) out_.windows.push_back({place.constant, place.constant, 1});
      Window& w = out_.windows.back();
      if (place.constant != w.high) ++w.members;
      w.high = place.constant;
      place.window = static_cast<std::uint32_t>(out_.windows.size() - 1);
    }
  }

  const Function& fn_;
  const Analysis& analysis_;
  Accesses out_;
  std::uint32_t families_ = 0;
};

}  // namespace

Accesses find_accesses(const Function& fn, const Analysis& analysis) { return Finder(fn, analysis).run(); }

}  // namespace tessera::cpu
