// SPDX-License-Identifier: Apache-2.0
// Prepended to emitted CUDA C and HIP text, so that it compiles as C++ for the host. Defines the keywords of both
// languages and the functions that emitted text calls, according to the vendors' documentation. Includes no other
// headers, to compile quickly.
#pragma once

#include "text_on_host.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ thread_local  // one copy for each host thread, which runs a block

#define threadIdx (tessera::text::host->self()->thread)
#define blockIdx (tessera::text::host->self()->block)
#define blockDim (tessera::text::host->self()->block_size)
#define gridDim (tessera::text::host->self()->grid)
#define warpSize ((int)tessera::text::host->self()->width)

#ifdef TESSERA_TEXT_DYNAMIC_SHARED
extern "C" {
thread_local __align__(16) unsigned char shared_memory[TESSERA_TEXT_DYNAMIC_SHARED];
}
#endif

// Functions of the C library.
extern "C" {
int printf(const char*, ...);
#define TESSERA_TEXT_ONE(name) \
  float name##f(float);        \
  double name(double)
#define TESSERA_TEXT_TWO(name) \
  float name##f(float, float); \
  double name(double, double)
TESSERA_TEXT_ONE(sqrt);
TESSERA_TEXT_ONE(exp);
TESSERA_TEXT_ONE(exp2);
TESSERA_TEXT_ONE(log);
TESSERA_TEXT_ONE(log2);
TESSERA_TEXT_ONE(sin);
TESSERA_TEXT_ONE(cos);
TESSERA_TEXT_ONE(tanh);
TESSERA_TEXT_ONE(erf);
TESSERA_TEXT_ONE(floor);
TESSERA_TEXT_ONE(ceil);
TESSERA_TEXT_ONE(trunc);
TESSERA_TEXT_ONE(rint);
TESSERA_TEXT_ONE(fabs);
TESSERA_TEXT_TWO(fmin);
TESSERA_TEXT_TWO(fmax);
TESSERA_TEXT_TWO(fmod);
TESSERA_TEXT_TWO(pow);
float fmaf(float, float, float);
double fma(double, double, double);
}
// The C library's error is up to two units in the last place, but the vendors document at most one.
#define tanhf(x) ((float)tanh((double)(x)))
static inline int min(int a, int b) { return b < a ? b : a; }
static inline int max(int a, int b) { return a < b ? b : a; }

// Bit operations.
static inline float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
static inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
static inline int __float_as_int(float v) { return __builtin_bit_cast(int, v); }
static inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
static inline double __longlong_as_double(long long v) { return __builtin_bit_cast(double, v); }
static inline long long __double_as_longlong(double v) { return __builtin_bit_cast(long long, v); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz((unsigned)v); }
static inline int __clzll(long long v) { return v == 0 ? 64 : __builtin_clzll((unsigned long long)v); }
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}

#define _Float16 tessera::text::Float16

