// SPDX-License-Identifier: Apache-2.0
// Values: leaves, addresses, subgroups, and operations that the hardware lacks.
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

#include "tessera/backend/cpu/codegen/ptx_emitter.h"

namespace tessera::cpu {

using namespace ir;
namespace Intrinsic = llvm::Intrinsic;
using Kind = emit::KernelArgument::Kind;

llvm::Value* PtxEmitter::special(unsigned intrinsic) {
  return b_.CreateIntrinsic(intrinsic, llvm::ArrayRef<llvm::Type*>(), {});
}

llvm::Value* PtxEmitter::argument(Kind kind, std::uint64_t number) {
  for (unsigned i = 0; i < form_.arguments.size(); ++i)
    if (form_.arguments[i].kind == kind && form_.arguments[i].number == number) return body_->getArg(i);
  refuse("the kernel's entry lacks an argument that its body needs");
}

llvm::Value* PtxEmitter::value(NodeId id) {
  const Node& n = fn_[id];
  if (n.op == Op::constant) return constant(n);
  if (n.op == Op::param) return from_memory(n.type.dtype, argument(Kind::scalar, n.imm));
  if (n.op == Op::index && n.kind<IndexKind>() != IndexKind::counter) return index(n);
  if (!values_[id]) refuse("a value of '" + std::string(op_name(n.op)) + "' is used before it is computed");
  return values_[id];
}

llvm::Value* PtxEmitter::linear_thread_id() {
  Value* linear = special(Intrinsic::nvvm_read_ptx_sreg_tid_x);
  auto add = [&](unsigned intrinsic, std::uint32_t times) {
    linear = b_.CreateAdd(linear, b_.CreateMul(special(intrinsic), b_.getInt32(times)));
  };
  if (fn_.block_size[1] > 1) add(Intrinsic::nvvm_read_ptx_sreg_tid_y, fn_.block_size[0]);
  if (fn_.block_size[2] > 1) add(Intrinsic::nvvm_read_ptx_sreg_tid_z, fn_.block_size[0] * fn_.block_size[1]);
  return linear;
}

llvm::Value* PtxEmitter::lane_count() {
  const std::uint32_t threads = fn_.threads_per_block();
  if (threads % width == 0) return b_.getInt32(width);
  Value* first = b_.CreateAnd(linear_thread_id(), b_.getInt32(~(width - 1)));
  return b_.CreateBinaryIntrinsic(Intrinsic::umin, b_.CreateSub(b_.getInt32(threads), first), b_.getInt32(width));
}

llvm::Value* PtxEmitter::index(const Node& n) {
  static constexpr unsigned thread[] = {Intrinsic::nvvm_read_ptx_sreg_tid_x, Intrinsic::nvvm_read_ptx_sreg_tid_y,
                                        Intrinsic::nvvm_read_ptx_sreg_tid_z};
  static constexpr unsigned of_block[] = {Intrinsic::nvvm_read_ptx_sreg_ctaid_x, Intrinsic::nvvm_read_ptx_sreg_ctaid_y,
                                          Intrinsic::nvvm_read_ptx_sreg_ctaid_z};
  static constexpr unsigned size[] = {Intrinsic::nvvm_read_ptx_sreg_ntid_x, Intrinsic::nvvm_read_ptx_sreg_ntid_y,
                                      Intrinsic::nvvm_read_ptx_sreg_ntid_z};
  static constexpr unsigned count[] = {Intrinsic::nvvm_read_ptx_sreg_nctaid_x, Intrinsic::nvvm_read_ptx_sreg_nctaid_y,
                                       Intrinsic::nvvm_read_ptx_sreg_nctaid_z};
  llvm::Type* t = type(n.type.dtype);
  auto fit = [&](Value* v) { return b_.CreateZExtOrTrunc(v, t); };
  const bool map = fn_.kind == KernelKind::map;
  const auto d = static_cast<std::size_t>(n.imm);
  Value* block_size = nullptr;
  const IndexKind kind = n.kind<IndexKind>();
  if (kind == IndexKind::global_id || kind == IndexKind::block_size || (!map && kind <= IndexKind::extent))
    block_size = map ? fit(special(size[d])) : number(t, fn_.block_size[d]);
  switch (kind) {
    case IndexKind::buffer_size: return argument(Kind::length, d);
    case IndexKind::thread_id: return fit(special(thread[d]));
    case IndexKind::global_id:
      return b_.CreateAdd(b_.CreateMul(fit(special(of_block[d])), block_size), fit(special(thread[d])));
    case IndexKind::block_id: return fit(special(of_block[d]));
    case IndexKind::block_size: return block_size;
    case IndexKind::block_count: return fit(special(count[d]));
    case IndexKind::grid_size:
    case IndexKind::extent: return map ? argument(Kind::extent, d) : b_.CreateMul(fit(special(count[d])), block_size);
    case IndexKind::lane_id: return fit(b_.CreateAnd(linear_thread_id(), b_.getInt32(width - 1)));
    case IndexKind::subgroup_id: return fit(b_.CreateLShr(linear_thread_id(), b_.getInt32(5)));
    case IndexKind::subgroup_size: return number(t, width);
    case IndexKind::subgroup_count: return number(t, (fn_.threads_per_block() + width - 1) / width);
    default: refuse("the index '" + std::string(name_of(kind)) + "' is not supported here");
  }
}

llvm::Value* PtxEmitter::element_address(NodeId memory, Value* at) {
  const Node& m = fn_[memory];
  if (m.op == Op::local && m.imm == 1) return memory_[memory];
  if (is_fragment(m)) return b_.CreateGEP(b_.getInt32Ty(), memory_[memory], b_.CreateSExt(at, b_.getInt64Ty()));
  Value* base = m.op == Op::param ? argument(Kind::pointer, m.imm) : memory_[memory];
  return b_.CreateGEP(memory_type(m.type.dtype), base, b_.CreateSExt(at, b_.getInt64Ty()));
}

// Subgroup operations. They use the same algorithms as the helper functions in the emitted CUDA C, so that results are
// bit-identical.

llvm::Value* PtxEmitter::shuffle(unsigned intrinsic, Value* v, Value* lane) {
  llvm::Type* t = v->getType();
  const unsigned bits = t->getPrimitiveSizeInBits();
  Value* whole = t->isFloatingPointTy() ? b_.CreateBitCast(v, b_.getIntNTy(bits)) : v;
  Value* count = lane_count();
  Value* mask = b_.CreateSelect(b_.CreateICmpEQ(count, b_.getInt32(width)), b_.getInt32(~0u),
                                b_.CreateSub(b_.CreateShl(b_.getInt32(1), count), b_.getInt32(1)));
  Value* limit = b_.getInt32(intrinsic == Intrinsic::nvvm_shfl_sync_up_i32 ? 0 : width - 1);
  auto move = [&](Value* word) { return b_.CreateIntrinsic(intrinsic, {}, {mask, word, lane, limit}); };
  if (bits <= 32) {
    whole = b_.CreateTrunc(move(b_.CreateZExt(whole, b_.getInt32Ty())), whole->getType());
  } else {
    auto* pair = llvm::FixedVectorType::get(b_.getInt32Ty(), 2);
    Value* halves = b_.CreateBitCast(whole, pair);
    Value* out = llvm::PoisonValue::get(pair);
    for (std::uint64_t i = 0; i < 2; ++i)
      out = b_.CreateInsertElement(out, move(b_.CreateExtractElement(halves, i)), i);
    whole = b_.CreateBitCast(out, whole->getType());
  }
  return t->isFloatingPointTy() ? b_.CreateBitCast(whole, t) : whole;
}

llvm::Value* PtxEmitter::subgroup(const Node& n) {
  const DType t = n.type.dtype;
  Value *v = value(n.args[0]), *count = lane_count();
  Value* lane = b_.CreateAnd(linear_thread_id(), b_.getInt32(width - 1));
  auto reduce = [&](ReduceOp op) {
    const bool full = fn_.threads_per_block() % width == 0;
    for (unsigned step = width / 2; step > 0; step /= 2) {
      const unsigned how = full ? Intrinsic::nvvm_shfl_sync_bfly_i32 : Intrinsic::nvvm_shfl_sync_down_i32;
      Value* both = combine(op, t, v, shuffle(how, v, b_.getInt32(step)));
      Value* there = b_.CreateICmpULT(b_.CreateAdd(lane, b_.getInt32(step)), count);
      v = full ? both : b_.CreateSelect(there, both, v);
    }
    return full ? v : shuffle(Intrinsic::nvvm_shfl_sync_idx_i32, v, b_.getInt32(0));
  };
  auto moved = [&](Value* from) {  // if the source lane does not exist, the result is the thread's own value
    return shuffle(Intrinsic::nvvm_shfl_sync_idx_i32, v, b_.CreateSelect(b_.CreateICmpULT(from, count), from, lane));
  };
  auto scanned = [&](bool exclusive) {
    for (unsigned step = 1; step < width; step *= 2) {
      Value* both = combine(ReduceOp::sum, t, v, shuffle(Intrinsic::nvvm_shfl_sync_up_i32, v, b_.getInt32(step)));
      v = b_.CreateSelect(b_.CreateICmpUGE(lane, b_.getInt32(step)), both, v);
    }
    if (!exclusive) return v;
    Value* before = shuffle(Intrinsic::nvvm_shfl_sync_up_i32, v, b_.getInt32(1));
    return b_.CreateSelect(b_.CreateICmpEQ(lane, b_.getInt32(0)), llvm::Constant::getNullValue(v->getType()), before);
  };
  Value* by =
      n.args[1] ? b_.CreateIntCast(value(n.args[1]), b_.getInt32Ty(), is_signed_int(dtype(n.args[1]))) : nullptr;
  switch (n.kind<SubgroupOp>()) {
    case SubgroupOp::sum: return reduce(ReduceOp::sum);
    case SubgroupOp::min: return reduce(ReduceOp::min);
    case SubgroupOp::max: return reduce(ReduceOp::max);
    case SubgroupOp::any: return reduce(ReduceOp::or_);
    case SubgroupOp::all: return reduce(ReduceOp::and_);
    case SubgroupOp::broadcast:
    case SubgroupOp::shuffle: return moved(by);
    case SubgroupOp::shuffle_xor: return moved(b_.CreateXor(lane, by));
    case SubgroupOp::shuffle_up: return moved(b_.CreateSub(lane, by));
    case SubgroupOp::shuffle_down: return moved(b_.CreateAdd(lane, by));
    case SubgroupOp::inclusive_sum: return scanned(false);
    default: return scanned(true);
  }
}

llvm::Value* PtxEmitter::dot4(Dot4Signs signs, Value* a, Value* b, Value* c) {
  const char* types = ir::a_is_signed(signs) ? "s32.s32" : ir::b_is_signed(signs) ? "u32.s32" : "u32.u32";
  llvm::Type* word = b_.getInt32Ty();
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(word, {word, word, word}, false),
                                    std::string("dp4a.") + types + " $0, $1, $2, $3;", "=r,r,r,r", false);
  auto* call = b_.CreateCall(code, {a, b, c});
  call->setDoesNotAccessMemory();
  return call;
}

