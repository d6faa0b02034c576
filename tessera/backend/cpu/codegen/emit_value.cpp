// SPDX-License-Identifier: Apache-2.0
// Values: arithmetic with the meaning of ir/semantics.h on scalars and on vectors alike, types, and lanes.
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

#include "tessera/backend/cpu/codegen/emitter.h"

namespace tessera::cpu {

using namespace ir;

// Types.

llvm::Type* Emitter::type(DType t) const {
  auto& c = context_;
  switch (t) {
    case DType::boolean: return llvm::Type::getInt1Ty(c);
    case DType::f32: return llvm::Type::getFloatTy(c);
    case DType::f64: return llvm::Type::getDoubleTy(c);
    default: return llvm::Type::getIntNTy(c, static_cast<unsigned>(8 * bytes_of(t)));  // 16-bit floats: their bits
  }
}
llvm::Type* Emitter::memory_type(DType t) const {
  return t == DType::boolean ? llvm::Type::getInt8Ty(context_) : type(t);
}
llvm::FixedVectorType* Emitter::lanes(llvm::Type* element) const { return llvm::FixedVectorType::get(element, width_); }
llvm::Type* Emitter::like(llvm::Type* element, Value* model) const {
  auto* v = llvm::dyn_cast<llvm::FixedVectorType>(model->getType());
  return v ? llvm::FixedVectorType::get(element, v->getNumElements()) : element;
}
Emitter::Value* Emitter::to_memory(DType t, Value* v) {
  return t == DType::boolean ? b_.CreateZExt(v, like(b_.getInt8Ty(), v)) : v;
}
Emitter::Value* Emitter::from_memory(DType t, Value* v) {
  return t == DType::boolean ? b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType())) : v;
}
Emitter::Value* Emitter::splat(Value* v) { return b_.CreateVectorSplat(width_, v); }
Emitter::Value* Emitter::iota(llvm::Type* element, std::int64_t stride) {
  std::vector<llvm::Constant*> all;
  for (unsigned i = 0; i < width_; ++i)
    all.push_back(llvm::ConstantInt::get(element, static_cast<std::uint64_t>(stride) * i, true));
  return llvm::ConstantVector::get(all);
}
Emitter::Value* Emitter::number(llvm::Type* t, std::int64_t v) const {
  return llvm::ConstantInt::get(t, static_cast<std::uint64_t>(v), true);
}
Emitter::Value* Emitter::same(Value* model, std::int64_t v) const { return number(model->getType(), v); }

// Where values are.

Emitter::Held Emitter::leaf(NodeId id) {
  const Node& n = fn_[id];
  const Shape shape = analysis_.shapes[id];
  llvm::Type* t = type(n.type.dtype);
  if (n.op == Op::constant) {
    if (n.type.dtype == DType::f32 || n.type.dtype == DType::f64) {
      const unsigned width = n.type.dtype == DType::f32 ? 32 : 64;
      const auto& kind = width == 32 ? llvm::APFloat::IEEEsingle() : llvm::APFloat::IEEEdouble();
      return {shape, llvm::ConstantFP::get(context_, llvm::APFloat(kind, llvm::APInt(width, n.imm)))};
    }
    const unsigned width = t->getIntegerBitWidth();
    return {shape, llvm::ConstantInt::get(context_, llvm::APInt(64, n.imm).zextOrTrunc(width))};
  }
  if (n.op == Op::param) return {shape, params_[n.imm]};
  if (n.op != Op::index) refuse("a value was expected, not '" + std::string(op_name(n.op)) + "'");
  auto fit = [&](Value* v) { return Held{shape, b_.CreateIntCast(v, like(t, v), false)}; };
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
    case IndexKind::lane_id: return whole(0);  // linear
    case IndexKind::subgroup_id: return fit(chunk_);
    case IndexKind::subgroup_size: return whole(width_);
    case IndexKind::subgroup_count: return whole(layout_.chunks());
    default: refuse("the index '" + std::string(name_of(kind)) + "' has no meaning here");
  }
}
Emitter::Held Emitter::held(NodeId id) {
  if (is_leaf(fn_[id].op)) return leaf(id);
  if (!values_[id]) refuse("a value of '" + std::string(op_name(fn_[id].op)) + "' is used before it is computed");
  return {analysis_.shapes[id], values_[id]};
}
Emitter::Value* Emitter::scalar(NodeId id) {
  const Held h = held(id);
  if (h.shape.varying()) refuse("one value was expected where each lane has its own");
  return h.value;
}
Emitter::Value* Emitter::vector(NodeId id) {
  const Held h = held(id);
  if (h.shape.varying()) return h.value;
  Value* v = splat(h.value);
  return h.shape.kind == ShapeKind::linear ? b_.CreateAdd(v, iota(h.value->getType(), h.shape.stride)) : v;
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

Emitter::Value* Emitter::compute(const Node& n, Value* const* a) {
  const DType t = dtype(n.args[0]);
  switch (n.op) {
    case Op::unary:
      switch (n.kind<UnaryOp>()) {
        case UnaryOp::neg: return is_float(t) ? b_.CreateFNeg(a[0]) : b_.CreateNeg(a[0]);
        case UnaryOp::abs:
          return is_float(t)        ? b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a[0])
                 : is_signed_int(t) ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a[0], b_.getFalse())
                                    : a[0];
        case UnaryOp::not_: return b_.CreateNot(a[0]);
        case UnaryOp::popcount: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, a[0]);
        case UnaryOp::clz: return b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, a[0], b_.getFalse());
        default: break;
      }
      break;
    case Op::binary: return binary(n, t, a[0], a[1], fn_[n.args[1]].op == Op::constant);
    case Op::compare: return compare(n.kind<CompareOp>(), t, a[0], a[1]);
    case Op::select: return b_.CreateSelect(a[0], a[1], a[2]);
    case Op::cast: return cast(t, n.type.dtype, a[0]);
    case Op::bitcast: return b_.CreateBitCast(a[0], like(type(n.type.dtype), a[0]));
    case Op::math: return math(n.kind<MathOp>(), t, a);
    case Op::dot4: return dot4(n.kind<Dot4Signs>(), a[0], a[1], a[2]);
    default: break;
  }
  refuse("'" + std::string(op_name(n.op)) + "' is not known");
}

