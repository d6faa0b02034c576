// SPDX-License-Identifier: Apache-2.0
// Regions: tasks that say what they read and write, and mean what they would mean if they ran one after the other.
//
//   Region r;
//   for (int i = 0; i < 100; ++i) r.spawn(step, in(x[i]), inout(total));   // one after the other, as total is written
//   r.wait();
#pragma once

#include <concepts>
#include <memory>
#include <vector>

#include "tessera/task/reduction.h"
#include "tessera/task/task.h"
#include "tessera/task/this_task.h"

namespace tessera {

/// An array as an argument of a task, with what the task does to it.
struct Accessed {
  Array array;                             ///< The array.
  Access mode = Access::in;                ///< What the task does with it.
  MatrixPart triangle = MatrixPart::none;  ///< The part that the task touches; the rest is not waited for.
  Combine op = Combine::sum;               ///< of `reduce`
};

/// The task reads it. An Array that stands for itself as an argument is read, too.
inline Accessed in(const Array& array) { return {array, Access::in}; }
/// The task writes all of it: what was there is not copied to where the task runs. It may be a view: then only the
/// view's elements count, and the rest of the memory stays.
inline Accessed out(const Array& array) { return {array, Access::out}; }
/// The task reads and writes it.
inline Accessed inout(const Array& array) { return {array, Access::inout}; }
/// The task reads and writes it, and it does not matter in which order those do that say so: they run one at a time, as
/// each is ready. With floating-point numbers the result may then depend on the order.
inline Accessed commute(const Array& array) { return {array, Access::commute}; }

/// The task computes a part of a result that others compute, too: it is given an array of x's shape that begins with 0
/// (1, the greatest, the least number), or with what tasks before it have put there, and adds to it. What they all have
/// is combined with x before anybody else uses that. They run at once; their numbers are the same for any number of
/// threads and alike devices (a slot for each eighth task, in order; the slots in a fixed tree). DtypeError at `spawn`
/// for minimum and maximum of integers of 64 bits. If one of them fails, nothing of theirs is combined: what uses x
/// after them fails, and, once somebody was told, finds x as it was before them.
inline Accessed reduce(Combine op, const Array& x) { return {x, Access::reduce, MatrixPart::none, op}; }

/// Memory that the task gets new on its device, with whatever was in it: `spawn(f, in(x), scratch({64, 64}))` calls f
/// with an Array of that shape, which is gone with the task unless f keeps it.
struct Scratch {
  Shape shape;               ///< The shape.
  DType dtype = DType::f32;  ///< The element type.
  Array made = {};           ///< while the task runs
};
/// Memory of a task's own, uninitialised, as an argument of `f`.
inline Scratch scratch(Shape shape, DType dtype = DType::f32) { return {std::move(shape), dtype}; }

namespace detail {
template <class T>
constexpr bool is_named = std::is_lvalue_reference_v<T>;
}  // namespace detail
template <class T>
  requires(std::same_as<std::remove_cvref_t<T>, Array> && !detail::is_named<T>)
Accessed out(T&& array) {
  static_assert(detail::is_named<T>,
                "out of a temporary array: what the task writes would be lost. Name it first: "
                "auto y = x.slice(...); spawn(f, out(y))");
  return {array, Access::out};
}
template <class T>
  requires(std::same_as<std::remove_cvref_t<T>, Array> && !detail::is_named<T>)
Accessed commute(T&& array) {
  static_assert(detail::is_named<T>,
                "commute of a temporary array: what the task writes would be lost. Name it first: "
                "auto y = x.slice(...); spawn(f, commute(y))");
  return {array, Access::commute};
}
template <class T>
  requires(std::same_as<std::remove_cvref_t<T>, Array> && !detail::is_named<T>)
Accessed inout(T&& array) {
  static_assert(detail::is_named<T>,
                "inout of a temporary array: what the task writes would be lost. Name it first: "
                "auto y = x.slice(...); spawn(f, inout(y))");
  return {array, Access::inout};
}

/// Of the last two dimensions only a triangle or the diagonal: `inout(upper(a))`, `in(diagonal(a))`. Tasks that use
/// other parts of the matrix are not ordered by it. ShapeError at `spawn` if there are fewer dimensions. For functions:
/// kernels take whole views.
struct PartOfMatrix {
  Array array;                             ///< The matrix.
  MatrixPart triangle = MatrixPart::none;  ///< The part of it.
};
/// The upper triangle of a matrix, with the diagonal.
inline PartOfMatrix upper(const Array& a) { return {a, MatrixPart::upper}; }
/// The lower triangle of a matrix, with the diagonal.
inline PartOfMatrix lower(const Array& a) { return {a, MatrixPart::lower}; }
inline PartOfMatrix unit_upper(const Array& a) { return {a, MatrixPart::unit_upper}; }  ///< without the diagonal
inline PartOfMatrix unit_lower(const Array& a) { return {a, MatrixPart::unit_lower}; }  ///< without the diagonal
/// The diagonal of a matrix.
inline PartOfMatrix diagonal(const Array& a) { return {a, MatrixPart::diagonal}; }
inline Accessed in(const PartOfMatrix& p) { return {p.array, Access::in, p.triangle}; }
inline Accessed out(const PartOfMatrix& p) { return {p.array, Access::out, p.triangle}; }
inline Accessed inout(const PartOfMatrix& p) { return {p.array, Access::inout, p.triangle}; }
inline Accessed commute(const PartOfMatrix& p) { return {p.array, Access::commute, p.triangle}; }

/// Copies between devices that tasks needed, since the start of the process: of what was read where it was not, of what
/// was read at home after it was written elsewhere, and of what made room for others.
struct TaskCopies {
  /// Numbers of copies to the task's device, back to the array's, and of those that made room.
  std::uint64_t fetched = 0, written_back = 0, evicted = 0;
  std::uint64_t fetched_bytes = 0, written_back_bytes = 0, evicted_bytes = 0;  ///< The bytes of those copies.
};
TaskCopies task_copies();  ///< The copies of all tasks since the process started.

/// Indices from `begin` to before `end`, in chunks of `grain` neighbours (the last one smaller). 0: about four chunks
/// for each thread. `r.parallel_for(n, f)`, `r.parallel_for({begin, end, grain}, f)`.
class IndexRange {
 public:
  /// From 0 to `count`.
  template <std::integral N>
  IndexRange(N count, detail::Here at = detail::Here::current()) : end_(static_cast<std::int64_t>(count)), at_(at) {}
  /// From `begin` to before `end`, in chunks of `grain` indices; 0: the library chooses.
  template <std::integral B, std::integral E, std::integral G = int>
  IndexRange(B begin, E end, G grain = 0, detail::Here at = detail::Here::current())
      : begin_(static_cast<std::int64_t>(begin)),
        end_(static_cast<std::int64_t>(end)),
        grain_(static_cast<std::int64_t>(grain)),
        at_(at) {}
  /// The first index.
  std::int64_t begin() const { return begin_; }
  /// The index behind the last.
  std::int64_t end() const { return end_; }
  std::int64_t chunk() const;  ///< indices of a chunk
  /// Where the range was made, for messages.
  const detail::Here& at() const { return at_; }

