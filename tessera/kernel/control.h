// SPDX-License-Identifier: Apache-2.0
// Control flow, thread positions and barriers. Control flow is written with functions that take lambdas. Each lambda is
// traced once: a C++ `for` in a kernel is unrolled, but a traced for_ is a loop.
#pragma once

#include "tessera/kernel/memory.h"
#include "tessera/kernel/operators.h"

namespace tessera {

// Thread positions. Map kernels have only global_id and grid_size.
#define TESSERA_INDEX(name)                                                                                     \
  inline Val<Index> name(int dimension = 0, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    detail::note(file, line);                                                                                   \
    return Val<Index>(detail::NodeRef{detail::index(ir::IndexKind::name, dimension)});                          \
  }
/// Returns the index of the thread in the whole grid: `block_id * block_size + thread_id`.
TESSERA_INDEX(global_id)
/// Returns the number of threads in the grid. For a map kernel this is the extent.
TESSERA_INDEX(grid_size)
/// Returns the index of the thread in its block.
TESSERA_INDEX(thread_id)
/// Returns the index of the block in the grid.
TESSERA_INDEX(block_id)
/// Returns the number of threads in a block. It is known while tracing.
TESSERA_INDEX(block_size)
/// Returns the number of blocks in the grid.
TESSERA_INDEX(block_count)
#undef TESSERA_INDEX
#define TESSERA_INDEX(name)                                                                  \
  inline Val<Index> name(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    detail::note(file, line);                                                                \
    return Val<Index>(detail::NodeRef{detail::index(ir::IndexKind::name, 0)});               \
  }
/// Returns the index of the thread in its subgroup.
TESSERA_INDEX(lane_id)
/// Returns the index of the subgroup in the block. Each subgroup has consecutive linear thread ids.
TESSERA_INDEX(subgroup_id)
/// Returns the number of lanes of a subgroup: 1 to 128, depending on the device.
TESSERA_INDEX(subgroup_size)
/// Returns the number of subgroups in the block, rounded up.
TESSERA_INDEX(subgroup_count)
#undef TESSERA_INDEX

namespace detail {
/// Rejects a body of if_, for_ or while_ that returns a value.
template <class F>
constexpr void check_body() {
  using Gives = std::remove_cvref_t<std::invoke_result_t<F>>;
  constexpr bool assigns = requires { typename Gives::assigned; };  // [&] { return x[i] = v; }
  static_assert(!Plain<Gives> || assigns,
                "a body must not return a value: store it in a Var declared before, or use select(cond, a, b)");
}
template <class C>
constexpr void check_condition() {
  static_assert(!std::invocable<C>, "the condition of if_ must be a value, not a function: if_(x[i] > 0, [&] { ... })");
}
/// Used to test whether the body of for_ accepts a counter of type Val<T>. It does not convert to other Val types.
template <class T>
struct LoopCounter : Val<T> {
  using counts = void;
};
template <class F, class T>
inline constexpr bool takes_counter = [] {
  if constexpr (requires { &F::operator(); })
    return std::invocable<F&, LoopCounter<T>>;
  else
    return std::invocable<F&, Val<T>>;
}();
}  // namespace detail

/// Runs `then` in the threads for which the condition is true, and `otherwise` in all others. Throws KernelError if
/// both bodies are empty.
template <class C, class Then>
  requires std::invocable<Then>
void if_(C&& condition, Then&& then, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::check_condition<C>();
  detail::check_body<Then>();
  const detail::Arg<bool> c(std::forward<C>(condition), file, line);
  detail::if_(c.node(), detail::Body(then));
}
template <class C, class Then, class Else>
  requires std::invocable<Then> && std::invocable<Else>
void if_(C&& condition, Then&& then, Else&& otherwise, const char* file = __builtin_FILE(),
         int line = __builtin_LINE()) {
  detail::check_condition<C>();
  detail::check_body<Then>();
  detail::check_body<Else>();
  const detail::Arg<bool> c(std::forward<C>(condition), file, line);
  detail::if_(c.node(), detail::Body(then), detail::Body(otherwise));
}

namespace detail {

/// The type of the counter: the type of the traced bounds, or Index if all bounds are literals.
template <class B, class E, class S>
using CounterType = typename std::conditional_t<
    Traced<B>, TypeOf<B>,
    std::conditional_t<Traced<E>, TypeOf<E>,
                       std::conditional_t<Traced<S>, TypeOf<S>, std::type_identity<Index>>>>::type;

template <class T, class F>
void traced_for(const Arg<T>& begin, const Arg<T>& end, const Arg<T>& step, std::optional<ir::Unroll> unroll, F& body,
                const char* file, int line) {
  static_assert(is_integer<T>, "for_ requires integers: use cast<Index>(...)");
  static_assert(takes_counter<F, T>,
                "the body of for_ takes the counter, which has the bounds' type: [&](Val<Index> i) { ... }");
  note(file, line);
  if constexpr (is_integer<T> && takes_counter<F, T>) {
    auto call = [&body](ir::NodeId counter) { body(Val<T>(NodeRef{counter})); };
    for_(begin.node(), end.node(), step.node(), unroll, Body(call));
  }
}

}  // namespace detail

/// An argument of for_: compilers should combine `rounds` rounds (1 to 64) of the loop to one, so that the loads of all
/// these rounds start before the first of them is used. unroll(1) prevents unrolling. Results do not change, and the
/// interpreter ignores it. for_ throws KernelError if `rounds` is out of range.
constexpr ir::Unroll unroll(std::uint32_t rounds) { return {rounds}; }

/// Runs the body for begin, begin + step, ... while the counter is less than end. `step` must be greater than 0. The
/// bounds are evaluated once.
template <class B, class E, class S, class F>
  requires detail::Operand<std::remove_cvref_t<S>>
void for_(B&& begin, E&& end, S&& step, std::optional<ir::Unroll> unroll, F&& body, const char* file = __builtin_FILE(),
          int line = __builtin_LINE()) {
  using T = detail::CounterType<std::remove_cvref_t<B>, std::remove_cvref_t<E>, std::remove_cvref_t<S>>;
  detail::traced_for<T>({std::forward<B>(begin), file, line}, {std::forward<E>(end), file, line},
                        {std::forward<S>(step), file, line}, unroll, body, file, line);
}
template <class B, class E, class S, class F>
  requires detail::Operand<std::remove_cvref_t<S>>
void for_(B&& begin, E&& end, S&& step, F&& body, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  for_(std::forward<B>(begin), std::forward<E>(end), std::forward<S>(step), std::nullopt, body, file, line);
}
template <class B, class E, class F>
void for_(B&& begin, E&& end, ir::Unroll unroll, F&& body, const char* file = __builtin_FILE(),
          int line = __builtin_LINE()) {
  for_(std::forward<B>(begin), std::forward<E>(end), 1, unroll, body, file, line);
}
template <class B, class E, class F>
void for_(B&& begin, E&& end, F&& body, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  for_(std::forward<B>(begin), std::forward<E>(end), 1, std::nullopt, body, file, line);
}

/// Runs the body as long as `condition` returns true. `condition` is a function that returns a bool.
template <class C, class F>
  requires std::invocable<C> && std::invocable<F>
void while_(C&& condition, F&& body, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::note(file, line);
  ir::NodeId result = ir::no_node;
  auto test = [&] { result = detail::Arg<bool>(condition(), file, line).node(); };
  detail::while_(detail::Body(test), result, detail::Body(body));
}

/// Ends this thread.
inline void return_(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::note(file, line);
  detail::return_();
}
/// Declares that a multiprocessor should be able to run `blocks` (1 to 64) blocks of this block kernel at once, which
/// limits the registers of a thread. Fewer blocks leave more registers for values and loads in flight; more blocks hide
/// latency with other threads. The default leaves 64 registers. This is CUDA's second launch bound; other devices
/// ignore it. Throws KernelError in map kernels.
inline void blocks_at_least(std::uint32_t blocks) { detail::blocks_at_least(blocks); }

/// Declares that i is a multiple of n in every `b.load<n>(i)` of a buffer, and in every `b.store(i, v)` of n elements,
/// where n is 2 or 4, and that both indices of every `copy_async<n>` are multiples of n. If the buffers of a launch
/// also begin at multiples of 16 bytes, GPUs then transfer up to 16 bytes with each such access. Launches with other
/// buffers are correct, but load and store single elements. The interpreter reports indices that are not multiples.
inline void aligned_vectors() { detail::aligned_vectors(); }

/// Waits for all threads of the block, and makes their writes to shared memory and buffers visible to each other.
inline void barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::note(file, line);
  detail::barrier();
}

