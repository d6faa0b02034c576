// SPDX-License-Identifier: Apache-2.0
// Atomics. The lanes execute them one after another. In shared memory, they are plain loads and stores, because a
// single CPU thread runs the block.
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/Analysis/VectorUtils.h>

#include "tessera/backend/cpu/codegen/emitter.h"

namespace tessera::cpu {

using namespace ir;

namespace {
ReduceOp reduction_of(AtomicOp op) {
  switch (op) {
    case AtomicOp::add: return ReduceOp::sum;
    case AtomicOp::min: return ReduceOp::min;
    case AtomicOp::max: return ReduceOp::max;
    case AtomicOp::and_: return ReduceOp::and_;
    default: return ReduceOp::or_;
  }
}
}  // namespace

Emitter::Value* Emitter::atomic_scalar(const Node& n, Value* pointer, Value* value, Value* expected) {
  const DType t = n.type.dtype;
  const AtomicOp op = n.kind<AtomicOp>();
  const llvm::Align align(bytes_of(t));
  llvm::Type* bits = b_.getIntNTy(static_cast<unsigned>(8 * bytes_of(t)));
  if (fn_[n.args[0]].op == Op::shared) {  // a single CPU thread runs the block
    Value* old = b_.CreateAlignedLoad(type(t), pointer, align);
    Value* fresh = value;
    if (op == AtomicOp::cas)
      fresh =
          b_.CreateSelect(b_.CreateICmpEQ(b_.CreateBitCast(old, bits), b_.CreateBitCast(expected, bits)), value, old);
    else if (op == AtomicOp::xor_)
      fresh = b_.CreateXor(old, value);
    else if (op != AtomicOp::exchange)
      fresh = combine(reduction_of(op), t, old, value);
    b_.CreateAlignedStore(fresh, pointer, align);
    return old;
  }
  const auto order = llvm::AtomicOrdering::Monotonic;
  if (op == AtomicOp::cas) {
    Value* pair = b_.CreateAtomicCmpXchg(pointer, b_.CreateBitCast(expected, bits), b_.CreateBitCast(value, bits),
                                         align, order, order);
    return b_.CreateBitCast(b_.CreateExtractValue(pair, 0), type(t));
  }
  if (is_float(t) && op != AtomicOp::exchange) {
    // A loop of compare and swap. LLVM makes the same loop of atomicrmw, but before LLVM 20 its code for aarch64
    // without LSE ignores that an exclusive store failed, and loses the addition (llvm-project issue 150988).
    auto *again = llvm::BasicBlock::Create(context_, "swap", body_), *before = b_.GetInsertBlock();
    auto* after = llvm::BasicBlock::Create(context_, "swapped", body_);
    auto* first = b_.CreateAlignedLoad(bits, pointer, align);
    first->setAtomic(order);
    b_.CreateBr(again);
    b_.SetInsertPoint(again);
    auto* seen = b_.CreatePHI(bits, 2, "seen");
    seen->addIncoming(first, before);
    Value* fresh = combine(reduction_of(op), t, b_.CreateBitCast(seen, type(t)), value);
    Value* pair = b_.CreateAtomicCmpXchg(pointer, seen, b_.CreateBitCast(fresh, bits), align, order, order);
    seen->addIncoming(b_.CreateExtractValue(pair, 0), b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateExtractValue(pair, 1), after, again);
    b_.SetInsertPoint(after);
    return b_.CreateBitCast(seen, type(t));
  }
  using Rmw = llvm::AtomicRMWInst;
  const bool is_signed = is_signed_int(t);
  Rmw::BinOp how = Rmw::Xchg;
  if (op == AtomicOp::add) how = Rmw::Add;
  if (op == AtomicOp::min) how = is_signed ? Rmw::Min : Rmw::UMin;
  if (op == AtomicOp::max) how = is_signed ? Rmw::Max : Rmw::UMax;
  if (op == AtomicOp::and_) how = Rmw::And;
  if (op == AtomicOp::or_) how = Rmw::Or;
  if (op == AtomicOp::xor_) how = Rmw::Xor;
  return b_.CreateAtomicRMW(how, pointer, value, align, order);
}

// Computes one lane of a vector with scalar instructions, if the lane can be computed from read-only memory with few
// instructions. This is cheaper than extracting the lane from a register. Otherwise returns null.
Emitter::Value* Emitter::scalar_of_lane(Value* vector, unsigned lane, int steps) {
  if (const auto* c = llvm::dyn_cast<llvm::Constant>(vector)) return c->getAggregateElement(lane);
  if (Value* s = llvm::getSplatValue(vector)) return s;
  if (auto* load = llvm::dyn_cast<llvm::LoadInst>(vector)) {
    const auto* from = llvm::dyn_cast<llvm::Argument>(llvm::getUnderlyingObject(load->getPointerOperand()));
    if (!from || !from->hasNoAliasAttr() || !from->onlyReadsMemory()) return nullptr;
    llvm::Type* element = load->getType()->getScalarType();
    return b_.CreateAlignedLoad(element, b_.CreateConstGEP1_64(element, load->getPointerOperand(), lane),
                                llvm::Align(element->getScalarSizeInBits() / 8));
  }
  if (steps == 0) return nullptr;
  const auto part = [&](Value* v) { return scalar_of_lane(v, lane, steps - 1); };
  if (auto* cast = llvm::dyn_cast<llvm::CastInst>(vector); cast && cast->isIntegerCast()) {
    Value* v = part(cast->getOperand(0));
    return v ? b_.CreateCast(cast->getOpcode(), v, cast->getDestTy()->getScalarType()) : nullptr;
  }
  if (auto* two = llvm::dyn_cast<llvm::BinaryOperator>(vector); two && (two->isBitwiseLogicOp() || two->isShift())) {
    Value *a = part(two->getOperand(0)), *b = a ? part(two->getOperand(1)) : nullptr;
    return b ? b_.CreateBinOp(two->getOpcode(), a, b) : nullptr;
  }
  return nullptr;
}

// Returns a lane in a scalar register. 32-bit lanes are extracted in pairs. Call it for lanes in ascending order with
// the same `pair`, which caches the pair of the previous lane.
Emitter::Value* Emitter::lane_of(Value* vector, unsigned lane, Value*& pair) {
  if (Value* v = scalar_of_lane(vector, lane)) return v;
  if (!vector->getType()->getScalarType()->isIntegerTy(32)) return b_.CreateExtractElement(vector, lane);
  if (lane % 2 == 0) {
    auto* pairs = llvm::FixedVectorType::get(b_.getInt64Ty(), width_ / 2);
    pair = b_.CreateExtractElement(b_.CreateBitCast(vector, pairs), lane / 2);
  }
  return b_.CreateTrunc(lane % 2 == 0 ? pair : b_.CreateLShr(pair, 32), b_.getInt32Ty());
}

void Emitter::atomic(NodeId id, Value* mask) {
  const Node& n = fn_[id];
  const DType t = n.type.dtype;
  const AtomicOp op = n.kind<AtomicOp>();
  const bool reducible = op != AtomicOp::exchange && op != AtomicOp::cas && op != AtomicOp::xor_;
  if (shaped_value(n.args[1]).shape.scalar() && reducible && !used_[id]) {
    const ReduceOp how = reduction_of(op);
    Value* v = vector(n.args[2]);
    if (mask) v = b_.CreateSelect(mask, v, splat(identity(how, t)));
    atomic_scalar(n, element_address(n.args[0], scalar(n.args[1])), across(how, t, v), nullptr);
    return;
  }
  // In shared memory, each lane needs only a load, an operation and a store. A loop over the lanes would double this
  // cost.
  const bool unrolled = !mask && fn_[n.args[0]].op == Op::shared;
  struct Operand {
    Value* one = nullptr;                   // value shared by all lanes
    Value *all = nullptr, *pair = nullptr;  // arguments of lane_of()
    Value* place = nullptr;                 // lanes spilled to memory
  };
  const auto operand = [&](NodeId a) -> Operand {
    if (a == no_node) return {};
    if (shaped_value(a).shape.scalar()) return {.one = scalar(a)};
    if (unrolled) return {.all = vector(a)};
    Value* place = stack(vector(a)->getType(), "atomic");
    b_.CreateStore(vector(a), place);
    return {.place = place};
  };
  Operand index = operand(n.args[1]), given = operand(n.args[2]), expected = operand(n.args[3]);
  Value* results = stack(lanes(type(t)), "old");
  b_.CreateStore(llvm::Constant::getNullValue(lanes(type(t))), results);
  const auto of_lane = [&](Value* lane) {
    const auto element = [&](NodeId a, Operand& o) {
      if (o.all) return lane_of(o.all, llvm::cast<llvm::ConstantInt>(lane)->getZExtValue(), o.pair);
      return o.place ? b_.CreateLoad(type(dtype(a)), b_.CreateInBoundsGEP(type(dtype(a)), o.place, lane)) : o.one;
    };
    Value* pointer = element_address(n.args[0], element(n.args[1], index));
    Value* old = atomic_scalar(n, pointer, element(n.args[2], given), element(n.args[3], expected));
    b_.CreateStore(old, b_.CreateInBoundsGEP(type(t), results, lane));
  };
  if (unrolled)
    for (unsigned lane = 0; lane < width_; ++lane) of_lane(b_.getInt32(lane));
  else
    each_active_lane(mask, of_lane);
  define(id, b_.CreateLoad(lanes(type(t)), results));
}

}  // namespace tessera::cpu
