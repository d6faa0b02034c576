// SPDX-License-Identifier: Apache-2.0
// Prepended to emitted Metal text, so that it compiles as C++ for the host. Follows Apple's Metal Shading Language
// Specification. With TESSERA_TEXT_SPACES (clang only), device, threadgroup and constant memory are distinct address
// spaces, as in Metal. A pointer without its address space then does not compile. Text compiled in this way is not run.
#pragma once

#include "text_on_host.h"

#define kernel
#ifdef TESSERA_TEXT_SPACES
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant const
#define threadgroup
#endif

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
struct uint2 {
  uint x, y;
};
using uint3 = tessera::text::Dim;
using half = tessera::text::Float16;

extern "C" {
float fmaf(float, float, float);
float sqrtf(float);
float fmodf(float, float);
float fminf(float, float);
float fmaxf(float, float);
float floorf(float);
float ceilf(float);
float truncf(float);
float rintf(float);
}

template <class To, class From>
inline To as_type(From v) {
  return __builtin_bit_cast(To, v);
}

namespace metal {

inline float fabs(float v) { return __builtin_fabsf(v); }
inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
inline float sqrt(float v) { return sqrtf(v); }
inline float fmod(float a, float b) { return fmodf(a, b); }
inline float fmin(float a, float b) { return fminf(a, b); }
inline float fmax(float a, float b) { return fmaxf(a, b); }
inline float floor(float v) { return floorf(v); }
inline float ceil(float v) { return ceilf(v); }
inline float trunc(float v) { return truncf(v); }
inline float rint(float v) { return rintf(v); }
#define TESSERA_TEXT_INTEGERS(T)                   \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
TESSERA_TEXT_INTEGERS(int)
TESSERA_TEXT_INTEGERS(uint)
TESSERA_TEXT_INTEGERS(long)
TESSERA_TEXT_INTEGERS(ulong)
inline uint popcount(uint v) { return (uint)__builtin_popcount(v); }
inline uint clz(uint v) { return v == 0 ? 32 : (uint)__builtin_clz(v); }
inline int mulhi(int a, int b) { return (int)((long)a * b >> 32); }
inline uint mulhi(uint a, uint b) { return (uint)((ulong)a * b >> 32); }

// Blocks and subgroups.
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
inline mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((int)a | (int)b); }
inline void threadgroup_barrier(mem_flags) { tessera::text::host->barrier(); }
// The types that emitted text shuffles. Metal has no 64-bit shuffles.
#define TESSERA_TEXT_SHUFFLE(T)                                                           \
  inline T simd_shuffle(T v, ushort from) {                                               \
    return tessera::text::shuffle("simd_shuffle", ~0ull, v, from, tessera::text::lane()); \
  }
TESSERA_TEXT_SHUFFLE(int)
TESSERA_TEXT_SHUFFLE(uint)
TESSERA_TEXT_SHUFFLE(float)
TESSERA_TEXT_SHUFFLE(uint2)

// Relaxed 32-bit atomics.
struct atomic_int {
  int value;
};
struct atomic_uint {
  uint value;
};
enum memory_order { memory_order_relaxed };
#ifdef TESSERA_TEXT_SPACES
#define TESSERA_TEXT_REPLACE(expression) \
  const auto old = at->value;            \
  at->value = expression;                \
  return old
#else
#define TESSERA_TEXT_REPLACE(expression) \
  return tessera::text::replace(&at->value, [v](auto old) -> decltype(old) { return expression; })
#endif
#define TESSERA_TEXT_ATOMIC(name, expression)                   \
  template <class A>                                            \
  inline auto name(A* at, decltype(A::value) v, memory_order) { \
    TESSERA_TEXT_REPLACE(expression);                           \
  }
TESSERA_TEXT_ATOMIC(atomic_fetch_add_explicit, (decltype(v))((uint)old + (uint)v))
TESSERA_TEXT_ATOMIC(atomic_fetch_min_explicit, v < old ? v : old)
TESSERA_TEXT_ATOMIC(atomic_fetch_max_explicit, old < v ? v : old)
TESSERA_TEXT_ATOMIC(atomic_exchange_explicit, v)
TESSERA_TEXT_ATOMIC(atomic_fetch_and_explicit, (old)&v)
TESSERA_TEXT_ATOMIC(atomic_fetch_or_explicit, old | v)
TESSERA_TEXT_ATOMIC(atomic_fetch_xor_explicit, old ^ v)
/// Sometimes fails spuriously, as Metal allows.
template <class A>
inline bool atomic_compare_exchange_weak_explicit(A* at, decltype(A::value)* expected, decltype(A::value) v,
                                                  memory_order, memory_order) {
#ifdef TESSERA_TEXT_SPACES
  at->value = v;
  return *expected == v;
#else
  static thread_local unsigned calls = 0;
  if (++calls % 5 == 0) {
    *expected = __atomic_load_n(&at->value, __ATOMIC_RELAXED);
    return false;
  }
  return __atomic_compare_exchange_n(&at->value, expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
}

}  // namespace metal
