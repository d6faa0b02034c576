// SPDX-License-Identifier: Apache-2.0
// Emits the statements of a chunk: memory accesses, control flow with branches and masks, and print. If a mask is
// given, at least one of its lanes is active.
#include <algorithm>
#include <cmath>

#include "tessera/backend/cpu/codegen/emitter.h"

namespace tessera::cpu {

using namespace ir;

void Emitter::statements(BlockId block, Value* mask) {
  for (NodeId id : fn_.blocks[block])
    if (const Place& place = accesses_.places[id]; place.window != Place::none) anchors_[place.window] = nullptr;
  forget_registers();
  for (NodeId id : fn_.blocks[block]) statement(id, mask);
  flush_pending_stores();
  forget_registers();
}

void Emitter::statement(NodeId id, Value* mask) {
  const Node& n = fn_[id];
  if (!pending_stores_.empty() && !can_pass_pending_stores(id)) flush_pending_stores();
  if (!is_pure(n.op) && !is_load(n.op) && n.op != Op::store) forget_registers();
  switch (n.op) {
    case Op::load:
    case Op::load_if: return load(id, mask);
    case Op::store: return store(id, mask);
    case Op::atomic: return atomic(id, mask);
    case Op::print: return print(n, mask);
    case Op::if_: return if_statement(n, mask);
    case Op::for_: return for_statement(n, mask);
    case Op::while_: return while_statement(n, mask);
    case Op::block_reduce:
    case Op::block_uniform: return accumulate(id, mask);
    case Op::block_scan: return scan(id, mask);
    case Op::subgroup: return subgroup(id, mask);
    default: break;
  }
  if (!is_pure(n.op)) refuse("the statement '" + std::string(op_name(n.op)) + "' is not supported here");
  pure(id);
}

// Masks.

Emitter::Value* Emitter::any(Value* mask) {
  Value* bits = b_.CreateBitCast(mask, b_.getIntNTy(width_));
  return b_.CreateICmpNE(bits, llvm::ConstantInt::get(bits->getType(), 0));
}
Emitter::Value* Emitter::mask_and(Value* mask, Value* condition) {
  return mask ? b_.CreateAnd(mask, condition) : condition;
}

Emitter::Value* Emitter::last_active(Value* vector, Value* mask) {
  if (!mask) return b_.CreateExtractElement(vector, std::uint64_t{width_ - 1});
  Value* bits = b_.CreateBitCast(mask, b_.getIntNTy(width_));
  Value* wide = b_.CreateZExt(bits, b_.getInt32Ty());
  Value* zeros = b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, wide, b_.getTrue());
  return b_.CreateExtractElement(vector, b_.CreateSub(b_.getInt32(31), zeros));
}

// Control flow.

// Returns true if running the body with no active lane is cheaper than a branch.
bool Emitter::short_body(BlockId block) const {
  if (block == no_block) return true;
  return fn_.blocks[block].size() <= 8 && std::ranges::all_of(fn_.blocks[block], [&](NodeId id) {
           const Node& n = fn_[id];
           const bool local =
               (n.op == Op::load || n.op == Op::store) && fn_[n.args[0]].op == Op::local && fn_[n.args[0]].imm == 1;
           return local || (is_pure(n.op) && n.op != Op::math);
         });
}

void Emitter::if_statement(const Node& n, Value* mask) {
  auto new_block = [&](const char* name) { return llvm::BasicBlock::Create(context_, name, body_); };
  const ShapedValue condition = shaped_value(n.args[0]);
  if (condition.shape.scalar()) {
    auto *yes = new_block("then"), *no = new_block("else"), *after = new_block("endif");
    b_.CreateCondBr(condition.value, yes, no);
    b_.SetInsertPoint(yes);
    statements(n.args[1], mask);
    b_.CreateBr(after);
    b_.SetInsertPoint(no);
    if (n.args[2] != no_block) statements(n.args[2], mask);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    return;
  }
  auto branch = [&](BlockId block, Value* lanes) {
    if (short_body(block))
      statements(block, lanes);
    else
      if_any(lanes, [&] { statements(block, lanes); });
  };
  branch(n.args[1], mask_and(mask, condition.value));
  if (n.args[2] != no_block) branch(n.args[2], mask_and(mask, b_.CreateNot(condition.value)));
}

