// SPDX-License-Identifier: Apache-2.0
// Values: their storage, and operations across lanes. Operations on single lanes are in values.cpp.
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/Support/KnownBits.h>

#include <algorithm>

#include "tessera/backend/cpu/codegen/emitter.h"
#include "tessera/backend/cpu/codegen/llvm.h"

namespace tessera::cpu {

using namespace ir;

// Types.

llvm::FixedVectorType* Emitter::lanes(llvm::Type* element) const { return llvm::FixedVectorType::get(element, width_); }
Emitter::Value* Emitter::splat(Value* v) { return b_.CreateVectorSplat(width_, v); }
Emitter::Value* Emitter::iota(llvm::Type* element, std::int64_t stride) {
  std::vector<llvm::Constant*> all;
  for (unsigned i = 0; i < width_; ++i)
    all.push_back(llvm::ConstantInt::get(element, static_cast<std::uint64_t>(stride) * i, true));
  return llvm::ConstantVector::get(all);
}
// Locations of values.

Emitter::ShapedValue Emitter::leaf(NodeId id) {
  const Node& n = fn_[id];
  const Shape shape = analysis_.shapes[id];
  llvm::Type* t = type(n.type.dtype);
  if (n.op == Op::constant) return {shape, constant(n)};
  if (n.op == Op::param) return {shape, params_[n.imm]};
  if (n.op != Op::index) refuse("expected a value, not '" + std::string(op_name(n.op)) + "'");
  auto fit = [&](Value* v) { return ShapedValue{shape, b_.CreateIntCast(v, like(t, v), false)}; };
  auto whole = [&](std::uint64_t v) { return fit(b_.getInt64(v)); };
  const bool map = layout_.threads == 0;
  const auto d = static_cast<std::size_t>(n.imm);
  const IndexKind kind = n.kind<IndexKind>();
  switch (kind) {
    case IndexKind::counter: return {shape, values_[id]};
    case IndexKind::buffer_size: return fit(sizes_[d]);
    case IndexKind::thread_id: return fit(thread_[d]);
    case IndexKind::global_id: {
      if (map) return fit(thread_[d]);
      Value* own = fit(thread_[d]).value;
      Value* before = fit(b_.CreateMul(block_id_[d], b_.getInt64(fn_.block_size[d]))).value;
      if (own->getType()->isVectorTy()) before = splat(before);
      return {shape, b_.CreateAdd(before, own)};
    }
    case IndexKind::block_id: return fit(block_id_[d]);
    case IndexKind::block_size: return whole(fn_.block_size[d]);
    case IndexKind::block_count: return fit(grid_[d]);
    case IndexKind::grid_size:
    case IndexKind::extent: return map ? fit(grid_[d]) : fit(b_.CreateMul(grid_[d], b_.getInt64(fn_.block_size[d])));
    case IndexKind::lane_id: return whole(0);  // the shape is linear
    case IndexKind::subgroup_id: return fit(chunk_);
    case IndexKind::subgroup_size: return whole(width_);
    case IndexKind::subgroup_count: return whole(layout_.chunks());
    default: refuse("the index '" + std::string(name_of(kind)) + "' is not supported here");
  }
}
Emitter::ShapedValue Emitter::shaped_value(NodeId id) {
  if (!own_values_.empty() && own_values_[id]) return {analysis_.shapes[id], own_values_[id]};
  if (is_leaf(fn_[id].op)) return leaf(id);
  if (!values_[id]) refuse("a value of '" + std::string(op_name(fn_[id].op)) + "' is used before it is computed");
  return {analysis_.shapes[id], values_[id]};
}
Emitter::Value* Emitter::scalar(NodeId id) {
  const ShapedValue h = shaped_value(id);
  if (h.shape.varying()) refuse("expected one value for all lanes, but each lane has its own value");
  return h.value;
}
Emitter::Value* Emitter::vector(NodeId id) {
  const ShapedValue h = shaped_value(id);
  if (h.shape.varying()) return h.value;
  Value* v = splat(h.value);
  if (h.shape.kind != ShapeKind::linear) return v;
  Value* steps = iota(h.value->getType(), h.shape.stride);
  if (h.shape.by) steps = b_.CreateMul(steps, splat(b_.CreateIntCast(scalar(h.shape.by), h.value->getType(), true)));
  return b_.CreateAdd(v, steps);
}

// Arithmetic.

void Emitter::pure(NodeId id) {
  const Node& n = fn_[id];
  if (n.type.lanes != 1 || n.op == Op::vector) refuse("a vector was not lowered");
  const bool vectors = analysis_.shapes[id].varying();
  std::vector<Value*> args;
  for (NodeId a : operands(n)) args.push_back(vectors ? vector(a) : scalar(a));
  define(id, compute(n, args.data()));
}

// Calls a C library function for each lane. Used for f64 functions that have no expansion in Tessera's IR.
Emitter::Value* Emitter::library_call(const char* name, DType t, Value* const* a, unsigned count) {
  std::vector<llvm::Type*> types(count, type(t));
  auto callee = module_.getOrInsertFunction(name, llvm::FunctionType::get(type(t), types, false));
  auto call = [&](std::vector<Value*> args) {
    auto* c = b_.CreateCall(callee, args);
    c->setDoesNotAccessMemory();
    c->setDoesNotThrow();
    c->addFnAttr(llvm::Attribute::NoBuiltin);  // LLVM would replace the call by calls to other functions
    return c;
  };
  auto* v = llvm::dyn_cast<llvm::FixedVectorType>(a[0]->getType());
  if (!v) return call({a, a + count});
  Value* out = llvm::PoisonValue::get(v);
  for (std::uint64_t i = 0; i < v->getNumElements(); ++i) {
    std::vector<Value*> args;
    for (unsigned k = 0; k < count; ++k) args.push_back(b_.CreateExtractElement(a[k], i));
    out = b_.CreateInsertElement(out, call(args), i);
  }
  return out;
}

// Reductions.

// Combines the two halves of the vector until one lane is left. All targets add in this order, so sums are
// bit-identical.
Emitter::Value* Emitter::across(ReduceOp op, DType t, Value* vector) {
  for (unsigned n = width_; n > 1; n /= 2) {
    std::vector<int> low, high;
    for (unsigned i = 0; i < n / 2; ++i)
      low.push_back(static_cast<int>(i)), high.push_back(static_cast<int>(i + n / 2));
    vector = combine(op, t, b_.CreateShuffleVector(vector, low), b_.CreateShuffleVector(vector, high));
  }
  return b_.CreateExtractElement(vector, std::uint64_t{0});
}

// Subgroups: the lanes of a chunk.

Emitter::Value* Emitter::shuffle(Value* vector, Value* from) {
  if (const auto* known = llvm::dyn_cast<llvm::Constant>(from)) {
    std::vector<int> source;
    for (unsigned i = 0; i < width_; ++i)
      if (const auto* lane = llvm::dyn_cast_or_null<llvm::ConstantInt>(known->getAggregateElement(i)))
        source.push_back(static_cast<int>(lane->getZExtValue() & (width_ - 1)));
    if (source.size() == width_) return b_.CreateShuffleVector(vector, source);
  }
  Value* place = stack(vector->getType(), "shuffle");
  llvm::Type* element = vector->getType()->getScalarType();
  const bool logical = element->isIntegerTy(1);
  if (logical)
    return b_.CreateICmpNE(shuffle(b_.CreateZExt(vector, lanes(b_.getInt8Ty())), from),
                           llvm::Constant::getNullValue(lanes(b_.getInt8Ty())));
  b_.CreateStore(vector, place);
  Value* inside = b_.CreateAnd(from, same(from, width_ - 1));
  Value* pointers = b_.CreateInBoundsGEP(element, place, inside);
  const llvm::Align align(element->getScalarSizeInBits() / 8);
  return b_.CreateMaskedGather(vector->getType(), pointers, align,
                               llvm::Constant::getAllOnesValue(lanes(b_.getInt1Ty())));
}

void Emitter::subgroup(NodeId id, Value* mask) {
  const Node& n = fn_[id];
  const DType t = n.type.dtype;
  Value* v = vector(n.args[0]);
  auto reduce = [&](ReduceOp op) { return across(op, t, mask ? b_.CreateSelect(mask, v, splat(identity(op, t))) : v); };
  auto moved = [&](auto&& lane_of) {
    Value* own = iota(b_.getInt32Ty(), 1);
    Value* by = b_.CreateIntCast(vector(n.args[1]), lanes(b_.getInt32Ty()), true);
    Value* from = lane_of(own, by);
    // If the source lane does not exist or has no thread, the result is the value of the reading thread.
    Value* exists = b_.CreateICmpULT(from, same(from, width_));
    if (mask) exists = b_.CreateAnd(exists, shuffle(mask, from));
    return b_.CreateSelect(exists, shuffle(v, from), v);
  };
  auto scanned = [&](bool exclusive) {
    Value* zero = llvm::Constant::getNullValue(v->getType());
    Value* s = mask ? b_.CreateSelect(mask, v, zero) : v;
    auto shifted = [&](Value* a, unsigned by) {
      std::vector<int> lane(width_);
      for (unsigned i = 0; i < width_; ++i) lane[i] = static_cast<int>(i < by ? width_ + i : i - by);
      return b_.CreateShuffleVector(a, zero, lane);
    };
    for (unsigned by = 1; by < width_; by *= 2) s = combine(ReduceOp::sum, t, s, shifted(s, by));
    return exclusive ? shifted(s, 1) : s;
  };
  switch (n.kind<SubgroupOp>()) {
    case SubgroupOp::sum: return define(id, reduce(ReduceOp::sum));
    case SubgroupOp::min: return define(id, reduce(ReduceOp::min));
    case SubgroupOp::max: return define(id, reduce(ReduceOp::max));
    case SubgroupOp::any: return define(id, any(mask_and(mask, v)));
    case SubgroupOp::all: return define(id, b_.CreateNot(any(mask_and(mask, b_.CreateNot(v)))));
    case SubgroupOp::broadcast:
      if (analysis_.shapes[id].scalar()) {
        Value* lane = b_.CreateIntCast(scalar(n.args[1]), b_.getInt32Ty(), true);
        return define(id, b_.CreateExtractElement(v, lane));
      }
      return define(id, moved([&](Value*, Value* by) { return by; }));
    case SubgroupOp::shuffle: return define(id, moved([&](Value*, Value* by) { return by; }));
    case SubgroupOp::shuffle_xor:
      return define(id, moved([&](Value* own, Value* by) { return b_.CreateXor(own, by); }));
    case SubgroupOp::shuffle_up: return define(id, moved([&](Value* own, Value* by) { return b_.CreateSub(own, by); }));
    case SubgroupOp::shuffle_down:
      return define(id, moved([&](Value* own, Value* by) { return b_.CreateAdd(own, by); }));
    case SubgroupOp::inclusive_sum: return define(id, scanned(false));
    default: return define(id, scanned(true));
  }
}

// Dot products of packed bytes.

Emitter::Value* Emitter::multiply_bytes(Value* a, Value* b, Value* c) {  // a has unsigned bytes, b has signed bytes
  using namespace llvm;
  const auto id = width_ == 16  ? Intrinsic::x86_avx512_vpdpbusd_512
                  : width_ == 8 ? Intrinsic::x86_avx512_vpdpbusd_256
                                : Intrinsic::x86_avx512_vpdpbusd_128;
  // The operands are vectors of 32-bit integers before LLVM 22, and of bytes since then.
  const FunctionType* type = Intrinsic::getType(b_.getContext(), id);
  return b_.CreateIntrinsic(
      id, {}, {c, b_.CreateBitCast(a, type->getParamType(1)), b_.CreateBitCast(b, type->getParamType(2))});
}

Emitter::Value* Emitter::dot4(Dot4Signs signs, Value* a, Value* b, Value* c) {
  if (!a->getType()->isVectorTy()) {
    Value* v = dot4(signs, splat(a), splat(b), splat(c));
    return b_.CreateExtractElement(v, std::uint64_t{0});
  }
  if (!is_x86) return dot4_by_bytes(signs, a, b, c);
  const bool one_instruction = width_ == 16 ? target_.vnni : target_.vnni || target_.avx_vnni;
  if (!one_instruction || (width_ == 4 && !target_.vnni && !target_.avx_vnni))
    return signs == Dot4Signs::signed_symmetric && width_ == 8 ? dot4_by_magnitudes(a, b, c)
                                                               : dot4_by_pairs(signs, a, b, c);
  Value* sign_bits = same(a, 0x80808080ll);
  Value* zero = llvm::Constant::getNullValue(c->getType());
  if (signs == Dot4Signs::unsigned_signed) return multiply_bytes(a, b, c);
  // The instruction multiplies unsigned by signed bytes. If both are signed, uses a + 128, which is unsigned, and
  // subtracts 128 times the sum of b.
  if (a_is_signed(signs))
    return b_.CreateSub(multiply_bytes(b_.CreateXor(a, sign_bits), b, c), multiply_bytes(sign_bits, b, zero));
  // If both are unsigned, uses b - 128, which is signed, and adds 128 times the sum of a.
  Value* sum = multiply_bytes(a, same(a, 0x01010101ll), zero);
  return b_.CreateAdd(multiply_bytes(a, b_.CreateXor(b, sign_bits), c), b_.CreateShl(sum, same(sum, 7)));
}

// Multiplies the magnitudes of a by b with the signs of a. The instruction adds pairs of products of unsigned and
// signed bytes, at most 2 * 128 * 127, so that they fit in 16 bits.
Emitter::Value* Emitter::dot4_by_magnitudes(Value* a, Value* b, Value* c) {
  using namespace llvm;
  auto* bytes = FixedVectorType::get(b_.getInt8Ty(), 4 * width_);
  auto* words = FixedVectorType::get(b_.getInt16Ty(), 2 * width_);
  const KnownBits known = computeKnownBits(a, module_.getDataLayout());
  const bool positive = (known.Zero & APInt(32, 0x80808080)) == APInt(32, 0x80808080);
  Value *left = b_.CreateBitCast(a, bytes), *right = b_.CreateBitCast(b, bytes);
  if (!positive) {
    right = b_.CreateIntrinsic(Intrinsic::x86_avx2_psign_b, {}, {right, left});
    left = b_.CreateBinaryIntrinsic(Intrinsic::abs, left, b_.getFalse());
  }
  Value* pairs = b_.CreateIntrinsic(Intrinsic::x86_avx2_pmadd_ub_sw, {}, {left, right});
  Value* sums = b_.CreateIntrinsic(Intrinsic::x86_avx2_pmadd_wd, {}, {pairs, ConstantInt::get(words, 1)});
  return b_.CreateAdd(c, sums);
}

// Widens each byte to 32 bits. Used on processors other than x86-64.
Emitter::Value* Emitter::dot4_by_bytes(Dot4Signs signs, Value* a, Value* b, Value* c) {
  const auto byte = [&](Value* v, int i, bool is_signed) {
    Value* high = b_.CreateShl(v, same(v, 24 - 8 * i));
    return is_signed ? b_.CreateAShr(high, same(v, 24)) : b_.CreateLShr(high, same(v, 24));
  };
  for (int i = 0; i < 4; ++i)
    c = b_.CreateAdd(c, b_.CreateMul(byte(a, i, a_is_signed(signs)), byte(b, i, b_is_signed(signs))));
  return c;
}

// Widens the even and the odd bytes to 16 bits, and uses the instruction that multiplies 16-bit elements and adds pairs
// of products.
Emitter::Value* Emitter::dot4_by_pairs(Dot4Signs signs, Value* a, Value* b, Value* c) {
  auto* words = llvm::FixedVectorType::get(b_.getInt16Ty(), 2 * width_);
  auto split = [&](Value* v, bool is_signed) {
    Value* w = b_.CreateBitCast(v, words);
    Value* eight = same(w, 8);
    if (is_signed) return std::pair{b_.CreateAShr(b_.CreateShl(w, eight), eight), b_.CreateAShr(w, eight)};
    return std::pair{b_.CreateAnd(w, same(w, 255)), b_.CreateLShr(w, eight)};
  };
  const auto [even_a, odd_a] = split(a, a_is_signed(signs));
  const auto [even_b, odd_b] = split(b, b_is_signed(signs));
  using namespace llvm;
  const auto id = width_ == 16  ? Intrinsic::x86_avx512_pmaddw_d_512
                  : width_ == 8 ? Intrinsic::x86_avx2_pmadd_wd
                                : Intrinsic::x86_sse2_pmadd_wd;
  Value* even = b_.CreateIntrinsic(id, {}, {even_a, even_b});
  Value* odd = b_.CreateIntrinsic(id, {}, {odd_a, odd_b});
  return b_.CreateAdd(c, b_.CreateAdd(even, odd));
}

}  // namespace tessera::cpu
