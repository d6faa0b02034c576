// SPDX-License-Identifier: Apache-2.0
// Lowers a kernel to the operations that a device supports. This is a pass from IR to IR. The result contains no
// `index` dtype, no vectors (unless the target supports them, except in aligned accesses), and no operation that the
// target lacks. Emitters therefore do not check for these.
#pragma once

#include "tessera/ir/fwd.h"

namespace tessera::emit {

/// The features that the lowered function may use.
struct Target {
  bool index64 = false;       ///< `index` becomes i64 if true, i32 if false
  bool guard_map = true;      ///< puts the body of a map kernel into `if global_id < extent`
  bool f16_convert = true;    ///< casts f16 <-> f32 are supported; if false, they become integer code (and f16 buffers
                              ///< become u16)
  bool bf16_convert = false;  ///< same for bf16
  bool f64 = true;            ///< if false, any use of f64 throws KernelError with the kernel and line
  bool dot4 = true;           ///< if false, dot4 becomes shifts and multiplications
  /// Expands exp, exp2, log, log2, sin, cos, tanh, erf and pow of f32 to arithmetic (see math.h). tan and the
  /// operations after it in ir::MathOp are always expanded, in f32 and f64.
  bool expand_math = false;
  bool native_exp = false;     ///< exp and exp2 of f32 are not expanded, even if `expand_math` is true
  bool expand_math64 = false;  ///< same as `expand_math` for f64
  bool fast_f64 = false;       ///< f64 is at most twice as slow as f32, so expanded f32 functions may use it
  bool atomic_f32 = true;      ///< if false, float atomics become compare-and-swap loops
  bool atomic_f64_add = true;  ///< same for sums of f64
  bool atomic_f64 = true;      ///< same for min and max of f64; exchange and compare-and-swap are always supported
  bool atomic_i64 = true;      ///< if false, 64-bit atomics throw KernelError
  std::uint32_t subgroup_width =
      0;  ///< 0: subgroup nodes are supported; 1: they become the identity, with constant width and ids
  bool block_operations = true;  ///< if false, block_reduce and block_scan become shared memory, barriers and subgroup
                                 ///< sums
  /// mma and fragments are supported if the number of threads in a block is a multiple of `mma_width` and the factors
  /// are f16, bf16 and i8 if `mma_bf16` is true, or f32 if `mma_f32` is true. They keep their dtypes, but bf16 memory
  /// is u16 if `bf16_convert` is false. In other kernels, each lane runs mma as loops (see mma.h).
  bool mma = false;
  bool mma_bf16 = true;
  bool mma_f32 = true;
  std::uint32_t mma_width = 1;
  ir::FragmentLayout layout = {};  ///< of accumulators in functions that keep fragments
  /// Op::async is supported in functions with ir::Function::aligned_vectors. Other functions copy at once.
  bool copy_async = false;
  bool vectors = false;  ///< if false, vector operations are split into operations on elements
  /// Buffers begin at multiples of 16 bytes, so that vectors of functions with ir::Function::aligned_vectors can be
  /// loaded, stored and copied asynchronously by one access. If false, the lowered function does not have this
  /// property.
  bool aligned_vectors = false;
  std::uint32_t max_block_threads = 1024;
  std::uint64_t max_shared_bytes = 49152;
  std::uint64_t max_local_bytes = 0;  ///< for all threads of a block together; 0: no limit
};

/// Returns the lowered function in canonical form. Throws KernelError with the kernel, the line and the missing feature
/// if the target cannot run the kernel.
ir::Function lower(const ir::Function& fn, const Target& target);

/// Returns the number of elements, 1, 2 or 4, that one access of at most 16 bytes transfers for this load or store.
std::uint8_t access_lanes(const ir::Function& fn, const ir::Node& access);

/// Returns true if matrix products in `fn` use fragments on this target.
bool keeps_fragments(const ir::Function& fn, const Target& target);

/// Increase this when a change in lowering or emission changes the result for any kernel. Part of every cache key.
inline constexpr int lowering_version = 15;

}  // namespace tessera::emit