llvm::Value* PtxEmitter::bfloat_from_float(Value* a) {
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(b_.getInt16Ty(), {b_.getFloatTy()}, false),
                                    "cvt.rn.bf16.f32 $0, $1;", "=h,f", false);
  auto* call = b_.CreateCall(code, {a});
  call->setDoesNotAccessMemory();
  return call;
}

// e^x or 2^x of f32: 2^n 2^t with n = rint(x log2(e)), limited to exponents of normal numbers, and |t| <= 1/2 unless n
// was limited. Adding `magic` rounds to an integer and leaves n + 127 in the low bits. ex2.approx.ftz has an error of
// at most 2 ULP (CUDA C++ Programming Guide, "Mathematical Functions", exp2f). All steps keep NaN and infinities.
llvm::Value* PtxEmitter::exponential(Value* x, bool natural) {
  constexpr double magic = 0x1.8p+23 + 127;
  const auto number = [&](double v) { return llvm::ConstantFP::get(b_.getFloatTy(), v); };
  const auto fma = [&](Value* a, Value* b, Value* c) {
    return b_.CreateIntrinsic(llvm::Intrinsic::fma, {b_.getFloatTy()}, {a, b, c});
  };
  // log2(e) as the sum of two floats
  Value *const high = number(0x1.715476p+0), *const low = number(0x1.4ae0c0p-26);
  Value* rounded = natural ? fma(x, high, number(magic)) : b_.CreateFAdd(x, number(magic));
  rounded = b_.CreateMaxNum(rounded, number(magic - 126));
  rounded = b_.CreateMinNum(rounded, number(magic + 127));
  Value* const n = b_.CreateFSub(rounded, number(magic));
  Value* const t = natural ? fma(x, low, fma(x, high, b_.CreateFNeg(n))) : b_.CreateFSub(x, n);
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(b_.getFloatTy(), {b_.getFloatTy()}, false),
                                    "ex2.approx.ftz.f32 $0, $1;", "=f,f", false);
  auto* power = b_.CreateCall(code, {t});
  power->setDoesNotAccessMemory();
  Value* const scale = b_.CreateShl(b_.CreateBitCast(rounded, b_.getInt32Ty()), 23);
  return b_.CreateFMul(power, b_.CreateBitCast(scale, b_.getFloatTy()));
}