Emitter::Value* Emitter::binary(const Node& n, DType t, Value* a, Value* b, bool constant_divisor) {
  const bool real = is_float(t), is_signed = is_signed_int(t), logical = t == DType::boolean;
  const BinaryOp op = n.kind<BinaryOp>();
  // Said of scalars only: lanes that do not exist may well be past every limit.
  const bool no_wrap = (n.extra || t == DType::index) && !a->getType()->isVectorTy();
  auto shift = [&](auto&& make) {
    return make(b_.CreateAnd(b, same(b, static_cast<std::int64_t>(8 * bytes_of(t)) - 1)));
  };
  switch (op) {
    case BinaryOp::add:
      return real ? b_.CreateFAdd(a, b) : logical ? b_.CreateOr(a, b) : b_.CreateAdd(a, b, "", false, no_wrap);
    case BinaryOp::sub: return real ? b_.CreateFSub(a, b) : b_.CreateSub(a, b, "", false, no_wrap);
    case BinaryOp::mul:
      return real ? b_.CreateFMul(a, b) : logical ? b_.CreateAnd(a, b) : b_.CreateMul(a, b, "", false, no_wrap);
    case BinaryOp::div: return real ? b_.CreateFDiv(a, b) : divide(false, t, a, b, constant_divisor);
    case BinaryOp::rem:
      return real ? by_lanes(t == DType::f32 ? "fmodf" : "fmod", t, std::array{a, b}.data(), 2)
                  : divide(true, t, a, b, constant_divisor);
    case BinaryOp::min: return combine(ReduceOp::min, t, a, b);
    case BinaryOp::max: return combine(ReduceOp::max, t, a, b);
    case BinaryOp::and_: return b_.CreateAnd(a, b);
    case BinaryOp::or_: return b_.CreateOr(a, b);
    case BinaryOp::xor_: return b_.CreateXor(a, b);
    case BinaryOp::shl: return shift([&](Value* s) { return b_.CreateShl(a, s); });
    case BinaryOp::shr: return shift([&](Value* s) { return is_signed ? b_.CreateAShr(a, s) : b_.CreateLShr(a, s); });
    case BinaryOp::mul_hi: {
      const auto bits = static_cast<unsigned>(8 * bytes_of(t));
      llvm::Type* wide = like(b_.getIntNTy(2 * bits), a);
      auto extend = [&](Value* v) { return is_signed ? b_.CreateSExt(v, wide) : b_.CreateZExt(v, wide); };
      Value* product = b_.CreateMul(extend(a), extend(b));
      return b_.CreateTrunc(b_.CreateLShr(product, same(product, bits)), a->getType());
    }
    default: refuse("'" + std::string(name_of(op)) + "' is not known");
  }
}

