// SPDX-License-Identifier: Apache-2.0
// Checks the rules that require a complete kernel.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/builder.h"

namespace tessera::ir {

namespace {

/// What an operand must be: a value, memory, or a fragment with this role (`none` accepts any role).
struct Place {
  enum Kind : std::uint8_t { value, memory, fragment } kind = value;
  FragmentRole role = FragmentRole::none;
};
Place place_of(const Node& n, std::size_t operand) {
  if (n.op == Op::async) return {operand % 2 == 0 ? Place::memory : Place::value};
  if (n.op != Op::mma) {
    const bool access = is_load(n.op) || n.op == Op::store || n.op == Op::atomic;
    return {access && operand == 0 ? Place::memory : Place::value};
  }
  const MmaOp op = n.kind<MmaOp>();
  if (op == MmaOp::reduce_rows && operand == 0) return {Place::memory};
  if (op == MmaOp::convert || op == MmaOp::reduce_rows)
    return {Place::fragment, operand == 0 ? FragmentRole::left : FragmentRole::accumulator};
  if (operand == 0) return {Place::fragment, op == MmaOp::load ? FragmentRole::none : FragmentRole::accumulator};
  if (op == MmaOp::multiply) return {Place::fragment, operand == 1 ? FragmentRole::left : FragmentRole::right};
  return {operand == 1 && op != MmaOp::fill ? Place::memory : Place::value};
}
/// True if only the threads of a subgroup must execute this operation together. Other convergent operations require the
/// whole block.
bool of_subgroup(Op op) { return op == Op::mma || op == Op::subgroup; }
std::size_t operands_of(MmaOp op) {
  return op == MmaOp::load || op == MmaOp::store ? 4 : op == MmaOp::multiply ? 3 : 2;
}

class Verifier {
 public:
  explicit Verifier(const Function& fn) : fn_(fn), uniform_(uniform_values(fn)), visible_(fn.nodes.size()) {
    if (std::ranges::any_of(fn.nodes, [](const Node& n) { return of_subgroup(n.op); }))
      uniform_in_subgroup_ = uniform_values(fn, UniformScope::subgroup);
  }

  void run() { block(0, {}); }

