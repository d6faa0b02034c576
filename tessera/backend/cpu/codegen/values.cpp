// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/codegen/values.h"

#include <llvm/Analysis/VectorUtils.h>

#include <algorithm>
#include <cmath>

namespace tessera::cpu {

using namespace ir;

// Types.

llvm::Type* Values::type(DType t) const {
  auto& c = context_;
  switch (t) {
    case DType::boolean: return llvm::Type::getInt1Ty(c);
    case DType::f32: return llvm::Type::getFloatTy(c);
    case DType::f64: return llvm::Type::getDoubleTy(c);
    default: return llvm::Type::getIntNTy(c, static_cast<unsigned>(8 * bytes_of(t)));  // 16-bit floats: their bits
  }
}
llvm::Type* Values::memory_type(DType t) const {
  return t == DType::boolean ? llvm::Type::getInt8Ty(context_) : type(t);
}
llvm::Type* Values::like(llvm::Type* element, Value* model) const {
  auto* v = llvm::dyn_cast<llvm::FixedVectorType>(model->getType());
  return v ? llvm::FixedVectorType::get(element, v->getNumElements()) : element;
}
llvm::Value* Values::cast_integer(Value* v, llvm::Type* to, bool is_signed) {
  // LLVM 16 fails in instruction selection if a vector is selected from memory by 64-bit comparisons and then widened,
  // on targets with 256-bit vectors and no mask registers. The freeze instruction avoids this.
  if (llvm::isa<llvm::SelectInst>(v) && v->getType()->isVectorTy() &&
      to->getScalarSizeInBits() > v->getType()->getScalarSizeInBits())
    v = b_.CreateFreeze(v);
  return b_.CreateIntCast(v, to, is_signed);
}
llvm::Value* Values::to_memory(DType t, Value* v) {
  return t == DType::boolean ? b_.CreateZExt(v, like(b_.getInt8Ty(), v)) : v;
}
llvm::Value* Values::from_memory(DType t, Value* v) {
  return t == DType::boolean ? b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType())) : v;
}
llvm::Value* Values::number(llvm::Type* t, std::int64_t v) const {
  return llvm::ConstantInt::get(t, static_cast<std::uint64_t>(v), true);
}
llvm::Value* Values::same(Value* model, std::int64_t v) const { return number(model->getType(), v); }

void Values::request_unrolling(llvm::BranchInst* back, std::uint64_t rounds) const {
  if (rounds == 0) return;
  auto* count = llvm::ConstantInt::get(llvm::Type::getInt32Ty(context_), rounds);
  auto* request = llvm::MDNode::get(
      context_, {llvm::MDString::get(context_, "llvm.loop.unroll.count"), llvm::ConstantAsMetadata::get(count)});
  llvm::MDNode* loop = llvm::MDNode::getDistinct(context_, {nullptr, request});
  loop->replaceOperandWith(0, loop);  // the first operand of a loop's metadata is the metadata
  back->setMetadata(llvm::LLVMContext::MD_loop, loop);
}

llvm::Constant* Values::constant(const Node& n) const {
  llvm::Type* t = type(n.type.dtype);
  if (n.type.dtype == DType::f32 || n.type.dtype == DType::f64) {
    const unsigned width = n.type.dtype == DType::f32 ? 32 : 64;
    const auto& kind = width == 32 ? llvm::APFloat::IEEEsingle() : llvm::APFloat::IEEEdouble();
    return llvm::ConstantFP::get(context_, llvm::APFloat(kind, llvm::APInt(width, n.imm)));
  }
  return llvm::ConstantInt::get(context_, llvm::APInt(64, n.imm).zextOrTrunc(t->getIntegerBitWidth()));
}

// Arithmetic.

llvm::Value* Values::compute(const Node& n, Value* const* a) {
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
  refuse("'" + std::string(op_name(n.op)) + "' is not supported");
}

