// SPDX-License-Identifier: Apache-2.0
// Generates LLVM IR for NVIDIA GPUs from a lowered kernel. Every kernel thread is a GPU thread, so all values are
// scalars and the control flow does not change. The entry point and its arguments are the same as in the CUDA C that
// emit/ writes for this function.
#pragma once

#include <vector>

#include "tessera/backend/cpu/codegen/values.h"

namespace tessera::cpu {

class PtxEmitter final : public Values {
 public:
  PtxEmitter(llvm::Module& module, const PtxKernel& kernel, PtxTarget target);
  /// Adds the kernel's function to the module.
  void run();

 private:
  static constexpr unsigned global_space = 1, shared_space = 3, width = 32;

  // ptx_emit.cpp
  void make_function();
  void make_memory();
  void statements(ir::BlockId block);
  void statement(NodeId id);
  void if_statement(const ir::Node& n);
  void for_statement(const ir::Node& n);
  void while_statement(const ir::Node& n);
  Value* load(const ir::Node& n);
  void store(const ir::Node& n);
  llvm::Type* packed(ir::Type t) const;
  Value* vector(const ir::Node& n);
  Value* atomic(const ir::Node& n);
  void async(const ir::Node& n);
  void print(const ir::Node& n);
  llvm::BasicBlock* block(const char* name);

  // ptx_matrix.cpp
  void matrix(const ir::Node& n);
  void multiply(DType t, Value* sums, Value* left, Value* right);
  void multiply_i8(Value* sums, Value* left, Value* right, bool replaces);
  void load_factor(Value* words, ir::FragmentRole role, NodeId memory, Value* from, Value* stride, bool along_k,
                   bool whole_rows);
  void load_f32(Value* words, NodeId memory, Value* from, Value* stride, bool along_k, bool whole_rows);
  void load_matrices(Value* words, Value* row, bool transposed, bool exchanged);
  Value* slot(Value* fragment, unsigned i);  // address of element i of this lane

  // ptx_value.cpp
  Value* value(NodeId id);
  Value* index(const ir::Node& n);
  Value* linear_thread_id();
  Value* lane_count();  // number of lanes in this subgroup that have a thread
  Value* special(unsigned intrinsic);
  Value* argument(emit::KernelArgument::Kind kind, std::uint64_t number);
  Value* element_address(NodeId memory, Value* at);
  Value* subgroup(const ir::Node& n);
  Value* shuffle(unsigned intrinsic, Value* v, Value* lane);
  Value* library_call(const char* name, DType t, Value* const* a, unsigned count) override;
  Value* dot4(ir::Dot4Signs signs, Value* a, Value* b, Value* c) override;
  Value* bfloat_from_float(Value* a) override;
  Value* exponential(Value* x, bool natural);
  llvm::Function* remainder_function(DType t);

  const emit::EmittedKernel& form_;
  const bool noalias_;
  const PtxTarget target_;
  llvm::Function* body_ = nullptr;
  std::vector<Value*> values_, memory_;  // indexed by node
};

}  // namespace tessera::cpu
