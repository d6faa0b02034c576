// SPDX-License-Identifier: Apache-2.0
// Regions: sets of tasks with declared accesses. They behave as if the tasks ran one after another in submission order.
//
//   Region r;
//   for (int i = 0; i < 100; ++i) r.spawn(step, in(x[i]), inout(total));   // sequential, because total is written
//   r.wait();
#pragma once

#include <concepts>
#include <memory>
#include <vector>

#include "tessera/base/owner.h"
#include "tessera/task/combine.h"
#include "tessera/task/rank_plan.h"
#include "tessera/task/task.h"
#include "tessera/task/this_task.h"

namespace tessera {

/// An array as an argument of a task, with its access mode.
struct Accessed {
  /// Sets the members of these names. (This is not an aggregate, because gcc fills such aggregates with zeros first.)
  Accessed(const Array& a, Access m, MatrixPart part = MatrixPart::none, Combine combine = Combine::sum,
           const detail::RankTile& of = {})
      : array(a), mode(m), triangle(part), op(combine), tile(of) {}

  Array array;  ///< The array.
  Access mode;  ///< How the task uses the array.
  /// The elements that the task accesses. The task does not wait for tasks that use other elements.
  MatrixPart triangle;
  Combine op;             ///< operation of a reduction
  detail::RankTile tile;  ///< The tile of a block array over ranks; `array` is empty on ranks that do not own it.
};

/// The task reads the array. An Array without an access mode is also read only.
inline Accessed in(const Array& array) { return {array, Access::in}; }
/// The task overwrites the array. The old contents are not copied to the task's device. If the array is a view, only
/// the elements of the view are overwritten.
inline Accessed out(const Array& array) { return {array, Access::out}; }
/// The task reads and writes the array.
inline Accessed inout(const Array& array) { return {array, Access::inout}; }
/// The task reads and writes the array. Commuting tasks may run in any order, one at a time. Floating-point results may
/// depend on the order.
inline Accessed commute(const Array& array) { return {array, Access::commute}; }

/// The task contributes to a reduction into `x`. It receives an array with x's shape and adds its contribution to it.
/// This array is initialised with 0, 1, the largest or the smallest number, depending on the operation, or contains
/// contributions of earlier tasks. Before the next use of `x`, all contributions are combined with `x`.
///
/// Reducing tasks run concurrently. The result does not depend on the number of threads, or on which of several
/// identical devices are used: task i uses slot i mod 8, and slots are combined in a fixed tree.
///
/// `spawn` throws DtypeError for minimum and maximum of 64-bit integers. If a reducing task fails, nothing is combined.
/// Later uses of `x` then fail until the error has been observed. After that, `x` has its contents from before the
/// reduction.
inline Accessed reduce(Combine op, const Array& x) { return {x, Access::reduce, MatrixPart::none, op}; }

/// An uninitialised temporary array on the task's device: `spawn(f, in(x), scratch({64, 64}))` passes f an Array of
/// this shape. It is freed after the task, unless f stores the Array.
struct Scratch {
  Shape shape;               ///< The shape.
  DType dtype = DType::f32;  ///< The element type.
  Array made = {};           ///< the array while the task runs
};
/// Creates an uninitialised temporary array for the task, as an argument of `f`.
inline Scratch scratch(Shape shape, DType dtype = DType::f32) { return {std::move(shape), dtype}; }

namespace detail {
template <class T>
constexpr bool is_named = std::is_lvalue_reference_v<T>;
}  // namespace detail
template <class T>
  requires(std::same_as<std::remove_cvref_t<T>, Array> && !detail::is_named<T>)
Accessed out(T&& array) {
  static_assert(detail::is_named<T>,
                "out of a temporary array: the task's result would be lost. Store it in a variable first: "
                "auto y = x.slice(...); spawn(f, out(y))");
  return {array, Access::out};
}
template <class T>
  requires(std::same_as<std::remove_cvref_t<T>, Array> && !detail::is_named<T>)
Accessed commute(T&& array) {
  static_assert(detail::is_named<T>,
                "commute of a temporary array: the task's result would be lost. Store it in a variable first: "
                "auto y = x.slice(...); spawn(f, commute(y))");
  return {array, Access::commute};
}
template <class T>
  requires(std::same_as<std::remove_cvref_t<T>, Array> && !detail::is_named<T>)
Accessed inout(T&& array) {
  static_assert(detail::is_named<T>,
                "inout of a temporary array: the task's result would be lost. Store it in a variable first: "
                "auto y = x.slice(...); spawn(f, inout(y))");
  return {array, Access::inout};
}

/// A triangle or the diagonal of the last two dimensions of an array: `inout(upper(a))`, `in(diagonal(a))`. Tasks that
/// use other elements of the matrix can run at the same time. `spawn` throws ShapeError if there are fewer than two
/// dimensions. Supported for functions only, because kernels receive whole views.
struct PartOfMatrix {
  Array array;                             ///< The matrix.
  MatrixPart triangle = MatrixPart::none;  ///< The part of the matrix.
  detail::RankTile tile = {};              ///< as in Accessed
};
/// The upper triangle of a matrix, including the diagonal.
inline PartOfMatrix upper(const Array& a) { return {a, MatrixPart::upper}; }
/// The lower triangle of a matrix, including the diagonal.
inline PartOfMatrix lower(const Array& a) { return {a, MatrixPart::lower}; }
/// The upper triangle without the diagonal.
inline PartOfMatrix unit_upper(const Array& a) { return {a, MatrixPart::unit_upper}; }
/// The lower triangle without the diagonal.
inline PartOfMatrix unit_lower(const Array& a) { return {a, MatrixPart::unit_lower}; }
/// The diagonal of a matrix.
inline PartOfMatrix diagonal(const Array& a) { return {a, MatrixPart::diagonal}; }
inline Accessed in(const PartOfMatrix& p) { return {p.array, Access::in, p.triangle, {}, p.tile}; }
inline Accessed out(const PartOfMatrix& p) { return {p.array, Access::out, p.triangle, {}, p.tile}; }
inline Accessed inout(const PartOfMatrix& p) { return {p.array, Access::inout, p.triangle, {}, p.tile}; }
inline Accessed commute(const PartOfMatrix& p) { return {p.array, Access::commute, p.triangle, {}, p.tile}; }

/// Counts copies between devices that were made for tasks since the process started. Inputs are fetched to a task's
/// device. Results are written back to their home device when they are accessed there. Replicas are evicted to free
/// memory.
struct TaskCopies {
  /// Number of copies to the devices of tasks, of copies back to the home device, and of copies back that were made to
  /// free memory.
  std::uint64_t fetched = 0, written_back = 0, evicted = 0;
  std::uint64_t fetched_bytes = 0, written_back_bytes = 0, evicted_bytes = 0;  ///< Number of bytes in these copies.
};
TaskCopies task_copies();  ///< Returns the copies that were made for all tasks since the process started.

/// The indices from `begin` to `end`, excluding `end`, in chunks of `grain` indices: `r.parallel_for(n, f)`,
/// `r.parallel_for({begin, end, grain}, f)`. The last chunk may be smaller. If `grain` is 0, there are about four
/// chunks per thread.
class IndexRange {
 public:
  /// The indices from 0 to `count`, excluding `count`.
  template <std::integral N>
  IndexRange(N count, detail::Here at = detail::Here::current()) : end_(static_cast<std::int64_t>(count)), at_(at) {}
  /// The indices from `begin` to `end`, excluding `end`, in chunks of `grain` indices. 0 selects the size
  /// automatically.
  template <std::integral B, std::integral E, std::integral G = int>
  IndexRange(B begin, E end, G grain = 0, detail::Here at = detail::Here::current())
      : begin_(static_cast<std::int64_t>(begin)),
        end_(static_cast<std::int64_t>(end)),
        grain_(static_cast<std::int64_t>(grain)),
        at_(at) {}
  /// The first index.
  std::int64_t begin() const { return begin_; }
  /// One past the last index.
  std::int64_t end() const { return end_; }
  /// Returns the number of indices in a chunk, for tasks of several ranks if `ranks` is not 0.
  std::int64_t chunk(int ranks = 0) const;
  /// Source location where the range was created, for messages.
  const detail::Here& at() const { return at_; }