 private:
  std::int64_t begin_ = 0, end_ = 0, grain_ = 0;
  detail::Here at_;
};

namespace detail {
/// A chunk of a loop: calls its function with the chunk, or with each index in it, and what a task was given.
template <class F>
struct Chunk {
  std::shared_ptr<F> f;
  std::int64_t begin, end;
  template <class... G>
  static constexpr bool takes_range = std::is_invocable_v<F&, std::int64_t, std::int64_t, G&...>;
  template <class... G>
    requires(takes_range<G...> || std::is_invocable_v<F&, std::int64_t, G&...>)
  void operator()(G&&... given) const {
    if constexpr (takes_range<G...>)
      std::invoke(*f, begin, end, given...);
    else
      for (std::int64_t i = begin; i < end; ++i) std::invoke(*f, i, given...);
  }
};
}  // namespace detail

/// Tasks that are waited for together. What they compute is what they would compute one after the other in the order in
/// which they were made: a task comes after those before it that write what it uses, or use what it writes. They begin
/// while later ones are being made. Made and used by one thread, outside of recordings (ArgumentError).
class Region {
 public:
  /// `options` are in force for all its tasks, unless these say otherwise. `window`: how many may be under way before
  /// `spawn` runs some of them first; 0: 64 for each thread, and 4,096 at least.
  explicit Region(const TaskOptions& options = {}, std::uint32_t window = 0);
  /// Waits, and throws as `wait` does; if it is left by an error, what has not begun is cancelled instead.
  ~Region() noexcept(false);
  /// Moves its tasks: what is made in `other` afterwards, or waited for there, is an ArgumentError.
  Region(Region&& other) noexcept;
  Region& operator=(Region&&) = delete;