llvm::Value* Values::binary(const Node& n, DType t, Value* a, Value* b, bool constant_divisor) {
  const bool real = is_float(t), is_signed = is_signed_int(t), logical = t == DType::boolean;
  const BinaryOp op = n.kind<BinaryOp>();
  // Only set for scalars, because the indices of lanes without a thread may wrap.
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
      return real ? library_call(t == DType::f32 ? "fmodf" : "fmod", t, std::array{a, b}.data(), 2)
                  : divide(true, t, a, b, constant_divisor);
    case BinaryOp::min: return combine(ReduceOp::min, t, a, b);
    case BinaryOp::max: return combine(ReduceOp::max, t, a, b);
    case BinaryOp::and_: return b_.CreateAnd(a, b);
    case BinaryOp::or_: return b_.CreateOr(a, b);
    case BinaryOp::xor_: return b_.CreateXor(a, b);
    case BinaryOp::shl: return shift([&](Value* s) { return b_.CreateShl(a, s); });
    case BinaryOp::shr: return shift([&](Value* s) { return is_signed ? b_.CreateAShr(a, s) : b_.CreateLShr(a, s); });
    case BinaryOp::mul_hi: return multiply_high(is_signed, a, b);
    default: refuse("'" + std::string(name_of(op)) + "' is not supported");
  }
}

llvm::Value* Values::multiply_high(bool is_signed, Value* a, Value* b) {
  const unsigned bits = a->getType()->getScalarSizeInBits();
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
  if (vector && bits == 32) {  // the instruction multiplies every second lane
    const unsigned n = vector->getNumElements();
    llvm::Type* pairs = llvm::FixedVectorType::get(b_.getInt64Ty(), n / 2);
    const auto half = [&](Value* v, bool odd) {
      Value* pair = b_.CreateBitCast(v, pairs);
      if (!odd) pair = b_.CreateShl(pair, same(pair, 32));
      return is_signed ? b_.CreateAShr(pair, same(pair, 32)) : b_.CreateLShr(pair, same(pair, 32));
    };
    const auto products = [&](bool odd) {
      return b_.CreateBitCast(b_.CreateMul(half(a, odd), half(b, odd)), a->getType());
    };
    std::vector<int> high;
    for (unsigned i = 1; i < n; i += 2) high.push_back(static_cast<int>(i)), high.push_back(static_cast<int>(n + i));
    return b_.CreateShuffleVector(products(false), products(true), high);
  }
  llvm::Type* wide = like(b_.getIntNTy(2 * bits), a);
  auto extend = [&](Value* v) { return is_signed ? b_.CreateSExt(v, wide) : b_.CreateZExt(v, wide); };
  Value* product = b_.CreateMul(extend(a), extend(b));
  return b_.CreateTrunc(b_.CreateLShr(product, same(product, bits)), a->getType());
}

// x / 0 and x % 0 are defined as 0, and the smallest value divided by -1 is the smallest value. The processor's
// division instruction traps on these operands, so they are replaced.
llvm::Value* Values::divide(bool remainder, DType t, Value* a, Value* b, bool constant_divisor) {
  const bool is_signed = is_signed_int(t);
  const bool own_code = a->getType()->isVectorTy() && !constant_divisor && bytes_of(t) <= 4;
  Value* const same_divisor = own_code ? llvm::getSplatValue(b) : nullptr;
  if (same_divisor && bytes_of(t) == 4) return divide_by_one(remainder, is_signed, a, same_divisor);
  Value* zero = llvm::Constant::getNullValue(b->getType());
  Value* is_zero = b_.CreateICmpEQ(b, zero);
  Value* harmful = is_zero;
  Value* minus_one = is_signed ? b_.CreateICmpEQ(b, same(b, -1)) : nullptr;
  if (minus_one) harmful = b_.CreateOr(is_zero, minus_one);
  Value* divisor = b_.CreateSelect(harmful, same(b, 1), b);
  Value* quotient = own_code    ? divide_by_reals(t, a, divisor, same_divisor)
                    : is_signed ? b_.CreateSDiv(a, divisor)
                                : b_.CreateUDiv(a, divisor);
  if (remainder) {
    Value* r = b_.CreateSub(a, b_.CreateMul(quotient, divisor));
    return b_.CreateSelect(harmful, zero, r);
  }
  if (minus_one) quotient = b_.CreateSelect(minus_one, b_.CreateNeg(a), quotient);
  return b_.CreateSelect(is_zero, zero, quotient);
}

