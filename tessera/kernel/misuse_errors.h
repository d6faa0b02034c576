// SPDX-License-Identifier: Apache-2.0
// Overloads that catch common mistakes of users of CUDA, C or std. Their static_asserts say what to write instead. Each
// overload is a worse match than any valid overload and accepts only kernel values. Internal: calling one of these
// functions never compiles.
#pragma once

#include "tessera/kernel/block.h"
#include "tessera/kernel/control.h"
#include "tessera/kernel/math.h"

namespace tessera {

namespace detail {
/// Constructed by a conversion, so that any user function that takes a kernel value is a better match.
struct Misplaced {
  template <class A>
    requires Traced<std::remove_cvref_t<A>>
  Misplaced(A&&) {}
};
}  // namespace detail

// Control flow that is called without a function for its body or condition.
template <class C>
void if_(C&&) {
  static_assert(detail::never<C>, "if_ takes its body as a function: if_(x[i] > 0, [&] { ... });");
}
template <class C, class Then, class... More>
  requires(!std::invocable<Then>)
void if_(C&&, Then&&, More&&...) {
  static_assert(detail::never<C>, "if_ takes its body as a function without parameters: if_(x[i] > 0, [&] { ... });");
}
template <class C, class F>
  requires(!std::invocable<C> || !std::invocable<F>)
void while_(C&&, F&&) {
  static_assert(detail::never<C>,
                "while_ takes its condition and its body as functions: while_([&] { return n > 1; }, [&] { ... });");
}
template <class E, class F>
void for_(E&&, F&&) {
  static_assert(detail::never<E>, "for_ takes its begin and end: for_(0, n, [&](Val<Index> i) { ... });");
}

// Functions that require a kernel value but are called with a number.
#define TESSERA_REJECT_LITERAL(name)                                                                             \
  template <class A, class... More>                                                                              \
    requires detail::Literal<std::remove_cvref_t<A>>                                                             \
  Val<float> name(A&&, More&&...) {                                                                              \
    static_assert(detail::never<A>, "this operation takes a kernel value: give the number a type, Val<int>(1)"); \
    return 0.0f;                                                                                                 \
  }
TESSERA_REJECT_LITERAL(block_sum)
TESSERA_REJECT_LITERAL(block_min)
TESSERA_REJECT_LITERAL(block_max)
TESSERA_REJECT_LITERAL(block_any)
TESSERA_REJECT_LITERAL(block_all)
TESSERA_REJECT_LITERAL(block_scan)
TESSERA_REJECT_LITERAL(block_scan_exclusive)
TESSERA_REJECT_LITERAL(block_uniform)
TESSERA_REJECT_LITERAL(subgroup_sum)
TESSERA_REJECT_LITERAL(subgroup_min)
TESSERA_REJECT_LITERAL(subgroup_max)
TESSERA_REJECT_LITERAL(subgroup_any)
TESSERA_REJECT_LITERAL(subgroup_all)
TESSERA_REJECT_LITERAL(subgroup_scan)
TESSERA_REJECT_LITERAL(subgroup_scan_exclusive)
TESSERA_REJECT_LITERAL(subgroup_broadcast)
TESSERA_REJECT_LITERAL(subgroup_shuffle)
TESSERA_REJECT_LITERAL(subgroup_shuffle_xor)
TESSERA_REJECT_LITERAL(subgroup_shuffle_up)
TESSERA_REJECT_LITERAL(subgroup_shuffle_down)
#undef TESSERA_REJECT_LITERAL

/// `cast` of a host number.
template <class T, class A>
  requires detail::Literal<std::remove_cvref_t<A>>
Val<float> cast(A&&) {
  static_assert(detail::never<A>,
                "cast converts kernel values: for a number write Val<T>(number), or static_cast<T>(number)");
  return 0.0f;
}

// Atomics that are called with an element.
#define TESSERA_REJECT_ATOMIC_ON_ELEMENT(name)                                                          \
  template <class A, class... More>                                                                     \
    requires detail::Traced<std::remove_cvref_t<A>>                                                     \
  Val<float> atomic_##name(A&&, More&&...) {                                                            \
    static_assert(detail::never<A>,                                                                     \
                  "atomics take the memory and the index, not the element: atomic_" #name "(x, i, v)"); \
    return 0.0f;                                                                                        \
  }
TESSERA_REJECT_ATOMIC_ON_ELEMENT(add)
TESSERA_REJECT_ATOMIC_ON_ELEMENT(min)
TESSERA_REJECT_ATOMIC_ON_ELEMENT(max)
TESSERA_REJECT_ATOMIC_ON_ELEMENT(exchange)
TESSERA_REJECT_ATOMIC_ON_ELEMENT(cas)
#undef TESSERA_REJECT_ATOMIC_ON_ELEMENT
template <class T>
Val<float> atomic_cas(const detail::MemoryHandle<T>&, detail::Subscript, detail::AtomicArg<T>) {
  static_assert(detail::never<T>, "atomic_cas takes the expected and the new value: atomic_cas(x, i, expected, v)");
  return 0.0f;
}

// C function names with a type suffix. These are better matches than C's own functions, which would convert a value to
// a number. They are not better matches than user functions that take a Val<T>.
#define TESSERA_REJECT_C_OVERLOAD(name, parameters, ...)                                                               \
  template <__VA_ARGS__>                                                                                               \
  Val<float> name parameters {                                                                                         \
    static_assert(detail::never<T>,                                                                                    \
                  "in kernels a function has one name for all types: sqrt(x), abs(x), min(a, b), and x % y for fmod"); \
    return 0.0f;                                                                                                       \
  }
#define TESSERA_REJECT_C_FUNCTION(name)                                             \
  TESSERA_REJECT_C_OVERLOAD(name, (const Val<T>&), class T)                         \
  TESSERA_REJECT_C_OVERLOAD(name, (const Val<T>&, const Val<U>&), class T, class U) \
  TESSERA_REJECT_C_OVERLOAD(name, (const Val<T>&, U), class T, detail::Literal U)   \
  TESSERA_REJECT_C_OVERLOAD(name, (U, const Val<T>&), class T, detail::Literal U)   \
  TESSERA_REJECT_C_OVERLOAD(name, (const Val<T>&, const auto&, const auto&), class T)
TESSERA_REJECT_C_FUNCTION(sqrtf)
TESSERA_REJECT_C_FUNCTION(rsqrtf)
TESSERA_REJECT_C_FUNCTION(expf)
TESSERA_REJECT_C_FUNCTION(exp2f)
TESSERA_REJECT_C_FUNCTION(logf)
TESSERA_REJECT_C_FUNCTION(log2f)
TESSERA_REJECT_C_FUNCTION(sinf)
TESSERA_REJECT_C_FUNCTION(cosf)
TESSERA_REJECT_C_FUNCTION(tanhf)
TESSERA_REJECT_C_FUNCTION(powf)
TESSERA_REJECT_C_FUNCTION(floorf)
TESSERA_REJECT_C_FUNCTION(ceilf)
TESSERA_REJECT_C_FUNCTION(truncf)
TESSERA_REJECT_C_FUNCTION(rintf)
TESSERA_REJECT_C_FUNCTION(fmaf)
TESSERA_REJECT_C_FUNCTION(fabs)
TESSERA_REJECT_C_FUNCTION(fabsf)
TESSERA_REJECT_C_FUNCTION(fmin)
TESSERA_REJECT_C_FUNCTION(fminf)
TESSERA_REJECT_C_FUNCTION(fmax)
TESSERA_REJECT_C_FUNCTION(fmaxf)
TESSERA_REJECT_C_FUNCTION(fmod)
TESSERA_REJECT_C_FUNCTION(fmodf)
#undef TESSERA_REJECT_C_FUNCTION
#undef TESSERA_REJECT_C_OVERLOAD

template <class... A>
  requires detail::any_traced<A...>
int printf(const char*, A&&...) {
  static_assert(!detail::any_traced<A...>, "in kernels use print(\"x[{}] is {}\", i, x[i])");
  return 0;
}
template <class A, class B>
  requires(detail::Memory<std::remove_cvref_t<A>> && detail::Literal<std::remove_cvref_t<B>>)
Val<float> operator+(A&&, B&&) {
  static_assert(detail::never<A>, "a buffer is not a pointer: the next element is x[i + 1]");
  return 0.0f;
}
template <class U = void>
void print(detail::Misplaced) {
  static_assert(detail::never<U>, "print takes a format first, with {} for each value: print(\"x is {}\", x[i])");
}
template <class A>
  requires detail::Memory<std::remove_cvref_t<A>>
Val<float> operator*(A&&) {
  static_assert(detail::never<A>, "a buffer is not a pointer: its first element is x[0]");
  return 0.0f;
}

}  // namespace tessera

