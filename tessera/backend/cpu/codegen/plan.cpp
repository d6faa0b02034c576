// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/codegen/plan.h"

#include <algorithm>

namespace tessera::cpu {

using namespace ir;

namespace {

constexpr std::size_t nowhere = ~std::size_t{0};
constexpr int cheap = 8;  // recomputing up to this many pure nodes is cheaper than storing a value

class Planner {
 public:
  Planner(const Function& fn, const Analysis& a) : fn_(fn), a_(a) {
    const std::size_t n = fn.nodes.size();
    plan_.spilled.resize(n), plan_.places.assign(n, LocalPlace::region);
    home_.assign(n, nowhere), pending_.resize(n), once_.resize(n);
    first_region_.assign(n, nowhere), several_.resize(n);
  }

  Plan run() {
    plan_.steps = list(0, false);
    place_locals();
    for (std::size_t r = 0; r < plan_.regions.size(); ++r) connect(r);
    for (NodeId id : scalars_)
      if (!once_[id] && !is_leaf(fn_[id].op)) spill(id);
    return std::move(plan_);
  }

 private:
  // Calls f for the statement itself and for every node that it reads or contains.
  template <class F>
  void each_inside(NodeId id, F&& f) const {
    const Node& n = fn_[id];
    f(id);
    for (NodeId a : operands(n)) f(a);
    for_each_nested(n, [&](BlockId b) {
      for (NodeId inner : fn_.blocks[b]) each_inside(inner, f);
    });
  }
  bool waits(NodeId id) const {
    bool found = false;
    each_inside(id, [&](NodeId used) { found = found || (used != id && pending_[used]); });
    return found;
  }
  bool reads_inside(const Region& run, NodeId local) const {
    return std::ranges::any_of(run.statements, [&](NodeId id) {
      bool found = false;
      each_inside(id, [&](NodeId used) { found = found || used == local; });
      return found;
    });
  }
  bool private_store(const Node& n) const { return n.op == Op::store && fn_[n.args[0]].op == Op::local; }
  // Returns true if the statement may be moved before pending block operations, because other threads cannot observe
  // it.
  bool harmless(const Node& n) const {
    if (is_pure(n.op) || private_store(n) || is_convergent(n.op)) return true;
    if (!is_load(n.op)) return false;
    const Node& m = fn_[n.args[0]];
    return m.op == Op::local || (m.op == Op::param && fn_.params[m.imm].access == Access::read);
  }

  Steps list(BlockId b, bool in_loop) {
    Steps out;
    Region run;
    std::vector<NodeId> open;  // reductions whose results become available at the end of the region
    auto flush = [&] {
      if (!run.statements.empty()) {
        const std::size_t number = plan_.regions.size();
        for (NodeId id : run.statements) {
          home_[id] = number;
          note_locals(id, number);
        }
        in_loop_.push_back(in_loop);
        plan_.regions.push_back(std::move(run));
        Step s;
        s.kind = Step::region, s.number = number;
        out.push_back(std::move(s));
      }
      for (NodeId id : open) pending_[id] = false;
      open.clear();
      run = Region{};
    };
    auto once = [&](NodeId id) {
      once_[id] = true;
      Step s;
      s.node = id;
      out.push_back(std::move(s));
    };
    for (NodeId id : fn_.blocks[b]) {
      const Node& n = fn_[id];
      if (n.op == Op::barrier) {
        flush();
        continue;
      }
      if (is_control(n.op) && a_.has_barrier[id]) {
        flush();
        for (NodeId used : operands(n)) scalars_.push_back(used);
        Step s;
        s.kind = Step::control, s.node = id;
        const bool loop = in_loop || n.op != Op::if_;
        if (n.op == Op::for_)
          s.first = list(n.extra, loop);
        else if (n.op == Op::while_)
          s.first = list(n.args[1], loop), s.second = list(n.extra, loop);
        else {
          s.first = list(n.args[1], loop);
          if (n.args[2] != no_block) s.second = list(n.args[2], loop);
        }
        out.push_back(std::move(s));
        continue;
      }
      if (!open.empty() && (!harmless(n) || waits(id))) flush();
      if (n.op == Op::block_reduce || n.op == Op::block_uniform) {
        run.statements.push_back(id);
        once_[id] = true;  // the result is a scalar in all later code
        pending_[id] = true;
        open.push_back(id);
        continue;
      }
      const bool value = is_pure(n.op) || is_load(n.op);
      if (value && a_.shapes[id].kind == ShapeKind::uniform && reads_block(n)) {
        once(id);
      } else if (private_store(n) && a_.shapes[n.args[0]].kind == ShapeKind::uniform) {
        if (reads_inside(run, n.args[0])) flush();
        once(id);
      } else {
        run.statements.push_back(id);
      }
    }
    flush();
    return out;
  }
  // Returns true if all operands are known outside the loop over chunks.
  bool reads_block(const Node& n) const {
    return std::ranges::all_of(operands(n), [&](NodeId a) { return a_.shapes[a].kind == ShapeKind::uniform; });
  }