 private:
  /// The outermost enclosing control statements on which the threads of a block, or of a subgroup, may diverge.
  /// `subgroup` is tracked only in functions with subgroup operations.
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
  [[noreturn]] void wrong(NodeId id, const std::string& what, const std::string& remedy) const {
    const std::string where = to_string(fn_.sources[id]);
    fail<KernelError>({.operation = where.empty() ? "kernel " + fn_.name : "kernel " + fn_.name + ", " + where,
                       .wrong = what,
                       .remedy = remedy});
  }
  void check_operands(NodeId id) const {
    const Node& n = fn_[id];
    const std::size_t count = operands(n).size();
    if (n.op == Op::mma && count != operands_of(n.kind<MmaOp>()))
      wrong(id, "mma " + std::string(name_of(n.kind<MmaOp>())) + " has " + std::to_string(count) + " operands",
            "It takes " + std::to_string(operands_of(n.kind<MmaOp>())));
    for (std::size_t i = 0; i < count; ++i) {
      check_visible(id, n.args[i]);
      check_place(id, i);
    }
  }
  void check_place(NodeId id, std::size_t operand) const {
    const Node &n = fn_[id], &a = fn_[n.args[operand]];
    const auto [kind, role] = place_of(n, operand);
    if (kind == Place::fragment) {
      if (const std::string what = wrong_fragment(n.kind<MmaOp>(), a, role); !what.empty()) wrong(id, what, {});
      return;
    }
    const std::string op = std::string(op_name(n.op)) + (is_control(n.op)  ? "_"
                                                         : n.op == Op::mma ? " " + std::string(name_of(n.kind<MmaOp>()))
                                                                           : "");
    // Lowering stores pairs of elements of a factor as u32.
    const bool own = (n.op == Op::load || n.op == Op::store) && kind == Place::memory && is_accumulator(a);
    if (own || (is_fragment(a) && n.op == Op::store && operand == 0 && n.type == Type{DType::u32})) return;
    if (is_fragment(a))
      wrong(id,
            "local" + std::to_string(a.extra) + " is a matrix over a subgroup, and " + op +
                " requires a per-thread value",
            "Store the matrix to shared memory, and read it after a barrier");
    if (kind == Place::value && is_memory(fn_, a))
      wrong(id, memory_name(a) + " is memory, and " + op + " requires a value", "Load an element of it");
    if (kind == Place::memory && !is_memory(fn_, a))
      wrong(id, op + " requires memory, not a value of " + type_name(a.type),
            "Use a buffer, shared memory or a local array");
    if (n.op == Op::async && kind == Place::memory && a.op != (operand == 0 ? Op::shared : Op::param))
      wrong(id, "copy_async copies from a buffer to shared memory", {});
    if (n.op != Op::mma || n.kind<MmaOp>() == MmaOp::reduce_rows) return;
    if (a.op == Op::local) wrong(id, "a matrix must be in memory that threads share", "Use a buffer or shared memory");
    if (kind == Place::value && !uniform_in_subgroup_[n.args[operand]])
      wrong(id,
            "the " +
                std::string(operand == 1   ? "value"
                            : operand == 2 ? "index"
                                           : "stride") +
                " of a matrix operation may differ within a subgroup",
            "Wrap it in subgroup_broadcast(x, 0)");
  }
  std::string memory_name(const Node& n) const {
    if (n.op == Op::param) return fn_.params[n.imm].name;
    return std::string(op_name(n.op)) + std::to_string(n.extra);
  }
  void check_visible(NodeId user, NodeId a) const {
    const Node& n = fn_[a];
    const bool counter = n.op == Op::index && n.kind<IndexKind>() == IndexKind::counter;
    if ((is_leaf(n.op) && !counter) || visible_[a]) return;
    wrong(user,
          counter ? "a loop counter is used outside of its for_"
                  : "a value read inside an if_, for_ or while_ is used outside of it",
          "Store it in a Var declared before the statement");
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
        // The condition may use values of its own block, so they become visible before it is checked.
        const std::vector<bool> before = visible_;
        for (NodeId c : fn_.blocks[n.args[1]]) show_nested(c, inner);
        check_operands(id);
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
      wrong(id, "the condition of while_ contains control statements", "Compute it in the body and store it in a Var");
    check_operands(id);
    if (is_convergent(n.op) || n.op == Op::barrier) check_convergent(id, divergence);
    visible_[id] = true;
  }
  void check_convergent(NodeId id, Divergence divergence) const {
    const Node& n = fn_[id];
    const bool subgroup = of_subgroup(n.op);
    const NodeId control = subgroup ? divergence.subgroup : divergence.block;
    if (!control) return;
    const std::string line = to_string(fn_.sources[control]);
    wrong(id,
          std::string(n.op == Op::mma        ? "a matrix operation"
                      : n.op == Op::subgroup ? "a subgroup operation"
                      : n.op == Op::barrier  ? "a barrier"
                                             : "a block operation") +
              " is inside " + std::string(op_name(fn_[control].op)) + "_" + (line.empty() ? "" : " (" + line + ")") +
              ", on which threads of one " + (subgroup ? "subgroup" : "block") + " may diverge",
          subgroup ? "Move it out, or use a condition that is the same in the whole subgroup, such as subgroup_id() or "
                     "subgroup_broadcast(x, 0)"
                   : "Move it out, or wrap the condition or bounds in block_uniform(...) if they are the same in every "
                     "thread");
  }

  const Function& fn_;
  std::vector<bool> uniform_, uniform_in_subgroup_, visible_;
};

}  // namespace

void verify(const Function& fn) { Verifier(fn).run(); }

}  // namespace tessera::ir