// Divides a vector of 32-bit integers by a divisor that is equal in all lanes. Multiplies by 2^32 + factor and shifts
// the high half of the product (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", figures
// 4.1 and 5.1). Code that does not depend on `a` is scalar and never traps, so LLVM can hoist it out of loops.
llvm::Value* Values::divide_by_one(bool remainder, bool is_signed, Value* a, Value* d) {
  llvm::Type *i64 = b_.getInt64Ty(), *real = b_.getDoubleTy();
  const auto all = [&](Value* v) {
    return b_.CreateVectorSplat(llvm::cast<llvm::VectorType>(a->getType())->getElementCount(), v);
  };
  Value* is_zero = b_.CreateICmpEQ(d, same(d, 0));
  d = b_.CreateSelect(is_zero, same(d, 1), d);
  const auto not_of_zero = [&](Value* q) {  // not needed for remainders, where the divisor 0 was replaced by 1
    return remainder ? q : b_.CreateAnd(q, all(b_.CreateSExt(b_.CreateNot(is_zero), d->getType())));
  };
  Value* size = is_signed ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, d, b_.getFalse()) : d;
  Value* below = b_.CreateSub(size, same(d, 1));
  Value* digits = b_.CreateSub(same(d, 32), b_.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, below, b_.getFalse()));
  if (is_signed) digits = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, digits, same(d, 1));
  // factor = floor(numerator / size) + 1, with 32 bits. The quotient is computed in double and may round up to the next
  // integer, which is corrected.
  Value *wide = b_.CreateZExt(size, i64), *wide_digits = b_.CreateZExt(digits, i64), *one = b_.getInt64(1);
  Value* numerator = is_signed ? b_.CreateShl(one, b_.CreateAdd(wide_digits, b_.getInt64(31)))
                               : b_.CreateShl(b_.CreateSub(b_.CreateShl(one, wide_digits), wide), b_.getInt64(32));
  Value* floor = b_.CreateFPToSI(b_.CreateFDiv(b_.CreateSIToFP(numerator, real), b_.CreateSIToFP(wide, real)), i64);
  Value* too_large = b_.CreateICmpUGT(b_.CreateMul(floor, wide), numerator);
  Value* factor = b_.CreateTrunc(b_.CreateSub(b_.CreateAdd(floor, one), b_.CreateZExt(too_large, i64)), d->getType());
  Value* high = multiply_high(is_signed, a, all(factor));
  Value* quotient = nullptr;
  if (is_signed) {
    quotient = b_.CreateAShr(b_.CreateAdd(a, high), all(b_.CreateSub(digits, same(d, 1))));
    quotient = b_.CreateSub(quotient, b_.CreateAShr(a, same(a, 31)));
    Value* sign = all(b_.CreateAShr(d, same(d, 31)));
    quotient = b_.CreateSub(not_of_zero(b_.CreateXor(quotient, sign)), sign);
  } else {
    Value* first = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, digits, same(d, 1));
    quotient = b_.CreateAdd(high, b_.CreateLShr(b_.CreateSub(a, high), all(first)));
    quotient = not_of_zero(b_.CreateLShr(quotient, all(b_.CreateSub(digits, first))));
  }
  return remainder ? b_.CreateSub(a, b_.CreateMul(quotient, all(d))) : quotient;
}