void Emitter::for_statement(const Node& n, Value* mask) {
  const Shape begin_shape = analysis_.shapes[n.args[0]], end_shape = analysis_.shapes[n.args[1]];
  const DType t = dtype(n.args[0]);
  const bool wraps = counter_may_wrap(fn_, n, begin_shape);
  const bool in_step = begin_shape.scalar() || (begin_shape.constant_stride() && !wraps);
  if ((!begin_shape.scalar() || !end_shape.scalar()) && prefers_lanes(n)) return for_by_lane(n, mask);
  if (!analysis_.shapes[n.args[2]].scalar() || !in_step || (!end_shape.scalar() && wraps)) return varying_for(n, mask);

  // All active lanes share one scalar counter, which has the value of lane 0.
  const Shape shape = analysis_.shapes[n.args[3]];
  const bool masks = !shape.scalar() || !end_shape.scalar();
  Value *by = scalar(n.args[2]), *start = scalar(n.args[0]);
  Value* end = end_shape.scalar() ? scalar(n.args[1]) : vector(n.args[1]);
  auto lanes_of = [&](Value* counter) -> Value* {
    Value* c = splat(counter);
    if (!shape.scalar()) c = b_.CreateAdd(c, iota(counter->getType(), shape.stride));
    return mask_and(mask, compare(CompareOp::lt, t, c, end_shape.scalar() ? splat(end) : end));
  };
  // If the step is 1, the sum cannot wrap.
  const bool ones = fn_[n.args[2]].op == Op::constant && fn_[n.args[2]].imm == 1;
  auto* before = b_.GetInsertBlock();
  // Returns the counter after the loop.
  auto loop = [&](Value* from, std::uint64_t unroll, auto&& holds, auto&& goes_on, auto&& body) {
    auto* inside = llvm::BasicBlock::Create(context_, "for", body_);
    auto* after = llvm::BasicBlock::Create(context_, "endfor", body_);
    Value* first = holds(from);
    before = b_.GetInsertBlock();
    b_.CreateCondBr(first, inside, after);
    b_.SetInsertPoint(inside);
    auto* counter = b_.CreatePHI(start->getType(), 2, "i");
    counter->addIncoming(from, before);
    define(n.args[3], counter);
    body(counter);
    Value* next = b_.CreateAdd(counter, by, "", false, ones && !masks && is_signed_int(t));
    Value* again = goes_on(counter, next);
    auto* back = b_.GetInsertBlock();
    counter->addIncoming(next, back);
    request_unrolling(b_.CreateCondBr(again, inside, after), unroll);
    b_.SetInsertPoint(after);
    auto* last = b_.CreatePHI(start->getType(), 2, "after");
    last->addIncoming(from, before);
    last->addIncoming(next, back);
    return last;
  };
  if (!masks) {
    Value* from = start;
    if (!mask && ones && is_signed_int(t) && reads_rows(n)) {
      // Runs four iterations together, so that a load can read four elements of the row of each lane.
      constexpr int rounds = tile_columns;
      Value* room = b_.CreateSub(end, same(end, rounds - 1));
      Value* fits = b_.CreateICmpSLE(room, end);  // false if the subtraction wrapped
      auto holds = [&](Value* i) { return b_.CreateAnd(fits, b_.CreateICmpSLT(i, room)); };
      by = same(start, rounds);
      from = loop(
          start, n.imm / rounds, holds, [&](Value*, Value* next) { return holds(next); },
          [&](Value* i) {
            for (tile_round_ = 0; tile_round_ < rounds; ++tile_round_) {
              define(n.args[3], b_.CreateAdd(i, same(i, tile_round_)));
              statements(n.extra, nullptr);
            }
            tile_round_ = -1;
            tiles_.clear();
          });
      by = scalar(n.args[2]);
    }
    auto holds = [&](Value* i) { return compare(CompareOp::lt, t, i, end); };
    loop(
        from, from == start ? n.imm : 0, holds,
        [&](Value* i, Value* next) { return ones ? holds(next) : has_next_iteration(i, end, by); },
        [&](Value*) { statements(n.extra, mask); });
    return;
  }
  Value* from = start;
  const bool rounds_done = block_stride_loop_ != no_node && &n == &fn_[block_stride_loop_];
  if (rounds_done) from = b_.CreateAdd(start, full_iterations_end_);
  const bool small = !rounds_done && fn_.blocks[n.extra].size() <= 96 &&
                     std::ranges::none_of(fn_.blocks[n.extra], [&](NodeId id) { return is_control(fn_[id].op); });
  if (!mask && small && shape.kind == ShapeKind::linear && shape.stride > 0 && end_shape.scalar() && is_signed_int(t)) {
    // Iterations in which all lanes are active need no masks. Afterwards, each lane has at most one more iteration.
    Value* room = b_.CreateSub(end, same(end, shape.stride * (width_ - 1)));
    Value* fits = b_.CreateICmpSLE(room, end);  // false if the subtraction wrapped
    auto holds = [&](Value* i) { return b_.CreateAnd(fits, b_.CreateICmpSLT(i, room)); };
    from = loop(
        start, n.imm, holds, [&](Value*, Value* next) { return holds(next); },
        [&](Value*) { statements(n.extra, nullptr); });
  }
  auto holds = [&](Value* i) { return any(lanes_of(i)); };
  loop(
      from, 0, holds, [&](Value*, Value* next) { return holds(next); },
      [&](Value* i) { statements(n.extra, lanes_of(i)); });
}

