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

/// Launch data that compiled code reads. The generator depends on this layout, in which every field has 64 bits.
struct KernelCall {
  const std::uint64_t* slots;  ///< two words per parameter: address and element count of a buffer, or the bits of a
                               ///< scalar and 0
  std::uint64_t grid[3];       ///< map kernels: the extent; block kernels: the number of blocks
  void (*print)(void* user, std::uint32_t format, const std::uint64_t* bits);  ///< prints one thread's print statement
  void* user;                                                                  ///< passed to `print`
};

/// Runs the work items from `begin` up to, but not including, `end`. A work item is a thread of a map kernel or a block
/// of a block kernel. Items are numbered with dimension 0 fastest. `scratch` points to Object::scratch_bytes bytes of
/// memory, aligned to 64 bytes, that no other thread uses during the call.
using KernelEntry = void (*)(const KernelCall* call, std::uint64_t begin, std::uint64_t end, std::byte* scratch);

/// The processor that code is generated for.
struct TargetTraits {
  std::string cpu;       ///< LLVM's name
  std::string features;  ///< LLVM's feature string
  /// All CPU features that the code may use, as hexadecimal digits. Two targets with equal digits produce the same code
  /// if they use the same build of the module.
  std::string feature_bits;
  unsigned width = 4;  ///< lanes in a vector of 32-bit elements
  bool f16c = false;   ///< has instructions that convert between f16 and f32
  bool fma = false;
  bool vnni = false;      ///< has dot4 instructions (AVX-512 VNNI)
  bool avx_vnni = false;  ///< has 256-bit dot4 instructions without AVX-512
};

/// Options of one compilation.
struct GenerateOptions {
  bool noalias = true;   ///< the buffers are disjoint
  bool index64 = false;  ///< `index` has 64 bits; matters only if the lowered function still uses `index`
};

/// Machine code of a kernel before it is loaded. Compilation is deterministic. Any process with the same module and the
/// same `feature_bits` can load the bytes.
struct Object {
  std::string bytes;              ///< a relocatable object file
  std::size_t scratch_bytes = 0;  ///< memory that each thread passes to the kernel
  double generate_ms = 0;         ///< time to generate LLVM IR and run its passes
  double machine_code_ms = 0;
};

/// Returns the name of a kernel's function in an object. It differs from the names of all functions that kernels call.
inline std::string kernel_symbol(const std::string& name) {
  std::string out;
  for (const char c : name) out += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
  return out + "_kernel";
}

/// Compiles for one target. Thread-safe.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual const TargetTraits& target() const = 0;
  virtual std::string version() const = 0;  ///< "LLVM 16.0.6"
  /// Compiles `function`, which must be lowered and canonical. Returns false and sets `wrong` on failure. `wrong` is
  /// empty if memory ran out.
  virtual bool compile(const ir::Function& function, const GenerateOptions& options, Object& object,
                       std::string& wrong) noexcept = 0;
  /// Returns an intermediate result of the compilation as text, for tests and debugging. On failure, returns the error
  /// message.
  enum class Text : std::uint8_t { llvm, optimised, assembly };
  virtual std::string text(const ir::Function& function, const GenerateOptions& options, Text which) noexcept = 0;
};

/// Target of PTX generation: compute capability (90 means 9.0) and PTX version (78 means 7.8).
struct PtxTarget {
  int capability = 0, version = 0;
};

/// A kernel to compile to PTX.
struct PtxKernel {
  const ir::Function* function;     ///< lowered for emit::ptx(), in canonical form
  const emit::EmittedKernel* form;  ///< its entry, arguments and dynamic shared memory, as in emit_c
  bool noalias = true;              ///< the buffers are disjoint
};

/// Generates PTX, NVIDIA's virtual assembly, which the driver compiles for its devices. Thread-safe.
class PtxGenerator {
 public:
  virtual ~PtxGenerator() = default;
  virtual std::string version() const = 0;  ///< "LLVM 16.0.6"
  /// Returns the newest target that this LLVM can generate code for, that a device of this capability can run, and that
  /// a driver with this PTX version accepts. Code for an older capability also runs on newer devices. The capability of
  /// the result is 0 if there is no such target.
  virtual PtxTarget target_for(int capability, int version) const = 0;
  /// Compiles all kernels into one PTX text. On failure, returns an empty string and sets `wrong`. `wrong` is empty if
  /// memory ran out.
  virtual std::string compile(std::span<const PtxKernel> kernels, PtxTarget target, std::string& wrong) noexcept = 0;
  /// Returns the LLVM IR from which compile() generates PTX, for tests and debugging.
  virtual std::string llvm(std::span<const PtxKernel> kernels, PtxTarget target, std::string& wrong) noexcept = 0;
};

/// Entry point to the module's generators.
class Codegen {
 public:
  virtual ~Codegen() = default;
  /// Returns a generator for "native" or an LLVM CPU name such as "x86-64-v3". If `runs_here` is false, this machine's
  /// processor need not have the features of the target. On failure, returns null and sets `wrong`. `wrong` is empty if
  /// memory ran out.
  virtual Generator* processor(const char* target, bool runs_here, std::string& wrong) noexcept = 0;
  virtual PtxGenerator* ptx(std::string& wrong) noexcept = 0;  ///< like processor(); null if this LLVM has no NVPTX
                                                               ///< target
};

/// Increment when this file or ir::Function changes.
inline constexpr int interface_version = 10;

/// The type of `tessera_codegen_open`, the only symbol that the module exports. Returns the entry point, which is valid
/// until the process exits. On failure, returns null and sets `wrong`. The second argument is unused. It remains
/// because the signature must be the same in all versions, so that each version can reject the others.
using OpenCodegen = Codegen* (*)(int version, const char* unread, std::string* wrong);
inline constexpr const char* open_codegen_symbol = "tessera_codegen_open";

}  // namespace tessera::cpu
