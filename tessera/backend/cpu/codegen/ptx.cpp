// SPDX-License-Identifier: Apache-2.0
// Converts LLVM IR to PTX: selects the target, runs LLVM's passes and writes the text.
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Target/TargetMachine.h>

#include <sstream>

#include "tessera/backend/cpu/codegen/boundary.h"
#include "tessera/backend/cpu/codegen/llvm.h"
#include "tessera/backend/cpu/codegen/ptx_emitter.h"

extern "C" {  // from LLVM's NVPTX libraries
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace tessera::cpu {

namespace {

constexpr const char* triple = "nvptx64-nvidia-cuda";

// Loops with small constant trip counts are unrolled, so that arrays that are indexed by their counters become
// registers. Other loops are unrolled only if the kernel requests it.
constexpr const char* ptx_pass_list =
    "function(sroa,early-cse<memssa>," TESSERA_COMBINE
    ",simplifycfg,loop-mssa(licm),loop(indvars,loop-unroll-full)"
    "," TESSERA_UNROLL_REQUESTED ",sroa,early-cse<memssa>," TESSERA_COMBINE ",gvn,dse," TESSERA_COMBINE ",simplifycfg)";

/// A version of PTX or a target, and the LLVM that supports it first.
struct PtxVersion {
  int version, llvm;
};
constexpr PtxVersion versions[] = {{60, 16}, {61, 16}, {63, 16}, {64, 16}, {65, 16}, {70, 16}, {71, 16}, {72, 16},
                                   {73, 16}, {74, 16}, {75, 16}, {76, 16}, {77, 16}, {78, 16}, {80, 17}, {81, 17},
                                   {82, 18}, {83, 18}, {84, 19}, {85, 19}, {86, 20}, {87, 20}, {88, 21}, {90, 22}};
/// `version` is the version of PTX that introduced the target (PTX ISA, "Release Notes" and ".target").
struct Architecture {
  int capability, version, llvm = 16;
};
constexpr Architecture architectures[] = {{50, 40},      {52, 41},      {53, 42},      {60, 50},      {61, 50},
                                          {62, 50},      {70, 60},      {72, 61},      {75, 63},      {80, 70},
                                          {86, 71},      {87, 74},      {89, 78},      {90, 78},      {100, 86, 20},
                                          {101, 86, 20}, {103, 88, 21}, {110, 90, 22}, {120, 87, 20}, {121, 88, 21}};

/// Corrects bit-field extractions that cross the top bit. LLVM turns `(x >> 63) & mask` of a signed 64-bit integer into
/// `bfe.u64 d, x, 63, n` (NVPTXDAGToDAGISel::tryBFE compares with the width of the shift amount, 32), which yields
/// zeros instead of copies of the sign bit. Unsigned shifts are not affected, because LLVM removes their mask.
std::string with_sign_bits(std::string_view ptx) {
  static constexpr std::string_view extract = "bfe.u64 ";
  std::string out;
  for (std::size_t at = 0; at < ptx.size();) {
    const std::size_t found = ptx.find(extract, at), end = std::min(ptx.find(';', found), ptx.size());
    out += ptx.substr(at, found - at);
    if (found == ptx.npos) break;
    at = end;
    std::istringstream operands{std::string(ptx.substr(found + extract.size(), end - found - extract.size()))};
    std::string to, from;
    unsigned first = 0, bits = 0;
    char comma = 0;
    operands >> to >> from >> first >> comma >> bits;  // the registers keep their commas
    if (!operands || first + bits <= 64) {
      out += ptx.substr(found, end - found);
      continue;
    }
    out += "shr.s64 " + to + " " + from + " " + std::to_string(first) + ";\n\tand.b64 " + to + " " + to + " " +
           std::to_string((std::uint64_t{1} << bits) - 1);
  }
  return out;
}

class LlvmPtxGenerator final : public PtxGenerator {
 public:
  LlvmPtxGenerator() {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    std::string wrong;
    target_ = llvm::TargetRegistry::lookupTarget(TargetName(triple), wrong);
    if (!target_) throw UnsupportedKernel{wrong};
  }

  std::string version() const override { return "LLVM " LLVM_VERSION_STRING; }

  PtxTarget target_for(int capability, int version) const override {
    PtxTarget out;
    for (const PtxVersion& v : versions)
      if (v.version <= version && v.llvm <= LLVM_VERSION_MAJOR) out.version = v.version;
    for (const Architecture& a : architectures)
      if (a.capability <= capability && a.version <= out.version && a.llvm <= LLVM_VERSION_MAJOR)
        out.capability = a.capability;
    return out.version == 0 ? PtxTarget{} : out;
  }

  std::string compile(std::span<const PtxKernel> kernels, PtxTarget target, std::string& wrong) noexcept override {
    return text(kernels, target, wrong, true);
  }
  std::string llvm(std::span<const PtxKernel> kernels, PtxTarget target, std::string& wrong) noexcept override {
    return text(kernels, target, wrong, false);
  }

 private:
  std::string text(std::span<const PtxKernel> kernels, PtxTarget target, std::string& wrong, bool ptx) const noexcept {
    return guarded(wrong, [&]() -> std::string {
      llvm::LLVMContext context;
      llvm::Module module("kernels", context);
      const std::unique_ptr<llvm::TargetMachine> machine(target_->createTargetMachine(
          TargetName(triple), "sm_" + std::to_string(target.capability), "+ptx" + std::to_string(target.version), {},
          llvm::Reloc::PIC_, std::nullopt, OptimisationLevel::Aggressive));
      if (!machine) throw UnsupportedKernel{"LLVM has no target machine for " + std::string(triple)};
      module.setDataLayout(machine->createDataLayout());
      module.setTargetTriple(TargetName(triple));
      for (const PtxKernel& kernel : kernels)
        if (!module.getFunction(kernel.form->entry)) PtxEmitter(module, kernel, target).run();
      std::string broken;
      llvm::raw_string_ostream complaint(broken);
      if (llvm::verifyModule(module, &complaint))
        throw UnsupportedKernel{"the generated LLVM IR is invalid: " + complaint.str()};
      optimise(module, *machine);
      llvm::SmallVector<char, 0> out;
      llvm::raw_svector_ostream stream(out);
      llvm::legacy::PassManager manager;
      if (!ptx)
        module.print(stream, nullptr);
      else if (machine->addPassesToEmitFile(manager, stream, nullptr, assembly_file))
        throw UnsupportedKernel{"LLVM cannot write PTX"};
      manager.run(module);
      const std::string_view all(out.data(), out.size());
      return ptx ? with_sign_bits(all) : std::string(all);
    });
  }

  static void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager groups;
    llvm::ModuleAnalysisManager modules;
    llvm::PassBuilder passes(&machine);
    passes.registerModuleAnalyses(modules);
    passes.registerCGSCCAnalyses(groups);
    passes.registerFunctionAnalyses(functions);
    passes.registerLoopAnalyses(loops);
    passes.crossRegisterProxies(loops, functions, groups, modules);
    llvm::ModulePassManager manager;
    if (auto error = passes.parsePassPipeline(manager, ptx_pass_list))
      throw UnsupportedKernel{llvm::toString(std::move(error))};
    manager.run(module, modules);
  }

  const llvm::Target* target_ = nullptr;
};

}  // namespace

PtxGenerator* make_ptx_generator() { return new LlvmPtxGenerator; }

}  // namespace tessera::cpu
