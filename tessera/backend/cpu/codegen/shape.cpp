// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/codegen/shape.h"

#include <algorithm>

namespace tessera::cpu {

using namespace ir;

namespace {

constexpr Shape uniform{ShapeKind::uniform}, chunk{ShapeKind::chunk}, varying{ShapeKind::varying};
Shape linear(std::int64_t stride, NodeId by = no_node) { return stride ? Shape{ShapeKind::linear, stride, by} : chunk; }
// Returns the shape of a sum. Strides can be added if both have the same factor or one of the operands is a scalar.
Shape added(Shape a, Shape b, int sign) {
  if (a.scalar()) a.by = b.by;
  if (b.scalar()) b.by = a.by;
  return a.by == b.by ? linear(a.stride + sign * b.stride, a.by) : varying;
}

// Sets `value` to the value of an integer constant. Returns false if the node is not an integer constant.
bool constant_value(const Function& fn, NodeId id, std::int64_t& value) {
  const Node& n = fn[id];
  if (n.op != Op::constant || !is_int(n.type.dtype)) return false;
  value = static_cast<std::int64_t>(n.imm);
  return true;
}

unsigned bits_of(DType t, bool index64) {
  return t == DType::index ? (index64 ? 64 : 32) : 8 * static_cast<unsigned>(dtype_size(t));
}

class Analyser {
 public:
  Analyser(const Function& fn, const LaneLayout& layout, bool noalias) : fn_(fn), layout_(layout) {
    out_.shapes.resize(fn.nodes.size());
    out_.has_barrier.resize(fn.nodes.size());
    out_.definite.resize(fn.nodes.size());
    any_writable_ =
        std::ranges::any_of(fn.params, [](const Param& p) { return p.is_buffer && p.access == Access::read_write; });
    constant_buffers_ = noalias || !any_writable_;
  }

  Analysis run() {
    find_barriers(0);
    find_first_uses();
    for (NodeId id = 1; id < fn_.nodes.size(); ++id) {
      if (is_leaf(fn_[id].op)) out_.shapes[id] = leaf(fn_[id]);
      // A local is zero when the thread starts. This is treated as a store of a constant, unless another store precedes
      // all uses.
      if (fn_[id].op == Op::local && !out_.definite[id]) out_.shapes[id] = uniform;
    }
    do {
      changed_ = false;
      analyse_block(0, uniform, layout_.threads != 0);
    } while (changed_);
    return std::move(out_);
  }

 private:
  bool find_barriers(BlockId b) {
    bool any = false;
    for (NodeId id : fn_.blocks[b]) {
      const Node& n = fn_[id];
      bool mine =
          n.op == Op::barrier || n.op == Op::block_reduce || n.op == Op::block_scan || n.op == Op::block_uniform;
      for_each_nested(n, [&](BlockId inner) { mine = find_barriers(inner) || mine; });
      out_.has_barrier[id] = mine;
      any = any || mine;
    }
    return any;
  }

  // Records whether the first use of a local is a store in the block that contains all other uses.
  struct First {
    bool seen = false, store = false;
    BlockId block = 0;
  };
  void find_first_uses() {
    std::vector<First> first(fn_.nodes.size());
    std::vector<BlockId> path;
    find_first_uses(0, path, first);
    for (NodeId id = 1; id < fn_.nodes.size(); ++id)
      out_.definite[id] = fn_[id].op == Op::local && fn_[id].imm == 1 && first[id].store;
  }
  void find_first_uses(BlockId b, std::vector<BlockId>& path, std::vector<First>& first) {
    path.push_back(b);
    for (NodeId id : fn_.blocks[b]) {
      const Node& n = fn_[id];
      if (is_load(n.op) || n.op == Op::store) {
        First& f = first[n.args[0]];
        if (!f.seen)
          f = {true, n.op == Op::store, b};
        else if (std::ranges::find(path, f.block) == path.end())
          f.store = false;
      }
      for_each_nested(n, [&](BlockId inner) { find_first_uses(inner, path, first); });
    }
    path.pop_back();
  }

