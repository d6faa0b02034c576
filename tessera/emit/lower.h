// SPDX-License-Identifier: Apache-2.0
// Lowers a kernel to what one device supports, as a pass from IR to IR. The result has no `index` dtype, no vectors
// (unless the target has them), and no operation that the target lacks, so emitters need no checks of their own.
#pragma once

#include "tessera/ir/fwd.h"

namespace tessera::emit {

/// What the lowered function may contain.
struct Target {
  bool index64 = false;       ///< `index` becomes i64, else i32
  bool guard_map = true;      ///< wraps a map kernel's body in `if global_id < extent`
  bool f16_convert = true;    ///< casts f16 <-> f32 stay; else integer code on u16 (buffers of f16 become u16)
  bool bf16_convert = false;  ///< the same for bf16
  bool f64 = true;            ///< else f64 anywhere is a KernelError with the kernel and line
  bool dot4 = true;           ///< dot4 stays; else shifts and multiplications
  /// exp, exp2, log, log2, sin, cos, tanh, erf and pow of f32 become arithmetic (see math.h). tan and the operations
  /// after it in ir::MathOp always do, in f32 and f64.
  bool expand_math = false;
  bool expand_math64 = false;  ///< the same for f64
  bool fast_f64 = false;       ///< f64 is at most twice as slow as f32: expanded math of f32 may use it
  bool atomic_f32 = true;      ///< float atomics stay; else compare-and-swap loops
  bool atomic_f64_add = true;  ///< the same for sums of f64
  bool atomic_f64 = true;      ///< the same for the other atomics of f64; exchange and compare-and-swap stay
  bool atomic_i64 = true;      ///< else KernelError
  std::uint32_t subgroup_width =
      0;                         ///< 0: subgroup nodes stay; 1: they become the identity; width and ids are constants
  bool block_operations = true;  ///< block_reduce and block_scan stay; else shared memory, barriers and subgroup sums
  /// mma and fragments stay, with the kernel's dtypes (bf16 in u16 memory if bf16_convert is false), in kernels whose
  /// blocks are whole subgroups of `mma_width` and whose factors are f16, or bf16 if mma_bf16 is set. Otherwise each
  /// lane runs mma as loops: see mma.h.
  bool mma = false;
  bool mma_bf16 = true;
  std::uint32_t mma_width = 1;
  bool vectors = false;  ///< vector loads, stores, make and extract stay; else they are split into elements
  std::uint32_t max_block_threads = 1024;
  std::uint64_t max_shared_bytes = 49152;
  std::uint64_t max_local_bytes = 0;  ///< of all threads of a block together; 0: no limit
};

/// Returns the lowered function in canonical form. Throws KernelError with kernel, line and missing capability if the
/// target cannot run it.
ir::Function lower(const ir::Function& fn, const Target& target);

/// Whether matrix products in `fn` stay fragment products on this target.
bool keeps_fragments(const ir::Function& fn, const Target& target);

/// Increase whenever lowering or emission produces something else for the same kernel. Part of every cache key.
inline constexpr int lowering_version = 9;

}  // namespace tessera::emit