  void note_locals(NodeId id, std::size_t region) {
    each_inside(id, [&](NodeId used) {
      if (fn_[used].op != Op::local) return;
      if (first_region_[used] == nowhere)
        first_region_[used] = region;
      else if (first_region_[used] != region)
        several_[used] = true;
    });
  }
  void place_locals() {
    for (NodeId id = 1; id < fn_.nodes.size(); ++id) {
      if (fn_[id].op != Op::local) continue;
      const bool definite = a_.definite[id];
      if (a_.shapes[id].kind == ShapeKind::uniform) {
        plan_.places[id] = LocalPlace::block;
        if (!definite) plan_.zeroed.push_back(id);
        continue;
      }
      const std::size_t r = first_region_[id];
      if (r == nowhere) continue;
      if (several_[id] || (in_loop_[r] && !definite)) {
        plan_.places[id] = LocalPlace::context;
        if (!definite) plan_.zeroed.push_back(id);
      } else if (!definite) {
        plan_.regions[r].cleared.push_back(id);
      }
    }
    for (std::size_t r = 0; r < plan_.regions.size(); ++r) {
      Region& region = plan_.regions[r];
      auto touch = [&](NodeId local, bool write) {
        if (plan_.places[local] != LocalPlace::context) return;
        auto it = std::ranges::find(region.locals, local);
        if (it == region.locals.end()) {
          region.locals.push_back(local), region.writes.push_back(write);
        } else if (write) {
          region.writes[static_cast<std::size_t>(it - region.locals.begin())] = true;
        }
      };
      for (NodeId id : region.statements)
        each_inside(id, [&](NodeId used) {
          const Node& n = fn_[used];
          if ((is_load(n.op) || n.op == Op::store) && fn_[n.args[0]].op == Op::local)
            touch(n.args[0], n.op == Op::store);
        });
    }
  }

  void spill(NodeId id) { plan_.spilled[id] = true; }

  // Returns the number of pure nodes needed to recompute a value from leaves and block values. The result is larger
  // than `cheap` if the value cannot be recomputed.
  int price(NodeId id, std::size_t region) const {
    const Node& n = fn_[id];
    if (is_leaf(n.op) || once_[id] || plan_.spilled[id] || home_[id] == region) return 0;
    if (!is_pure(n.op) || n.op == Op::math) return cheap + 1;
    if (n.op == Op::binary && (n.kind<BinaryOp>() == BinaryOp::div || n.kind<BinaryOp>() == BinaryOp::rem))
      return cheap + 1;
    int sum = 1;
    for (NodeId a : operands(n)) {
      sum += price(a, region);
      if (sum > cheap) break;
    }
    return sum;
  }

  void connect(std::size_t r) {
    std::vector<NodeId> used;
    for (NodeId id : plan_.regions[r].statements) each_inside(id, [&](NodeId u) { used.push_back(u); });
    std::ranges::sort(used);
    used.erase(std::unique(used.begin(), used.end()), used.end());
    std::vector<NodeId> needed, reloaded;
    for (NodeId id : used) fetch(id, r, needed, reloaded);
    std::ranges::sort(needed);
    plan_.regions[r].needed = std::move(needed);
    plan_.regions[r].reloaded = std::move(reloaded);
  }
  void fetch(NodeId id, std::size_t r, std::vector<NodeId>& needed, std::vector<NodeId>& reloaded) {
    const Node& n = fn_[id];
    // A node without a home region is a leaf, belongs to the block, or is nested in a statement of this region.
    if (is_leaf(n.op) || once_[id] || home_[id] == nowhere || home_[id] == r) return;
    if (std::ranges::find(needed, id) != needed.end() || std::ranges::find(reloaded, id) != reloaded.end()) return;
    if (!plan_.spilled[id] && price(id, r) > cheap) spill(id);
    if (plan_.spilled[id]) {
      reloaded.push_back(id);
      return;
    }
    for (NodeId a : operands(n)) fetch(a, r, needed, reloaded);
    needed.push_back(id);
  }

  const Function& fn_;
  const Analysis& a_;
  Plan plan_;
  std::vector<std::size_t> home_;  // by node: the region that a statement belongs to
  std::vector<std::size_t> first_region_;
  std::vector<bool> pending_, once_, several_, in_loop_;
  std::vector<NodeId> scalars_;
};

}  // namespace

Plan make_plan(const Function& fn, const Analysis& analysis) { return Planner(fn, analysis).run(); }

}  // namespace tessera::cpu
