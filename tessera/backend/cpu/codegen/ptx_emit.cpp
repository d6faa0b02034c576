// SPDX-License-Identifier: Apache-2.0
// Emits the kernel's function, its memory and its statements.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "tessera/backend/cpu/codegen/llvm.h"
#include "tessera/backend/cpu/codegen/ptx_emitter.h"
#include "tessera/ir/print.h"

namespace tessera::cpu {

using namespace ir;
using Kind = emit::KernelArgument::Kind;

PtxEmitter::PtxEmitter(llvm::Module& module, const PtxKernel& kernel, PtxTarget target)
    : Values(module, *kernel.function, {.noalias = kernel.noalias}, {}),
      form_(*kernel.form),
      noalias_(kernel.noalias),
      target_(target) {
  values_.resize(fn_.nodes.size()), memory_.resize(fn_.nodes.size());
}

llvm::BasicBlock* PtxEmitter::block(const char* name) { return llvm::BasicBlock::Create(context_, name, body_); }

void PtxEmitter::run() {
  make_function();
  b_.SetInsertPoint(block("start"));
  make_memory();
  statements(0);
  b_.CreateRetVoid();
}

void PtxEmitter::make_function() {
  std::vector<llvm::Type*> types;
  for (const auto& a : form_.arguments)
    types.push_back(a.kind == Kind::pointer ? static_cast<llvm::Type*>(b_.getPtrTy(global_space))
                                            : memory_type(a.dtype));
  body_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false), llvm::Function::ExternalLinkage,
                                 form_.entry, module_);
  body_->setCallingConv(llvm::CallingConv::PTX_Kernel);
  body_->addFnAttr(llvm::Attribute::NoUnwind);
  for (unsigned i = 0; i < form_.arguments.size(); ++i) {
    const auto& a = form_.arguments[i];
    if (a.kind != Kind::pointer) continue;
    // Together these attributes mean that nothing writes to the buffer while the kernel runs, so loads may use the
    // read-only cache.
    if (noalias_) body_->addParamAttr(i, llvm::Attribute::NoAlias);
    if (fn_.params[a.number].access == Access::read) body_->addParamAttr(i, llvm::Attribute::ReadOnly);
    body_->addParamAttr(i, llvm::Attribute::getWithAlignment(context_, llvm::Align(bytes_of(a.dtype))));
  }
  auto note = [&](const char* what, std::uint32_t number) {
    module_.getOrInsertNamedMetadata("nvvm.annotations")
        ->addOperand(
            llvm::MDNode::get(context_, {llvm::ValueAsMetadata::get(body_), llvm::MDString::get(context_, what),
                                         llvm::ConstantAsMetadata::get(b_.getInt32(number))}));
  };
  note("kernel", 1);
  if (fn_.kind != KernelKind::block) return;
  const auto& size = fn_.block_size;
  note("maxntidx", size[0]), note("maxntidy", size[1]), note("maxntidz", size[2]);
  note("minctasm", emit::blocks_at_least(fn_));
  // Since LLVM 21, these limits are attributes of the function.
  body_->addFnAttr("nvvm.maxntid",
                   std::to_string(size[0]) + "," + std::to_string(size[1]) + "," + std::to_string(size[2]));
  body_->addFnAttr("nvvm.minctasm", std::to_string(emit::blocks_at_least(fn_)));
}

// Shared arrays are allocated in one block of memory, in the order and with the alignment that ir::shared_bytes uses.
// If the block exceeds the static limit, it is dynamic shared memory, and the launch sets its size.
void PtxEmitter::make_memory() {
  std::size_t bytes = 0;
  std::vector<std::pair<NodeId, std::size_t>> offsets;
  for (NodeId id = 1; id < fn_.nodes.size(); ++id) {
    const Node& n = fn_[id];
    if (n.op == Op::shared) {
      bytes = (bytes + 15) & ~std::size_t{15};
      offsets.emplace_back(id, bytes);
      bytes += n.imm * dtype_size(n.type.dtype);
    } else if (n.op == Op::local) {
      if (n.type.lanes != 1) refuse("a vector was not lowered");
      if (is_fragment(n)) {  // words, or floats for an accumulator
        auto* t = llvm::ArrayType::get(is_accumulator(n) ? b_.getFloatTy() : llvm::cast<llvm::Type>(b_.getInt32Ty()),
                                       n.type.dtype == DType::f32 ? 8 : 4);
        memory_[id] = b_.CreateAlloca(t);
        b_.CreateStore(llvm::Constant::getNullValue(t), memory_[id]);
        continue;
      }
      llvm::Type* element = memory_type(n.type.dtype);
      llvm::Type* t = n.imm == 1 ? element : llvm::ArrayType::get(element, n.imm);
      auto* slot = b_.CreateAlloca(t);
      slot->setAlignment(llvm::Align(n.imm == 1 ? bytes_of(n.type.dtype) : 16));
      if (n.imm == 1)
        b_.CreateStore(llvm::Constant::getNullValue(t), slot);
      else
        b_.CreateMemSet(slot, b_.getInt8(0), n.imm * bytes_of(n.type.dtype), slot->getAlign());
      memory_[id] = slot;
    }
  }
  if (bytes == 0) return;
  const bool at_launch = form_.dynamic_shared_bytes != 0;
  auto* t = llvm::ArrayType::get(b_.getInt8Ty(), at_launch ? 0 : bytes);
  auto* slab = new llvm::GlobalVariable(
      module_, t, false, at_launch ? llvm::GlobalValue::ExternalLinkage : llvm::GlobalValue::InternalLinkage,
      at_launch ? nullptr : llvm::UndefValue::get(t), form_.entry + "_shared", nullptr,
      llvm::GlobalValue::NotThreadLocal, shared_space);
  slab->setAlignment(llvm::Align(16));
  for (const auto& [id, offset] : offsets) memory_[id] = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), slab, offset);
}