 private:
  std::int64_t begin_ = 0, end_ = 0, grain_ = 0;
  detail::Here at_;
};

namespace detail {
/// A chunk of a loop. Calls the function with the bounds of the chunk, or once for each index. Further arguments of the
/// task are also passed.
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
      detail::invoke(*f, begin, end, given...);
    else
      for (std::int64_t i = begin; i < end; ++i) detail::invoke(*f, i, given...);
  }
};
}  // namespace detail

/// A set of tasks that can be waited for together. They behave as if they ran one after another in the order of
/// creation: a task waits for earlier tasks that write data that it uses, or that use data that it writes. Tasks may
/// begin while later ones are still being created. A region must be created and used by one thread. Throws
/// ArgumentError inside a recording.
///
/// Over ranks (dist::World), all ranks create the same region and tasks. A task that uses tiles of a block array over
/// ranks, or whose scope has ranks, runs on one of them: the scope's rank, or else the owner of the first tile that it
/// writes, or of the first tile that it reads if it writes none. A task that uses the result of such a task runs on the
/// same rank. A task that writes an array runs on all ranks, because arrays exist on all of them; writing both is an
/// ArgumentError. Tiles of other ranks are copied, once for each write of them. Other tasks run on each rank.
class Region {
 public:
  /// `options` apply to all tasks of the region unless they are overridden. `window` is the maximum number of
  /// unfinished tasks. When it is reached, `spawn` runs some of them on the calling thread. 0 selects 64 per thread,
  /// but at least 4,096.
  explicit Region(const TaskOptions& options = {}, std::uint32_t window = 0);
  /// Waits, and throws the same errors as `wait`. During stack unwinding, cancels tasks that have not begun instead.
  ~Region() noexcept(false);
  /// Moves the tasks to a new region. Using `other` afterwards throws ArgumentError.
  Region(Region&& other) noexcept;
  Region& operator=(Region&&) = delete;