// Blocks and subgroups.
static inline void __syncthreads() { tessera::text::host->barrier(); }
// One overload for each type that the vendors support. Narrower types are promoted.
#define TESSERA_TEXT_SHUFFLES(T)                                                                                  \
  static inline T __shfl_sync(unsigned mask, T v, int from) {                                                     \
    return tessera::text::shuffle("shfl", mask, v, from % warpSize, tessera::text::lane());                       \
  }                                                                                                               \
  static inline T __shfl_up_sync(unsigned mask, T v, unsigned by) {                                               \
    return tessera::text::shuffle("shfl up", mask, v, tessera::text::lane() - (int)by, tessera::text::lane());    \
  }                                                                                                               \
  static inline T __shfl_down_sync(unsigned mask, T v, unsigned by) {                                             \
    return tessera::text::shuffle("shfl down", mask, v, tessera::text::lane() + (int)by, tessera::text::lane());  \
  }                                                                                                               \
  static inline T __shfl_xor_sync(unsigned mask, T v, int by) {                                                   \
    return tessera::text::shuffle("shfl xor", mask, v, tessera::text::lane() ^ by, tessera::text::lane());        \
  }                                                                                                               \
  static inline T __shfl(T v, int from) {                                                                         \
    return tessera::text::shuffle("shfl", ~0ull, v, from % warpSize, tessera::text::lane());                      \
  }                                                                                                               \
  static inline T __shfl_up(T v, unsigned by) {                                                                   \
    return tessera::text::shuffle("shfl up", ~0ull, v, tessera::text::lane() - (int)by, tessera::text::lane());   \
  }                                                                                                               \
  static inline T __shfl_down(T v, unsigned by) {                                                                 \
    return tessera::text::shuffle("shfl down", ~0ull, v, tessera::text::lane() + (int)by, tessera::text::lane()); \
  }                                                                                                               \
  static inline T __shfl_xor(T v, int by) {                                                                       \
    return tessera::text::shuffle("shfl xor", ~0ull, v, tessera::text::lane() ^ by, tessera::text::lane());       \
  }
TESSERA_TEXT_SHUFFLES(int)
TESSERA_TEXT_SHUFFLES(unsigned)
TESSERA_TEXT_SHUFFLES(long long)
TESSERA_TEXT_SHUFFLES(unsigned long long)
TESSERA_TEXT_SHUFFLES(float)
TESSERA_TEXT_SHUFFLES(double)

// Atomics, which return the old value.
#define TESSERA_TEXT_ADD(T, U)                                                    \
  static inline T atomicAdd(T* at, T v) {                                         \
    return tessera::text::replace(at, [v](T old) { return (T)((U)old + (U)v); }); \
  }
#define TESSERA_TEXT_EXCHANGE(T)                             \
  static inline T atomicExch(T* at, T v) {                   \
    return tessera::text::replace(at, [v](T) { return v; }); \
  }
#define TESSERA_TEXT_ATOMICS(T)                                                              \
  static inline T atomicMin(T* at, T v) {                                                    \
    return tessera::text::replace(at, [v](T old) { return v < old ? v : old; });             \
  }                                                                                          \
  static inline T atomicMax(T* at, T v) {                                                    \
    return tessera::text::replace(at, [v](T old) { return old < v ? v : old; });             \
  }                                                                                          \
  static inline T atomicAnd(T* at, T v) {                                                    \
    return tessera::text::replace(at, [v](T old) { return old & v; });                       \
  }                                                                                          \
  static inline T atomicOr(T* at, T v) {                                                     \
    return tessera::text::replace(at, [v](T old) { return old | v; });                       \
  }                                                                                          \
  static inline T atomicXor(T* at, T v) {                                                    \
    return tessera::text::replace(at, [v](T old) { return old ^ v; });                       \
  }                                                                                          \
  static inline T atomicCAS(T* at, T expected, T v) {                                        \
    __atomic_compare_exchange(at, &expected, &v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    return expected;                                                                         \
  }                                                                                          \
  TESSERA_TEXT_EXCHANGE(T)
TESSERA_TEXT_ATOMICS(int)
TESSERA_TEXT_ATOMICS(unsigned)
TESSERA_TEXT_ATOMICS(unsigned long long)
TESSERA_TEXT_ADD(int, unsigned)
TESSERA_TEXT_ADD(unsigned, unsigned)
TESSERA_TEXT_ADD(unsigned long long, unsigned long long)
TESSERA_TEXT_ADD(float, float)
TESSERA_TEXT_ADD(double, double)
TESSERA_TEXT_EXCHANGE(float)

// PTX. Each instruction is a function with its operands as parameters. compile.cpp converts asm statements to calls of
// these functions. Unsupported instructions do not compile.
static inline void ptx_cvt_f32_f16(float& to, unsigned short from) { to = tessera::text::float_of_half(from); }
static inline void ptx_cvt_rn_f16_f32(unsigned short& to, float from) { to = tessera::text::half_of_float(from); }
static inline void ptx_cvt_f32_bf16(float& to, unsigned short from) { to = tessera::text::float_of_bfloat(from); }
static inline void ptx_cvt_rn_bf16_f32(unsigned short& to, float from) { to = tessera::text::bfloat_of_float(from); }
static inline void ptx_cvt_rna_tf32_f32(unsigned& to, float from) {
  const unsigned bits = __builtin_bit_cast(unsigned, from);
  to = __builtin_isfinite(from) ? (bits + 0x1000) & ~0x1fffu : bits;
}
#define TESSERA_TEXT_DP4A(name, A, B)                                                         \
  static inline void ptx_dp4a_##name(int& sum, unsigned a, unsigned b, int c) {               \
    unsigned total = (unsigned)c;                                                             \
    for (int i = 0; i < 32; i += 8) total += (unsigned)((int)(A)(a >> i) * (int)(B)(b >> i)); \
    sum = (int)total;                                                                         \
  }
