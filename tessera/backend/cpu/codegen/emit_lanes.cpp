// SPDX-License-Identifier: Apache-2.0
// Loops that lanes run one after another in scalar code. This is faster if the trip count differs between lanes and the
// lanes access distant memory. Vector code would then use gathers with most lanes idle. Each thread computes the same
// values in the same order as in vector code.
#include <algorithm>

#include "tessera/backend/cpu/codegen/emitter.h"

namespace tessera::cpu {

using namespace ir;

// Analyses the body of a loop, including nested blocks.
void Emitter::survey(BlockId block, Survey& s) const {
  for (NodeId id : fn_.blocks[block]) {
    const Node& n = fn_[id];
    s.inside.push_back(id);
    for (NodeId a : operands(n)) s.used.push_back(a);
    if (n.op == Op::for_) s.inside.push_back(n.args[3]);
    for_each_nested(n, [&](BlockId b) { survey(b, s); });
    if (is_load(n.op) || n.op == Op::store) {
      const Node& m = fn_[n.args[0]];
      const Shape index = analysis_.shapes[n.args[1]];
      if (m.op == Op::local) {
        s.simple = s.simple && m.imm == 1 && !is_fragment(m);
        if (n.op == Op::store) s.written.push_back(n.args[0]);
        s.locals.push_back(n.args[0]);
      } else if (index.varying() || index.by) {
        ++s.scattered;
      }
    } else if (is_pure(n.op)) {
      ++s.pure;
    } else {
      s.simple = s.simple && is_control(n.op);
    }
  }
}

// Returns true if running the lanes one after another is faster than running them together.
bool Emitter::prefers_lanes(const Node& loop) const {
  Survey s;
  survey(loop.extra, s);
  const bool own = std::ranges::all_of(s.written, [&](NodeId local) { return analysis_.shapes[local].varying(); });
  return s.simple && own && s.scattered > 0 && s.pure <= 12 * s.scattered;
}

void Emitter::for_by_lane(const Node& n, Value* mask) {
  Survey s;
  survey(n.extra, s);
  s.inside.push_back(n.args[3]);
  for (NodeId a : operands(n)) s.used.push_back(a);
  auto once = [](std::vector<NodeId>& ids) {
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  };
  once(s.inside), once(s.used), once(s.locals), once(s.written);

  Value* lanes_in = mask_and(mask, compare(CompareOp::lt, dtype(n.args[0]), vector(n.args[0]), vector(n.args[1])));
  // Values that differ between lanes are stored in memory, so that each lane can load its value.
  struct Moved {
    NodeId id;
    Value *slot, *cell;  // cell: memory of the local while one lane runs
    Local local;
  };
  std::vector<Moved> values, locals;
  for (NodeId id : s.used) {
    const Node& used = fn_[id];
    if (is_memory(fn_, used) || std::ranges::binary_search(s.inside, id)) continue;
    const ShapedValue h = shaped_value(id);
    if (h.shape.scalar()) continue;
    Value* v = to_memory(dtype(id), vector(id));
    values.push_back({id, stack(v->getType(), "lanes"), nullptr, {}});
    b_.CreateStore(v, values.back().slot);
  }
  for (NodeId id : s.locals) {
    const Local& local = locals_[id];
    llvm::Type* t = memory_type(dtype(id));
    const Shape shape = analysis_.shapes[id];
    Value* v = b_.CreateAlignedLoad(local.element, local.pointer, llvm::Align(1));
    if (!shape.varying()) v = splat(v);
    if (shape.kind == ShapeKind::linear) v = b_.CreateAdd(v, iota(t, shape.stride));
    locals.push_back({id, stack(v->getType(), "lanes"), stack(t, "cell"), local});
    b_.CreateStore(v, locals.back().slot);
  }

  auto* inside = llvm::BasicBlock::Create(context_, "each_lane", body_);
  auto* after = llvm::BasicBlock::Create(context_, "all_lanes", body_);
  Value* bits = b_.CreateZExt(b_.CreateBitCast(lanes_in, b_.getIntNTy(width_)), b_.getInt32Ty());
  auto* before = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpNE(bits, b_.getInt32(0)), inside, after);
  b_.SetInsertPoint(inside);
  auto* left = b_.CreatePHI(bits->getType(), 2, "left");
  left->addIncoming(bits, before);
  Value* lane =
      b_.CreateZExt(b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, left, b_.getTrue()), b_.getInt64Ty(), "lane");
  auto lane_of = [&](const Moved& m, llvm::Type* t) { return b_.CreateInBoundsGEP(t, m.slot, lane); };
  std::vector<Shape> shapes(fn_.nodes.size(), Shape{ShapeKind::chunk});
  shapes.swap(analysis_.shapes);
  own_values_.assign(fn_.nodes.size(), nullptr);
  for (const Moved& m : values) {
    llvm::Type* t = memory_type(dtype(m.id));
    own_values_[m.id] = from_memory(dtype(m.id), b_.CreateLoad(t, lane_of(m, t)));
  }
  for (const Moved& m : locals) {
    llvm::Type* t = memory_type(dtype(m.id));
    b_.CreateStore(b_.CreateLoad(t, lane_of(m, t)), m.cell);
    locals_[m.id].pointer = m.cell, locals_[m.id].element = t;
  }
  // Contraction is disabled: the sums here depend on each other, and a fused multiply-add has a longer latency than an
  // addition.
  const llvm::FastMathFlags flags = b_.getFastMathFlags();
  b_.setFastMathFlags({});
  for_statement(n, nullptr);
  b_.setFastMathFlags(flags);
  for (const Moved& m : locals) {
    if (!std::ranges::binary_search(s.written, m.id)) continue;
    llvm::Type* t = memory_type(dtype(m.id));
    b_.CreateStore(b_.CreateLoad(t, m.cell), lane_of(m, t));
  }
  shapes.swap(analysis_.shapes);
  own_values_.clear();
  for (const Moved& m : locals) locals_[m.id] = m.local;
  Value* next = b_.CreateAnd(left, b_.CreateSub(left, b_.getInt32(1)));
  left->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpNE(next, b_.getInt32(0)), inside, after);
  b_.SetInsertPoint(after);
  for (const Moved& m : locals)
    if (std::ranges::binary_search(s.written, m.id))
      b_.CreateAlignedStore(b_.CreateLoad(m.local.element, m.slot), m.local.pointer, llvm::Align(1));
}

}  // namespace tessera::cpu