// Statements.

void PtxEmitter::statements(BlockId list) {
  for (NodeId id : fn_.blocks[list]) statement(id);
}

void PtxEmitter::statement(NodeId id) {
  const Node& n = fn_[id];
  if (n.type.lanes != 1 && n.op != Op::load && n.op != Op::store && n.op != Op::vector)
    refuse("a vector was not lowered");
  switch (n.op) {
    case Op::load:
    case Op::load_if: values_[id] = load(n); return;
    case Op::store: return store(n);
    case Op::atomic: values_[id] = atomic(n); return;
    case Op::vector: values_[id] = vector(n); return;
    case Op::barrier: ptx_barrier(b_); return;
    case Op::print: return print(n);
    case Op::mma: return matrix(n);
    case Op::async: return async(n);
    case Op::if_: return if_statement(n);
    case Op::for_: return for_statement(n);
    case Op::while_: return while_statement(n);
    case Op::subgroup: values_[id] = subgroup(n); return;
    case Op::block_uniform: values_[id] = value(n.args[0]); return;
    default: break;
  }
  if (!is_pure(n.op)) refuse("'" + std::string(op_name(n.op)) + "' was not lowered");
  std::vector<Value*> args;
  for (NodeId a : operands(n)) args.push_back(value(a));
  values_[id] = compute(n, args.data());
}

void PtxEmitter::if_statement(const Node& n) {
  const bool otherwise = n.args[2] != no_block;
  auto *yes = block("if"), *after = block("endif");
  auto* no = otherwise ? block("else") : after;
  b_.CreateCondBr(value(n.args[0]), yes, no);
  b_.SetInsertPoint(yes);
  statements(n.args[1]);
  b_.CreateBr(after);
  if (otherwise) {
    b_.SetInsertPoint(no);
    statements(n.args[2]);
    b_.CreateBr(after);
  }
  b_.SetInsertPoint(after);
}

void PtxEmitter::for_statement(const Node& n) {
  const DType t = dtype(n.args[0]);
  const Node& counter = fn_[n.args[3]];
  Value *start = value(n.args[0]), *end = value(n.args[1]), *step = value(n.args[2]);
  auto *inside = block("for"), *after = block("endfor"), *before = b_.GetInsertBlock();
  b_.CreateCondBr(compare(CompareOp::lt, t, start, end), inside, after);
  b_.SetInsertPoint(inside);
  auto* i = b_.CreatePHI(start->getType(), 2, "i");
  i->addIncoming(start, before);
  values_[n.args[3]] = i;
  statements(n.extra);
  const bool one = fn_[n.args[2]].op == Op::constant && fn_[n.args[2]].imm == 1;
  const bool no_wrap = is_signed_int(t) && (one || counter.extra);
  Value* next = b_.CreateAdd(i, step, "", false, no_wrap);
  // If the user chose the counter type, the counter may be so close to the largest value that the sum wraps.
  Value* more =
      one || counter.extra ? compare(CompareOp::lt, t, next, end) : b_.CreateICmpULT(step, b_.CreateSub(end, i));
  i->addIncoming(next, b_.GetInsertBlock());
  request_unrolling(b_.CreateCondBr(more, inside, after), n.imm);
  b_.SetInsertPoint(after);
}

void PtxEmitter::while_statement(const Node& n) {
  auto *test = block("while"), *inside = block("do"), *after = block("endwhile");
  b_.CreateBr(test);
  b_.SetInsertPoint(test);
  statements(n.args[1]);
  b_.CreateCondBr(value(n.args[0]), inside, after);
  b_.SetInsertPoint(inside);
  statements(n.extra);
  b_.CreateBr(test);
  b_.SetInsertPoint(after);
}

