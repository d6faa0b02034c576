// SPDX-License-Identifier: Apache-2.0
// Code shared by the generators for CPUs and PTX: LLVM types for dtypes, and arithmetic with the semantics of
// ir/semantics.h. Operands are scalars, or, on the CPU, vectors with one element per thread.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <string>

#include "tessera/backend/common/codegen.h"

/// A pass of LLVM that unrolls only the loops with a request (`request_unrolling`).
#define TESSERA_UNROLL_REQUESTED "loop-unroll<full-unroll-max=0;no-partial;no-peeling;no-runtime;no-upperbound>"

namespace tessera::cpu {

/// Thrown inside the module for unsupported operations. compile() converts it to an error message.
struct UnsupportedKernel {
  std::string wrong;
};

class Values {
 public:
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

 protected:
  using Value = llvm::Value;
  using NodeId = ir::NodeId;

  struct TargetFeatures {
    bool half_conversions = true;  ///< the target converts between f16 and f32
    bool fused_multiply_add = true;
  };
  Values(llvm::Module& module, const ir::Function& fn, const GenerateOptions& options, TargetFeatures has)
      : module_(module),
        context_(module.getContext()),
        fn_(fn),
        options_(options),
        half_conversions_(has.half_conversions),
        fused_multiply_add_(has.fused_multiply_add),
        b_(context_) {
    options_.index64 = options.index64 || fn.index64;
    llvm::FastMathFlags contract;  // only contraction is allowed: a * b + c is rounded once
    contract.setAllowContract(!fn.exact);
    b_.setFastMathFlags(contract);
  }
  virtual ~Values() = default;

  // Types.
  llvm::Type* type(DType t) const;                            // the type of a value
  llvm::Type* memory_type(DType t) const;                     // the type in memory, where a bool is a byte
  llvm::Type* like(llvm::Type* element, Value* model) const;  // returns a vector type if `model` is a vector
  Value* to_memory(DType t, Value* v);
  Value* from_memory(DType t, Value* v);
  Value* saturated(Value* a, llvm::Type* to, bool is_signed);     // converts a vector of f32 to integers of at most 32
                                                                  // bits
  Value* cast_integer(Value* v, llvm::Type* to, bool is_signed);  // converts an integer or a vector of integers
  Value* number(llvm::Type* t, std::int64_t v) const;
  Value* same(Value* model, std::int64_t v) const;  // returns a constant with the type of `model`
  llvm::Constant* constant(const ir::Node& n) const;
  DType dtype(NodeId id) const { return fn_[id].type.dtype; }
  std::size_t bytes_of(DType t) const { return t == DType::index ? (options_.index64 ? 8 : 4) : dtype_size(t); }
  [[noreturn]] void refuse(const std::string& what) const { throw UnsupportedKernel{what}; }

  /// Requests that LLVM combines `rounds` rounds of the loop that ends with this branch. 0 requests nothing.
  void request_unrolling(llvm::BranchInst* back, std::uint64_t rounds) const;

  // Arithmetic.
  Value* compute(const ir::Node& n, Value* const* args);
  Value* binary(const ir::Node& n, DType t, Value* a, Value* b, bool constant_divisor);
  Value* divide(bool remainder, DType t, Value* a, Value* b, bool constant_divisor);
  Value* divide_by_one(bool remainder, bool is_signed, Value* a, Value* divisor);
  /// `same_divisor` is the divisor if it is equal in all lanes, otherwise null. `b` then contains a divisor for each
  /// lane.
  Value* divide_by_reals(DType t, Value* a, Value* b, Value* same_divisor);
  Value* multiply_high(bool is_signed, Value* a, Value* b);
  Value* compare(ir::CompareOp op, DType t, Value* a, Value* b);
  Value* cast(DType from, DType to, Value* a);
  Value* math(ir::MathOp op, DType t, Value* const* a);
  Value* combine(ir::ReduceOp op, DType t, Value* a, Value* b);
  Value* identity(ir::ReduceOp op, DType t);
  /// Calls a C library function by name, with `count` operands of type `t`.
  virtual Value* library_call(const char* name, DType t, Value* const* a, unsigned count) = 0;
  virtual Value* dot4(ir::Dot4Signs signs, Value* a, Value* b, Value* c) = 0;
  /// Returns the bits of the nearest bfloat16. Only called if lowering does not expand this conversion.
  virtual Value* bfloat_from_float(Value*) { refuse("a conversion to bf16 was not lowered"); }

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  const ir::Function& fn_;
  GenerateOptions options_;
  const bool half_conversions_, fused_multiply_add_;
  llvm::IRBuilder<> b_;
};

}  // namespace tessera::cpu
