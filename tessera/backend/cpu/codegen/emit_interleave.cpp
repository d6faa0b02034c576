// SPDX-License-Identifier: Apache-2.0
// Converts between registers that contain structs in memory order and vectors that contain one member of each struct.
// Uses shuffles, unless the same operations are applied to all members.
#include <algorithm>

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicInst.h>

#include "tessera/backend/cpu/codegen/emitter.h"

namespace tessera::cpu {

// Selects elements of two registers. The elements of `b` are numbered after those of `a`. -1 selects an arbitrary
// element.
Emitter::Value* Emitter::pick(Piece a, Piece b, std::vector<int> from) {
  if (!a.value && !b.value) return nullptr;
  const int n = static_cast<int>(from.size());
  for (int& f : from) {
    if (f < 0) continue;
    const Piece& piece = f < n ? a : b;
    const int lane = f % n + piece.shift;
    f = !piece.value || lane >= n ? -1 : f - f % n + lane;
  }
  Value* any_lanes = llvm::PoisonValue::get((a.value ? a : b).value->getType());
  return b_.CreateShuffleVector(a.value ? a.value : any_lanes, b.value ? b.value : any_lanes, from);
}

// Returns the elements residue + i * pieces.size() of the concatenated pieces.
Emitter::Value* Emitter::deinterleaved(std::vector<Piece> pieces, int residue, int n) {
  std::vector<int> from(static_cast<std::size_t>(n));
  auto lane = [&](int j) -> int& { return from[static_cast<std::size_t>(j)]; };
  for (; pieces.size() % 2 == 0; residue /= 2) {
    for (int j = 0; j < n; ++j) lane(j) = 2 * j + residue % 2;
    for (std::size_t k = 0; k < pieces.size() / 2; ++k) pieces[k] = {pick(pieces[2 * k], pieces[2 * k + 1], from)};
    pieces.resize(pieces.size() / 2);
  }
  const int stride = static_cast<int>(pieces.size());
  for (int k = 1; k < stride; ++k) {
    for (int j = 0; j < n; ++j) {
      const int at = stride * j + residue, piece = at / n;
      lane(j) = piece == k ? n + at % n : piece > k ? -1 : k == 1 ? at : j;
    }
    pieces[0] = {pick(pieces[0], pieces[static_cast<std::size_t>(k)], from)};
  }
  return pieces[0].value;
}

// Interleaves the members of all lanes. Returns registers in memory order.
std::vector<Emitter::Value*> Emitter::interleaved(const std::vector<Value*>& members, int n) {
  const std::size_t stride = members.size();
  if (stride == 1) return members;
  std::vector<int> from(static_cast<std::size_t>(n));
  auto lane = [&](int j) -> int& { return from[static_cast<std::size_t>(j)]; };
  std::vector<Value*> out(stride);
  if (stride % 2 == 0) {
    std::vector<Value*> half[2];
    for (std::size_t i = 0; i < stride; ++i) half[i % 2].push_back(members[i]);
    for (auto& h : half) h = interleaved(h, n);
    for (std::size_t k = 0; k < stride; ++k) {
      for (int j = 0; j < n; ++j) lane(j) = (k % 2 ? n / 2 : 0) + j / 2 + (j % 2 ? n : 0);
      out[k] = pick({half[0][k / 2]}, {half[1][k / 2]}, from);
    }
    return out;
  }
  for (std::size_t k = 0; k < stride; ++k)
    for (std::size_t i = 1; i < stride; ++i) {
      for (int j = 0; j < n; ++j) {
        const int at = static_cast<int>(k) * n + j, member = at % static_cast<int>(stride);
        const int source = at / static_cast<int>(stride), turn = static_cast<int>(i);
        lane(j) = member == turn ? n + source : member > turn ? -1 : turn == 1 ? source : j;
      }
      out[k] = pick({i == 1 ? members[0] : out[k]}, {members[i]}, from);
    }
  return out;
}

// Computes the members in registers in memory order, without shuffles. If the same operations produce all members,
// applies these operations to registers that were loaded in memory order. Operands for which this is not possible are
// shuffled. If there is more than one such operand, shuffles the results instead.
std::vector<Emitter::Value*> Emitter::flat(const std::vector<Value*>& members, int n) {
  int shuffled = 0, steps = 64;
  auto out = flat(members, n, shuffled, steps);
  if (shuffled > 1 || steps < 0) out = joined(members, n);  // LLVM removes the unused instructions
  return out;
}
std::vector<Emitter::Value*> Emitter::flat(const std::vector<Value*>& members, int n, int& shuffled, int& steps) {
  const std::size_t stride = members.size(), count = stride * width_ / static_cast<std::size_t>(n);
  auto wide = [&](llvm::Type* t) { return llvm::FixedVectorType::get(t->getScalarType(), static_cast<unsigned>(n)); };
  if (--steps < 0 || shuffled > 1)
    return std::vector<Value*>(count, llvm::PoisonValue::get(wide(members[0]->getType())));
  // The members were loaded in memory order.
  auto origin = origins_.find(members[0]);
  bool loaded = origin != origins_.end();
  for (std::size_t m = 0; m < stride && loaded; ++m) {
    auto it = origins_.find(members[m]);
    loaded = it != origins_.end() &&
             it->second == Origin{origin->second.window, static_cast<int>(m), origin->second.registers};
  }
  if (loaded && origin->second.registers.size() == count) {
    std::vector<Value*> out;
    for (const Piece& p : origin->second.registers) out.push_back(p.value);
    return out;
  }
  // The members are equal in all lanes. LLVM moves the shuffles out of the loop.
  auto all = [&](auto&& f) { return std::ranges::all_of(members, f); };
  if (all([](Value* v) { return llvm::getSplatValue(v) != nullptr; })) {
    Value* first = llvm::getSplatValue(members[0]);
    if (all([&](Value* v) { return llvm::getSplatValue(v) == first; }))
      return std::vector<Value*>(count, b_.CreateVectorSplat(static_cast<unsigned>(n), first));
    return joined(members, n);
  }
  // Checks that all members are results of the same operation.
  auto* model = llvm::dyn_cast<llvm::Instruction>(members[0]);
  const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(members[0]);
  // The name of an intrinsic contains its result type. The name of a conversion also contains the operand type.
  const bool converts = call && (call->getIntrinsicID() == llvm::Intrinsic::fptosi_sat ||
                                 call->getIntrinsicID() == llvm::Intrinsic::fptoui_sat);
  const bool named = !call || converts || std::ranges::all_of(call->args(), [&](const llvm::Use& a) {
    return a->getType() == call->getType();
  });
  const bool known =
      model && named &&
      (model->isBinaryOp() || model->isUnaryOp() || model->isCast() || llvm::isa<llvm::CmpInst>(model) ||
       llvm::isa<llvm::SelectInst>(model) || (call && llvm::isTriviallyVectorizable(call->getIntrinsicID())));
  auto alike = [&](Value* v) {
    auto* i = llvm::dyn_cast<llvm::Instruction>(v);
    if (!i || !i->isSameOperationAs(model)) return false;
    const unsigned operands = call ? call->arg_size() : i->getNumOperands();
    for (unsigned k = 0; k < operands; ++k)
      if (!i->getOperand(k)->getType()->isVectorTy()) return false;
    return !call || llvm::cast<llvm::CallInst>(i)->getCalledFunction() == call->getCalledFunction();
  };
  if (!known || !all(alike)) {
    ++shuffled;
    return joined(members, n);
  }
  std::vector<std::vector<Value*>> operands;
  for (unsigned k = 0; k < (call ? call->arg_size() : model->getNumOperands()); ++k) {
    std::vector<Value*> of;
    for (Value* v : members) of.push_back(llvm::cast<llvm::Instruction>(v)->getOperand(k));
    operands.push_back(flat(of, n, shuffled, steps));
  }
  std::vector<Value*> out;
  for (std::size_t r = 0; r < count; ++r) {
    auto operand = [&](std::size_t k) { return operands[k][r]; };
    Value* v = nullptr;
    if (call) {
      std::vector<Value*> arguments;
      for (auto& o : operands) arguments.push_back(o[r]);
      std::vector<llvm::Type*> types = {wide(model->getType())};
      if (converts) types.push_back(arguments[0]->getType());
      v = b_.CreateIntrinsic(call->getIntrinsicID(), types, arguments);
    } else if (auto* cast = llvm::dyn_cast<llvm::CastInst>(model)) {
      v = b_.CreateCast(cast->getOpcode(), operand(0), wide(model->getType()));
    } else if (auto* compared = llvm::dyn_cast<llvm::CmpInst>(model)) {
      v = b_.CreateCmp(compared->getPredicate(), operand(0), operand(1));
    } else if (llvm::isa<llvm::SelectInst>(model)) {
      v = b_.CreateSelect(operand(0), operand(1), operand(2));
    } else {
      v = b_.CreateNAryOp(model->getOpcode(), operands.size() == 1 ? llvm::ArrayRef<Value*>{operand(0)}
                                                                   : llvm::ArrayRef<Value*>{operand(0), operand(1)});
    }
    if (auto* made = llvm::dyn_cast<llvm::Instruction>(v)) made->copyIRFlags(model);
    out.push_back(v);
  }
  return out;
}
// Interleaves all members with shuffles.
std::vector<Emitter::Value*> Emitter::joined(const std::vector<Value*>& members, int n) {
  std::vector<Value*> out;
  for (int first = 0; first < static_cast<int>(width_); first += n) {
    std::vector<Value*> part;
    for (Value* v : members) part.push_back(v ? some_lanes(v, first, n) : nullptr);
    for (Value* v : interleaved(part, n)) out.push_back(v);
  }
  return out;
}

// Call this if memory may have changed.
void Emitter::forget_registers() {
  for (auto& r : registers_) r.clear();
}

}  // namespace tessera::cpu
