// SPDX-License-Identifier: Apache-2.0
// Names of LLVM that changed between versions 16 and 22, so that the rest of the module is the same for each.
#pragma once

#include <llvm/Config/llvm-config.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/CodeGen.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <string>

/// Since LLVM 18, this pass would end the process if it needed a second iteration.
#if LLVM_VERSION_MAJOR >= 18
#define TESSERA_COMBINE "instcombine<no-verify-fixpoint>"
#else
#define TESSERA_COMBINE "instcombine"
#endif

namespace tessera::cpu {

/// The architecture of this process, for which the module generates code: x86-64 or aarch64.
#if defined(__aarch64__)
inline constexpr bool is_x86 = false;
inline constexpr const char* baseline_cpu = "generic";
inline constexpr const char* cpu_examples = " (generic, cortex-a72, neoverse-n1, neoverse-v2, ...)";
#else
inline constexpr bool is_x86 = true;
inline constexpr const char* baseline_cpu = "x86-64";
inline constexpr const char* cpu_examples = " (x86-64, x86-64-v2, x86-64-v3, x86-64-v4, ...)";
#endif

/// LLVM 17 to 22 select wrong instructions for logical operations of masked AVX-512 vectors (vpternlog, see
/// github.com/llvm/llvm-project/issues/157929; found in tanh of bf16). Their code uses AVX2 instead.
inline constexpr bool avx512_is_correct = LLVM_VERSION_MAJOR < 17;

#if LLVM_VERSION_MAJOR >= 18
using FileType = llvm::CodeGenFileType;
using OptimisationLevel = llvm::CodeGenOptLevel;
inline constexpr FileType object_file = llvm::CodeGenFileType::ObjectFile;
inline constexpr FileType assembly_file = llvm::CodeGenFileType::AssemblyFile;
#else
using FileType = llvm::CodeGenFileType;
using OptimisationLevel = llvm::CodeGenOpt::Level;
inline constexpr FileType object_file = llvm::CGFT_ObjectFile;
inline constexpr FileType assembly_file = llvm::CGFT_AssemblyFile;
#endif

/// A target as the functions of this version take it: since LLVM 21, a Triple.
#if LLVM_VERSION_MAJOR >= 21
using TargetName = llvm::Triple;
#else
using TargetName = std::string;
#endif

inline llvm::StringMap<bool> host_features() {
#if LLVM_VERSION_MAJOR >= 19
  return llvm::sys::getHostCPUFeatures();
#else
  llvm::StringMap<bool> features;
  llvm::sys::getHostCPUFeatures(features);
  return features;
#endif
}

/// States that a function does not keep a pointer after it returns.
inline void add_no_capture(llvm::Argument& pointer) {
#if LLVM_VERSION_MAJOR >= 21
  pointer.addAttr(llvm::Attribute::getWithCaptureInfo(pointer.getContext(), llvm::CaptureInfo::none()));
#else
  pointer.addAttr(llvm::Attribute::NoCapture);
#endif
}

/// A barrier of all threads of a block on NVIDIA GPUs (`bar.sync 0`).
inline void ptx_barrier(llvm::IRBuilder<>& builder) {
  const llvm::ArrayRef<llvm::Type*> no_types;
#if LLVM_VERSION_MAJOR >= 21
  builder.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all, no_types, {builder.getInt32(0)});
#else
  builder.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, no_types, {});
#endif
}

}  // namespace tessera::cpu
