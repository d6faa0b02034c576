// SPDX-License-Identifier: Apache-2.0
// Finds values that are the same in every thread of a block or subgroup. A fixpoint iteration first assumes that all
// values are uniform, and then removes those for which this cannot be shown.
#include "tessera/ir/builder.h"

namespace tessera::ir {

namespace {

class Uniformity {
 public:
  Uniformity(const Function& fn, UniformScope threads)
      : fn_(fn), subgroup_(threads == UniformScope::subgroup), uniform_(fn.nodes.size(), true) {}
  std::vector<bool> run() {
    for (NodeId id = 1; id < fn_.nodes.size(); ++id)
      if (is_leaf(fn_[id].op)) uniform_[id] = leaf(fn_[id]);
    do {
      changed_ = false;
      block(0, true);
    } while (changed_);
    return uniform_;
  }

 private:
  bool leaf(const Node& n) const {
    if (n.op != Op::index) return true;
    switch (n.kind<IndexKind>()) {
      case IndexKind::global_id:
      case IndexKind::thread_id:
      case IndexKind::lane_id: return false;
      case IndexKind::lane_elements:  // loops over these contain no operations of subgroups or blocks
      case IndexKind::lane_rows: return false;
      case IndexKind::subgroup_id: return subgroup_;
      default: return true;
    }
  }
  void varies(NodeId id) {
    if (uniform_[id]) uniform_[id] = false, changed_ = true;
  }
  bool all(std::span<const std::uint32_t> ids) const {
    for (NodeId id : ids)
      if (!uniform_[id]) return false;
    return true;
  }
  // Returns true if a subgroup operation has the same result in all threads of the subgroup. For a broadcast, the lane
  // must be 0: the last subgroup may be smaller than the others, so only lane 0 exists in every subgroup.
  bool same_in_subgroup(const Node& n) const {
    if (n.kind<SubgroupOp>() != SubgroupOp::broadcast) return n.kind<SubgroupOp>() < SubgroupOp::broadcast;
    const Node& lane = fn_[n.args[1]];
    return lane.op == Op::constant && lane.imm == 0;
  }
  // Local memory is uniform as long as all values stored to it are uniform. `uniform_[local]` records this.
  void block(BlockId b, bool control) {
    for (NodeId id : fn_.blocks[b]) {
      const Node& n = fn_[id];
      switch (n.op) {
        case Op::load:
        case Op::load_if: {
          const Node& m = fn_[n.args[0]];
          const bool constant_memory = m.op == Op::param && fn_.params[m.imm].access == Access::read;
          if (!(constant_memory || (m.op == Op::local && !is_fragment(m))) || !all(operands(n))) varies(id);
          break;
        }
        case Op::store:
          if (fn_[n.args[0]].op == Op::local && (!control || !uniform_[n.args[1]] || !uniform_[n.args[2]]))
            varies(n.args[0]);
          break;
        case Op::atomic:
        case Op::block_scan: varies(id); break;
        case Op::subgroup:
          if (!subgroup_ || !same_in_subgroup(n)) varies(id);
          break;
        case Op::mma:
          if (n.kind<MmaOp>() == MmaOp::reduce_rows) varies(n.args[0]);
          break;
        case Op::place: varies(id); break;
        case Op::block_reduce:
        case Op::block_uniform: break;
        case Op::if_: for_each_nested(n, [&](BlockId inner) { block(inner, control && uniform_[n.args[0]]); }); break;
        case Op::for_:
          if (!all(operands(n))) varies(n.args[3]);
          block(n.extra, control && all(operands(n)));
          break;
        case Op::while_:
          block(n.args[1], control && uniform_[n.args[0]]);
          block(n.extra, control && uniform_[n.args[0]]);
          break;
        default:
          if (is_pure(n.op) && !all(operands(n))) varies(id);
      }
    }
  }

  const Function& fn_;
  const bool subgroup_;
  std::vector<bool> uniform_;
  bool changed_ = false;
};

}  // namespace

std::vector<bool> uniform_values(const Function& fn, UniformScope threads) { return Uniformity(fn, threads).run(); }

}  // namespace tessera::ir
