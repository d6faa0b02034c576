// SPDX-License-Identifier: Apache-2.0
// Gives the nodes an order that depends only on the kernel. C++ does not specify the evaluation order of operands, so
// compilers trace `a[i] + b[i]` in different orders. Pure nodes, and the loads and convergent nodes between two
// effects, are therefore ordered by a traversal that starts at the effects.
#include <algorithm>
#include <unordered_map>

#include "tessera/ir/builder.h"

namespace tessera::ir {

namespace {

// Replaces return_ by structured control flow. Statements after a return_ in the same block are removed. Statements
// after a control statement that may return are executed only by threads that have not returned.
class ReturnRemover {
 public:
  explicit ReturnRemover(Function& fn) : fn_(fn) {}

  void run() {
    for (const Block& b : fn_.blocks)
      for (NodeId id : b) any_ = any_ || fn_.nodes[id].op == Op::return_;
    if (any_) rewrite(0);
  }

 private:
  bool may_return(NodeId id) const {
    const Node& n = fn_.nodes[id];
    if (n.op == Op::return_) return true;
    bool found = false;
    for_each_nested(n, [&](BlockId b) {
      for (NodeId inner : fn_.blocks[b]) found = found || may_return(inner);
    });
    return found;
  }
  NodeId add(Node n) {
    fn_.nodes.push_back(n);
    fn_.sources.push_back(line_);
    return static_cast<NodeId>(fn_.nodes.size() - 1);
  }
  BlockId new_block(Block content) {
    fn_.blocks.push_back(std::move(content));
    return static_cast<BlockId>(fn_.blocks.size() - 1);
  }
  NodeId constant(DType t, std::uint64_t bits) { return add({.op = Op::constant, .type = {t}, .imm = bits}); }
  NodeId flag() {
    if (!flag_) flag_ = add({.op = Op::local, .type = {DType::boolean}, .extra = ~0u, .imm = 1});
    return flag_;
  }
  NodeId running(Block& into) {  // creates a new load each time, since the flag changes
    const NodeId read = add({.op = Op::load, .type = {DType::boolean}, .args = {flag(), constant(DType::index, 0)}});
    into.push_back(read);
    return add(
        {.op = Op::unary, .sub = static_cast<std::uint8_t>(UnaryOp::not_), .type = {DType::boolean}, .args = {read}});
  }

  NodeId store_flag(NodeId memory, bool value) {
    return add({.op = Op::store,
                .type = {DType::boolean},
                .args = {memory, constant(DType::index, 0), constant(DType::boolean, value)}});
  }
  // A thread that has returned must not evaluate the condition of its while_ again, because that could read out of
  // bounds. Therefore the condition moves into the body, and the loop tests two flags: `while (c) {b}` becomes `done =
  // false; while (!done && !returned) { if (c) {b} else done = true }`. Returns the store to `done`.
  NodeId end_loop_by_flag(NodeId id) {
    const NodeId done = add({.op = Op::local, .type = {DType::boolean}, .extra = ~1u - ++loops_, .imm = 1});
    const Node loop = fn_.nodes[id];
    Block test;
    const NodeId read = add({.op = Op::load, .type = {DType::boolean}, .args = {done, constant(DType::index, 0)}});
    test.push_back(read);
    const NodeId more = add(
        {.op = Op::unary, .sub = static_cast<std::uint8_t>(UnaryOp::not_), .type = {DType::boolean}, .args = {read}});
    const NodeId go = running(test);
    const NodeId both = add({.op = Op::binary,
                             .sub = static_cast<std::uint8_t>(BinaryOp::and_),
                             .type = {DType::boolean},
                             .args = {more, go}});
    Block body = fn_.blocks[loop.args[1]];
    const BlockId inner = new_block(fn_.blocks[loop.extra]), last = new_block({store_flag(done, true)});
    body.push_back(add({.op = Op::if_, .args = {loop.args[0], inner, last}}));
    fn_.blocks[loop.args[1]] = std::move(test);
    fn_.blocks[loop.extra] = std::move(body);
    fn_.nodes[id].args[0] = both;
    return store_flag(done, false);
  }