// There is no vector instruction for integer division, so this divides in floating point. The quotient of two 32-bit
// integers is an integer, or its relative distance to the next integer is at least 2^-32. The rounding error of a
// double is much smaller, so the integer part is exact. The same is true for 16-bit integers in a float. If all lanes
// have the same divisor, 16-bit integers are multiplied by its reciprocal. The reciprocal is made slightly too large,
// so that an exact quotient is never rounded down. If its relative error is e, the quotient of x does not reach the
// next integer as long as x * e < 1.
llvm::Value* Values::divide_by_reals(DType t, Value* a, Value* b, Value* same_divisor) {
  const bool wide = bytes_of(t) == 4, is_signed = is_signed_int(t);
  llvm::Type* real = like(wide ? b_.getDoubleTy() : b_.getFloatTy(), a);
  auto convert = [&](Value* v) { return is_signed ? b_.CreateSIToFP(v, real) : b_.CreateUIToFP(v, real); };
  const auto reciprocal = [&](Value* d) {  // for 16 bits
    llvm::Type* one = real->getScalarType();
    Value* divisor = b_.CreateSelect(b_.CreateICmpEQ(d, same(d, 0)), same(d, 1), d);
    Value* r = b_.CreateFDiv(llvm::ConstantFP::get(one, 1.0),
                             is_signed ? b_.CreateSIToFP(divisor, one) : b_.CreateUIToFP(divisor, one));
    return b_.CreateVectorSplat(llvm::cast<llvm::VectorType>(real)->getElementCount(),
                                b_.CreateFMul(r, llvm::ConstantFP::get(one, 1 + 0x1p-22)));
  };
  Value* q = same_divisor != nullptr ? b_.CreateFMul(convert(a), reciprocal(same_divisor))
                                     : b_.CreateFDiv(convert(a), convert(b));
  // Quotients of 8-bit and 16-bit integers fit in a signed 32-bit integer, which needs only one conversion instruction.
  if (!wide) return b_.CreateTrunc(b_.CreateFPToSI(q, like(b_.getInt32Ty(), a)), a->getType());
  return is_signed ? b_.CreateFPToSI(q, a->getType()) : b_.CreateFPToUI(q, a->getType());
}

llvm::Value* Values::compare(CompareOp op, DType t, Value* a, Value* b) {
  using P = llvm::CmpInst::Predicate;
  static constexpr P real[] = {P::FCMP_OEQ, P::FCMP_UNE, P::FCMP_OLT, P::FCMP_OLE, P::FCMP_OGT, P::FCMP_OGE};
  static constexpr P with_sign[] = {P::ICMP_EQ, P::ICMP_NE, P::ICMP_SLT, P::ICMP_SLE, P::ICMP_SGT, P::ICMP_SGE};
  static constexpr P without[] = {P::ICMP_EQ, P::ICMP_NE, P::ICMP_ULT, P::ICMP_ULE, P::ICMP_UGT, P::ICMP_UGE};
  const auto i = static_cast<std::size_t>(op);
  if (t == DType::f32 || t == DType::f64) return b_.CreateFCmp(real[i], a, b);
  if (is_float(t)) refuse("comparisons of 16-bit floats were not lowered");
  return b_.CreateICmp(is_signed_int(t) ? with_sign[i] : without[i], a, b);
}

llvm::Value* Values::cast(DType from, DType to, Value* a) {
  // Since LLVM 22, two conversions that allow contraction become one, whose result is rounded once instead of twice.
  const llvm::IRBuilderBase::FastMathFlagGuard restore(b_);
  b_.clearFastMathFlags();
  llvm::Type* result = like(type(to), a);
  llvm::Type* half = like(b_.getHalfTy(), a);
  if (from == to) return a;
  if (from == DType::bf16) {
    if (to != DType::f32) refuse("a conversion of bf16 was not lowered");
    llvm::Type* word = like(b_.getInt32Ty(), a);
    return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(a, word), number(word, 16)), result);
  }
  if (to == DType::bf16) {
    if (from != DType::f32) refuse("a conversion to bf16 was not lowered");
    return bfloat_from_float(a);
  }
  if (from == DType::f16) {
    if (to != DType::f32 || !half_conversions_) refuse("a conversion of f16 was not lowered");
    return b_.CreateFPExt(b_.CreateBitCast(a, half), result);
  }
  if (to == DType::f16) {
    if (from != DType::f32 || !half_conversions_) refuse("a conversion to f16 was not lowered");
    return b_.CreateBitCast(b_.CreateFPTrunc(a, half), result);
  }
  const bool from_real = is_float(from), to_real = is_float(to);
  if (to == DType::boolean) {
    Value* zero = llvm::Constant::getNullValue(a->getType());
    return from_real ? b_.CreateFCmpUNE(a, zero) : b_.CreateICmpNE(a, zero);
  }
  if (from_real && to_real) return b_.CreateFPCast(a, result);
  if (from == DType::f32 && result->isVectorTy() && result->getScalarSizeInBits() <= 32)
    return saturated(a, result, is_signed_int(to));
  if (from_real)
    return b_.CreateIntrinsic(is_signed_int(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
                              {result, a->getType()}, {a});
  if (to_real) return is_signed_int(from) ? b_.CreateSIToFP(a, result) : b_.CreateUIToFP(a, result);
  return cast_integer(a, result, is_signed_int(from));
}