// Returns true if counter + by is below the end. This is correct even if the sum wraps.
Emitter::Value* Emitter::has_next_iteration(Value* counter, Value* end, Value* by) {
  return b_.CreateICmpULT(by, b_.CreateSub(end, counter));
}

void Emitter::varying_for(const Node& n, Value* mask) {
  const DType t = dtype(n.args[0]);
  Value *start = vector(n.args[0]), *end = vector(n.args[1]), *by = vector(n.args[2]);
  auto* inside = llvm::BasicBlock::Create(context_, "for", body_);
  auto* after = llvm::BasicBlock::Create(context_, "endfor", body_);
  Value* first = mask_and(mask, compare(CompareOp::lt, t, start, end));
  auto* before = b_.GetInsertBlock();
  b_.CreateCondBr(any(first), inside, after);
  b_.SetInsertPoint(inside);
  auto* counter = b_.CreatePHI(start->getType(), 2, "i");
  auto* live = b_.CreatePHI(first->getType(), 2, "live");
  counter->addIncoming(start, before);
  live->addIncoming(first, before);
  define(n.args[3], counter);
  statements(n.extra, live);
  Value* next = b_.CreateAdd(counter, by);
  Value* still = b_.CreateAnd(live, has_next_iteration(counter, end, by));
  counter->addIncoming(next, b_.GetInsertBlock());
  live->addIncoming(still, b_.GetInsertBlock());
  b_.CreateCondBr(any(still), inside, after);
  b_.SetInsertPoint(after);
}

void Emitter::while_statement(const Node& n, Value* mask) {
  auto* test = llvm::BasicBlock::Create(context_, "while", body_);
  auto* body = llvm::BasicBlock::Create(context_, "do", body_);
  auto* after = llvm::BasicBlock::Create(context_, "endwhile", body_);
  if (analysis_.shapes[n.args[0]].scalar()) {
    b_.CreateBr(test);
    b_.SetInsertPoint(test);
    statements(n.args[1], mask);
    b_.CreateCondBr(scalar(n.args[0]), body, after);
    b_.SetInsertPoint(body);
    statements(n.extra, mask);
    b_.CreateBr(test);
    b_.SetInsertPoint(after);
    return;
  }
  auto* lanes_type = lanes(b_.getInt1Ty());
  auto* before = b_.GetInsertBlock();
  b_.CreateBr(test);
  b_.SetInsertPoint(test);
  auto* live = b_.CreatePHI(lanes_type, 2, "live");
  live->addIncoming(mask ? mask : llvm::Constant::getAllOnesValue(lanes_type), before);
  statements(n.args[1], live);
  Value* still = b_.CreateAnd(live, vector(n.args[0]));
  b_.CreateCondBr(any(still), body, after);
  b_.SetInsertPoint(body);
  statements(n.extra, still);
  live->addIncoming(still, b_.GetInsertBlock());
  b_.CreateBr(test);
  b_.SetInsertPoint(after);
}

// Memory.