  Shape leaf(const Node& n) const {
    if (n.op == Op::local) return {};
    if (n.op != Op::index) return uniform;
    switch (n.kind<IndexKind>()) {
      case IndexKind::global_id:
      case IndexKind::thread_id: return layout_.thread_id[n.imm];
      case IndexKind::lane_id: return linear(1);
      case IndexKind::subgroup_id: return chunk;
      case IndexKind::counter: return {};
      default: return uniform;
    }
  }
  void set(NodeId id, Shape s) {
    const Shape grown = join(out_.shapes[id], s);
    if (grown != out_.shapes[id]) out_.shapes[id] = grown, changed_ = true;
  }
  Shape shape(NodeId id) const { return out_.shapes[id]; }
  bool all_scalar(std::span<const std::uint32_t> ids) const {
    return std::ranges::all_of(ids, [&](NodeId id) { return shape(id).scalar(); });
  }
  bool any_unknown(std::span<const std::uint32_t> ids) const {
    return std::ranges::any_of(ids, [&](NodeId id) { return shape(id).kind == ShapeKind::none; });
  }
  Shape joined(std::span<const std::uint32_t> ids) const {
    Shape s = uniform;
    for (NodeId id : ids) s = join(s, shape(id));
    return s;
  }

  Shape pure(const Node& n) const {
    const auto args = operands(n);
    if (any_unknown(args)) return {};
    if (all_scalar(args)) return joined(args);
    auto of = [&](int i) { return shape(n.args[static_cast<std::size_t>(i)]); };
    auto steps = [&](int i) { return of(i).kind == ShapeKind::linear || of(i).scalar(); };
    if (!is_int(n.type.dtype) || !steps(0)) return varying;
    const Shape a = of(0);
    std::int64_t c = 0;
    if (n.op == Op::binary) {
      if (!steps(1)) return varying;
      const Shape b = of(1);
      switch (n.kind<BinaryOp>()) {
        case BinaryOp::add: return added(a, b, 1);
        case BinaryOp::sub: return added(a, b, -1);
        case BinaryOp::mul:
          if (constant_value(fn_, n.args[1], c)) return linear(a.stride * c, a.by);
          if (constant_value(fn_, n.args[0], c)) return linear(b.stride * c, b.by);
          if (a.constant_stride() && b.scalar() && at_hand(n.args[1])) return linear(a.stride, n.args[1]);
          if (b.constant_stride() && a.scalar() && at_hand(n.args[0])) return linear(b.stride, n.args[0]);
          return varying;
        case BinaryOp::shl:
          if (constant_value(fn_, n.args[1], c) && c >= 0 && c < 31 &&
              c < static_cast<std::int64_t>(bits_of(n.type.dtype, fn_.index64)))
            return linear(a.stride << c, a.by);
          return varying;
        default: return varying;
      }
    }
    if (n.op == Op::unary && n.kind<UnaryOp>() == UnaryOp::neg) return linear(-a.stride, a.by);
    if (n.op == Op::cast) {
      // If a value may wrap within a chunk, it is not linear after it is widened. Index arithmetic does not wrap, even
      // if lowering has converted it to i32 (marked in Node::extra).
      const Node& operand = fn_[n.args[0]];
      const DType from = operand.type.dtype;
      if (!is_int(from)) return varying;
      const bool arithmetic = operand.op == Op::unary || operand.op == Op::binary;
      const bool index = from == DType::index || operand.op == Op::index || (arithmetic && operand.extra == 1);
      return index || bits_of(n.type.dtype, fn_.index64) <= bits_of(from, fn_.index64) ? linear(a.stride, a.by)
                                                                                       : varying;
    }
    return varying;
  }
  // Returns true if the node can be a stride factor. Its value must be available in all regions in which the strided
  // value is used.
  bool at_hand(NodeId id) const { return layout_.threads == 0 || fn_[id].op == Op::param; }