TESSERA_TEXT_DP4A(s32_s32, signed char, signed char)
TESSERA_TEXT_DP4A(u32_s32, unsigned char, signed char)
TESSERA_TEXT_DP4A(s32_u32, signed char, unsigned char)
TESSERA_TEXT_DP4A(u32_u32, unsigned char, unsigned char)

namespace tessera::text {
/// Computes mma of 16-bit matrices. The positions of the elements follow PTX ISA, "Matrix Fragments for mma.m16n8k16".
/// `r` is the number of a register, which contains two elements.
template <float (*Widen)(unsigned short), unsigned K>
inline void mma_16x8(const char* what, float* d, const unsigned* a, const unsigned* b, const float* c) {
  constexpr unsigned a_words = K / 4, b_words = K / 8;
  if (host->self()->width != 32) host->fail("mma needs subgroups of 32");
  unsigned own[a_words + b_words];
  for (unsigned i = 0; i < a_words; ++i) own[i] = a[i];
  for (unsigned i = 0; i < b_words; ++i) own[a_words + i] = b[i];
  const unsigned char* all = host->exchange(what, 0xffffffffu, own, sizeof own);
  auto word = [&](unsigned lane, unsigned i) {
    unsigned w;
    __builtin_memcpy(&w, all + lane * exchange_bytes + 4 * i, 4);
    return w;
  };
  auto half = [](unsigned w, unsigned k) { return Widen((unsigned short)(k % 2 ? w >> 16 : w)); };
  const unsigned me = (unsigned)lane();
  float sum[4];
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned row = me / 4 + (e / 2) * 8, column = me % 4 * 2 + e % 2;
    sum[e] = c[e];
    for (unsigned k = 0; k < K; ++k) {
      const float x = half(word(row % 8 * 4 + k % 8 / 2, row / 8 + 2 * (k / 8)), k);
      const float y = half(word(column * 4 + k % 8 / 2, a_words + k / 8), k);
      sum[e] += x * y;
    }
  }
  for (unsigned e = 0; e < 4; ++e) d[e] = sum[e];
}
}  // namespace tessera::text
#define TESSERA_TEXT_MMA(type, widen)                                                                                  \
  static inline void ptx_mma_sync_aligned_m16n8k16_row_col_f32_##type##_##type##_f32(                                  \
      float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,     \
      unsigned b1, float c0, float c1, float c2, float c3) {                                                           \
    const unsigned a[] = {a0, a1, a2, a3}, b[] = {b0, b1};                                                             \
    const float c[] = {c0, c1, c2, c3};                                                                                \
    float d[4];                                                                                                        \
    tessera::text::mma_16x8<tessera::text::widen, 16>("mma.m16n8k16." #type, d, a, b, c);                              \
    d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];                                                                        \
  }                                                                                                                    \
  static inline void ptx_mma_sync_aligned_m16n8k8_row_col_f32_##type##_##type##_f32(                                   \
      float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned b0, float c0, float c1, float c2, \
      float c3) {                                                                                                      \
    const unsigned a[] = {a0, a1}, b[] = {b0};                                                                         \
    const float c[] = {c0, c1, c2, c3};                                                                                \
    float d[4];                                                                                                        \
    tessera::text::mma_16x8<tessera::text::widen, 8>("mma.m16n8k8." #type, d, a, b, c);                                \
    d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];                                                                        \
  }