// PTX has no C library. Only these functions have no expansion in Tessera's IR.
llvm::Value* PtxEmitter::library_call(const char* name, DType t, Value* const* a, unsigned) {
  const std::string called = name;
  if (called == "expf" || called == "exp2f") return exponential(a[0], called == "expf");
  if (called == "fmod" || called == "fmodf") return b_.CreateCall(remainder_function(t), {a[0], a[1]});
  refuse("'" + called + "' of " + std::string(dtype_name(t)) + " was not expanded, and PTX has no math library");
}

// Computes |x| modulo |y| by subtracting y times decreasing powers of two. Each difference is exact. The result has the
// sign of x.
llvm::Function* PtxEmitter::remainder_function(DType t) {
  const std::string name = "tessera_rem_" + std::string(dtype_name(t));
  if (auto* made = module_.getFunction(name)) return made;
  llvm::Type* real = type(t);
  auto* f = llvm::Function::Create(llvm::FunctionType::get(real, {real, real}, false), llvm::Function::InternalLinkage,
                                   name, module_);
  f->addFnAttr(llvm::Attribute::NoUnwind);
  auto part = [&](const char* what) { return llvm::BasicBlock::Create(context_, what, f); };
  auto *start = part("start"), *finite = part("finite"), *grow = part("grow"), *shrink = part("shrink"),
       *take = part("take"), *next = part("next"), *nothing = part("nothing"), *done = part("done");
  llvm::IRBuilder<> b(start);  // without contraction
  auto number = [&](double v) { return llvm::ConstantFP::get(real, v); };
  auto* infinite = llvm::ConstantFP::getInfinity(real);
  Value* x = b.CreateUnaryIntrinsic(Intrinsic::fabs, f->getArg(0));
  Value* y = b.CreateUnaryIntrinsic(Intrinsic::fabs, f->getArg(1));
  b.CreateCondBr(b.CreateAnd(b.CreateFCmpOGT(y, number(0)), b.CreateFCmpOLT(x, infinite)), finite, nothing);
  b.SetInsertPoint(nothing);
  b.CreateRet(llvm::ConstantFP::getQNaN(real));
  b.SetInsertPoint(finite);
  Value* half = b.CreateFMul(x, number(0.5));
  b.CreateCondBr(b.CreateFCmpOLT(x, y), done, grow);  // also taken if y is infinite
  b.SetInsertPoint(grow);
  auto* scaled = b.CreatePHI(real, 2);
  scaled->addIncoming(y, finite);
  Value* twice = b.CreateFMul(scaled, number(2));
  scaled->addIncoming(twice, grow);
  b.CreateCondBr(b.CreateFCmpOLE(scaled, half), grow, shrink);
  b.SetInsertPoint(shrink);
  auto *rest = b.CreatePHI(real, 2), *by = b.CreatePHI(real, 2);
  rest->addIncoming(x, grow), by->addIncoming(scaled, grow);
  b.CreateCondBr(b.CreateFCmpOGE(rest, by), take, next);
  b.SetInsertPoint(take);
  Value* less = b.CreateFSub(rest, by);
  b.CreateBr(next);
  b.SetInsertPoint(next);
  auto* left = b.CreatePHI(real, 2);
  left->addIncoming(rest, shrink), left->addIncoming(less, take);
  Value* smaller = b.CreateFMul(by, number(0.5));
  rest->addIncoming(left, next), by->addIncoming(smaller, next);
  b.CreateCondBr(b.CreateFCmpOGE(smaller, y), shrink, done);
  b.SetInsertPoint(done);
  auto* result = b.CreatePHI(real, 2);
  result->addIncoming(x, finite), result->addIncoming(left, next);
  b.CreateRet(b.CreateBinaryIntrinsic(Intrinsic::copysign, result, f->getArg(0)));
  return f;
}

}  // namespace tessera::cpu
