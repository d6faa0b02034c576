// SPDX-License-Identifier: Apache-2.0
// Code that the headers for CUDA C, HIP and Metal share: kernel calls, access to threads, 16-bit floats, shuffles and
// atomics. Includes no host headers, to compile quickly.
#pragma once

#include "host_abi.h"

namespace tessera::text {
static const Host* host = nullptr;
}

// Symbols that the scheduler looks up.
namespace tessera::text {
static __thread volatile char touched;
template <unsigned... I>
struct Indices {};
template <unsigned N, unsigned... I>
struct Up : Up<N - 1, N - 1, I...> {};
template <unsigned... I>
struct Up<0, I...> {
  using Type = Indices<I...>;
};
template <class T>
struct Value {
  using Type = T;
};
template <class T>
struct Value<T&> {
  using Type = T;
};
template <class... A, unsigned... I>
inline void call(void (*kernel)(A...), void** arguments, Indices<I...>) {
  kernel(*(typename Value<A>::Type*)arguments[I]...);
}
template <class... A>
inline void call(void (*kernel)(A...), void** arguments) {
  call(kernel, arguments, typename Up<sizeof...(A)>::Type());
}
}  // namespace tessera::text
extern "C" inline __attribute__((used)) void tessera_text_attach(const tessera::text::Host* host) {
  tessera::text::host = host;
}
/// Forces the allocation of shared memory for this host thread.
extern "C" inline __attribute__((used)) void tessera_text_touch() { tessera::text::touched = 1; }
#define TESSERA_TEXT_KERNEL(name) \
  extern "C" void tessera_text_call_##name(void** arguments) { tessera::text::call(&name, arguments); }

namespace tessera::text {
/// Conversions of IEEE 754 binary16, rounding to nearest even.
static inline float float_of_half(unsigned short h) {
  const unsigned sign = (unsigned)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return __builtin_bit_cast(float, sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return __builtin_bit_cast(float, sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = (float)fraction * 0x1p-24f;
  return sign ? -tiny : tiny;
}
static inline unsigned short half_of_float(float f) {
  const unsigned bits = __builtin_bit_cast(unsigned, f), magnitude = bits & 0x7fffffff;
  const unsigned short sign = (unsigned short)(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return sign | 0x7e00 | (magnitude >> 13 & 0x3ff);
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  const unsigned exponent = magnitude >> 23;
  // The position of the last bit of the result in the 24-bit significand.
  const unsigned shift = exponent >= 113 ? 13 : 126 - exponent;
  if (shift > 24) return sign;
  const unsigned fraction = (magnitude & 0x7fffff) | 0x800000;
  unsigned rounded = fraction >> shift;
  const unsigned rest = fraction & ((1u << shift) - 1), half = 1u << (shift - 1);
  if (rest > half || (rest == half && (rounded & 1))) ++rounded;
  return sign | (unsigned short)(exponent >= 113 ? rounded + ((exponent - 113) << 10) : rounded);
}
static inline float float_of_bfloat(unsigned short b) { return __builtin_bit_cast(float, (unsigned)b << 16); }
static inline unsigned short bfloat_of_float(float f) {
  const unsigned bits = __builtin_bit_cast(unsigned, f);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
/// Replaces HIP's _Float16, which some host compilers lack.
struct Float16 {
  unsigned short bits;
  Float16() = default;
  explicit Float16(float v) : bits(half_of_float(v)) {}
  operator float() const { return float_of_half(bits); }
};
}  // namespace tessera::text

// Subgroups.
namespace tessera::text {
template <class T>
inline T shuffle(const char* what, unsigned long long mask, T value, int from, int own) {
  const unsigned char* values = host->exchange(what, mask, &value, sizeof value);
  if (from < 0 || from >= (int)host->self()->width) from = own;
  T got;
  __builtin_memcpy(&got, values + (unsigned)from * exchange_bytes, sizeof got);
  return got;
}
static inline int lane() { return (int)(host->self()->linear % host->self()->width); }
}  // namespace tessera::text

// Atomics.
namespace tessera::text {
template <class T, class F>
inline T replace(T* at, F&& next) {
  T old;
  __atomic_load(at, &old, __ATOMIC_RELAXED);
  for (;;) {
    T made = next(old);
    if (__atomic_compare_exchange(at, &old, &made, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return old;
  }
}
}  // namespace tessera::text