TESSERA_TEXT_MMA(f16, float_of_half)
TESSERA_TEXT_MMA(bf16, float_of_bfloat)
/// PTX ISA, "Matrix Fragments for mma.m16n8k32" with .s8: a register contains four elements.
static inline void ptx_mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32(int& d0, int& d1, int& d2, int& d3, unsigned a0,
                                                                       unsigned a1, unsigned a2, unsigned a3,
                                                                       unsigned b0, unsigned b1, int c0, int c1, int c2,
                                                                       int c3) {
  using tessera::text::host;
  if (host->self()->width != 32) host->fail("mma needs subgroups of 32");
  const unsigned own[] = {a0, a1, a2, a3, b0, b1};
  const unsigned char* all = host->exchange("mma.m16n8k32.s8", 0xffffffffu, own, sizeof own);
  const auto byte = [&](unsigned lane, unsigned word, unsigned k) {
    return (int)(signed char)all[lane * tessera::text::exchange_bytes + 4 * word + k % 4];
  };
  const unsigned me = (unsigned)tessera::text::lane();
  int d[4] = {c0, c1, c2, c3};
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned row = me / 4 + e / 2 * 8, column = me % 4 * 2 + e % 2;
    for (unsigned k = 0; k < 32; ++k)
      d[e] += byte(row % 8 * 4 + k % 16 / 4, row / 8 + 2 * (k / 16), k) * byte(column * 4 + k % 16 / 4, 4 + k / 16, k);
  }
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}
/// PTX ISA, "Matrix Fragments for mma.m16n8k8" with .tf32: a register contains one element.
static inline void ptx_mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float& d0, float& d1, float& d2, float& d3,
                                                                          unsigned a0, unsigned a1, unsigned a2,
                                                                          unsigned a3, unsigned b0, unsigned b1,
                                                                          float c0, float c1, float c2, float c3) {
  using tessera::text::host;
  if (host->self()->width != 32) host->fail("mma needs subgroups of 32");
  const unsigned own[] = {a0, a1, a2, a3, b0, b1};
  for (const unsigned word : own)
    if ((word & 0x1fff) != 0) host->fail("a factor is not rounded to tf32");
  const unsigned char* all = host->exchange("mma.m16n8k8.tf32", 0xffffffffu, own, sizeof own);
  const auto element = [&](unsigned lane, unsigned word) {
    float x;
    __builtin_memcpy(&x, all + lane * tessera::text::exchange_bytes + 4 * word, 4);
    return x;
  };
  const unsigned me = (unsigned)tessera::text::lane();
  float d[4] = {c0, c1, c2, c3};
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned row = me / 4 + e / 2 * 8, column = me % 4 * 2 + e % 2;
    for (unsigned k = 0; k < 8; ++k)
      d[e] += element(row % 8 * 4 + k % 4, row / 8 + 2 * (k / 4)) * element(column * 4 + k % 4, 4 + k / 4);
  }
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}