  /// Until all its tasks have ended, running some of them. Throws TaskError with the first error, and with those of all
  /// other tasks that failed by themselves (`others`): tasks that depended on them were skipped, the rest has run.
  /// TaskCancelled if there was no error, but tasks were skipped since one that they depend on had been cancelled. Each
  /// error is thrown once: tasks made later use the arrays of tasks that failed as these left them.
  void wait();
  /// Tasks that have not begun will not run. `wait` says nothing of that; tasks made later use what there is then.
  void cancel() noexcept;

  /// As tessera::spawn. Arrays are arguments as in(x), out(x), inout(x); a kernel's writable buffers are inout unless
  /// they are said to be out.
  template <class F, class... A>
  auto spawn(const TaskOptions& options, F&& f, A&&... arguments) {
    return submit(options, std::forward<F>(f), std::forward<A>(arguments)...);
  }
  template <detail::NoOptions F>
  auto spawn(F&& f, detail::Here at = detail::Here::current()) {
    return submit({.where = at}, std::forward<F>(f));
  }
  template <detail::NoOptions F, class A>
  auto spawn(F&& f, A&& a, detail::Here at = detail::Here::current()) {
    return submit({.where = at}, std::forward<F>(f), std::forward<A>(a));
  }
  template <detail::NoOptions F, class A, class B>
  auto spawn(F&& f, A&& a, B&& b, detail::Here at = detail::Here::current()) {
    return submit({.where = at}, std::forward<F>(f), std::forward<A>(a), std::forward<B>(b));
  }
  template <detail::NoOptions F, class A, class B, class C>
  auto spawn(F&& f, A&& a, B&& b, C&& c, detail::Here at = detail::Here::current()) {
    return submit({.where = at}, std::forward<F>(f), std::forward<A>(a), std::forward<B>(b), std::forward<C>(c));
  }
  template <detail::NoOptions F, class A, class B, class C, class D>
  auto spawn(F&& f, A&& a, B&& b, C&& c, D&& d, detail::Here at = detail::Here::current()) {
    return submit({.where = at}, std::forward<F>(f), std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                  std::forward<D>(d));
  }

  /// f(i) for each index, or f(begin, end) for each chunk if it can be called so, in a task for each chunk; the result
  /// ends after them. Further arguments are given to each of these tasks, as by `spawn`, and to f after the indices: of
  /// arrays in(x), commute(x) and reduce(op, x) are useful; with inout(x) the chunks run one after the other. f is
  /// shared by tasks that run at once. A chunk that fails ends there; the others run.
  template <class F, class... A>
  Task<void> parallel_for(const IndexRange& range, F&& f, const A&... arguments) {
    return parallel_for({.where = range.at()}, range, std::forward<F>(f), arguments...);
  }
  template <class F, class... A>
  Task<void> parallel_for(const TaskOptions& options, const IndexRange& range, F&& f, const A&... arguments) {
    const auto body = std::make_shared<std::decay_t<F>>(std::forward<F>(f));
    const std::int64_t chunk = range.chunk();
    std::vector<Task<void>> chunks;
    for (std::int64_t begin = range.begin(), end; begin < range.end(); begin = end) {
      end = range.end() - begin > chunk ? begin + chunk : range.end();
      chunks.push_back(submit(options, detail::Chunk<std::decay_t<F>>{body, begin, end}, arguments...));
    }
    TaskOptions all = options;
    all.scope = Scope();
    return submit(
        all, [] {}, std::move(chunks));
  }

