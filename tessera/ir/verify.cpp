// SPDX-License-Identifier: Apache-2.0
// The rules that cannot be checked while a kernel is traced, because they need the whole of it.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/builder.h"

namespace tessera::ir {

namespace {

class Verifier {
 public:
  explicit Verifier(const Function& fn) : fn_(fn), uniform_(uniform_values(fn)), visible_(fn.nodes.size()) {
    if (std::ranges::any_of(fn.nodes, [](const Node& n) { return n.op == Op::mma; }))
      uniform_in_subgroup_ = uniform_values(fn, Together::subgroup);
  }

  void run() { block(0, {}); }

 private:
  /// The innermost control statements around, if any, that threads of one block, and of one subgroup, may pass
  /// differently. Of subgroups only functions with matrix operations are asked.
  struct Divergence {
    NodeId block = no_node, subgroup = no_node;
  };
  Divergence inside(Divergence outer, NodeId control, std::initializer_list<NodeId> deciding) const {
    for (NodeId d : deciding) {
      if (!outer.block && !uniform_[d]) outer.block = control;
      if (!outer.subgroup && !uniform_in_subgroup_.empty() && !uniform_in_subgroup_[d]) outer.subgroup = control;
    }
    return outer;
  }
  [[noreturn]] void wrong(NodeId id, const std::string& what, const std::string& todo) const {
    const std::string where = to_string(fn_.sources[id]);
    fail<KernelError>({.asked = where.empty() ? "kernel " + fn_.name : "kernel " + fn_.name + ", " + where,
                       .wrong = what,
                       .todo = todo});
  }
  void check_operands(NodeId id) const {
    for (NodeId a : operands(fn_[id])) {
      check_visible(id, a);
      if (is_fragment(fn_[a]) && fn_[id].op != Op::mma)
        wrong(id,
              "local" + std::to_string(fn_[a].extra) + " is a matrix over a subgroup, and " +
                  std::string(op_name(fn_[id].op)) + " takes what belongs to one thread",
              "Store the matrix to shared memory, and read that after a barrier");
    }
  }
  void check_visible(NodeId user, NodeId a) const {
    const Node& n = fn_[a];
    const bool counter = n.op == Op::index && n.kind<IndexKind>() == IndexKind::counter;
    if ((is_leaf(n.op) && !counter) || visible_[a]) return;
    wrong(user,
          counter ? "a loop counter is used outside of its for_"
                  : "a value read inside an if_, for_ or while_ is used outside of it",
          "Keep it in a Var that is declared before");
  }
  void block(BlockId b, Divergence divergence) {
    std::vector<NodeId> mine;
    auto show = [&](NodeId id) { visible_[id] = true, mine.push_back(id); };
    for (NodeId id : fn_.blocks[b]) {
      const Node& n = fn_[id];
      if (n.op != Op::while_) check_operands(id);
      if (is_convergent(n.op) || n.op == Op::barrier) check_convergent(id, divergence);
      if (n.op == Op::if_) {
        const Divergence inner = inside(divergence, id, {n.args[0]});
        for_each_nested(n, [&](BlockId nested) { block(nested, inner); });
      } else if (n.op == Op::for_) {
        visible_[n.args[3]] = true;
        block(n.extra, inside(divergence, id, {n.args[0], n.args[1], n.args[2]}));
        visible_[n.args[3]] = false;
      } else if (n.op == Op::while_) {
        const Divergence inner = inside(divergence, id, {n.args[0]});
        // The condition may use what its own block made, so that block is looked through as part of this one.
        const std::vector<bool> before = visible_;
        for (NodeId c : fn_.blocks[n.args[1]]) show_nested(c, inner);
        check_visible(id, n.args[0]);
        visible_ = before;
        block(n.extra, inner);
      }
      show(id);
    }
    for (NodeId id : mine) visible_[id] = false;
  }
  void show_nested(NodeId id, Divergence divergence) {
    const Node& n = fn_[id];
    if (is_control(n.op))
      wrong(id, "the condition of while_ holds control statements", "Compute it in the body and keep it in a Var");
    check_operands(id);
    if (is_convergent(n.op) || n.op == Op::barrier) check_convergent(id, divergence);
    visible_[id] = true;
  }
  void check_convergent(NodeId id, Divergence divergence) const {
    const Node& n = fn_[id];
    const bool matrix = n.op == Op::mma;
    const NodeId control = matrix ? divergence.subgroup : divergence.block;
    if (!control) return;
    const std::string line = to_string(fn_.sources[control]);
    wrong(id,
          std::string(matrix                ? "a matrix operation"
                      : n.op == Op::barrier ? "a barrier"
                                            : "a subgroup or block operation") +
              " stands under " + std::string(op_name(fn_[control].op)) + "_" + (line.empty() ? "" : " (" + line + ")") +
              ", which threads of one " + (matrix ? "subgroup" : "block") + " may pass differently",
          matrix ? "Move it out, or decide by what is the same in the whole subgroup, as subgroup_id() and "
                   "subgroup_broadcast(...) are"
                 : "Move it out, or wrap the condition or bounds in block_uniform(...) if they are the same in every "
                   "thread");
  }

  const Function& fn_;
  std::vector<bool> uniform_, uniform_in_subgroup_, visible_;
};

}  // namespace

void verify(const Function& fn) { Verifier(fn).run(); }

}  // namespace tessera::ir