// Memory.

llvm::Value* PtxEmitter::load(const Node& n) {
  const DType t = n.type.dtype;
  auto read = [&]() -> Value* {
    Value* at = element_address(n.args[0], value(n.args[1]));
    if (n.type.lanes > 1) return b_.CreateAlignedLoad(packed(n.type), at, llvm::Align(n.type.lanes * bytes_of(t)));
    return from_memory(t, b_.CreateAlignedLoad(memory_type(t), at, llvm::Align(bytes_of(t))));
  };
  if (n.op == Op::load) return read();
  Value* other = value(n.args[3]);
  auto *then = block("read"), *after = block("endread"), *before = b_.GetInsertBlock();
  b_.CreateCondBr(value(n.args[2]), then, after);
  b_.SetInsertPoint(then);
  Value* there = read();
  auto* from = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  auto* v = b_.CreatePHI(type(t), 2);
  v->addIncoming(there, from);
  v->addIncoming(other, before);
  return v;
}

void PtxEmitter::store(const Node& n) {
  const DType t = is_fragment(fn_[n.args[0]]) ? n.type.dtype : dtype(n.args[0]);  // words of factors are u32
  Value* v = n.type.lanes > 1 ? value(n.args[2]) : to_memory(t, value(n.args[2]));
  b_.CreateAlignedStore(v, element_address(n.args[0], value(n.args[1])), llvm::Align(n.type.lanes * bytes_of(t)));
}

// The type of a vector. Elements below 32 bits are packed in an integer, because LLVM would split such vectors.
void PtxEmitter::async(const Node& n) {
  using llvm::Intrinsic::ID;
  const AsyncOp op = n.kind<AsyncOp>();
  const bool has = target_.capability >= 80;
  if (op == AsyncOp::commit && has) special(llvm::Intrinsic::nvvm_cp_async_commit_group);
  if (op == AsyncOp::wait && has)
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_group, {}, {b_.getInt32(static_cast<std::uint32_t>(n.imm))});
  if (op != AsyncOp::copy) return;
  Value *to = element_address(n.args[0], value(n.args[1])), *from = element_address(n.args[2], value(n.args[3]));
  const std::uint64_t bytes = n.imm * bytes_of(n.type.dtype);
  if (has) {
    const ID copy = bytes == 16  ? llvm::Intrinsic::nvvm_cp_async_cg_shared_global_16
                    : bytes == 8 ? llvm::Intrinsic::nvvm_cp_async_ca_shared_global_8
                                 : llvm::Intrinsic::nvvm_cp_async_ca_shared_global_4;
    b_.CreateIntrinsic(copy, {}, {to, from});
    return;
  }
  llvm::Type* whole = bytes == 4 ? static_cast<llvm::Type*>(b_.getInt32Ty())
                                 : llvm::FixedVectorType::get(b_.getInt32Ty(), static_cast<unsigned>(bytes / 4));
  b_.CreateAlignedStore(b_.CreateAlignedLoad(whole, from, llvm::Align(bytes)), to, llvm::Align(bytes));
}

llvm::Type* PtxEmitter::packed(Type t) const {
  const unsigned bits = static_cast<unsigned>(8 * bytes_of(t.dtype));
  if (bits < 32) return llvm::Type::getIntNTy(context_, bits * t.lanes);
  return llvm::FixedVectorType::get(type(t.dtype), t.lanes);
}

llvm::Value* PtxEmitter::vector(const Node& n) {
  const bool extracts = n.kind<VectorOp>() == VectorOp::extract;
  const Type t = extracts ? fn_[n.args[0]].type : n.type;
  llvm::Type* whole = packed(t);
  const auto place = [&](std::uint64_t lane) { return 8 * bytes_of(t.dtype) * lane; };
  if (extracts) {
    Value* v = value(n.args[0]);
    return whole->isVectorTy() ? b_.CreateExtractElement(v, n.imm)
                               : b_.CreateTrunc(b_.CreateLShr(v, place(n.imm)), type(t.dtype));
  }
  Value* v = whole->isVectorTy() ? static_cast<Value*>(llvm::PoisonValue::get(whole)) : number(whole, 0);
  for (std::uint64_t l = 0; l < t.lanes; ++l) {
    Value* element = value(n.args[l]);
    v = whole->isVectorTy() ? b_.CreateInsertElement(v, element, l)
                            : b_.CreateOr(v, b_.CreateShl(b_.CreateZExt(element, whole), place(l)));
  }
  return v;
}