// x / 0 and x % 0 are 0, the smallest / -1 is itself: neither may reach the processor's division, which traps.
Emitter::Value* Emitter::divide(bool remainder, DType t, Value* a, Value* b, bool constant_divisor) {
  const bool is_signed = is_signed_int(t);
  Value* zero = llvm::Constant::getNullValue(b->getType());
  Value* is_zero = b_.CreateICmpEQ(b, zero);
  Value* harmful = is_zero;
  Value* minus_one = is_signed ? b_.CreateICmpEQ(b, same(b, -1)) : nullptr;
  if (minus_one) harmful = b_.CreateOr(is_zero, minus_one);
  Value* divisor = b_.CreateSelect(harmful, same(b, 1), b);
  const bool vector = a->getType()->isVectorTy();
  Value* quotient = vector && !constant_divisor && bytes_of(t) <= 4 ? divide_by_reals(t, a, divisor)
                    : is_signed                                     ? b_.CreateSDiv(a, divisor)
                                                                    : b_.CreateUDiv(a, divisor);
  if (remainder) {
    Value* r = b_.CreateSub(a, b_.CreateMul(quotient, divisor));
    return b_.CreateSelect(harmful, zero, r);
  }
  if (minus_one) quotient = b_.CreateSelect(minus_one, b_.CreateNeg(a), quotient);
  return b_.CreateSelect(is_zero, zero, quotient);
}
// Vectors have no integer division. A quotient of 32-bit integers differs from the next integer by at least 2^-32 of
// itself, far more than the rounding of a double: its whole part is exact. Likewise 16 bits in a float.
Emitter::Value* Emitter::divide_by_reals(DType t, Value* a, Value* b) {
  llvm::Type* real = like(bytes_of(t) == 4 ? b_.getDoubleTy() : b_.getFloatTy(), a);
  const bool is_signed = is_signed_int(t);
  auto convert = [&](Value* v) { return is_signed ? b_.CreateSIToFP(v, real) : b_.CreateUIToFP(v, real); };
  Value* q = b_.CreateFDiv(convert(a), convert(b));
  // Every quotient of 8 and 16 bits fits into 32 signed bits, where the conversion is one instruction.
  if (bytes_of(t) < 4) return b_.CreateTrunc(b_.CreateFPToSI(q, like(b_.getInt32Ty(), a)), a->getType());
  return is_signed ? b_.CreateFPToSI(q, a->getType()) : b_.CreateFPToUI(q, a->getType());
}

Emitter::Value* Emitter::compare(CompareOp op, DType t, Value* a, Value* b) {
  using P = llvm::CmpInst::Predicate;
  static constexpr P real[] = {P::FCMP_OEQ, P::FCMP_UNE, P::FCMP_OLT, P::FCMP_OLE, P::FCMP_OGT, P::FCMP_OGE};
  static constexpr P with_sign[] = {P::ICMP_EQ, P::ICMP_NE, P::ICMP_SLT, P::ICMP_SLE, P::ICMP_SGT, P::ICMP_SGE};
  static constexpr P without[] = {P::ICMP_EQ, P::ICMP_NE, P::ICMP_ULT, P::ICMP_ULE, P::ICMP_UGT, P::ICMP_UGE};
  const auto i = static_cast<std::size_t>(op);
  if (t == DType::f32 || t == DType::f64) return b_.CreateFCmp(real[i], a, b);
  if (is_float(t)) refuse("comparisons of 16-bit floats were not lowered");
  return b_.CreateICmp(is_signed_int(t) ? with_sign[i] : without[i], a, b);
}