  /// Blocks until all tasks have ended. The calling thread runs some of the tasks. Throws TaskError with the error of
  /// the task that was created first; `others` contains the errors of other tasks that failed independently. Tasks that
  /// depend on a failed task are skipped, and all other tasks run. Over ranks, waits for the tasks of all ranks, and
  /// throws the same error on all. Throws TaskCancelled if there was no error, but tasks were skipped because a
  /// task that they depend on was cancelled. Each error is thrown only once. After that, later tasks can use the arrays
  /// that the failed tasks have written.
  void wait();
  /// Cancels tasks that have not begun. `wait` does not report this as an error. Later tasks use the current contents
  /// of the arrays.
  void cancel() noexcept;

  /// Like tessera::spawn. Arrays are passed as in(x), out(x) or inout(x). The default for a kernel's writable buffers
  /// is inout.
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

  /// Calls f(i) for each index, or f(begin, end) for each chunk if f accepts two indices. There is one task for each
  /// chunk. Returns a task that ends after all of them. Further arguments are passed to each task as in `spawn`, and to
  /// f after the indices. in(x), commute(x) and reduce(op, x) allow chunks to run concurrently or in any order; with
  /// inout(x), chunks run sequentially. All tasks call the same f, possibly at the same time. If f throws, the
  /// remaining indices of its chunk are skipped. Other chunks still run.
  template <class F, class... A>
  Task<void> parallel_for(const IndexRange& range, F&& f, const A&... arguments) {
    return parallel_for({.where = range.at()}, range, std::forward<F>(f), arguments...);
  }
  template <class F, class... A>
  Task<void> parallel_for(const TaskOptions& options, const IndexRange& range, F&& f, const A&... arguments) {
    const auto body = std::make_shared<std::decay_t<F>>(std::forward<F>(f));
    const InheritedOptionsScope in_force(*this);
    const auto* const messages = messages_of(options, arguments...);
    const std::int64_t chunk = range.chunk(messages != nullptr ? (*messages)->size() : 0);
    std::vector<Task<void>> chunks;
    for (std::int64_t begin = range.begin(), end; begin < range.end(); begin = end) {
      end = range.end() - begin > chunk ? begin + chunk : range.end();
      Task<void> task = submit(options, detail::Chunk<std::decay_t<F>>{body, begin, end}, arguments...);
      if (task.valid()) chunks.push_back(std::move(task).on_this_rank());  // else it runs on another rank
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
    if (const auto* const messages = messages_of(call_options, arguments...)) [[unlikely]]
      return submit_on_ranks(*messages, call_options, std::forward<F>(f), std::forward<A>(arguments)...);
    executor::Group& tasks = group();
    auto made = detail::make_task(&tasks, call_options, std::forward<F>(f), std::forward<A>(arguments)...);
    made.draft->set_submission(next_submission());
    made.draft.submit();
    tasks.throttle();
    return std::move(made.task);
  }
  /// Returns the messages of the task's ranks, or null if it uses this process only.
  template <class... A>
  const std::shared_ptr<detail::RankMessages>* messages_of(const TaskOptions& options, const A&... arguments) const {
    const Scope* const scope = detail::rank_scope(options, options_.get());
    const std::shared_ptr<detail::RankMessages>* found = scope != nullptr ? &scope->ranks()->messages : nullptr;
    (static_cast<void>(found != nullptr || (found = detail::RankArgument<A>::messages(arguments)) != nullptr), ...);
    return found;
  }
  /// Plans a task on all ranks, and submits it on those on which it runs. Cold, so that in one process the compiler
  /// inlines the other functions as if this one did not exist.
  template <class F, class... A>
  [[gnu::cold, gnu::noinline]] auto submit_on_ranks(std::shared_ptr<detail::RankMessages> messages,
                                                    const TaskOptions& options, F&& f, A&&... arguments) {
    using detail::RankArgument, detail::TaskFunction;
    detail::RankPlan plan(ranks(std::move(messages)), group(), options);
    const auto mode = [&f](std::size_t number) { return TaskFunction<std::decay_t<F>>::access(f, number); };
    std::size_t number = 0;
    (RankArgument<std::decay_t<A>>::plan(plan, arguments, mode(number++)), ...);
    plan.prepare();
    const auto make = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return detail::make_task(&group(), plan.local_options(), std::forward<F>(f),
                               RankArgument<std::decay_t<A>>::local(plan, std::forward<A>(arguments), mode(I))...);
    };
    constexpr auto numbers = std::index_sequence_for<A...>();
    decltype(make(numbers).task) task;
    if (plan.runs_here()) {
      detail::LeaveOnException leave(*ranks_);
      auto made = make(numbers);
      leave.region = nullptr;
      made.draft->set_submission(next_submission());
      made.draft.submit();
      task = std::move(made.task);
    }
    plan.finish();
    group().throttle();
    task.set_rank(plan.shared_messages(), plan.rank());
    return task;
  }
  executor::Group& group();
  detail::RankRegion& ranks(std::shared_ptr<detail::RankMessages> messages);
  std::uint32_t next_submission() noexcept { return ranks_ ? ranks_->last().number : ++submissions_; }
  friend std::string dot(const Region& region);