llvm::Value* PtxEmitter::atomic(const Node& n) {
  using Rmw = llvm::AtomicRMWInst;
  const DType t = n.type.dtype;
  const AtomicOp op = n.kind<AtomicOp>();
  const bool real = is_float(t), is_signed = is_signed_int(t);
  const llvm::Align align(bytes_of(t));
  const auto order = llvm::AtomicOrdering::Monotonic;
  Value *at = element_address(n.args[0], value(n.args[1])), *v = value(n.args[2]);
  llvm::Type* bits = b_.getIntNTy(static_cast<unsigned>(8 * bytes_of(t)));
  auto swap_if = [&](Value* expected, Value* fresh) {
    return b_.CreateExtractValue(b_.CreateAtomicCmpXchg(at, expected, fresh, align, order, order), 0);
  };
  if (op == AtomicOp::cas)
    return b_.CreateBitCast(swap_if(b_.CreateBitCast(value(n.args[3]), bits), b_.CreateBitCast(v, bits)), type(t));
  if (op == AtomicOp::exchange)
    return b_.CreateBitCast(b_.CreateAtomicRMW(Rmw::Xchg, at, b_.CreateBitCast(v, bits), align, order), type(t));
  if (op == AtomicOp::add) return b_.CreateAtomicRMW(real ? Rmw::FAdd : Rmw::Add, at, v, align, order);
  if (op == AtomicOp::and_) return b_.CreateAtomicRMW(Rmw::And, at, v, align, order);
  if (op == AtomicOp::or_) return b_.CreateAtomicRMW(Rmw::Or, at, v, align, order);
  if (op == AtomicOp::xor_) return b_.CreateAtomicRMW(Rmw::Xor, at, v, align, order);
  const bool least = op == AtomicOp::min;
  if (!real)
    return b_.CreateAtomicRMW(least ? (is_signed ? Rmw::Min : Rmw::UMin) : (is_signed ? Rmw::Max : Rmw::UMax), at, v,
                              align, order);
  // PTX has no atomic min or max for floats, so this uses a compare-and-swap loop.
  Value* first = b_.CreateAtomicRMW(Rmw::Or, at, llvm::Constant::getNullValue(bits), align, order);
  auto *again = block("swap"), *after = block("swapped"), *before = b_.GetInsertBlock();
  b_.CreateBr(again);
  b_.SetInsertPoint(again);
  auto* seen = b_.CreatePHI(bits, 2);
  seen->addIncoming(first, before);
  Value* fresh = combine(least ? ReduceOp::min : ReduceOp::max, t, b_.CreateBitCast(seen, type(t)), v);
  Value* old = swap_if(seen, b_.CreateBitCast(fresh, bits));
  seen->addIncoming(old, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpEQ(old, seen), after, again);
  b_.SetInsertPoint(after);
  return b_.CreateBitCast(old, type(t));
}

// Calls vprintf, the device function behind CUDA's printf. Its arguments are a format and a buffer with the values.
void PtxEmitter::print(const Node& n) {
  const auto printed = operands(n);
  std::string format;
  std::vector<Value*> list;
  for (const ir::PrintPiece& piece : ir::print_pieces(fn_.strings[n.extra])) {
    for (const char c : piece.text) format += c == '%' ? "%%" : std::string(1, c);
    if (!piece.value) continue;
    const NodeId id = printed[list.size()];
    const DType t = dtype(id);
    const bool wide = bytes_of(t) == 8;
    Value* v = value(id);
    if (is_float(t)) {
      const int digits = piece.digits ? piece.digits : wide ? ir::double_digits : ir::float_digits;
      format += "%." + std::to_string(digits) + "g";
      v = b_.CreateFPExt(v, b_.getDoubleTy());
      // NaN is printed without a sign, because its sign has no meaning.
      v = b_.CreateSelect(b_.CreateFCmpUNO(v, v), b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v), v);
    } else {
      format += std::string(wide ? "%ll" : "%") + (is_unsigned_int(t) ? "u" : "d");
      v = b_.CreateIntCast(v, wide ? b_.getInt64Ty() : b_.getInt32Ty(), is_signed_int(t));
    }
    list.push_back(v);
  }
  std::vector<llvm::Type*> types;
  for (Value* v : list) types.push_back(v->getType());
  Value* values = llvm::ConstantPointerNull::get(b_.getPtrTy());
  if (!list.empty()) {
    auto* t = llvm::StructType::get(context_, types);
    llvm::IRBuilder<> start(&body_->getEntryBlock(), body_->getEntryBlock().begin());
    values = start.CreateAlloca(t);
    for (unsigned i = 0; i < list.size(); ++i) b_.CreateStore(list[i], b_.CreateStructGEP(t, values, i));
  }
  auto* text = b_.CreateGlobalString(format + "\n", "format", global_space, &module_);
  auto function = module_.getOrInsertFunction("vprintf", b_.getInt32Ty(), b_.getPtrTy(), b_.getPtrTy());
  b_.CreateCall(function, {b_.CreateAddrSpaceCast(text, b_.getPtrTy()), values});
}

}  // namespace tessera::cpu