  Shape load(const Node& n) const {
    const Node& m = fn_[n.args[0]];
    const auto args = operands(n);
    if (m.op == Op::local) {
      const Shape held = shape(n.args[0]), at = shape(n.args[1]);
      if (held.kind == ShapeKind::none || any_unknown(args.subspan(1))) return {};
      if (n.op == Op::load_if)  // the condition may differ between lanes
        return held.scalar() && all_scalar(args.subspan(1)) ? join(held, joined(args.subspan(1))) : varying;
      return at.scalar() ? join(at, held) : varying;
    }
    if (any_unknown(args.subspan(1))) return {};
    if (!all_scalar(args.subspan(1))) return varying;
    const bool constant = m.op == Op::param && fn_.params[m.imm].access == Access::read && constant_buffers_;
    return constant ? joined(args.subspan(1)) : chunk;
  }

  // `control` is the shape of the conditions around this block. `outer` is true if the statements can run outside the
  // loop over chunks.
  void analyse_block(BlockId b, Shape control, bool outer) {
    for (NodeId id : fn_.blocks[b]) {
      const Node& n = fn_[id];
      switch (n.op) {
        case Op::load:
        case Op::load_if: set(id, load(n)); break;
        case Op::store:
          if (fn_[n.args[0]].op == Op::local) store_local(n, control, outer);
          break;
        case Op::atomic:
        case Op::block_scan: set(id, varying); break;
        case Op::block_reduce:
        case Op::block_uniform: set(id, uniform); break;
        case Op::subgroup: set(id, subgroup(n)); break;
        case Op::if_: {
          const Shape inner = nested_control(id, n.args[0], control);
          for_each_nested(n, [&](BlockId nested) { analyse_block(nested, inner, outer && out_.has_barrier[id]); });
          break;
        }
        case Op::for_: {
          const NodeId ends[] = {n.args[0], n.args[1], n.args[2]};
          Shape all = control;
          for (NodeId e : ends) all = join(all, nested_control(id, e, control));
          // All active lanes have run the same number of iterations, so the shape of the counter does not depend on the
          // end of the loop.
          const Shape begin = shape(ends[0]), step = shape(ends[2]);
          const bool wraps = counter_may_wrap(fn_, n, begin);
          if (out_.has_barrier[id])
            set(n.args[3], uniform);
          else if (wraps && !(begin.scalar() && step.scalar() && shape(ends[1]).scalar()) &&
                   shape(ends[1]).kind != ShapeKind::none)
            set(n.args[3], varying);
          else if (begin.kind != ShapeKind::none && step.kind != ShapeKind::none)
            set(n.args[3], !step.scalar() || begin.by ? varying : begin.scalar() ? join(begin, step) : begin);
          analyse_block(n.extra, all, outer && out_.has_barrier[id]);
          break;
        }
        case Op::while_: {
          const Shape inner = nested_control(id, n.args[0], control);
          analyse_block(n.args[1], inner, outer && out_.has_barrier[id]);
          analyse_block(n.extra, inner, outer && out_.has_barrier[id]);
          break;
        }
        default:
          if (is_pure(n.op)) set(id, pure(n));
      }
    }
  }
  // The verifier ensures that control flow around a barrier is uniform in the block.
  Shape nested_control(NodeId statement, NodeId condition, Shape control) const {
    if (out_.has_barrier[statement]) return control;
    const Shape s = shape(condition);
    if (s.kind == ShapeKind::none) return control;
    return s.scalar() ? join(control, s) : varying;
  }
  void store_local(const Node& n, Shape control, bool outer) {
    const Shape at = shape(n.args[1]), value = shape(n.args[2]);
    if (at.kind == ShapeKind::none || value.kind == ShapeKind::none) return;
    if (!control.scalar() || !at.scalar()) return set(n.args[0], varying);
    Shape s = value;
    // In the loop over chunks, a statement runs once per chunk, so a local that it modifies is not uniform in the
    // block.
    if (s.kind == ShapeKind::uniform && (!outer || control.kind == ShapeKind::chunk || at.kind == ShapeKind::chunk))
      s = chunk;
    if (s.kind == ShapeKind::linear && (s.by || fn_[n.args[0]].imm != 1)) s = varying;
    set(n.args[0], s);
  }
  Shape subgroup(const Node& n) const {
    switch (n.kind<SubgroupOp>()) {
      case SubgroupOp::sum:
      case SubgroupOp::min:
      case SubgroupOp::max:
      case SubgroupOp::any:
      case SubgroupOp::all: return chunk;
      case SubgroupOp::broadcast: {  // if the source lane does not exist, each thread gets its own value
        std::int64_t lane = -1;
        const unsigned last = layout_.threads % layout_.width;
        constant_value(fn_, n.args[1], lane);
        return lane >= 0 && lane < static_cast<std::int64_t>(last ? last : layout_.width) ? chunk : varying;
      }
      default: return varying;
    }
  }

