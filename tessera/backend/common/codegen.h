// SPDX-License-Identifier: Apache-2.0
// Interface between the backends (cpu, and cuda without NVRTC) and the code-generation module, which contains LLVM and
// is opened at run time. No LLVM type and no exception crosses this boundary.
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

/// Launch data that compiled code reads. The generator depends on this layout: 64-bit words throughout.
struct KernelCall {
  const std::uint64_t* slots;  ///< two per parameter: address and element count of a buffer; bits and 0 of a scalar
  std::uint64_t grid[3];       ///< map kernels: the extent; block kernels: the number of blocks
  void (*print)(void* user, std::uint32_t format, const std::uint64_t* bits);  ///< prints one thread's print statement
  void* user;                                                                  ///< passed to `print`
};

/// Runs the work items `begin` to `end` (exclusive): threads of a map kernel, blocks of a block kernel, counted with
/// dimension 0 fastest. `scratch`: Object::scratch_bytes of memory, aligned to 64 bytes, used only by the calling
/// thread.
using KernelEntry = void (*)(const KernelCall* call, std::uint64_t begin, std::uint64_t end, std::byte* scratch);

/// The processor that code is generated for.
struct TargetTraits {
  std::string cpu;       ///< LLVM's name
  std::string features;  ///< LLVM's feature string
  /// All CPU features that the code may use, as hexadecimal digits. Only comparable within one build of the module:
  /// equal digits mean that the generated code is the same.
  std::string feature_bits;
  unsigned width = 4;  ///< lanes in a vector of 32-bit elements
  bool f16c = false;   ///< converts 16-bit floats
  bool fma = false;
  bool vnni = false;      ///< dot4 in one instruction (AVX-512 VNNI)
  bool avx_vnni = false;  ///< dot4 in one instruction, 256 bits wide, without AVX-512
};

/// Options of one compilation.
struct GenerateOptions {
  bool noalias = true;   ///< the buffers are disjoint
  bool index64 = false;  ///< width of `index`, if lowering left any in the function
};

/// Machine code of a kernel before it is loaded. Compilation is deterministic. Any process with the same module and the
/// same `feature_bits` can load the bytes.
struct Object {
  std::string bytes;              ///< a relocatable object file
  std::size_t scratch_bytes = 0;  ///< memory that each thread passes to the kernel
  double generate_ms = 0;         ///< time to generate LLVM IR and run its passes
  double machine_code_ms = 0;
};

/// A loaded kernel; the destructor frees its memory.
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
  /// Returns false and sets `wrong` on failure; `wrong` is empty if memory ran out. `function`: lowered and canonical.
  virtual bool compile(const ir::Function& function, const GenerateOptions& options, Object& object,
                       std::string& wrong) noexcept = 0;
  /// Loads the kernel of this name without compiling; returns null and sets `wrong` on failure, as above.
  virtual std::unique_ptr<Compiled> load(std::string_view object, const std::string& name,
                                         std::string& wrong) noexcept = 0;
  /// The intermediate texts of a compilation, for tests and debugging; sets `wrong` on failure.
  enum class Text : std::uint8_t { llvm, optimised, assembly };
  virtual std::string text(const ir::Function& function, const GenerateOptions& options, Text which) noexcept = 0;
};

/// Target of PTX generation: compute capability (90: 9.0) and PTX version (78: 7.8).
struct PtxTarget {
  int capability = 0, version = 0;
};

/// A kernel to compile to PTX.
struct PtxKernel {
  const ir::Function* function;     ///< lowered for emit::ptx(), canonical
  const emit::EmittedKernel* form;  ///< its entry, arguments and dynamic shared memory, as in emit_c
  bool noalias = true;              ///< the buffers are disjoint
};

/// Generates PTX, NVIDIA's virtual assembly, which the driver compiles for its devices. Thread-safe.
class PtxGenerator {
 public:
  virtual ~PtxGenerator() = default;
  virtual std::string version() const = 0;  ///< "LLVM 16.0.6"
  /// Returns the newest target that a device of this capability supports with a driver that accepts PTX up to this
  /// version (code for an older capability runs on newer devices). The capability is 0 if this LLVM supports none of
  /// them.
  virtual PtxTarget target_for(int capability, int version) const = 0;
  /// Returns one text with all kernels. On failure returns an empty text and sets `wrong`, which is empty if memory ran
  /// out.
  virtual std::string compile(std::span<const PtxKernel> kernels, PtxTarget target, std::string& wrong) noexcept = 0;
  /// Returns the LLVM IR from which compile() generates PTX, for tests and debugging.
  virtual std::string llvm(std::span<const PtxKernel> kernels, PtxTarget target, std::string& wrong) noexcept = 0;
};

/// Entry point to the module's generators.
class Codegen {
 public:
  virtual ~Codegen() = default;
  /// Returns a generator for "native" or an LLVM CPU name such as "x86-64-v3". On failure returns null and sets
  /// `wrong`, which is empty if memory ran out.
  virtual Generator* processor(const char* target, std::string& wrong) noexcept = 0;
  virtual PtxGenerator* ptx(std::string& wrong) noexcept = 0;  ///< as above; null if this LLVM has no NVPTX target
};

/// Increment when this file or ir::Function changes.
inline constexpr int interface_version = 5;

/// The module's only exported symbol, `tessera_codegen_open`. Returns the entry point, which lives until the process
/// exits, or null and sets `wrong`. The second argument is unused: version 1 had it, and every version must be able to
/// reject another one.
using OpenCodegen = Codegen* (*)(int version, const char* unread, std::string* wrong);
inline constexpr const char* open_codegen_symbol = "tessera_codegen_open";

}  // namespace tessera::cpu