void Emitter::load(NodeId id, Value* mask) {
  const Node& n = fn_[id];
  if (n.type.lanes != 1) refuse("a vector was not lowered");
  if (fn_[n.args[0]].op == Op::local) return local_load(id, mask);
  const DType t = n.type.dtype;
  llvm::Type* element = memory_type(t);
  const unsigned align = static_cast<unsigned>(bytes_of(t));
  const ShapedValue index = shaped_value(n.args[1]);
  const bool conditional = n.op == Op::load_if;
  auto read = [&] {
    return b_.CreateAlignedLoad(element, element_address(n.args[0], index.value), llvm::Align(align));
  };
  if (index.shape.scalar() && !conditional) return define(id, from_memory(t, read()));
  if (index.shape.scalar()) {  // all lanes have the same address, which is read if any lane is active
    const bool one = analysis_.shapes[id].scalar();
    Value* wanted = one ? scalar(n.args[2]) : mask_and(mask, vector(n.args[2]));
    auto* then = llvm::BasicBlock::Create(context_, "read", body_);
    auto* after = llvm::BasicBlock::Create(context_, "endread", body_);
    Value* go = one ? wanted : any(wanted);
    auto* before = b_.GetInsertBlock();
    b_.CreateCondBr(go, then, after);
    b_.SetInsertPoint(then);
    Value* there = from_memory(t, read());
    auto* from = b_.GetInsertBlock();
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    auto* v = b_.CreatePHI(type(t), 2);
    v->addIncoming(there, from);
    v->addIncoming(llvm::Constant::getNullValue(type(t)), before);
    if (one) return define(id, b_.CreateSelect(wanted, v, scalar(n.args[3])));
    return define(id, b_.CreateSelect(vector(n.args[2]), splat(v), vector(n.args[3])));
  }
  Value* other = nullptr;
  Value* active = mask;
  if (conditional) {
    active = mask_and(mask, vector(n.args[2]));
    other = to_memory(t, vector(n.args[3]));
  }
  if (index.shape.constant_stride() && index.shape.stride == 1) {
    Value* address = element_address(n.args[0], index.value);
    if (reads_packed_weight(n)) prefetch(address);
    return define(id, from_memory(t, masked_load(element, address, active, other, align)));
  }
  if (accesses_.places[id].window != Place::none && (!active || masks_in_hardware(t))) {
    Value* v = strided_load(id, active);
    return define(id, from_memory(t, other ? b_.CreateSelect(active, v, other) : v));
  }
  if (index.shape.kind == ShapeKind::linear && !active)
    return define(id, from_memory(t, tile_round_ >= 0 && tiles_.contains(id) ? tiled_load(id) : load_by_lane(id)));
  Value* all = active ? active : llvm::Constant::getAllOnesValue(lanes(b_.getInt1Ty()));
  Value* pointers = element_address(n.args[0], vector(n.args[1]));
  if (!other) other = llvm::Constant::getNullValue(lanes(element));
  define(id, from_memory(t, b_.CreateMaskedGather(lanes(element), pointers, llvm::Align(align), all, other)));
}

/// True for words of a packed weight: 32-bit elements of a read-only buffer in a kernel that multiplies bytes.
bool Emitter::reads_packed_weight(const Node& load) const {
  const Node& memory = fn_[load.args[0]];
  return load.type.dtype == DType::u32 && memory.op == Op::param && fn_.params[memory.imm].access == Access::read &&
         std::ranges::any_of(fn_.nodes, [](const Node& n) { return n.op == Op::dot4; });
}

// Products with one token read a packed weight in order. The hardware prefetches too few of its cache lines, mainly
// because its prefetchers stop at the end of a page.
void Emitter::prefetch(Value* address) {
  constexpr std::uint64_t distance = 4096;
  Value* ahead = b_.CreateConstGEP1_64(b_.getInt8Ty(), address, distance);
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {ahead->getType()},
                     {ahead, b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});  // to read, into L1, data
}

Emitter::Value* Emitter::masked_load(llvm::Type* element, Value* pointer, Value* mask, Value* other, unsigned align) {
  llvm::Type* t = lanes(element);
  if (!mask) return b_.CreateAlignedLoad(t, pointer, llvm::Align(align));
  return b_.CreateMaskedLoad(t, pointer, llvm::Align(align), mask, other ? other : llvm::Constant::getNullValue(t));
}