  void rewrite(BlockId b) {
    const Block old = fn_.blocks[b];
    Block out;
    for (std::size_t i = 0; i < old.size(); ++i) {
      const NodeId id = old[i];
      if (fn_.nodes[id].op == Op::return_) {
        if (b != 0)  // at the end of the kernel, no later statement tests the flag
          out.push_back(store_flag(flag(), true));
        break;
      }
      if (!may_return(id)) {
        out.push_back(id);
        continue;
      }
      line_ = fn_.sources[id];
      const Block rest(old.begin() + static_cast<std::ptrdiff_t>(i) + 1, old.end());
      Node& n = fn_.nodes[id];
      if (b == 0 && n.op == Op::if_ && n.args[2] == no_block && fn_.blocks[n.args[1]].size() == 1 &&
          fn_.nodes[fn_.blocks[n.args[1]][0]].op == Op::return_) {  // the usual guard: if (out of range) return
        const BlockId tail = new_block(rest);
        Node guard = n;
        guard.args[0] = add({.op = Op::unary,
                             .sub = static_cast<std::uint8_t>(UnaryOp::not_),
                             .type = {DType::boolean},
                             .args = {n.args[0]}});
        guard.args[1] = tail;
        fn_.nodes[id] = guard;
        out.push_back(id);
        rewrite(tail);
        break;
      }
      std::vector<BlockId> nested;
      for_each_nested(n, [&](BlockId inner) { nested.push_back(inner); });
      for (BlockId inner : nested) rewrite(inner);
      line_ = fn_.sources[id];
      const Node control = fn_.nodes[id];
      if (control.op == Op::for_) {  // skip the body in the remaining iterations
        Block body;
        const NodeId go = running(body);
        const BlockId inner = new_block(fn_.blocks[control.extra]);
        body.push_back(add({.op = Op::if_, .args = {go, inner, no_block}}));
        fn_.blocks[control.extra] = std::move(body);
      }
      if (control.op == Op::while_) out.push_back(end_loop_by_flag(id));
      out.push_back(id);
      if (!rest.empty()) {
        const NodeId go = running(out);
        const BlockId tail = new_block(rest);
        out.push_back(add({.op = Op::if_, .args = {go, tail, no_block}}));
        rewrite(tail);
      }
      break;
    }
    fn_.blocks[b] = std::move(out);
  }

  Function& fn_;
  bool any_ = false;
  NodeId flag_ = no_node;
  std::uint32_t loops_ = 0;
  SourceLine line_;  // the line of the current statement, used for nodes that replace it
};

class Canonicaliser {
 public:
  explicit Canonicaliser(Function fn) : in_(std::move(fn)) {
    ReturnRemover(in_).run();
    const std::size_t n = in_.nodes.size();
    live_.resize(n), order_.resize(n), home_.assign(n, no_block), done_.resize(n);
    parent_.assign(in_.blocks.size(), no_block), depth_.resize(in_.blocks.size()), loop_.resize(in_.blocks.size());
    useful_.resize(n);
  }

  Function run() {
    find_homes(0);
    find_needed_fragments();
    drop_useless(0);
    walk(0);
    place_pure();
    out_.blocks.resize(in_.blocks.size());
    emit(0);
    return renumber();
  }

