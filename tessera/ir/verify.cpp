// SPDX-License-Identifier: Apache-2.0
// The rules that cannot be checked while a kernel is traced, because they need the whole of it.
#include "tessera/base/error.h"
#include "tessera/ir/builder.h"

namespace tessera::ir {

namespace {

class Verifier {
 public:
  explicit Verifier(const Function& fn) : fn_(fn), uniform_(uniform_values(fn)), visible_(fn.nodes.size()) {}

  void run() { block(0, nullptr); }

 private:
  [[noreturn]] void wrong(NodeId id, const std::string& what, const std::string& todo) const {
    const std::string where = to_string(fn_.sources[id]);
    fail<KernelError>({.asked = where.empty() ? "kernel " + fn_.name : "kernel " + fn_.name + ", " + where,
                       .wrong = what,
                       .todo = todo});
  }
  void check_operands(NodeId id) const {
    for (NodeId a : operands(fn_[id])) check_visible(id, a);
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
  // `divergence`: the innermost control statement around, if any, that threads of a block may pass differently.
  void block(BlockId b, const NodeId* divergence) {
    std::vector<NodeId> mine;
    auto show = [&](NodeId id) { visible_[id] = true, mine.push_back(id); };
    for (NodeId id : fn_.blocks[b]) {
      const Node& n = fn_[id];
      if (n.op != Op::while_) check_operands(id);
      if (is_convergent(n.op) || n.op == Op::barrier) check_convergent(id, divergence);
      if (n.op == Op::if_) {
        const NodeId* inner = divergence ? divergence : uniform_[n.args[0]] ? nullptr : &id;
        for_each_nested(n, [&](BlockId nested) { block(nested, inner); });
      } else if (n.op == Op::for_) {
        const bool same = uniform_[n.args[0]] && uniform_[n.args[1]] && uniform_[n.args[2]];
        visible_[n.args[3]] = true;
        block(n.extra, divergence ? divergence : same ? nullptr : &id);
        visible_[n.args[3]] = false;
      } else if (n.op == Op::while_) {
        const NodeId* inner = divergence ? divergence : uniform_[n.args[0]] ? nullptr : &id;
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
  void show_nested(NodeId id, const NodeId* divergence) {
    const Node& n = fn_[id];
    if (is_control(n.op))
      wrong(id, "the condition of while_ holds control statements", "Compute it in the body and keep it in a Var");
    check_operands(id);
    if (is_convergent(n.op) || n.op == Op::barrier) check_convergent(id, divergence);
    visible_[id] = true;
  }
  void check_convergent(NodeId id, const NodeId* divergence) const {
    if (!divergence) return;
    const Node& n = fn_[id];
    const Node& d = fn_[*divergence];
    const std::string line = to_string(fn_.sources[*divergence]);
    wrong(id,
          std::string(n.op == Op::barrier ? "a barrier" : "a subgroup or block operation") + " stands under " +
              std::string(op_name(d.op)) + "_" + (line.empty() ? "" : " (" + line + ")") +
              ", which threads of one block may pass differently",
          "Move it out, or wrap the condition or bounds in block_uniform(...) if they are the same in every thread");
  }

  const Function& fn_;
  std::vector<bool> uniform_, visible_;
};

}  // namespace

void verify(const Function& fn) { Verifier(fn).run(); }

}  // namespace tessera::ir
