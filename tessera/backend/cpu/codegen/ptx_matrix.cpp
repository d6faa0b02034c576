// SPDX-License-Identifier: Apache-2.0
// Matrix products of fragments with mma.sync. Elements are assigned to lanes as in the emitted CUDA C.
// emit/prelude_matrix.cpp documents this assignment and its sources.
#include <llvm/IR/InlineAsm.h>

#include "tessera/backend/cpu/codegen/ptx_emitter.h"
#include "tessera/ir/multiple.h"

namespace tessera::cpu {

using namespace ir;

llvm::Value* PtxEmitter::slot(Value* fragment, unsigned i) {
  return b_.CreateConstInBoundsGEP1_32(b_.getInt32Ty(), fragment, i);  // floats have the same size
}

void PtxEmitter::matrix(const Node& n) {
  const MmaOp op = n.kind<MmaOp>();
  Value* mine = memory_[n.args[0]];
  const auto fill = [&](Value* v) {
    for (unsigned e = 0; e < 8; ++e) b_.CreateStore(v, slot(mine, e));
  };
  if (op == MmaOp::multiply) {
    const DType t = dtype(n.args[1]);
    Value *left = memory_[n.args[1]], *right = memory_[n.args[2]];
    if (t == DType::i8) return multiply_i8(mine, left, right, n.extra != 0);
    if (n.extra != 0) fill(llvm::ConstantFP::get(b_.getFloatTy(), 0));
    return multiply(t, mine, left, right);
  }
  if (op == MmaOp::fill) return fill(value(n.args[1]));
  Value *at = value(n.args[2]), *stride = b_.CreateSExt(value(n.args[3]), b_.getInt64Ty());
  Value* from = element_address(n.args[1], at);
  const bool transposed = op == MmaOp::load && n.extra != 0;
  const FragmentRole role = fn_[n.args[0]].kind<FragmentRole>();
  if (role != FragmentRole::accumulator) {
    const DType t = dtype(n.args[0]);
    const bool words = t == DType::i8, along_k = (role == FragmentRole::left) != transposed;
    const std::int64_t row = words || t == DType::f32 ? 4 : 8;  // elements of 16 bytes
    const bool whole = known_multiple(fn_, n.args[2]) % row == 0 && known_multiple(fn_, n.args[3]) % row == 0;
    if (t == DType::f32) return load_f32(mine, n.args[1], from, stride, along_k, whole);
    // A row of 32 i8 is a row of 16 u16.
    return load_factor(mine, role, n.args[1], from, words ? b_.CreateShl(stride, 1) : stride, along_k, whole);
  }
  Value* lane = b_.CreateZExt(b_.CreateAnd(linear_thread_id(), b_.getInt32(width - 1)), b_.getInt64Ty());
  Value *group = b_.CreateLShr(lane, 2), *pair = b_.CreateShl(b_.CreateAnd(lane, 3), 1);
  for (unsigned e = 0; e < 8; ++e) {
    Value* row = b_.CreateAdd(group, b_.getInt64(e / 2 % 2 * 8));
    Value* column = b_.CreateAdd(pair, b_.getInt64(e / 4 * 8 + e % 2));
    Value* far = b_.CreateMul(transposed ? column : row, stride);
    Value* place = b_.CreateGEP(b_.getFloatTy(), from, b_.CreateAdd(far, transposed ? row : column));
    if (op == MmaOp::store)
      b_.CreateAlignedStore(b_.CreateLoad(b_.getFloatTy(), slot(mine, e)), place, llvm::Align(4));
    else
      b_.CreateStore(b_.CreateAlignedLoad(b_.getFloatTy(), place, llvm::Align(4)), slot(mine, e));
  }
}

void PtxEmitter::load_factor(Value* words, FragmentRole role, NodeId memory, Value* from, Value* stride, bool along_k,
                             bool whole_rows) {
  auto* wide = b_.getInt64Ty();
  auto* small = b_.getInt16Ty();
  Value* lane = b_.CreateZExt(b_.CreateAnd(linear_thread_id(), b_.getInt32(width - 1)), wide);
  // True if every row starts at a multiple of `bytes`. The condition is uniform in the subgroup.
  Value* steps = b_.CreateOr(b_.CreatePtrToInt(from, wide), b_.CreateShl(stride, 1));
  auto aligned = [&](int bytes) {
    return b_.CreateICmpEQ(b_.CreateAnd(steps, number(wide, bytes - 1)), number(wide, 0));
  };
  auto* after = block("endfactor");
  auto either = [&](Value* condition, auto&& body) {
    auto *yes = block("aligned"), *no = block("unaligned");
    b_.CreateCondBr(condition, yes, no);
    b_.SetInsertPoint(yes);
    body();
    b_.CreateBr(after);
    b_.SetInsertPoint(no);
  };
  if (fn_[memory].op == Op::shared) {
    const bool right = role == FragmentRole::right;
    const auto load_rows = [&] {  // see Prelude::matrix_shared_load and Prelude::matrix_load
      Value* row = b_.CreateAnd(lane, 7);
      Value* low = b_.CreateAnd(lane, 8);                     // 8 if index o (k if transposed) is in the second half
      Value* high = b_.CreateShl(b_.CreateLShr(lane, 4), 3);  // 8 if the other index is in the second half
      Value* at = along_k != right ? b_.CreateAdd(b_.CreateMul(b_.CreateAdd(row, low), stride), high)
                                   : b_.CreateAdd(b_.CreateMul(b_.CreateAdd(row, high), stride), low);
      load_matrices(words, b_.CreateGEP(small, from, at), !along_k, right);
    };
    if (whole_rows) {
      load_rows();
      b_.CreateBr(after);
      b_.SetInsertPoint(after);
      return;
    }
    either(aligned(16), load_rows);
  }
  Value *group = b_.CreateLShr(lane, 2), *pair = b_.CreateShl(b_.CreateAnd(lane, 3), 1);
  auto place = [&](unsigned r) {
    Value *o = b_.CreateAdd(group, b_.getInt64(r % 2 * 8)), *k = b_.CreateAdd(pair, b_.getInt64(r / 2 * 8));
    Value* at = along_k ? b_.CreateAdd(b_.CreateMul(o, stride), k) : b_.CreateAdd(b_.CreateMul(k, stride), o);
    return b_.CreateGEP(small, from, at);
  };
  if (along_k)
    either(aligned(4), [&] {
      for (unsigned r = 0; r < 4; ++r)
        b_.CreateStore(b_.CreateAlignedLoad(b_.getInt32Ty(), place(r), llvm::Align(4)), slot(words, r));
    });
  for (unsigned r = 0; r < 4; ++r) {
    Value* first = place(r);
    Value* second = b_.CreateGEP(small, first, along_k ? number(wide, 1) : stride);
    auto half = [&](Value* at) {
      return b_.CreateZExt(b_.CreateAlignedLoad(small, at, llvm::Align(2)), b_.getInt32Ty());
    };
    b_.CreateStore(b_.CreateOr(half(first), b_.CreateShl(half(second), 16)), slot(words, r));
  }
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

/// Loads four 8 x 8 matrices (see Prelude::matrix_shared_load). If `exchanged`, words 1 and 2 are.
void PtxEmitter::load_matrices(Value* words, Value* row, bool transposed, bool exchanged) {
  auto* word = b_.getInt32Ty();
  auto* four = llvm::StructType::get(context_, {word, word, word, word});
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(four, {b_.getInt64Ty()}, false),
                                    std::string("ldmatrix.sync.aligned.m8n8.x4") + (transposed ? ".trans" : "") +
                                        ".shared.b16 {$0, $1, $2, $3}, [$4];",
                                    "=r,=r,=r,=r,l,~{memory}", true);
  auto* call = b_.CreateCall(code, {b_.CreatePtrToInt(row, b_.getInt64Ty())});
  call->setConvergent();
  for (unsigned r = 0; r < 4; ++r)
    b_.CreateStore(b_.CreateExtractValue(call, r), slot(words, exchanged && r % 3 != 0 ? 3 - r : r));
}

// See Prelude::matrix_load_f32.
void PtxEmitter::load_f32(Value* words, NodeId memory, Value* from, Value* stride, bool along_k, bool whole_rows) {
  llvm::Type *wide = b_.getInt64Ty(), *word = b_.getInt32Ty(), *real = b_.getFloatTy();
  Value* lane = b_.CreateZExt(b_.CreateAnd(linear_thread_id(), b_.getInt32(width - 1)), wide);
  auto* code =
      llvm::InlineAsm::get(llvm::FunctionType::get(word, {real}, false), "cvt.rna.tf32.f32 $0, $1;", "=r,f", false);
  const auto store = [&](Value* value, unsigned r) { b_.CreateStore(b_.CreateCall(code, {value}), slot(words, r)); };
  const auto load_rows = [&] {
    Value *o = b_.CreateAnd(lane, 15), *k = b_.CreateShl(b_.CreateLShr(lane, 4), 2);
    Value* row = b_.CreateGEP(real, from, b_.CreateAdd(b_.CreateMul(o, stride), k));
    for (const unsigned half : {0u, 4u})
      load_matrices(slot(words, half), b_.CreateConstGEP1_32(real, row, 2 * half), false, false);
    for (unsigned r = 0; r < 8; ++r) store(b_.CreateLoad(real, slot(words, r)), r);
  };
  const auto load_each = [&] {
    for (unsigned r = 0; r < 8; ++r) {
      Value *o = b_.CreateAdd(b_.CreateLShr(lane, 2), b_.getInt64(r % 2 * 8)),
            *k = b_.CreateAdd(b_.CreateAnd(lane, 3), b_.getInt64(r / 2 * 4));
      Value* at = along_k ? b_.CreateAdd(b_.CreateMul(o, stride), k) : b_.CreateAdd(b_.CreateMul(k, stride), o);
      store(b_.CreateAlignedLoad(real, b_.CreateGEP(real, from, at), llvm::Align(4)), r);
    }
  };
  if (!along_k || fn_[memory].op != Op::shared) return load_each();
  if (whole_rows) return load_rows();
  auto *yes = block("aligned"), *no = block("unaligned"), *after = block("endfactor");
  Value* steps = b_.CreateOr(b_.CreatePtrToInt(from, wide), b_.CreateShl(stride, 2));
  b_.CreateCondBr(b_.CreateICmpEQ(b_.CreateAnd(steps, number(wide, 15)), number(wide, 0)), yes, no);
  b_.SetInsertPoint(yes);
  load_rows();
  b_.CreateBr(after);
  b_.SetInsertPoint(no);
  load_each();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

void PtxEmitter::multiply_i8(Value* sums, Value* left, Value* right, bool replaces) {
  if (target_.capability < 80) refuse("a matrix product was not lowered");
  llvm::Type *word = b_.getInt32Ty(), *real = b_.getFloatTy();
  auto* four = llvm::StructType::get(context_, {word, word, word, word});
  auto* code = llvm::InlineAsm::get(
      llvm::FunctionType::get(four, std::vector<llvm::Type*>(10, word), false),
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, "
      "$13};",
      "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r,r", true);
  for (unsigned side = 0; side < 2; ++side) {
    std::vector<Value*> args;
    for (const unsigned i : {0u, 1u, 2u, 3u}) args.push_back(b_.CreateLoad(word, slot(left, i)));
    for (const unsigned i : {side, side + 2}) args.push_back(b_.CreateLoad(word, slot(right, i)));
    for (unsigned i = 0; i < 4; ++i) args.push_back(b_.getInt32(0x4b400000));  // see Prelude::matrix_multiply_i8
    auto* call = b_.CreateCall(code, args);
    call->setConvergent();
    for (unsigned i = 0; i < 4; ++i) {
      Value* part = b_.CreateFSub(b_.CreateBitCast(b_.CreateExtractValue(call, i), real),
                                  llvm::ConstantFP::get(real, 12582912.0));
      Value* to = slot(sums, 4 * side + i);
      b_.CreateStore(replaces ? part : b_.CreateFAdd(b_.CreateLoad(real, to), part), to);
    }
  }
}

void PtxEmitter::multiply(DType t, Value* sums, Value* left, Value* right) {
  const bool half = target_.capability < 80, tf32 = t == DType::f32;
  if (target_.capability < 75 || (half && t != DType::f16)) refuse("a matrix product was not lowered");
  const std::string of = tf32 ? "tf32" : std::string(dtype_name(t));
  llvm::Type *word = b_.getInt32Ty(), *real = b_.getFloatTy();
  auto* four = llvm::StructType::get(context_, {real, real, real, real});
  std::vector<llvm::Type*> types(half ? 3 : 6, word);
  types.insert(types.end(), 4, real);
  auto* code = llvm::InlineAsm::get(
      llvm::FunctionType::get(four, types, false),
      (half || tf32 ? "mma.sync.aligned.m16n8k8" : "mma.sync.aligned.m16n8k16") + (".row.col.f32." + of + "." + of) +
          (half ? ".f32 {$0, $1, $2, $3}, {$4, $5}, {$6}, {$7, $8, $9, $10};"
                : ".f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"),
      half ? "=f,=f,=f,=f,r,r,r,f,f,f,f" : "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", true);
  auto words_of = [&](Value* fragment, std::initializer_list<unsigned> which) {
    std::vector<Value*> out;
    for (const unsigned i : which) out.push_back(b_.CreateLoad(word, slot(fragment, i)));
    return out;
  };
  for (unsigned step = 0; step < (half || tf32 ? 2u : 1u); ++step)
    for (unsigned side = 0; side < 2; ++side) {
      const unsigned first = tf32 ? 4 * step : 0;
      std::vector<Value*> args =
          half ? words_of(left, {2 * step, 2 * step + 1}) : words_of(left, {first, first + 1, first + 2, first + 3});
      const std::vector<Value*> b =
          half ? words_of(right, {side + 2 * step}) : words_of(right, {first + side, first + side + 2});
      args.insert(args.end(), b.begin(), b.end());
      for (unsigned i = 0; i < 4; ++i) args.push_back(b_.CreateLoad(real, slot(sums, 4 * side + i)));
      auto* call = b_.CreateCall(code, args);
      call->setConvergent();
      for (unsigned i = 0; i < 4; ++i) b_.CreateStore(b_.CreateExtractValue(call, i), slot(sums, 4 * side + i));
    }
}

}  // namespace tessera::cpu
