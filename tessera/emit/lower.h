// SPDX-License-Identifier: Apache-2.0
// From the kernel as written to the kernel as one device can run it: a pass from IR to IR that knows what the device
// can. What comes out has no `index` dtype, no vectors, and nothing the target cannot do; emitters need no second look.
#pragma once

#include "tessera/ir/fwd.h"

namespace tessera::emit {

/// What the lowered function may contain.
struct Target {
  bool index64 = false;       ///< `index` becomes i64, else i32
  bool guard_map = true;      ///< a map kernel's body is put under `if global_id < extent`
  bool f16_convert = true;    ///< casts f16 <-> f32 stay; else integer code on u16 (buffers of f16 become u16)
  bool bf16_convert = false;  ///< likewise for bf16
  bool f64 = true;            ///< else f64 anywhere is a KernelError naming kernel and line
  bool dot4 = true;           ///< dot4 stays; else shifts and multiplications
  /// exp, exp2, log, log2, sin, cos, tanh, erf, pow, of f32 become arithmetic (see math.h). tan and those behind it
  /// always do, of f32 and of f64.
  bool expand_math = false;
  bool expand_math64 = false;  ///< likewise of f64
  bool fast_f64 = false;       ///< f64 is at most twice as slow as f32: expanded math of f32 may use it
  bool atomic_f32 = true;      ///< float atomics stay; else loops of compare-and-swap
  bool atomic_f64_add = true;  ///< likewise the sums of f64
  bool atomic_f64 = true;      ///< and the other atomics of f64; exchange and compare-and-swap stay
  bool atomic_i64 = true;      ///< else KernelError
  std::uint32_t subgroup_width =
      0;                         ///< 0: subgroup nodes stay; 1: they become the identity; width and ids are constants
  bool block_operations = true;  ///< block_reduce and block_scan stay; else shared memory, barriers and subgroup sums
  /// mma and fragments stay (of the dtypes that the kernel gives them, bf16 with memory of u16 where bf16_convert is
  /// false) in kernels whose blocks are whole subgroups of `mma_width`, and whose factors are of f16, or of bf16 where
  /// mma_bf16 is set. In others, and everywhere else, mma becomes loops of every lane: see mma.h.
  bool mma = false;
  bool mma_bf16 = true;
  std::uint32_t mma_width = 1;
  bool vectors = false;  ///< vector loads, stores, make and extract stay; else one by one
  std::uint32_t max_block_threads = 1024;
  std::uint64_t max_shared_bytes = 49152;
  std::uint64_t max_local_bytes = 0;  ///< of all threads of a block together; 0: no limit
};

/// The lowered function, canonical again. KernelError names kernel, line and capability if it cannot be.
ir::Function lower(const ir::Function& fn, const Target& target);

/// Whether the products of matrices in `fn` stay products of fragments on this target.
bool keeps_fragments(const ir::Function& fn, const Target& target);

/// Raised whenever lowering or emission changes what is produced for the same kernel: part of every cache key.
inline constexpr int lowering_version = 9;

}  // namespace tessera::emit