Emitter::Value* Emitter::cast(DType from, DType to, Value* a) {
  llvm::Type* result = like(type(to), a);
  llvm::Type* half = like(b_.getHalfTy(), a);
  if (from == to) return a;
  if (from == DType::bf16 || to == DType::bf16) refuse("bf16 was not lowered");
  if (from == DType::f16) {
    if (to != DType::f32 || !target_.f16c) refuse("a conversion of f16 was not lowered");
    return b_.CreateFPExt(b_.CreateBitCast(a, half), result);
  }
  if (to == DType::f16) {
    if (from != DType::f32 || !target_.f16c) refuse("a conversion to f16 was not lowered");
    return b_.CreateBitCast(b_.CreateFPTrunc(a, half), result);
  }
  const bool from_real = is_float(from), to_real = is_float(to);
  if (to == DType::boolean) {
    Value* zero = llvm::Constant::getNullValue(a->getType());
    return from_real ? b_.CreateFCmpUNE(a, zero) : b_.CreateICmpNE(a, zero);
  }
  if (from_real && to_real) return b_.CreateFPCast(a, result);
  if (from_real)
    return b_.CreateIntrinsic(is_signed_int(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
                              {result, a->getType()}, {a});
  if (to_real) return is_signed_int(from) ? b_.CreateSIToFP(a, result) : b_.CreateUIToFP(a, result);
  return b_.CreateIntCast(a, result, is_signed_int(from));
}

Emitter::Value* Emitter::math(MathOp op, DType t, Value* const* a) {
  using namespace llvm;
  auto one = [&](Intrinsic::ID id) { return b_.CreateUnaryIntrinsic(id, a[0]); };
  const bool single = t == DType::f32;
  switch (op) {
    case MathOp::fma:
      if (!target_.fma) return by_lanes(single ? "fmaf" : "fma", t, a, 3);
      return b_.CreateIntrinsic(Intrinsic::fma, {a[0]->getType()}, {a[0], a[1], a[2]});
    case MathOp::sqrt: return one(Intrinsic::sqrt);
    case MathOp::rsqrt: return b_.CreateFDiv(ConstantFP::get(a[0]->getType(), 1.0), one(Intrinsic::sqrt));
    case MathOp::floor: return one(Intrinsic::floor);
    case MathOp::ceil: return one(Intrinsic::ceil);
    case MathOp::trunc: return one(Intrinsic::trunc);
    case MathOp::rint: return one(Intrinsic::rint);
    case MathOp::exp: return by_lanes(single ? "expf" : "exp", t, a, 1);
    case MathOp::exp2: return by_lanes(single ? "exp2f" : "exp2", t, a, 1);
    case MathOp::log: return by_lanes(single ? "logf" : "log", t, a, 1);
    case MathOp::log2: return by_lanes(single ? "log2f" : "log2", t, a, 1);
    case MathOp::sin: return by_lanes(single ? "sinf" : "sin", t, a, 1);
    case MathOp::cos: return by_lanes(single ? "cosf" : "cos", t, a, 1);
    case MathOp::tanh: return by_lanes(single ? "tanhf" : "tanh", t, a, 1);
    case MathOp::erf: return by_lanes(single ? "erff" : "erf", t, a, 1);
    case MathOp::pow: return by_lanes(single ? "powf" : "pow", t, a, 2);
    default: refuse("'" + std::string(name_of(op)) + "' is not known");
  }
}

// A function of the C library, lane by lane: what remains where no expansion in our IR stands for it (f64).
Emitter::Value* Emitter::by_lanes(const char* name, DType t, Value* const* a, unsigned count) {
  std::vector<llvm::Type*> types(count, type(t));
  auto callee = module_.getOrInsertFunction(name, llvm::FunctionType::get(type(t), types, false));
  auto call = [&](std::vector<Value*> args) {
    auto* c = b_.CreateCall(callee, args);
    c->setDoesNotAccessMemory();
    c->setDoesNotThrow();
    c->addFnAttr(llvm::Attribute::NoBuiltin);  // else LLVM makes calls to other functions of it
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

Emitter::Value* Emitter::combine(ReduceOp op, DType t, Value* a, Value* b) {
  using namespace llvm;
  const bool real = is_float(t), is_signed = is_signed_int(t), logical = t == DType::boolean;
  switch (op) {
    case ReduceOp::sum: return real ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
    case ReduceOp::min:
      if (logical) return b_.CreateAnd(a, b);
      return b_.CreateBinaryIntrinsic(real ? Intrinsic::minnum : is_signed ? Intrinsic::smin : Intrinsic::umin, a, b);
    case ReduceOp::max:
      if (logical) return b_.CreateOr(a, b);
      return b_.CreateBinaryIntrinsic(real ? Intrinsic::maxnum : is_signed ? Intrinsic::smax : Intrinsic::umax, a, b);
    case ReduceOp::and_: return b_.CreateAnd(a, b);
    default: return b_.CreateOr(a, b);
  }
}
// What changes nothing: -0 for sums, NaN for the least and greatest of floats, which give the operand that is none.
Emitter::Value* Emitter::identity(ReduceOp op, DType t) {
  llvm::Type* k = type(t);
  if (is_float(t)) {
    if (op == ReduceOp::sum) return llvm::ConstantFP::getNegativeZero(k);
    return llvm::ConstantFP::getQNaN(k);
  }
  const unsigned bits = k->getIntegerBitWidth();
  using llvm::APInt;
  auto of = [&](const APInt& v) { return llvm::ConstantInt::get(context_, v); };
  switch (op) {
    case ReduceOp::min: return of(is_signed_int(t) ? APInt::getSignedMaxValue(bits) : APInt::getMaxValue(bits));
    case ReduceOp::max: return of(is_signed_int(t) ? APInt::getSignedMinValue(bits) : APInt::getMinValue(bits));
    case ReduceOp::and_: return of(APInt::getAllOnes(bits));
    default: return of(APInt::getZero(bits));
  }
}
// Halves are combined until one lane is left; for sums this is the order that every target gives.
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
    // A lane that does not exist gives nothing, nor does one that has no thread: the thread keeps its own value.
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
    case SubgroupOp::any: return define(id, reduce(ReduceOp::or_));
    case SubgroupOp::all: return define(id, reduce(ReduceOp::and_));
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

// Products of packed bytes.

Emitter::Value* Emitter::multiply_bytes(Value* a, Value* b, Value* c) {  // a: unsigned bytes, b: signed ones
  using namespace llvm;
  const auto id = width_ == 16  ? Intrinsic::x86_avx512_vpdpbusd_512
                  : width_ == 8 ? Intrinsic::x86_avx512_vpdpbusd_256
                                : Intrinsic::x86_avx512_vpdpbusd_128;
  return b_.CreateIntrinsic(id, {}, {c, a, b});
}

Emitter::Value* Emitter::dot4(Dot4Signs signs, Value* a, Value* b, Value* c) {
  if (!a->getType()->isVectorTy()) {
    Value* v = dot4(signs, splat(a), splat(b), splat(c));
    return b_.CreateExtractElement(v, std::uint64_t{0});
  }
  const bool one_instruction = width_ == 16 ? target_.vnni : target_.vnni || target_.avx_vnni;
  if (!one_instruction || (width_ == 4 && !target_.vnni && !target_.avx_vnni)) return dot4_by_pairs(signs, a, b, c);
  Value* sign_bits = same(a, 0x80808080ll);
  Value* zero = llvm::Constant::getNullValue(c->getType());
  if (signs == Dot4Signs::unsigned_signed) return multiply_bytes(a, b, c);
  // The instruction takes unsigned by signed bytes. Signed: a + 128 is unsigned, and 128 times the sum of b is too
  // much.
  if (signs == Dot4Signs::signed_signed)
    return b_.CreateSub(multiply_bytes(b_.CreateXor(a, sign_bits), b, c), multiply_bytes(sign_bits, b, zero));
  // Unsigned: b - 128 is signed, and 128 times the sum of a is missing.
  Value* sum = multiply_bytes(a, same(a, 0x01010101ll), zero);
  return b_.CreateAdd(multiply_bytes(a, b_.CreateXor(b, sign_bits), c), b_.CreateShl(sum, same(sum, 7)));
}

// Even and odd bytes widened to 16 bits: exact for all signs, with the instruction that multiplies and adds pairs.
Emitter::Value* Emitter::dot4_by_pairs(Dot4Signs signs, Value* a, Value* b, Value* c) {
  auto* words = llvm::FixedVectorType::get(b_.getInt16Ty(), 2 * width_);
  auto split = [&](Value* v, bool is_signed) {
    Value* w = b_.CreateBitCast(v, words);
    Value* eight = same(w, 8);
    if (is_signed) return std::pair{b_.CreateAShr(b_.CreateShl(w, eight), eight), b_.CreateAShr(w, eight)};
    return std::pair{b_.CreateAnd(w, same(w, 255)), b_.CreateLShr(w, eight)};
  };
  const auto [even_a, odd_a] = split(a, signs == Dot4Signs::signed_signed);
  const auto [even_b, odd_b] = split(b, signs != Dot4Signs::unsigned_unsigned);
  using namespace llvm;
  const auto id = width_ == 16  ? Intrinsic::x86_avx512_pmaddw_d_512
                  : width_ == 8 ? Intrinsic::x86_avx2_pmadd_wd
                                : Intrinsic::x86_sse2_pmadd_wd;
  Value* even = b_.CreateIntrinsic(id, {}, {even_a, even_b});
  Value* odd = b_.CreateIntrinsic(id, {}, {odd_a, odd_b});
  return b_.CreateAdd(c, b_.CreateAdd(even, odd));
}

}  // namespace tessera::cpu