 private:
  // Records the parent and depth of each block, whether it is a loop body, and the block of each listed node.
  void find_homes(BlockId b) {
    for (NodeId id : in_.blocks[b]) {
      const Node& n = in_.nodes[id];
      if (!movable(n)) home_[id] = b;  // canonical functions also list pure nodes; these are placed again
      for_each_nested(n, [&](BlockId inner) {
        parent_[inner] = b;
        depth_[inner] = depth_[b] + 1;
        loop_[inner] = n.op != Op::if_;
        find_homes(inner);
      });
      if (n.op == Op::for_) home_[n.args[3]] = n.extra;
    }
  }
  // Finds the fragments that affect memory: accumulators whose elements are stored, loaded or reduced, and the
  // fragments from which needed fragments are computed.
  void find_needed_fragments() {
    needed_.resize(in_.nodes.size());
    bool changed = false;
    const auto need = [&](NodeId id) {
      if (is_fragment(in_.nodes[id]) && !needed_[id]) needed_[id] = changed = true;
    };
    do {
      changed = false;
      for (const Block& b : in_.blocks)
        for (NodeId id : b) {
          const Node& n = in_.nodes[id];
          if (n.op == Op::load) need(n.args[0]);
          if (n.op != Op::mma) continue;
          const MmaOp op = n.kind<MmaOp>();
          if (op == MmaOp::store) need(n.args[0]);
          if (op == MmaOp::reduce_rows) needed_[n.args[0]] = true;
          if (needed_[n.args[0]])
            for (NodeId a : operands(n)) need(a);
        }
    } while (changed);
  }
  // Removes control statements with empty bodies, so that equivalent kernels become equal. Keeps while_ because it
  // might not terminate.
  bool drop_useless(BlockId b) {
    bool any = false;
    for (NodeId id : in_.blocks[b]) {
      const Node& n = in_.nodes[id];
      if (!is_effect(n.op)) continue;
      bool useful = n.op == Op::mma ? needed_[n.args[0]] : !is_control(n.op) || n.op == Op::while_;
      for_each_nested(n, [&](BlockId inner) { useful = drop_useless(inner) || useful; });
      useful_[id] = useful;
      any = any || useful;
    }
    return any;
  }

  void visit(NodeId id) {
    if (id == no_node || live_[id]) return;
    live_[id] = true;
    const Node& n = in_.nodes[id];
    for (NodeId a : operands(n)) visit(a);
    order_[id] = ++clock_;
    visited_.push_back(id);
  }
  // Visits the effects in order. Each node that is reached is live, and is numbered after its operands.
  void walk(BlockId b) {
    for (NodeId id : in_.blocks[b]) {
      const Node& n = in_.nodes[id];
      if (!is_effect(n.op) || !useful_[id] || live_[id]) continue;
      live_[id] = true;
      if (n.op == Op::while_) {
        walk(n.args[1]);
        visit(n.args[0]);
        walk(n.extra);
      } else {
        for (NodeId a : operands(n)) visit(a);
        for_each_nested(n, [&](BlockId inner) { walk(inner); });
      }
      order_[id] = ++clock_;
      visited_.push_back(id);
    }
  }

  BlockId common(BlockId a, BlockId b) const {
    if (a == no_block) return b;
    while (a != b) (depth_[a] >= depth_[b] ? a : b) = parent_[depth_[a] >= depth_[b] ? a : b];
    return a;
  }
  bool movable(const Node& n) const { return is_pure(n.op); }

  // Moves each pure node to the innermost block that contains all its uses, and then out of the loops in which it does
  // not change.
  void place_pure() {
    for (auto it = visited_.rbegin(); it != visited_.rend(); ++it) {
      const Node& n = in_.nodes[*it];
      if (home_[*it] == no_block) continue;  // a leaf
      for (NodeId a : operands(n)) {
        if (!movable(in_.nodes[a])) continue;
        home_[a] = common(home_[a], n.op == Op::while_ ? n.args[1] : home_[*it]);
      }
    }
    for (NodeId id : visited_) {
      const Node& n = in_.nodes[id];
      if (!movable(n)) continue;
      BlockId& home = home_[id];
      auto invariant = [&] { return std::ranges::none_of(operands(n), [&](NodeId a) { return home_[a] == home; }); };
      while (home != no_block && loop_[home] && invariant()) home = parent_[home];
    }
  }

  void emit_operands(const Node& n) {
    for (NodeId a : operands(n)) emit_value(a);
  }
  void emit_value(NodeId id) {
    if (done_[id] || !movable(in_.nodes[id])) return;
    done_[id] = true;
    emit_operands(in_.nodes[id]);
    out_.blocks[home_[id]].push_back(id);
  }
  void emit(BlockId b) {
    const Block& block = in_.blocks[b];
    for (std::size_t i = 0; i < block.size();) {
      // The loads and convergent nodes before the next effect, in the order of the traversal.
      Block epoch;
      while (i < block.size() && !is_effect(in_.nodes[block[i]].op)) {
        if (live_[block[i]] && !movable(in_.nodes[block[i]])) epoch.push_back(block[i]);
        ++i;
      }
      std::ranges::sort(epoch, {}, [&](NodeId id) { return order_[id]; });
      for (NodeId id : epoch) {
        emit_operands(in_.nodes[id]);
        out_.blocks[b].push_back(id);
      }
      if (i == block.size()) break;
      const NodeId id = block[i++];
      if (!live_[id]) continue;
      const Node& n = in_.nodes[id];
      if (n.op == Op::while_) {
        emit(n.args[1]);
        emit_value(n.args[0]);
        emit(n.extra);
      } else {
        emit_operands(n);
        for_each_nested(n, [&](BlockId inner) { emit(inner); });
      }
      out_.blocks[b].push_back(id);
    }
  }