// Loads 8 x 8 matrices (PTX ISA, "ldmatrix"). Lanes 8m to 8m + 7 pass the rows of matrix m.
static inline void ptx_cvta_to_shared_u64(unsigned long long& to, const void* from) { to = (unsigned long long)from; }
namespace tessera::text {
template <bool Transposed>
inline void ldmatrix(unsigned* words, unsigned long long row) {
  if (host->self()->width != 32) host->fail("ldmatrix needs subgroups of 32");
  if (row % 16 != 0) host->fail("ldmatrix of a row that is not aligned to 16 bytes");
  const unsigned char* all = host->exchange("ldmatrix", 0xffffffffu, &row, sizeof row);
  const unsigned me = (unsigned)lane();
  for (unsigned m = 0; m < 4; ++m) {
    unsigned short pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned r = Transposed ? me % 4 * 2 + i : me / 4, c = Transposed ? me / 4 : me % 4 * 2 + i;
      unsigned long long at;
      __builtin_memcpy(&at, all + (8 * m + r) * exchange_bytes, sizeof at);
      pair[i] = ((const unsigned short*)at)[c];
    }
    words[m] = pair[0] | (unsigned)pair[1] << 16;
  }
}
}  // namespace tessera::text
#define TESSERA_TEXT_LDMATRIX(name, transposed)                                                                  \
  static inline void ptx_ldmatrix_sync_aligned_m8n8_x4##name##_shared_b16(unsigned& a, unsigned& b, unsigned& c, \
                                                                          unsigned& d, unsigned long long row) { \
    unsigned words[4];                                                                                           \
    tessera::text::ldmatrix<transposed>(words, row);                                                             \
    a = words[0], b = words[1], c = words[2], d = words[3];                                                      \
  }
TESSERA_TEXT_LDMATRIX(, false)
TESSERA_TEXT_LDMATRIX(_trans, true)

// Asynchronous copies (PTX ISA, "cp.async"). The waits copy the data, as late as the instructions allow.
static inline void ptx_cp_async_cg_shared_global(unsigned long long to, const void* from, unsigned bytes) {
  tessera::text::host->copy_async((void*)to, from, bytes);
}
static inline void ptx_cp_async_ca_shared_global(unsigned long long to, const void* from, unsigned bytes) {
  tessera::text::host->copy_async((void*)to, from, bytes);
}
static inline void ptx_cp_async_commit_group() { tessera::text::host->commit_async(); }
static inline void ptx_cp_async_wait_group(unsigned groups) { tessera::text::host->wait_async(groups); }

