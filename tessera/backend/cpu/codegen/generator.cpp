// SPDX-License-Identifier: Apache-2.0
// The entry point of the module. Selects the target, runs LLVM's passes and generates machine code, as an object file
// in memory.
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "tessera/backend/cpu/codegen/boundary.h"
#include "tessera/backend/cpu/codegen/emitter.h"
#include "tessera/backend/cpu/codegen/llvm.h"

namespace tessera::cpu {

namespace {

// The code is already vectorised. With these few passes, the code is as fast as with -O2, and compilation takes a tenth
// of the time.
constexpr const char* cpu_pass_list =
    "function(sroa,early-cse<memssa>," TESSERA_COMBINE ",simplifycfg,loop-mssa(licm)," TESSERA_UNROLL_REQUESTED
    ",gvn,dse," TESSERA_COMBINE ",simplifycfg)";

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// LLVM ends the process on unsupported input, unless an error handler throws. The state of the failed compilation is
// discarded.
struct Fatal : UnsupportedKernel {};
void fatal(void*, const char* reason, bool) { throw Fatal{{std::string("LLVM: ") + reason}}; }
void out_of_memory(void*, const char*, bool) { throw std::bad_alloc(); }

class LlvmGenerator : public Generator {
 public:
  LlvmGenerator(const std::string& name, bool runs_here) {
    const TargetName triple(llvm::sys::getDefaultTargetTriple());
    const llvm::StringMap<bool> host = host_features();
    traits_.cpu = name;
    if (name == "native") {
      traits_.cpu = llvm::sys::getHostCPUName().str();
      for (const auto& f : host)
        traits_.features += (traits_.features.empty() ? "" : ",") + std::string(f.second ? "+" : "-") + f.first().str();
      // This LLVM may not know newer processors. Selects a known processor with similar scheduling by the available
      // features.
      if (is_x86 && traits_.cpu == "generic") {
        if (host.lookup("avx512vnni") && host.lookup("avx512bf16"))
          traits_.cpu = "znver4";
        else if (host.lookup("avx512vnni"))
          traits_.cpu = "icelake-server";
        else if (host.lookup("avx512bw") && host.lookup("avx512vl"))
          traits_.cpu = "skylake-avx512";
        else if (host.lookup("avx2") && host.lookup("fma"))
          traits_.cpu = "haswell";
        else
          traits_.cpu = baseline_cpu;
      }
    }
    if (is_x86 && !avx512_is_correct) traits_.features += traits_.features.empty() ? "-avx512f" : ",-avx512f";
    std::string wrong;
    const auto* target = llvm::TargetRegistry::lookupTarget(triple, wrong);
    if (!target) throw UnsupportedKernel{wrong};
    using Info = std::unique_ptr<llvm::MCSubtargetInfo>;
    const Info plain(target->createMCSubtargetInfo(triple, baseline_cpu, ""));
    if (!plain) throw UnsupportedKernel{"LLVM has no target machine for " + llvm::sys::getDefaultTargetTriple()};
    if (!plain->isCPUStringValid(traits_.cpu))
      throw UnsupportedKernel{"LLVM " LLVM_VERSION_STRING " does not know the processor '" + traits_.cpu + "'" +
                              cpu_examples};
    machine_ = [=, this] {
      return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(triple, traits_.cpu, traits_.features, {},
                                                                              llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                                                              OptimisationLevel::Default, true));
    };
    const Info info(target->createMCSubtargetInfo(triple, traits_.cpu, traits_.features));
    for (std::size_t bit = 0; bit < llvm::MAX_SUBTARGET_FEATURES; bit += 4) {
      unsigned digit = 0;
      for (std::size_t i = 0; i < 4; ++i) digit |= (info->getFeatureBits()[bit + i] ? 1u : 0u) << i;
      traits_.feature_bits += "0123456789abcdef"[digit];
    }
    auto has = [&](const char* feature) { return info->checkFeatures(std::string("+") + feature); };
    triple_ = triple;
    if (!is_x86) {  // vectors of 128 bits; NEON has these instructions on every processor
      traits_.f16c = traits_.fma = true;
      return;
    }
    if (!has("64bit"))
      throw UnsupportedKernel{"the processor '" + traits_.cpu + "' only runs 32-bit code, but this program is 64-bit" +
                              cpu_examples};
    traits_.width = has("avx512f") && has("avx512bw") && has("avx512vl") && has("avx512dq") ? 16 : has("avx2") ? 8 : 4;
    traits_.f16c = has("f16c");
    traits_.fma = has("fma");
    traits_.vnni = has("avx512vnni") && has("avx512vl");
    traits_.avx_vnni = has("avxvnni");
    if (!runs_here) return;
    for (const char* needed : {"sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq",
                               "avx512vnni", "avxvnni"})
      if (has(needed) && !host.lookup(needed))
        throw UnsupportedKernel{"this machine's processor lacks " + std::string(needed) + ", which " + traits_.cpu +
                                " has"};
  }

  const TargetTraits& target() const override { return traits_; }

  bool compile(const ir::Function& fn, const GenerateOptions& options, Object& object,
               std::string& wrong) noexcept override {
    return guarded(wrong, [&] {
      const auto start = std::chrono::steady_clock::now();
      const std::string symbol = kernel_symbol(fn.name);
      llvm::LLVMContext context;
      llvm::Module module(symbol, context);
      object.scratch_bytes = build(module, fn, options, symbol);
      object.generate_ms = milliseconds_since(start);
      const auto middle = std::chrono::steady_clock::now();
      const auto code = machine_code(module, object_file);
      object.bytes.assign(code.begin(), code.end());
      object.machine_code_ms = milliseconds_since(middle);
      return true;
    });
  }

