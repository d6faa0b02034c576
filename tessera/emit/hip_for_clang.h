// SPDX-License-Identifier: Apache-2.0
// Prepended to emitted HIP text, so that clang can compile it without ROCm. The result is examined, but never runs, so
// device library functions are declared but not defined. Functions that are instructions are defined.
#pragma once

namespace tessera::emit {

inline constexpr const char* hip_for_clang = R"(
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#define __align__(n) __attribute__((aligned(n)))
#define DEVICE static __device__ __forceinline__
struct thread_axis_x { __device__ operator unsigned int() const { return __builtin_amdgcn_workitem_id_x(); } };
struct thread_axis_y { __device__ operator unsigned int() const { return __builtin_amdgcn_workitem_id_y(); } };
struct thread_axis_z { __device__ operator unsigned int() const { return __builtin_amdgcn_workitem_id_z(); } };
struct block_axis_x { __device__ operator unsigned int() const { return __builtin_amdgcn_workgroup_id_x(); } };
struct block_axis_y { __device__ operator unsigned int() const { return __builtin_amdgcn_workgroup_id_y(); } };
struct block_axis_z { __device__ operator unsigned int() const { return __builtin_amdgcn_workgroup_id_z(); } };
struct size_axis_x { __device__ operator unsigned int() const { return __builtin_amdgcn_workgroup_size_x(); } };
struct size_axis_y { __device__ operator unsigned int() const { return __builtin_amdgcn_workgroup_size_y(); } };
struct size_axis_z { __device__ operator unsigned int() const { return __builtin_amdgcn_workgroup_size_z(); } };
struct grid_axis_x { __device__ operator unsigned int() const { return __builtin_amdgcn_grid_size_x() / size_axis_x(); } };
struct grid_axis_y { __device__ operator unsigned int() const { return __builtin_amdgcn_grid_size_y() / size_axis_y(); } };
struct grid_axis_z { __device__ operator unsigned int() const { return __builtin_amdgcn_grid_size_z() / size_axis_z(); } };
static __device__ const struct { thread_axis_x x; thread_axis_y y; thread_axis_z z; } threadIdx = {};
static __device__ const struct { block_axis_x x; block_axis_y y; block_axis_z z; } blockIdx = {};
static __device__ const struct { size_axis_x x; size_axis_y y; size_axis_z z; } blockDim = {};
static __device__ const struct { grid_axis_x x; grid_axis_y y; grid_axis_z z; } gridDim = {};
#ifdef __AMDGCN_WAVEFRONT_SIZE__
#define warpSize __AMDGCN_WAVEFRONT_SIZE__
#else
#define warpSize __AMDGCN_WAVEFRONT_SIZE
#endif
DEVICE void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DEVICE int lane() {
  const unsigned int low = __builtin_amdgcn_mbcnt_lo(~0u, 0u);
  return (int)(warpSize == 32 ? low : __builtin_amdgcn_mbcnt_hi(~0u, low));
}
template <class T>
DEVICE T __shfl(T v, int from) {
  int words[(sizeof(T) + 3) / 4] = {};
  __builtin_memcpy(words, &v, sizeof(T));
  for (int& w : words) w = __builtin_amdgcn_ds_bpermute(4 * from, w);
  __builtin_memcpy(&v, words, sizeof(T));
  return v;
}
template <class T> DEVICE T __shfl_up(T v, int by) { return __shfl(v, lane() - by < 0 ? lane() : lane() - by); }
template <class T> DEVICE T __shfl_down(T v, int by) { return __shfl(v, lane() + by > warpSize - 1 ? lane() : lane() + by); }
template <class T> DEVICE T atomicAdd(T* at, T v) { return __hip_atomic_fetch_add(at, v, __ATOMIC_RELAXED, 4); }
template <class T> DEVICE T atomicMin(T* at, T v) { return __hip_atomic_fetch_min(at, v, __ATOMIC_RELAXED, 4); }
template <class T> DEVICE T atomicMax(T* at, T v) { return __hip_atomic_fetch_max(at, v, __ATOMIC_RELAXED, 4); }
template <class T> DEVICE T atomicAnd(T* at, T v) { return __hip_atomic_fetch_and(at, v, __ATOMIC_RELAXED, 4); }
template <class T> DEVICE T atomicOr(T* at, T v) { return __hip_atomic_fetch_or(at, v, __ATOMIC_RELAXED, 4); }
template <class T> DEVICE T atomicXor(T* at, T v) { return __hip_atomic_fetch_xor(at, v, __ATOMIC_RELAXED, 4); }
template <class T> DEVICE T atomicExch(T* at, T v) { return __hip_atomic_exchange(at, v, __ATOMIC_RELAXED, 4); }
template <class T> DEVICE T atomicCAS(T* at, T expected, T v) {
  __hip_atomic_compare_exchange_strong(at, &expected, v, __ATOMIC_RELAXED, __ATOMIC_RELAXED, 4);
  return expected;
}
template <class T> DEVICE T min(T a, T b) { return b < a ? b : a; }
DEVICE int __float_as_int(float f) { return __builtin_bit_cast(int, f); }
DEVICE unsigned int __float_as_uint(float f) { return __builtin_bit_cast(unsigned int, f); }
DEVICE float __int_as_float(int i) { return __builtin_bit_cast(float, i); }
DEVICE float __uint_as_float(unsigned int i) { return __builtin_bit_cast(float, i); }
DEVICE long long __double_as_longlong(double d) { return __builtin_bit_cast(long long, d); }
DEVICE double __longlong_as_double(long long i) { return __builtin_bit_cast(double, i); }
DEVICE int __popc(unsigned int v) { return __builtin_popcount(v); }
DEVICE int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
DEVICE int __clz(int v) { return v == 0 ? 32 : __builtin_clz((unsigned int)v); }
DEVICE int __clzll(long long v) { return v == 0 ? 64 : __builtin_clzll((unsigned long long)v); }
DEVICE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
DEVICE unsigned int __umulhi(unsigned int a, unsigned int b) { return (unsigned int)((unsigned long long)a * b >> 32); }
extern "C" {
__device__ long long __mul64hi(long long, long long);
__device__ unsigned long long __umul64hi(unsigned long long, unsigned long long);
__device__ int printf(const char*, ...);
#define OF_ONE(name) __device__ float name##f(float); __device__ double name(double);
#define OF_TWO(name) __device__ float name##f(float, float); __device__ double name(double, double);
OF_ONE(exp) OF_ONE(exp2) OF_ONE(log) OF_ONE(log2) OF_ONE(sin) OF_ONE(cos) OF_ONE(tanh) OF_ONE(erf)
OF_TWO(pow) OF_TWO(fmod)
}
#define INLINE_ONE(name) \
  DEVICE float name##f(float a) { return __builtin_##name##f(a); } \
  DEVICE double name(double a) { return __builtin_##name(a); }
#define INLINE_TWO(name) \
  DEVICE float name##f(float a, float b) { return __builtin_##name##f(a, b); } \
  DEVICE double name(double a, double b) { return __builtin_##name(a, b); }
INLINE_ONE(sqrt) INLINE_ONE(floor) INLINE_ONE(ceil) INLINE_ONE(trunc) INLINE_ONE(rint) INLINE_ONE(fabs)
INLINE_TWO(fmin) INLINE_TWO(fmax)
DEVICE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#line 1 "kernels"
)";

}  // namespace tessera::emit
