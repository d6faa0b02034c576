// SPDX-License-Identifier: Apache-2.0
// Block-stride loops: for (k = begin + thread_id; k < end; k += threads). If each chunk ran the whole loop before the
// next chunk, it would access the memory with gaps, and each cache line would be loaded several times. If threads carry
// no value from one iteration to the next, all chunks run an iteration before the next iteration starts. Memory is then
// accessed in order.
#include <algorithm>

#include "tessera/backend/cpu/codegen/emitter.h"

namespace tessera::cpu {

using namespace ir;

// Returns true if the value is thread_id(0) plus a value that is uniform in the block.
bool Emitter::is_thread_id_plus_uniform(NodeId id) const {
  const Node& n = fn_[id];
  if (n.op == Op::index)
    return n.imm == 0 && (n.kind<IndexKind>() == IndexKind::thread_id || n.kind<IndexKind>() == IndexKind::global_id);
  if (n.op == Op::cast) return is_int(dtype(n.args[0])) && is_thread_id_plus_uniform(n.args[0]);
  if (n.op != Op::binary || n.kind<BinaryOp>() != BinaryOp::add) return false;
  const auto shared_by_block = [&](NodeId a) { return analysis_.shapes[a].kind == ShapeKind::uniform; };
  return (is_thread_id_plus_uniform(n.args[0]) && shared_by_block(n.args[1])) ||
         (is_thread_id_plus_uniform(n.args[1]) && shared_by_block(n.args[0]));
}

// Returns the block-stride loop of the region if all chunks can run each iteration before the next one starts.
// Otherwise returns no_node.
NodeId Emitter::find_block_stride_loop(const Region& r) const {
  const auto& size = fn_.block_size;
  if (layout_.chunks() == 1 || layout_.tail() || size[1] != 1 || size[2] != 1) return no_node;
  const auto is_value = [&](NodeId id) { return is_pure(fn_[id].op) && fn_[id].op != Op::math; };
  // Statements before the loop are recomputed in each iteration.
  const auto loop = std::ranges::find_if_not(r.statements, is_value);
  if (loop == r.statements.end() || fn_[*loop].op != Op::for_) return no_node;
  if (loop - r.statements.begin() > 8 || r.needed.size() > 8 || !std::ranges::all_of(r.needed, is_value))
    return no_node;
  const Node &n = fn_[*loop], &step = fn_[n.args[2]];
  const Shape begin = analysis_.shapes[n.args[0]];
  const bool contiguous = step.op == Op::constant && step.imm == layout_.threads;
  if (!contiguous || begin.kind != ShapeKind::linear || begin.stride != 1 || begin.by ||
      !is_thread_id_plus_uniform(n.args[0]))
    return no_node;
  if (!is_signed_int(dtype(n.args[0])) || counter_may_wrap(fn_, n, begin)) return no_node;
  if (analysis_.shapes[n.args[1]].kind != ShapeKind::uniform || prefers_lanes(n)) return no_node;
  Survey s;
  survey(n.extra, s);
  const bool independent = s.locals.empty() && std::ranges::all_of(s.inside, [&](NodeId id) {
                             const Op op = fn_[id].op;
                             return is_pure(op) || is_load(op) || op == Op::store || op == Op::atomic || op == Op::if_;
                           });
  return independent && s.inside.size() <= 96 ? *loop : no_node;
}

// Emits the iterations that every thread runs. for_statement() emits the remaining iterations, at most one per thread.
void Emitter::emit_full_iterations(const Region& r, NodeId loop) {
  const Node& n = fn_[loop];
  const auto begin_of = [&](Value* chunk) {
    begin_chunk(r, chunk);
    for (NodeId id : r.statements) {
      if (id == loop) break;
      statement(id, nullptr);
    }
    return scalar(n.args[0]);
  };
  Value *first = begin_of(b_.getInt64(0)), *end = scalar(n.args[1]), *by = scalar(n.args[2]);
  Value* room = b_.CreateSub(end, same(end, layout_.threads - 1));
  Value* fits = b_.CreateICmpSLE(room, end);  // false if the subtraction wrapped
  const auto holds = [&](Value* i) { return b_.CreateAnd(fits, b_.CreateICmpSLT(i, room)); };
  auto *before = b_.GetInsertBlock(), *inside = llvm::BasicBlock::Create(context_, "round", body_);
  auto* after = llvm::BasicBlock::Create(context_, "rounds", body_);
  b_.CreateCondBr(holds(first), inside, after);
  b_.SetInsertPoint(inside);
  auto* done = b_.CreatePHI(first->getType(), 2, "done");  // the value added to the counters so far
  done->addIncoming(same(first, 0), before);
  Value* chunk = loop_begin(b_.getInt64(0), b_.getInt64(layout_.chunks()), "chunk");
  define(n.args[3], b_.CreateAdd(begin_of(chunk), done));
  statements(n.extra, nullptr);
  loop_end();
  Value* next = b_.CreateAdd(done, by);
  done->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(holds(b_.CreateAdd(first, next)), inside, after);
  auto* last = b_.GetInsertBlock();
  b_.SetInsertPoint(after);
  auto* all = b_.CreatePHI(first->getType(), 2, "all_done");
  all->addIncoming(same(first, 0), before), all->addIncoming(next, last);
  block_stride_loop_ = loop, full_iterations_end_ = all;
}

}  // namespace tessera::cpu
