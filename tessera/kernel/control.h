// SPDX-License-Identifier: Apache-2.0
// Control flow, where a thread is, and barriers. Control flow is functions that take lambdas, traced once each: a host
// `for` unrolls, a traced for_ does not.
#pragma once

#include "tessera/kernel/memory.h"
#include "tessera/kernel/operators.h"

namespace tessera {

// Where a thread is. In a map kernel only global_id and grid_size have a meaning.
#define TESSERA_INDEX(name)                                                                                     \
  inline Val<Index> name(int dimension = 0, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    detail::note(file, line);                                                                                   \
    return Val<Index>(detail::NodeRef{detail::index(ir::IndexKind::name, dimension)});                          \
  }
/// The thread's index in the whole grid: `block_id * block_size + thread_id`.
TESSERA_INDEX(global_id)  // block_id * block_size + thread_id
/// The number of threads in the grid; of a map kernel the extent.
TESSERA_INDEX(grid_size)  // threads in the grid; of a map kernel the extent
/// The thread's index in its block.
TESSERA_INDEX(thread_id)  // within the block
/// The block's index in the grid.
TESSERA_INDEX(block_id)
/// The number of threads in a block, known while tracing.
TESSERA_INDEX(block_size)  // a number known while tracing
/// The number of blocks in the grid.
TESSERA_INDEX(block_count)  // blocks in the grid
#undef TESSERA_INDEX
#define TESSERA_INDEX(name)                                                                  \
  inline Val<Index> name(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    detail::note(file, line);                                                                \
    return Val<Index>(detail::NodeRef{detail::index(ir::IndexKind::name, 0)});               \
  }
/// The thread's index in its subgroup.
TESSERA_INDEX(lane_id)  // within the subgroup
/// The subgroup's index in the block; subgroups consist of consecutive linear thread ids.
TESSERA_INDEX(subgroup_id)  // within the block; subgroups are cut from linear thread ids
/// The number of lanes of a subgroup: 1 to 128, depending on the device.
TESSERA_INDEX(subgroup_size)  // 1 to 128, as the device has it
/// The number of subgroups in the block, rounded up.
TESSERA_INDEX(subgroup_count)  // in the block, rounded up
#undef TESSERA_INDEX

namespace detail {
/// A body of if_ or while_, whose condition may be a value or a function.
template <class F>
constexpr void check_body() {
  using Gives = std::remove_cvref_t<std::invoke_result_t<F>>;
  constexpr bool assigns = requires { typename Gives::assigned; };  // [&] { return x[i] = v; }
  static_assert(!Plain<Gives> || assigns,
                "a body gives no value: keep it in a Var that is declared before, or use select(cond, a, b)");
}
template <class C>
constexpr void check_condition() {
  static_assert(!std::invocable<C>, "the condition of if_ is a value, not a function: if_(x[i] > 0, [&] { ... })");
}
/// What for_ asks its body about: a Val<T> that is never given for a Val of another type.
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

/// Runs `then` in the threads where the condition holds, `otherwise` in the others. KernelError if neither does
/// anything.
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

/// The counter's type: that of the bounds that are traced; Index if all are literals.
template <class B, class E, class S>
using CounterType = typename std::conditional_t<
    Traced<B>, TypeOf<B>,
    std::conditional_t<Traced<E>, TypeOf<E>,
                       std::conditional_t<Traced<S>, TypeOf<S>, std::type_identity<Index>>>>::type;

template <class T, class F>
void traced_for(const Arg<T>& begin, const Arg<T>& end, const Arg<T>& step, F& body, const char* file, int line) {
  static_assert(is_integer<T>, "for_ counts in integers: use cast<Index>(...)");
  static_assert(takes_counter<F, T>,
                "the body of for_ takes its counter, of the bounds' type: [&](Val<Index> i) { ... }");
  note(file, line);
  if constexpr (is_integer<T> && takes_counter<F, T>) {
    auto call = [&body](ir::NodeId counter) { body(Val<T>(NodeRef{counter})); };
    for_(begin.node(), end.node(), step.node(), Body(call));
  }
}

}  // namespace detail

/// Runs the body for begin, begin + step, ... below end; step is greater than 0. Bounds are read once, before.
template <class B, class E, class S, class F>
  requires detail::Operand<std::remove_cvref_t<S>>
void for_(B&& begin, E&& end, S&& step, F&& body, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::CounterType<std::remove_cvref_t<B>, std::remove_cvref_t<E>, std::remove_cvref_t<S>>;
  detail::traced_for<T>({std::forward<B>(begin), file, line}, {std::forward<E>(end), file, line},
                        {std::forward<S>(step), file, line}, body, file, line);
}
template <class B, class E, class F>
void for_(B&& begin, E&& end, F&& body, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  using T = detail::CounterType<std::remove_cvref_t<B>, std::remove_cvref_t<E>, int>;
  detail::traced_for<T>({std::forward<B>(begin), file, line}, {std::forward<E>(end), file, line}, {1, file, line}, body,
                        file, line);
}

/// Runs the body as long as `condition`, a function that gives a bool, says so.
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
/// Waits for every thread of the block; orders shared and buffer memory among them.
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
    static_assert(!sizeof(U), "print shows numbers and text: take an element, as in x[i]");
    return {};
  }
}
/// A format and the line where it stands.
struct Format {
  std::string_view text;
  Format(const char* t, const char* file = __builtin_FILE(), int line = __builtin_LINE()) : text(t) {
    note(file, line);
  }
};
}  // namespace detail

/// Prints a line to standard output from every thread that comes here, the same on every device. {} stands for a value:
/// up to four of the kernel, and numbers and text of the host, which are written when traced. Floats have 9 significant
/// digits, doubles 17, so that no two are alike, {:.n} n of them; bools are 1 and 0, NaN is nan. {{ and }} are braces.
/// KernelError unless there are as many {} as values.
template <class... U>
void print(detail::Format format, const U&... values) {
  static_assert((0 + ... + detail::Traced<U>) <= 4, "print takes up to four values of the kernel");
  const detail::PrintArgument list[] = {detail::print_argument(values)..., detail::PrintArgument{}};
  detail::print(format.text, std::span(list, sizeof...(U)));
}

}  // namespace tessera
