// SPDX-License-Identifier: Apache-2.0
// Addresses of scalars that are broadcast to all lanes. If the address of a broadcast memory operand is the sum of two
// registers, the processor splits the instruction into two micro-operations (unlamination; Intel, Optimization
// Reference Manual, 2.3.5, micro-fusion and indexed addressing). So the common part of several such addresses is
// computed once. Inline assembly prevents LLVM from undoing this.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Instructions.h>

#include "tessera/backend/cpu/codegen/emitter.h"

namespace tessera::cpu {

namespace {

constexpr int enough = 4;

bool is_broadcast(const llvm::User* user) {
  const auto* load = llvm::dyn_cast<llvm::LoadInst>(user);
  return load != nullptr && (load->getType()->isIntegerTy(32) || load->getType()->isFloatTy()) &&
         llvm::any_of(load->users(), [](const llvm::User* u) { return llvm::isa<llvm::InsertElementInst>(u); });
}

/// Returns the number of broadcast loads at `address` or at a constant offset from it.
auto broadcasts(const llvm::GetElementPtrInst& address) {
  auto count = llvm::count_if(address.users(), is_broadcast);
  for (const llvm::User* u : address.users())
    if (const auto* behind = llvm::dyn_cast<llvm::GetElementPtrInst>(u); behind && behind->hasAllConstantIndices())
      count += llvm::count_if(behind->users(), is_broadcast);
  return count;
}

}  // namespace

void keep_addresses(llvm::Module& module) {
  std::vector<llvm::GetElementPtrInst*> shared;
  for (llvm::Function& f : module)
    for (llvm::BasicBlock& block : f)
      for (llvm::Instruction& i : block)
        if (auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(&i);
            address != nullptr && !address->hasAllConstantIndices() && broadcasts(*address) >= enough)
          shared.push_back(address);
  for (llvm::GetElementPtrInst* address : shared) {
    llvm::Type* pointer = address->getType();
    llvm::IRBuilder<> builder(address->getNextNode());
    auto* kept = builder.CreateCall(
        llvm::InlineAsm::get(llvm::FunctionType::get(pointer, {pointer}, false), "", "=r,0", false), {address});
    address->replaceUsesWithIf(kept, [&](const llvm::Use& use) { return use.getUser() != kept; });
  }
}

}  // namespace tessera::cpu