// Computes the same as fptosi_sat and fptoui_sat for vectors of f32, because LLVM 16 expands these intrinsics lane by
// lane. Clamps the values before the conversion and corrects the result.
llvm::Value* Values::saturated(Value* a, llvm::Type* to, bool is_signed) {
  const int bits = static_cast<int>(to->getScalarSizeInBits()) - (is_signed ? 1 : 0);
  const double end = std::ldexp(1.0, bits);  // the smallest value that is too large
  const auto real = [&](double v) { return llvm::ConstantFP::get(a->getType(), v); };
  Value* within = b_.CreateMinNum(b_.CreateMaxNum(a, real(is_signed ? -end : 0)),
                                  real(end - std::ldexp(1.0, std::max(bits - 24, 0))));
  llvm::Type* word = like(b_.getInt32Ty(), a);
  Value* out = b_.CreateTrunc(bits == 32 ? b_.CreateFPToUI(within, word) : b_.CreateFPToSI(within, word), to);
  if (bits > 24) {
    const auto most = llvm::APInt::getMaxValue(to->getScalarSizeInBits()).lshr(is_signed ? 1 : 0);
    out = b_.CreateSelect(b_.CreateFCmpOGE(a, real(end)), llvm::ConstantInt::get(to, most), out);
  }
  if (!is_signed) return out;  // NaN became the lower limit, which is 0
  return b_.CreateSelect(b_.CreateFCmpUNO(a, a), llvm::Constant::getNullValue(to), out);
}

llvm::Value* Values::math(MathOp op, DType t, Value* const* a) {
  using namespace llvm;
  auto one = [&](Intrinsic::ID id) { return b_.CreateUnaryIntrinsic(id, a[0]); };
  const bool single = t == DType::f32;
  switch (op) {
    case MathOp::fma:
      if (!fused_multiply_add_) return library_call(single ? "fmaf" : "fma", t, a, 3);
      return b_.CreateIntrinsic(Intrinsic::fma, {a[0]->getType()}, {a[0], a[1], a[2]});
    case MathOp::sqrt: return one(Intrinsic::sqrt);
    case MathOp::rsqrt: return b_.CreateFDiv(ConstantFP::get(a[0]->getType(), 1.0), one(Intrinsic::sqrt));
    case MathOp::floor: return one(Intrinsic::floor);
    case MathOp::ceil: return one(Intrinsic::ceil);
    case MathOp::trunc: return one(Intrinsic::trunc);
    case MathOp::rint: return one(Intrinsic::rint);
    case MathOp::exp: return library_call(single ? "expf" : "exp", t, a, 1);
    case MathOp::exp2: return library_call(single ? "exp2f" : "exp2", t, a, 1);
    case MathOp::log: return library_call(single ? "logf" : "log", t, a, 1);
    case MathOp::log2: return library_call(single ? "log2f" : "log2", t, a, 1);
    case MathOp::sin: return library_call(single ? "sinf" : "sin", t, a, 1);
    case MathOp::cos: return library_call(single ? "cosf" : "cos", t, a, 1);
    case MathOp::tanh: return library_call(single ? "tanhf" : "tanh", t, a, 1);
    case MathOp::erf: return library_call(single ? "erff" : "erf", t, a, 1);
    case MathOp::pow: return library_call(single ? "powf" : "pow", t, a, 2);
    default: refuse("'" + std::string(name_of(op)) + "' is not supported");
  }
}

// Reductions.

llvm::Value* Values::combine(ReduceOp op, DType t, Value* a, Value* b) {
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
// Returns the neutral element. For sums it is -0. For min and max of floats it is NaN, because these return the operand
// that is not NaN.
llvm::Value* Values::identity(ReduceOp op, DType t) {
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

}  // namespace tessera::cpu