void Emitter::store(NodeId id, Value* mask) {
  const Node& n = fn_[id];
  if (n.type.lanes != 1) refuse("a vector was not lowered");
  if (fn_[n.args[0]].op == Op::local) return local_store(n, mask);
  if (accesses_.places[id].window == Place::none) forget_registers();
  const DType t = n.type.dtype;
  const llvm::Align align(bytes_of(t));
  const ShapedValue index = shaped_value(n.args[1]);
  if (index.shape.scalar()) {
    const ShapedValue value = shaped_value(n.args[2]);
    Value* v = value.shape.scalar() ? value.value : last_active(vector(n.args[2]), mask);
    b_.CreateAlignedStore(to_memory(t, v), element_address(n.args[0], index.value), align);
    return;
  }
  Value* v = to_memory(t, vector(n.args[2]));
  if (index.shape.constant_stride() && index.shape.stride == 1) {
    Value* pointer = element_address(n.args[0], index.value);
    if (mask)
      b_.CreateMaskedStore(v, pointer, align, mask);
    else
      b_.CreateAlignedStore(v, pointer, align);
    return;
  }
  if (accesses_.places[id].window != Place::none && !(mask && index.shape.by)) return strided_store(id, v, mask);
  if (index.shape.kind == ShapeKind::linear && !mask)
    return store_by_lane(id, element_address(n.args[0], index.value), v);
  b_.CreateMaskedScatter(v, element_address(n.args[0], vector(n.args[1])), align, mask);
}

// Returns the address of each lane's element in a local array.
Emitter::Value* Emitter::local_lane_pointers(const Node& n) {
  const Local& local = locals_[n.args[0]];
  llvm::Type* element = memory_type(dtype(n.args[0]));
  Value* index = cast_integer(vector(n.args[1]), lanes(b_.getInt64Ty()), true);
  if (local.element->isVectorTy())
    index = b_.CreateAdd(b_.CreateMul(index, same(index, width_)), iota(b_.getInt64Ty(), 1));
  return b_.CreateGEP(element, local.pointer, index);
}

void Emitter::local_load(NodeId id, Value* mask) {
  const Node& n = fn_[id];
  const DType t = n.type.dtype;
  const Local& local = locals_[n.args[0]];
  const Shape shape = analysis_.shapes[id], held_shape = analysis_.shapes[n.args[0]];
  const bool conditional = n.op == Op::load_if, single = fn_[n.args[0]].imm == 1;
  const ShapedValue index = shaped_value(n.args[1]);
  Value* v = nullptr;
  if (single || index.shape.scalar()) {
    Value* at = local.pointer;
    if (!single) {
      Value* i = index.value;
      if (conditional) {  // inactive lanes may have an invalid index
        Value* wanted =
            shaped_value(n.args[2]).shape.scalar() ? scalar(n.args[2]) : any(mask_and(mask, vector(n.args[2])));
        i = b_.CreateSelect(wanted, i, same(i, 0));
      }
      at = b_.CreateGEP(local.element, local.pointer, b_.CreateSExt(i, b_.getInt64Ty()));
    }
    v = from_memory(t, b_.CreateAlignedLoad(local.element, at, llvm::Align(single ? 1 : bytes_of(t))));
    if (shape.varying() && !v->getType()->isVectorTy()) {
      v = splat(v);
      if (held_shape.kind == ShapeKind::linear) v = b_.CreateAdd(v, iota(type(t), held_shape.stride));
    }
    if (conditional)
      v = shape.varying() ? b_.CreateSelect(vector(n.args[2]), v, vector(n.args[3]))
                          : b_.CreateSelect(scalar(n.args[2]), v, scalar(n.args[3]));
    return define(id, v);
  }
  llvm::Type* element = memory_type(t);
  Value* other = llvm::Constant::getNullValue(lanes(element));
  Value* active = mask;
  if (conditional) active = mask_and(mask, vector(n.args[2])), other = to_memory(t, vector(n.args[3]));
  if (!active) active = llvm::Constant::getAllOnesValue(lanes(b_.getInt1Ty()));
  Value* pointers = local_lane_pointers(n);
  define(id, from_memory(t, b_.CreateMaskedGather(lanes(element), pointers, llvm::Align(bytes_of(t)), active, other)));
}

