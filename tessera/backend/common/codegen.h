// SPDX-License-Identifier: Apache-2.0
// What the backends (cpu, and cuda without NVRTC) and the code-generation module say to each other. The module is
// opened at run time and holds LLVM; no type of LLVM's and no exception crosses this boundary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tessera/emit/c_emitter.h"
#include "tessera/ir/node.h"

namespace tessera::cpu {

/// What compiled code reads of a launch. The generator knows this layout: 64-bit words throughout.
struct KernelCall {
  const std::uint64_t* slots;  ///< two a parameter: buffers: address, elements; scalars: bits, 0
  std::uint64_t grid[3];       ///< map kernels: the extent; block kernels: the number of blocks
  void (*print)(void* user, std::uint32_t format, const std::uint64_t* bits);  ///< one thread's print statement
  void* user;                                                                  ///< for `print`
};

/// Runs the work items from `begin` up to `end`: of map kernels threads, of block kernels blocks, both counted with
/// dimension 0 fastest. `scratch`: Object::scratch_bytes of memory, aligned to 64, of the calling thread
/// alone.
using KernelEntry = void (*)(const KernelCall* call, std::uint64_t begin, std::uint64_t end, std::byte* scratch);

/// What the generator makes code for.
struct TargetTraits {
  std::string cpu;       ///< LLVM's name
  std::string features;  ///< LLVM's feature string
  /// Every feature that code for it may use, as hexadecimal digits that mean something to one build of the module only:
  /// where they are equal, code is.
  std::string feature_bits;
  unsigned width = 4;  ///< lanes of a vector of 32-bit elements
  bool f16c = false;   ///< converts 16-bit floats
  bool fma = false;
  bool vnni = false;      ///< dot4 in one instruction (AVX-512 VNNI)
  bool avx_vnni = false;  ///< likewise, in 256 bits without AVX-512
};

/// How a kernel is compiled.
struct GenerateOptions {
  bool noalias = true;   ///< the buffers are disjoint
  bool index64 = false;  ///< width of `index`, where the function still has it
};

/// A kernel's machine code before it is loaded. The same kernel gives the same bytes, which any process may load whose
/// module and `feature_bits` are the same.
struct Object {
  std::string bytes;              ///< a relocatable object file
  std::size_t scratch_bytes = 0;  ///< of memory that each thread hands to the kernel
  double generate_ms = 0;         ///< our IR to LLVM's, and its passes
  double machine_code_ms = 0;
};

/// A kernel that is loaded; its destructor gives the memory back.
class Compiled {
 public:
  virtual ~Compiled() = default;
  virtual KernelEntry entry() const = 0;
};

/// Compiles for one target. Thread-safe.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual const TargetTraits& target() const = 0;
  virtual std::string version() const = 0;  ///< "LLVM 16.0.6"
  /// False, and what was wrong: nothing where memory ran out. `function`: lowered and canonical.
  virtual bool compile(const ir::Function& function, const GenerateOptions& options, Object& object,
                       std::string& wrong) noexcept = 0;
  /// The kernel of this name; null likewise. Compiles nothing.
  virtual std::unique_ptr<Compiled> load(std::string_view object, const std::string& name,
                                         std::string& wrong) noexcept = 0;
  /// What compile() works on, for people and tests, or what was wrong.
  enum class Text : std::uint8_t { llvm, optimised, assembly };
  virtual std::string text(const ir::Function& function, const GenerateOptions& options, Text which) noexcept = 0;
};

/// What PTX is written for: the compute capability that it may use (90: 9.0) and the version of PTX (78: 7.8).
struct PtxTarget {
  int capability = 0, version = 0;
};

/// One kernel to be made PTX of.
struct PtxKernel {
  const ir::Function* function;     ///< lowered for emit::ptx(), canonical
  const emit::EmittedKernel* form;  ///< its entry, arguments and dynamic shared memory, as emit_c has them
  bool noalias = true;              ///< the buffers are disjoint
};

/// Makes PTX, NVIDIA's assembly, which the driver compiles for its devices. Thread-safe.
class PtxGenerator {
 public:
  virtual ~PtxGenerator() = default;
  virtual std::string version() const = 0;  ///< "LLVM 16.0.6"
  /// The best that a device of this capability takes from a driver that knows PTX up to this version: code for an older
  /// capability runs on newer devices. A capability of 0 if this LLVM knows none that fits.
  virtual PtxTarget target_for(int capability, int version) const = 0;
  /// One text with all kernels; empty, and what was wrong (nothing where memory ran out), if one cannot be made.
  virtual std::string compile(std::span<const PtxKernel> kernels, PtxTarget target, std::string& wrong) noexcept = 0;
  /// LLVM's own text of what compile() turns into PTX, for people and tests.
  virtual std::string llvm(std::span<const PtxKernel> kernels, PtxTarget target, std::string& wrong) noexcept = 0;
};

/// What the module offers.
class Codegen {
 public:
  virtual ~Codegen() = default;
  /// A generator for "native", or a CPU name of LLVM's such as "x86-64-v3"; null and what was wrong: nothing where
  /// memory ran out.
  virtual Generator* processor(const char* target, std::string& wrong) noexcept = 0;
  virtual PtxGenerator* ptx(std::string& wrong) noexcept = 0;  ///< likewise; null if this LLVM has no NVPTX
};

/// Raised with every change of this file, and of ir::Function.
inline constexpr int interface_version = 5;

/// The module's one symbol, `tessera_codegen_open`: what it offers, or null and what was wrong. All of it lives as long
/// as the process. The second argument is not read: version 1 had it, and each version must be able to refuse another.
using OpenCodegen = Codegen* (*)(int version, const char* unread, std::string* wrong);
inline constexpr const char* open_codegen_symbol = "tessera_codegen_open";

}  // namespace tessera::cpu