  const Function& fn_;
  const LaneLayout& layout_;
  Analysis out_;
  bool any_writable_ = false, constant_buffers_ = true, changed_ = false;
};

}  // namespace

Shape join(Shape a, Shape b) {
  if (a.kind == ShapeKind::none) return b;
  if (b.kind == ShapeKind::none) return a;
  if (a == b) return a;
  if (a.scalar() && b.scalar()) return chunk;
  // A linear shape joined with a chunk shape or with another stride is not linear.
  return varying;
}

bool counter_may_wrap(const Function& fn, const Node& loop, Shape begin) {
  const Node& counter = fn[loop.args[3]];
  if (counter.extra || counter.type.dtype == DType::index) return false;
  const Node& step = fn[loop.args[2]];
  const bool ones = step.op == Op::constant && step.imm == 1;
  return !ones || !(begin.scalar() || begin.kind == ShapeKind::none);
}

LaneLayout lane_layout(const Function& fn, unsigned native) {
  LaneLayout out;
  out.width = native;
  if (fn.kind == KernelKind::map) {
    // Each element of a local array is a register. Sorting networks on such arrays use many registers at the same time.
    const bool wide = std::ranges::any_of(
        fn.nodes, [](const Node& n) { return n.op == Op::local && n.imm > 1 && dtype_size(n.type.dtype) == 8; });
    if (native == 16 && wide) out.width = 8;
    out.thread_id = {linear(1), chunk, chunk};
    return out;
  }
  const auto& size = fn.block_size;
  out.threads = fn.threads_per_block();
  const bool flat = size[1] == 1 && size[2] == 1;
  const bool subgroups = std::ranges::any_of(fn.nodes, [](const Node& n) {
    return n.op == Op::subgroup || (n.op == Op::index && n.kind<IndexKind>() >= IndexKind::lane_id &&
                                    n.kind<IndexKind>() <= IndexKind::subgroup_count);
  });
  if (!subgroups) {  // if subgroups are used, the width is fixed, because a subgroup is a chunk
    while (out.width > 4 && out.threads <= out.width / 2) out.width /= 2;
    // If rows are shorter than a vector, narrower vectors are faster than gathers.
    while (!flat && out.width > 4 && size[0] % out.width != 0 && size[0] % 4 == 0) out.width /= 2;
  }
  const bool rows = flat || size[0] % out.width == 0;
  const bool planes = rows || (size[0] * size[1]) % out.width == 0;
  out.thread_id[0] = size[0] == 1 ? uniform : rows ? linear(1) : varying;
  out.thread_id[1] = size[1] == 1 ? uniform : rows ? chunk : varying;
  out.thread_id[2] = size[2] == 1 ? uniform : planes ? chunk : varying;
  return out;
}

Analysis analyse(const Function& fn, const LaneLayout& layout, bool noalias) {
  return Analyser(fn, layout, noalias).run();
}

}  // namespace tessera::cpu
