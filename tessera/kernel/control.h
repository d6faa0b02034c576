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
TESSERA_INDEX(global_id)  // block_id * block_size + thread_id
TESSERA_INDEX(grid_size)  // threads in the grid; of a map kernel the extent
TESSERA_INDEX(thread_id)  // within the block
TESSERA_INDEX(block_id)
TESSERA_INDEX(block_size)   // a number known while tracing
TESSERA_INDEX(block_count)  // blocks in the grid
#undef TESSERA_INDEX
#define TESSERA_INDEX(name)                                                                  \
  inline Val<Index> name(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    detail::note(file, line);                                                                \
    return Val<Index>(detail::NodeRef{detail::index(ir::IndexKind::name, 0)});               \
  }
TESSERA_INDEX(lane_id)         // within the subgroup
TESSERA_INDEX(subgroup_id)     // within the block; subgroups are cut from linear thread ids
TESSERA_INDEX(subgroup_size)   // 1 to 128, as the device has it
TESSERA_INDEX(subgroup_count)  // in the block, rounded up
#undef TESSERA_INDEX

/// Runs `then` in the threads where the condition holds, `otherwise` in the others.
template <class C, class Then>
  requires std::invocable<Then>
void if_(C&& condition, Then&& then, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const detail::Arg<bool> c(std::forward<C>(condition), file, line);
  detail::if_(c.node(), detail::Body(then));
}
template <class C, class Then, class Else>
  requires std::invocable<Then> && std::invocable<Else>
void if_(C&& condition, Then&& then, Else&& otherwise, const char* file = __builtin_FILE(),
         int line = __builtin_LINE()) {
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
  static_assert(std::invocable<F&, Val<T>>,
                "the body of for_ takes its counter, of the bounds' type: [&](Val<Index> i) { ... }");
  note(file, line);
  if constexpr (is_integer<T> && std::invocable<F&, Val<T>>) {
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
/// A format and the line where it stands.
struct Format {
  std::string_view text;
  Format(const char* t, const char* file = __builtin_FILE(), int line = __builtin_LINE()) : text(t) {
    note(file, line);
  }
};
}  // namespace detail

/// Prints a line from every thread that comes here, {} for each of up to four values.
template <class... U>
void print(detail::Format format, const U&... values) {
  static_assert(sizeof...(U) <= 4, "print takes up to four values");
  static_assert((detail::Traced<U> && ...), "print takes values of the kernel; host values belong into the text");
  detail::print(format.text, {values.node()...});
}

}  // namespace tessera