namespace detail {
template <class U>
PrintArgument print_argument(const U& u) {
  if constexpr (Traced<U>) {
    return {.node = u.node(), .text = {}};
  } else if constexpr (is_16bit_float<U>) {
    return shown(static_cast<double>(static_cast<float>(u)), true);
  } else if constexpr (std::floating_point<U>) {
    return shown(static_cast<double>(u), std::same_as<U, float>);
  } else if constexpr (std::same_as<U, bool>) {
    return shown(u);
  } else if constexpr (std::unsigned_integral<U>) {
    return shown(static_cast<std::uint64_t>(u));
  } else if constexpr (std::integral<U>) {
    return shown(static_cast<std::int64_t>(u));
  } else if constexpr (std::convertible_to<const U&, std::string_view>) {
    return {.node = ir::no_node, .text = std::string(std::string_view(u))};
  } else {
    static_assert(!sizeof(U), "print takes numbers and text: pass an element such as x[i]");
    return {};
  }
}
/// A format string and the line of the call.
struct Format {
  std::string_view text;
  Format(const char* t, const char* file = __builtin_FILE(), int line = __builtin_LINE()) : text(t) {
    note(file, line);
  }
};
}  // namespace detail

/// Prints a line to standard output from every thread that executes this statement. The text is the same on every
/// device. Each {} is replaced by an argument. Up to four arguments may be kernel values. Host numbers and strings are
/// formatted while tracing. Floats are printed with 9 significant digits and doubles with 17, so that values
/// round-trip;
/// {:.n} prints n digits. Bools are printed as 1 and 0, and NaN as nan. {{ and }} are literal braces. Throws
/// KernelError if the number of {} differs from the number of values.
template <class... U>
void print(detail::Format format, const U&... values) {
  static_assert((0 + ... + detail::Traced<U>) <= 4, "print takes at most four kernel values");
  const detail::PrintArgument list[] = {detail::print_argument(values)..., detail::PrintArgument{}};
  detail::print(format.text, std::span(list, sizeof...(U)));
}

}  // namespace tessera