// AMD's matrix instructions. These functions replace the functions with the same names in the emitted text. The
// elements in each lane follow the "Matrix Instruction Calculator" for CDNA (waves of 64) and the RDNA3 ISA, 7.9 (waves
// of 32). The order of the four k in a lane does not matter, if it is the same in both factors.
namespace tessera::text {
template <float (*Widen)(unsigned short), unsigned Width>
inline void amd_matrix(float* sums, const unsigned* left, const unsigned* right) {
  constexpr unsigned words = Width == 64 ? 2 : 8, results = Width == 64 ? 4 : 8;
  if (host->self()->width != Width) host->fail("this matrix product requires another wave width");
  const unsigned me = (unsigned)lane();
  unsigned short a[256], b[256];  // element (o, k) is at 16 * o + k
  for (unsigned side = 0; side < 2; ++side) {
    const unsigned* own = side == 0 ? left : right;
    const unsigned char* all = host->exchange("a matrix product", ~0ull, own, 4 * words);
    for (unsigned l = 0; l < Width; ++l)
      for (unsigned e = 0; e < 2 * words; ++e) {
        const unsigned k = Width == 64 ? l / 16 * 4 + e : e;
        __builtin_memcpy((side == 0 ? a : b) + l % 16 * 16 + k, all + l * exchange_bytes + 2 * e, 2);
      }
  }
  for (unsigned e = 0; e < results; ++e) {
    const unsigned row = Width == 64 ? me / 16 * 4 + e : e * 2 + me / 16, column = me % 16;
    for (unsigned k = 0; k < 16; ++k) sums[e] += Widen(a[16 * row + k]) * Widen(b[16 * column + k]);
  }
}
/// Products of i8. A lane has `Words` words of four elements of a factor.
template <unsigned Words, unsigned Width>
inline void amd_matrix_i8(int* sums, const unsigned* left, const unsigned* right) {
  constexpr unsigned each = 4 * Words, results = Width == 64 ? 4 : 8, depth = Width == 64 ? 4 * each : each;
  if (host->self()->width != Width) host->fail("this matrix product requires another wave width");
  const unsigned me = (unsigned)lane();
  signed char a[16 * depth], b[16 * depth];
  for (unsigned side = 0; side < 2; ++side) {
    const unsigned char* all = host->exchange("a matrix product", ~0ull, side == 0 ? left : right, each);
    for (unsigned l = 0; l < Width; ++l)
      __builtin_memcpy((side == 0 ? a : b) + l % 16 * depth + (Width == 64 ? l / 16 * each : 0),
                       all + l * exchange_bytes, each);
  }
  for (unsigned e = 0; e < results; ++e) {
    const unsigned row = Width == 64 ? me / 16 * 4 + e : e * 2 + me / 16, column = me % 16;
    for (unsigned k = 0; k < depth; ++k) sums[e] += a[depth * row + k] * b[depth * column + k];
  }
}
/// A product of f32 with four k. Lane l has element (l % 16, l / 16) of each factor.
inline void amd_matrix_f32(float* sums, const unsigned* left, const unsigned* right) {
  if (host->self()->width != 64) host->fail("this matrix product requires another wave width");
  const unsigned me = (unsigned)lane(), own[] = {*left, *right};
  const unsigned char* all = host->exchange("a matrix product", ~0ull, own, sizeof own);
  const auto element = [&](unsigned side, unsigned o, unsigned k) {
    float x;
    __builtin_memcpy(&x, all + (o + 16 * k) * exchange_bytes + 4 * side, 4);
    return x;
  };
  for (unsigned e = 0; e < 4; ++e)
    for (unsigned k = 0; k < 4; ++k) sums[e] += element(0, me / 16 * 4 + e, k) * element(1, me % 16, k);
}
}  // namespace tessera::text
#define tessera_instruction_mfma_16x16x4_f32 tessera::text::amd_matrix_f32
#define tessera_instruction_mfma_16x16x16_i8 tessera::text::amd_matrix_i8<1, 64>
#define tessera_instruction_mfma_16x16x32_i8 tessera::text::amd_matrix_i8<2, 64>
#define tessera_instruction_wmma_16x16x16_i8 tessera::text::amd_matrix_i8<4, 32>
#define tessera_instruction_mfma_16x16x16_f16 tessera::text::amd_matrix<tessera::text::float_of_half, 64>
#define tessera_instruction_mfma_16x16x16_bf16 tessera::text::amd_matrix<tessera::text::float_of_bfloat, 64>
#define tessera_instruction_mfma_16x16x8_twice_bf16 tessera::text::amd_matrix<tessera::text::float_of_bfloat, 64>
#define tessera_instruction_wmma_16x16x16_f16 tessera::text::amd_matrix<tessera::text::float_of_half, 32>
#define tessera_instruction_wmma_16x16x16_bf16 tessera::text::amd_matrix<tessera::text::float_of_bfloat, 32>

// Dot products of packed bytes.
static inline int tessera_text_sudot4(bool sa, int a, bool sb, int b, int c, bool) {
  unsigned sum = (unsigned)c;
  for (int i = 0; i < 32; i += 8) {
    const int x = sa ? (signed char)(a >> i) : (unsigned char)(a >> i);
    const int y = sb ? (signed char)(b >> i) : (unsigned char)(b >> i);
    sum += (unsigned)(x * y);
  }
  return (int)sum;
}
#define __builtin_amdgcn_sudot4 tessera_text_sudot4
#define __builtin_amdgcn_sdot4(a, b, c, clamp) tessera_text_sudot4(true, a, true, b, c, clamp)
#define __builtin_amdgcn_udot4(a, b, c, clamp) \
  ((unsigned)tessera_text_sudot4(false, (int)(a), false, (int)(b), (int)(c), clamp))