// std functions that accept any type. A call with a kernel value would fail with many lines of errors. No valid program
// calls these overloads, and they are less specialised than those of std.
#define TESSERA_REJECT_STD_FUNCTION(name, sentence)              \
  template <class... A>                                          \
    requires tessera::detail::any_traced<A...>                   \
  tessera::Val<float> name(A&&...) {                             \
    static_assert(!tessera::detail::any_traced<A...>, sentence); \
    return 0.0f;                                                 \
  }
namespace std {
TESSERA_REJECT_STD_FUNCTION(max, "kernels have their own functions, without std::, such as max(a, b)")
TESSERA_REJECT_STD_FUNCTION(min, "kernels have their own functions, without std::, such as min(a, b)")
TESSERA_REJECT_STD_FUNCTION(clamp, "kernels have their own functions, without std::, such as min(max(x, low), high)")
TESSERA_REJECT_STD_FUNCTION(popcount, "kernels have their own functions, without std::, such as popcount(n)")
TESSERA_REJECT_STD_FUNCTION(countl_zero, "kernels have their own functions, without std::, such as clz(n)")
TESSERA_REJECT_STD_FUNCTION(swap, "swap elements through a value: auto a = x[i]; x[i] = x[j]; x[j] = a;")
template <class T, class A>
  requires tessera::detail::any_traced<A>
tessera::Val<float> bit_cast(A&&) {
  static_assert(!tessera::detail::any_traced<A>, "in kernels use bitcast<T>(x)");
  return 0.0f;
}
}  // namespace std
#undef TESSERA_REJECT_STD_FUNCTION