void Emitter::local_store(const Node& n, Value* mask) {
  const DType t = n.type.dtype;
  const Local& local = locals_[n.args[0]];
  const ShapedValue index = shaped_value(n.args[1]);
  const bool single = fn_[n.args[0]].imm == 1;
  if (!single && !index.shape.scalar()) {
    b_.CreateMaskedScatter(to_memory(t, vector(n.args[2])), local_lane_pointers(n), llvm::Align(bytes_of(t)), mask);
    return;
  }
  Value* at = local.pointer;
  if (!single) at = b_.CreateGEP(local.element, local.pointer, b_.CreateSExt(index.value, b_.getInt64Ty()));
  const llvm::Align align(single ? 1 : bytes_of(t));
  Value* v = to_memory(t, local.element->isVectorTy() ? vector(n.args[2]) : scalar(n.args[2]));
  // Lanes without a thread may be overwritten.
  if (mask && mask != tail_mask_ && local.element->isVectorTy())
    v = b_.CreateSelect(mask, v, b_.CreateAlignedLoad(local.element, at, align));
  b_.CreateAlignedStore(v, at, align);
}

// Removes the constants from a sum and adds them to `constant`.
Emitter::Value* Emitter::without_constants(Value* sum, std::int64_t& constant, int depth) {
  auto* add = llvm::dyn_cast<llvm::BinaryOperator>(sum);
  if (!add || add->getOpcode() != llvm::Instruction::Add || depth == 0) return sum;
  if (const auto* c = llvm::dyn_cast<llvm::ConstantInt>(add->getOperand(1))) {
    constant += c->getSExtValue();
    return without_constants(add->getOperand(0), constant, depth - 1);
  }
  Value* a = without_constants(add->getOperand(0), constant, depth - 1);
  Value* b = without_constants(add->getOperand(1), constant, depth - 1);
  return a == add->getOperand(0) && b == add->getOperand(1) ? sum : b_.CreateAdd(a, b);
}

Emitter::Value* Emitter::element_address(NodeId memory, Value* index) {
  const Node& m = fn_[memory];
  llvm::Type* element = memory_type(m.type.dtype);
  Value* base =
      m.op == Op::param ? params_[m.imm] : b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), shared_, offsets_[memory]);
  // Folds constants into the address. If the addition of a constant wraps, the index is out of bounds, so its value
  // does not matter.
  std::int64_t constant = 0;
  if (index->getType()->isIntegerTy(32)) {
    Value* rest = without_constants(index, constant, 6);
    if (constant != 0 && std::abs(constant) < (1 << 20)) {
      Value* from = b_.CreateGEP(element, base, b_.CreateSExt(rest, b_.getInt64Ty()));
      return b_.CreateConstGEP1_64(element, from, static_cast<std::uint64_t>(constant));
    }
  }
  return b_.CreateGEP(element, base, cast_integer(index, like(b_.getInt64Ty(), index), true));
}

void Emitter::print(const Node& n, Value* mask) {
  llvm::Type* i64 = b_.getInt64Ty();
  Value* bits = stack(llvm::ArrayType::get(i64, 4), "print");
  std::vector<Value*> vectors;
  for (NodeId a : operands(n)) vectors.push_back(vector(a));
  Value* function = b_.CreateLoad(b_.getPtrTy(), b_.CreateConstGEP1_64(i64, call_, 4));
  Value* user = b_.CreateLoad(b_.getPtrTy(), b_.CreateConstGEP1_64(i64, call_, 5));
  auto* signature = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getInt32Ty(), b_.getPtrTy()}, false);
  each_active_lane(mask, [&](Value* lane) {
    for (unsigned i = 0; i < vectors.size(); ++i) {
      Value* v = b_.CreateExtractElement(vectors[i], lane);
      const DType t = dtype(n.args[i]);
      if (v->getType()->isFloatingPointTy()) v = b_.CreateBitCast(v, b_.getIntNTy(v->getType()->getScalarSizeInBits()));
      v = is_signed_int(t) ? b_.CreateSExt(v, i64) : b_.CreateZExt(v, i64);
      b_.CreateStore(v, b_.CreateConstGEP1_64(i64, bits, i));
    }
    b_.CreateCall(signature, function, {user, b_.getInt32(n.extra), bits});
  });
}

}  // namespace tessera::cpu