  detail::Owner<Tasks> tasks_;
  detail::Owner<detail::RankRegion> ranks_;  ///< exists from the first submission over ranks to the next wait
  std::uint32_t submissions_ = 0;
  std::shared_ptr<const detail::InheritedOptions> options_;
  const int uncaught_;
  std::int64_t trace_begin_ = 0;  ///< time of creation, if traced
};

namespace detail {

/// Replaces the array by its slot of the reduction.
void declare_reduction(TaskNode& node, StoredAccess& access);
void declare_reduction(TaskNode& node, Array& array, Combine op);

template <>
inline constexpr bool is_relocatable<Accessed> = true;
template <>
inline constexpr bool is_relocatable<std::vector<Accessed>> = true;
/// Writes weigh three times as much as reads: the data is copied in, copied back, and usually read again on the same
/// device.
inline void place_data(TaskPlacer& placer, const Accessed& a) {
  if (a.mode == Access::reduce) return;  // placed on the device with most of the task's other data
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
  static void place(TaskPlacer& placer, std::size_t, const Accessed& a) {
    a.tile.check_here("spawn");
    place_data(placer, a);
  }
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

/// A vector of accesses is passed to the function as a vector of arrays.
template <>
struct TaskArgument<std::vector<Accessed>> {
  static void place(TaskPlacer& placer, std::size_t, const std::vector<Accessed>& all) {
    for (const Accessed& a : all) TaskArgument<Accessed>::place(placer, 0, a);
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

template <>
struct RankArgument<Accessed> {
  static const std::shared_ptr<RankMessages>* messages(const Accessed& a) {
    return a.tile ? &a.tile.tiles->shared_messages() : nullptr;
  }
  static void plan(RankPlan& plan, const Accessed& a, Access) {
    plan.use(a.tile, a.mode, a.triangle == MatrixPart::none, a.array);
  }
  static Accessed local(RankPlan& plan, const Accessed& a, Access) {
    return {plan.array(a.tile, a.mode, a.array), a.mode, a.triangle, a.op, {}};
  }
};
template <>
struct RankArgument<std::vector<Accessed>> {
  static const std::shared_ptr<RankMessages>* messages(const std::vector<Accessed>& all) {
    for (const Accessed& a : all)
      if (a.tile) return RankArgument<Accessed>::messages(a);
    return nullptr;
  }
  static void plan(RankPlan& plan, const std::vector<Accessed>& all, Access mode) {
    for (const Accessed& a : all) RankArgument<Accessed>::plan(plan, a, mode);
  }
  static std::vector<Accessed> local(RankPlan& plan, const std::vector<Accessed>& all, Access mode) {
    std::vector<Accessed> out;
    for (const Accessed& a : all) out.push_back(RankArgument<Accessed>::local(plan, a, mode));
    return out;
  }
};
template <>
struct RankArgument<Array> : RankArgument<void> {
  static void plan(RankPlan& plan, const Array&, Access mode) { plan.use_plain(mode); }
};
template <class T>
struct RankArgument<Task<T>> : RankArgument<void> {
  static const std::shared_ptr<RankMessages>* messages(const Task<T>& task) { return task.rank_messages(); }
  static void plan(RankPlan& plan, const Task<T>& task, Access) { plan.use_result(task.rank()); }
};
template <class T>
struct RankArgument<std::vector<Task<T>>> : RankArgument<void> {
  static const std::shared_ptr<RankMessages>* messages(const std::vector<Task<T>>& tasks) {
    for (const Task<T>& t : tasks)
      if (t.rank_messages() != nullptr) return t.rank_messages();
    return nullptr;
  }
  static void plan(RankPlan& plan, const std::vector<Task<T>>& tasks, Access) {
    for (const Task<T>& t : tasks) plan.use_result(t.rank());
  }
};

}  // namespace detail
}  // namespace tessera