  // Assigns new ids in the order in which nodes first appear in the blocks.
  NodeId renamed(NodeId id) {
    if (id == no_node) return no_node;
    if (!new_id_[id]) {
      Node n = in_.nodes[id];
      if (n.op == Op::local) n.extra = ++locals_;
      if (n.op == Op::shared) n.extra = ++shareds_;
      if (n.op == Op::index && n.kind<IndexKind>() == IndexKind::counter) n.imm = ++counters_;
      // Leaves that were created to replace return_ may be equal to existing leaves.
      if (is_leaf(n.op)) {
        auto [it, fresh] = leaves_.try_emplace(n, static_cast<NodeId>(result_.nodes.size()));
        if (!fresh) return new_id_[id] = it->second;
      }
      result_.nodes.push_back(n);
      result_.sources.push_back(in_.sources[id]);
      new_id_[id] = static_cast<NodeId>(result_.nodes.size() - 1);
    }
    return new_id_[id];
  }
  BlockId copy_block(BlockId b) {
    const BlockId out = static_cast<BlockId>(result_.blocks.size());
    result_.blocks.emplace_back();
    Block content;
    for (NodeId id : out_.blocks[b]) {
      Node n = in_.nodes[id];
      if (n.op == Op::while_) {
        n.args[1] = copy_block(n.args[1]);
        n.args[0] = renamed(n.args[0]);
        n.extra = copy_block(n.extra);
      } else {
        const std::size_t count = operands(n).size();
        for (std::size_t i = 0; i < count; ++i) n.args[i] = renamed(n.args[i]);
        if (n.op == Op::for_) {
          n.args[3] = renamed(n.args[3]);
          n.extra = copy_block(n.extra);
        } else if (n.op == Op::if_) {
          n.args[1] = copy_block(n.args[1]);
          if (n.args[2] != no_block) n.args[2] = out_.blocks[n.args[2]].empty() ? no_block : copy_block(n.args[2]);
        } else if (n.op == Op::print) {
          result_.strings.push_back(in_.strings[n.extra]);
          n.extra = static_cast<std::uint32_t>(result_.strings.size() - 1);
        }
      }
      const NodeId fresh = renamed(id);
      result_.nodes[fresh] = n;
      content.push_back(fresh);
    }
    result_.blocks[out] = std::move(content);
    return out;
  }
  Function renumber() {
    result_.name = in_.name;
    result_.kind = in_.kind;
    result_.block_size = in_.block_size;
    result_.index64 = in_.index64;
    result_.exact = in_.exact;
    result_.aligned_vectors = in_.aligned_vectors;
    result_.layout = in_.layout;
    result_.min_blocks = in_.min_blocks;
    result_.params = in_.params;
    result_.blocks.clear();
    new_id_.assign(in_.nodes.size(), no_node);
    copy_block(0);
    return std::move(result_);
  }

  Function in_, out_, result_;
  std::vector<bool> live_, done_, loop_, useful_, needed_;
  std::vector<std::uint32_t> order_, depth_;
  std::vector<BlockId> home_, parent_;
  std::vector<NodeId> visited_, new_id_;
  std::unordered_map<Node, NodeId, NodeHash> leaves_;
  std::uint32_t clock_ = 0, locals_ = 0, shareds_ = 0;
  std::uint64_t counters_ = 0;
};

}  // namespace

Function canonicalise(const Function& fn) { return Canonicaliser(fn).run(); }

}  // namespace tessera::ir