 private:
  class Tasks;
  class InheritedOptionsScope {
   public:
    explicit InheritedOptionsScope(const Region& region);
    ~InheritedOptionsScope();

   private:
    const detail::InheritedOptions* const before_;
  };
  template <class F, class... A>
  auto submit(const TaskOptions& call_options, F&& f, A&&... arguments) {
    const InheritedOptionsScope in_force(*this);
    auto made = detail::make_task(&group(), call_options, std::forward<F>(f), std::forward<A>(arguments)...);
    made.draft.submit();
    group().throttle();
    return std::move(made.task);
  }
  executor::Group& group();
  friend std::string dot(const Region& region);

  std::unique_ptr<Tasks> tasks_;
  std::shared_ptr<const detail::InheritedOptions> options_;
  const int uncaught_;
  std::int64_t trace_begin_ = 0;  ///< when it was made, if somebody looked
};

namespace detail {

/// `array` becomes the slot.
void declare_reduction(TaskNode& node, StoredAccess& access);
void declare_reduction(TaskNode& node, Array& array, Combine op);

template <>
inline constexpr bool is_relocatable<Accessed> = true;
template <>
inline constexpr bool is_relocatable<std::vector<Accessed>> = true;
/// What is written counts for three of what is read: it has to come, to go back, and is wanted where it is.
inline void place_data(TaskPlacer& placer, const Accessed& a) {
  if (a.mode == Access::reduce) return;  // it goes where its other data is
  place_data(placer, a.array, writes(a.mode) ? 3 : 1);
}
inline void declare_access(TaskNode& node, Accessed& a) {
  if (a.mode == Access::reduce) return declare_reduction(node, a.array, a.op);
  declare_access(node, a.array, a.mode, a.triangle);
}

inline StoredAccess::StoredAccess(const Accessed& a) : StoredAccess(a.array, a.mode, a.triangle) { op_ = a.op; }
inline StoredAccess::StoredAccess(Accessed&& a) : StoredAccess(std::move(a.array), a.mode, a.triangle) { op_ = a.op; }
template <>
struct StoredArgument<Accessed> {
  using type = StoredAccess;
};
template <>
struct TaskArgument<Accessed> {
  static void place(TaskPlacer& placer, std::size_t, const Accessed& a) { place_data(placer, a); }
  static void attach(TaskNode& node, StoredAccess& kept) {
    kept.mode() == Access::reduce ? declare_reduction(node, kept) : declare_access(node, kept);
  }
  static std::tuple<Array&> unwrap(BoundArray& bound) { return std::tuple<Array&>(bound.array); }
};

template <>
struct TaskArgument<Scratch> {
  static void place(TaskPlacer&, std::size_t, const Scratch&) {}
  static void attach(TaskNode&, Scratch&) {}
  static std::tuple<Array&> unwrap(Scratch& s) {
    s.made = Array::empty(s.shape, s.dtype, this_task::device());
    return std::tuple<Array&>(s.made);
  }
};

/// Several are a vector of arrays.
template <>
struct TaskArgument<std::vector<Accessed>> {
  static void place(TaskPlacer& placer, std::size_t, const std::vector<Accessed>& all) {
    for (const Accessed& a : all) place_data(placer, a);
  }
  static void attach(TaskNode& node, std::vector<Accessed>& all) {
    for (Accessed& a : all) declare_access(node, a);
  }
  static std::tuple<std::vector<Array>> unwrap(std::vector<Accessed>& all) {
    std::vector<Array> arrays;
    for (Accessed& a : all) arrays.push_back(a.array);
    return {std::move(arrays)};
  }
};

}  // namespace detail
}  // namespace tessera