  std::string text(const ir::Function& fn, const GenerateOptions& options, Text which) noexcept override {
    std::string wrong;
    std::string out = guarded(wrong, [&]() -> std::string {
      llvm::LLVMContext context;
      llvm::Module module(fn.name, context);
      build(module, fn, options, kernel_symbol(fn.name), which != Text::llvm);
      if (which == Text::assembly) {
        const auto code = machine_code(module, assembly_file);
        return {code.begin(), code.end()};
      }
      std::string printed;
      llvm::raw_string_ostream stream(printed);
      module.print(stream, nullptr);
      return stream.str();
    });
    return out.empty() ? std::move(wrong) : std::move(out);
  }
  std::string version() const override { return "LLVM " LLVM_VERSION_STRING; }

 private:
  std::size_t build(llvm::Module& module, const ir::Function& fn, const GenerateOptions& options,
                    const std::string& symbol, bool optimise = true) {
    const auto machine = machine_();
    if (!machine) throw UnsupportedKernel{"LLVM has no target machine for " + llvm::sys::getDefaultTargetTriple()};
    module.setDataLayout(machine->createDataLayout());
    module.setTargetTriple(triple_);
    Emitter emitter(module, fn, traits_, options);
    emitter.run(symbol);
    std::string broken;
    llvm::raw_string_ostream stream(broken);
    if (llvm::verifyModule(module, &stream))
      throw UnsupportedKernel{"the generated LLVM IR is invalid: " + stream.str()};
    if (!optimise) return emitter.scratch_bytes();

    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager groups;
    llvm::ModuleAnalysisManager modules;
    llvm::PassBuilder passes(machine.get());
    passes.registerModuleAnalyses(modules);
    passes.registerCGSCCAnalyses(groups);
    passes.registerFunctionAnalyses(functions);
    passes.registerLoopAnalyses(loops);
    passes.crossRegisterProxies(loops, functions, groups, modules);
    llvm::ModulePassManager manager;
    if (auto error = passes.parsePassPipeline(manager, cpu_pass_list))
      throw UnsupportedKernel{llvm::toString(std::move(error))};
    manager.run(module, modules);
    keep_addresses(module);
    return emitter.scratch_bytes();
  }

  llvm::SmallVector<char, 0> machine_code(llvm::Module& module, FileType kind) {
    llvm::SmallVector<char, 0> out;
    llvm::raw_svector_ostream stream(out);
    llvm::legacy::PassManager manager;
    const auto machine = machine_();
    if (machine->addPassesToEmitFile(manager, stream, nullptr, kind))
      throw UnsupportedKernel{"LLVM cannot write object files for this target"};
    manager.run(module);
    return out;
  }

  TargetTraits traits_;
  std::function<std::unique_ptr<llvm::TargetMachine>()> machine_;
  TargetName triple_;
};

}  // namespace

}  // namespace tessera::cpu

namespace tessera::cpu {

PtxGenerator* make_ptx_generator();  // ptx.cpp

namespace {

/// The lifetime of LLVM's static objects. Compilations hold a shared lock.
struct Life {
  std::shared_timed_mutex lock;
  std::atomic<bool> over = false;
};
Life& life() {
  static auto& the_life = *new Life;  // never destroyed
  return the_life;
}

/// An exit handler, which runs before the static objects of the module are destroyed. Waits for compilations on other
/// threads, for a limited time.
void end_of_llvm() {
  Life& l = life();
  l.over = true;
  if (l.lock.try_lock_for(std::chrono::seconds(10))) l.lock.unlock();
}

class LlvmCodegen final : public Codegen {
 public:
  LlvmCodegen() {
    llvm::install_fatal_error_handler(fatal);
    llvm::install_bad_alloc_error_handler(out_of_memory);
    std::atexit(end_of_llvm);
  }

  Generator* processor(const char* target, bool runs_here, std::string& wrong) noexcept override {
    return guarded(wrong, [&] {
      const std::scoped_lock hold(lock_);
      static const bool initialised = [] {
        llvm::InitializeNativeTarget();
        llvm::InitializeNativeTargetAsmPrinter();
        return llvm::InitializeNativeTargetAsmParser();
      }();
      (void)initialised;
      auto& generator = generators_[{target, runs_here}];
      if (!generator) generator = std::make_unique<LlvmGenerator>(target, runs_here);
      return static_cast<Generator*>(generator.get());
    });
  }
  PtxGenerator* ptx(std::string& wrong) noexcept override {
    return guarded(wrong, [&] {
      const std::scoped_lock hold(lock_);
      if (!ptx_) ptx_.reset(make_ptx_generator());
      return ptx_.get();
    });
  }

 private:
  std::mutex lock_;
  std::map<std::pair<std::string, bool>, std::unique_ptr<Generator>> generators_;
  std::unique_ptr<PtxGenerator> ptx_;
};

}  // namespace

UsingLlvm::UsingLlvm() {
  Life& l = life();
  l.lock.lock_shared();
  if (!l.over) return;
  l.lock.unlock_shared();
  throw UnsupportedKernel{"the program is exiting and LLVM has been shut down: compile the kernel earlier"};
}
UsingLlvm::~UsingLlvm() { life().lock.unlock_shared(); }

}  // namespace tessera::cpu

extern "C" __attribute__((visibility("default"))) tessera::cpu::Codegen* tessera_codegen_open(
    int version, const char*, std::string* wrong) noexcept {
  using namespace tessera::cpu;
  if (version != interface_version) {
    *wrong = "the module implements version " + std::to_string(interface_version) +
             " of the interface, but the library requires version " + std::to_string(version);
    return nullptr;
  }
  return guarded(*wrong, []() -> Codegen* {
    static auto& codegen = *new LlvmCodegen;  // never destroyed
    return &codegen;
  });
}
