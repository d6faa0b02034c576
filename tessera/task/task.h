// SPDX-License-Identifier: Apache-2.0
// Tasks: functions and kernels that run when their dependencies are complete. A task runs on any thread, for one of the
// devices in its scope.
//
//   Task<Array> a = spawn([] { return random_normal({1000, 1000}, 1); });
//   Task<Array> b = spawn({.scope = cpu(), .priority = 1}, [](const Array& x) { return x + 1; }, a);
//   float largest = max(b.fetch()).item<float>();
#pragma once

#include <atomic>
#include <concepts>
#include <tuple>
#include <type_traits>

#include "tessera/task/argument.h"
#include "tessera/task/compile_in_background.h"
#include "tessera/task/policy.h"
#include "tessera/task/rank_value.h"

namespace tessera {

namespace detail {

class RankMessages;

/// The rank on which a task runs, and its result, which fetch() copies to all ranks. Counts its references, because a
/// Task then has only one pointer to it.
struct RankedTask {
  RankedTask(std::shared_ptr<RankMessages> all, int number, bool own)
      : messages(std::move(all)), rank(number), here(own) {}
  virtual ~RankedTask() = default;
  void keep() noexcept { references.fetch_add(1, std::memory_order_relaxed); }
  [[gnu::cold]] void drop() noexcept {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const std::shared_ptr<RankMessages> messages;
  const int rank;
  const bool here;
  bool exchanged = false;
  std::exception_ptr error = nullptr;
  std::vector<std::byte> bytes = {};
  std::atomic<std::uint32_t> references = 1;
};
/// Waits for a task on another rank. `wait_here` is called on the rank that runs it, and writes the result. Called on
/// all ranks. Throws TaskError on all ranks if the task failed.
void exchange_result(RankedTask& task, const Callback<void(ByteWriter&)>& wait_here);
[[noreturn]] void throw_not_sendable();
/// Throws ArgumentError: the task is empty, or runs on another rank.
[[noreturn]] void throw_no_task(const RankedTask* ranked);

}  // namespace detail

/// A handle to a function that runs asynchronously, and to its result. Copies refer to the same task. If the task or
/// one of its dependencies throws, each access to the result throws TaskError. Errors that are never observed are
/// printed at exit.
///
/// Over ranks, a task runs on one of them (Region). wait() and fetch() are then called on all ranks, and fetch() copies
/// the result to all of them: numbers, strings, arrays, and vectors, tuples and optionals of these. Other functions
/// throw ArgumentError on ranks that do not run the task.
template <class T>
class Task {
 public:
  Task() = default;  ///< Creates a handle without a task. Its member functions throw ArgumentError.

  /// Blocks until the task has ended. The calling thread runs pending dependencies. Throws TaskError if the task or a
  /// dependency failed, and TaskCancelled if it was cancelled. Throws Error with the names of the tasks if tasks wait
  /// for each other in a cycle.
  void wait() const {
    if (ranked_) [[unlikely]]
      return wait_on_ranks();
    static_cast<void>(node());
    wait_for_node();
  }
  /// Waits and returns a reference to the result, which is valid as long as the task exists. If called on an rvalue,
  /// returns a copy. If the result is an Array, its device may still be computing it. Reading its elements waits for
  /// the device.
  decltype(auto) fetch() const& {
    wait();
    if constexpr (!std::is_void_v<T>) return std::as_const(result());
  }
  T fetch() && {
    wait();
    if constexpr (!std::is_void_v<T>) return T(std::as_const(result()));
  }
  /// Waits and moves the result out, for types that cannot be copied. The result cannot be accessed afterwards.
  T take() &&
        requires(!std::is_void_v<T>)
  {
    wait();
    return std::move(result());
  }
  /// True if the task has ended: completed, failed, skipped or cancelled.
  bool ended() const { return node().ended(); }
  /// Cancels the task. If the task has not begun, it will not run, and this function returns true. Waiting for it, or
  /// for a task that depends on it, then throws TaskCancelled. If the task is running, this function requests it to
  /// stop and returns false. The task can check `this_task::stop_requested` or its function's std::stop_token.
  bool cancel() const { return node().cancel_task(); }
  /// The task's name, for messages.
  std::string name() const { return node().name(); }
  /// The device on which the task runs or will run.
  Device device() const { return node().device(); }
  /// False for a default-constructed task, and on ranks that do not run the task.
  bool valid() const noexcept { return bool(node_); }
  /// Creates a task that calls `f(result)` when this task has ended, or `f()` for Task<void>.
  template <class F>
  auto then(F&& f, std::source_location where = std::source_location::current()) const;

  // Used by the library.
  /// Called by spawn().
  explicit Task(executor::Ref<detail::TaskResult<T>> node) noexcept : node_(std::move(node)) {}
  /// The task's node in the executor. Throws ArgumentError if the task is not valid.
  detail::TaskResult<T>& node() const {
    if (!node_) detail::throw_no_task(ranked_.get());
    return *node_;
  }
  /// Null if the task does not run on one of several ranks.
  const std::shared_ptr<detail::RankMessages>* rank_messages() const noexcept {
    return ranked_ ? &ranked_->messages : nullptr;
  }
  /// The task without its rank. It must run on this rank.
  Task on_this_rank() && { return Task(std::move(node_)); }
  /// The rank that runs the task; -1: it runs on this rank, or on all.
  int rank() const noexcept { return ranked_ ? ranked_->rank : -1; }
  /// Called by Region.
  void set_rank(const std::shared_ptr<detail::RankMessages>& messages, int rank) {
    if (rank >= 0) ranked_ = executor::Ref<Ranked>::adopt(new Ranked(messages, rank, bool(node_)));
  }

 private:
  using Value = std::conditional_t<std::is_void_v<T>, char, T>;
  struct Ranked final : detail::RankedTask {
    using RankedTask::RankedTask;
    std::optional<Value> value;  ///< on ranks that did not run the task
  };
  Value& result() const { return node_ ? *node_->value : *ranked_->value; }
  void wait_on_ranks() const {
    if constexpr (std::is_void_v<T>) {
      detail::exchange_result(*ranked_, [this](detail::ByteWriter&) { wait_for_node(); });
    } else if constexpr (detail::RankValue<T>::sendable) {
      detail::exchange_result(*ranked_, [this](detail::ByteWriter& to) {
        wait_for_node();
        detail::RankValue<T>::write(to, *node_->value);
      });
      if (node_ || ranked_->value) return;
      detail::ByteReader from(ranked_->bytes);
      ranked_->value.emplace(detail::RankValue<T>::read(from));
    } else {
      detail::throw_not_sendable();
    }
  }
  void wait_for_node() const {
    executor::wait(*node_);
    if (node_->failure()) detail::throw_failure(*node_->failure());
  }

  executor::Ref<detail::TaskResult<T>> node_;
  executor::Ref<Ranked> ranked_;
};

namespace detail {

template <class T>
struct TaskArgument<Task<T>> {
  static void place([[maybe_unused]] TaskPlacer& placer, std::size_t, [[maybe_unused]] const Task<T>& task) {
    if constexpr (is_deferred<T>)
      placer.add_data_on(task.device(), 0);  // the size is unknown; a deferred result can only be on the task's device
  }
  static void attach(TaskNode& node, Task<T>& task) { node.after(task.node()); }
  static auto unwrap(Task<T>& task) {
    if constexpr (std::is_void_v<T>)
      return std::tuple<>();
    else
      return std::tuple<std::conditional_t<std::is_same_v<T, Array>, const Array, const T&>>(
          result_on_current_device(*task.node().value));
  }
};
/// A vector of tasks is passed to the function as a vector of their results. A vector of Task<void> is not passed; it
/// only adds dependencies.
template <class T>
struct TaskArgument<std::vector<Task<T>>> {
  static void place([[maybe_unused]] TaskPlacer& placer, std::size_t,
                    [[maybe_unused]] const std::vector<Task<T>>& tasks) {
    if constexpr (is_deferred<T>)
      for (const Task<T>& t : tasks) placer.add_data_on(t.device(), 0);
  }
  static void attach(TaskNode& node, std::vector<Task<T>>& tasks) {
    for (Task<T>& t : tasks) node.after(t.node());
  }
  static auto unwrap(std::vector<Task<T>>& tasks) {
    if constexpr (std::is_void_v<T>) {
      return std::tuple<>();
    } else {
      std::vector<T> results;
      results.reserve(tasks.size());
      for (Task<T>& t : tasks) results.push_back(result_on_current_device(*t.node().value));
      return std::tuple<std::vector<T>>(std::move(results));
    }
  }
};

/// A task that has been created and placed, but not submitted. Accesses can still be attached to it.
template <class T>
struct Made {
  Task<T> task;
  TaskDraft draft;
};
/// Creates a task in `group`. If `group` is null, creates a task outside of regions.
template <class F, class... A>
auto make_task(executor::Group* group, const TaskOptions& call_options, F&& f, A&&... arguments) {
  using Function = FunctionTask<std::decay_t<F>, std::decay_t<A>...>;
  using T = typename Function::Result;
  std::shared_ptr<const InheritedOptions> options = options_with(call_options);
  TaskPlacer placer(options.get());
  [[maybe_unused]] std::size_t number = 0;
  (TaskArgument<std::decay_t<A>>::place(placer, ++number, arguments), ...);
  TaskFunction<std::decay_t<F>>::place(placer, f);
  std::string kernel_name = TaskFunction<std::decay_t<F>>::name(f);
  const bool by_policy = options && options->policy;
  const Device device = by_policy ? choose_by_policy(*options, placer, call_options, kernel_name) : placer.choose();
  if constexpr (TaskFunction<std::decay_t<F>>::kernel)
    if (!is_built_in(device.backend)) compile_in_background(f.untyped(), device);
  auto& function =
      *new Function(group != nullptr ? *group : plain_tasks(device), device, std::move(options), call_options,
                    std::move(kernel_name), std::forward<F>(f), std::forward<A>(arguments)...);
  Made<T> made{Task<T>(executor::Ref<TaskResult<T>>::adopt(&function)),
               TaskDraft(executor::Ref<TaskNode>::adopt(&function))};
  if (!is_built_in(device.backend) || by_policy || !placer.one_device()) [[unlikely]] {
    function.track_load();
    if (group != nullptr && !by_policy && (is_relocatable<std::decay_t<A>> && ...))
      if (std::vector<Device> others = placer.interchangeable_with(device); !others.empty())
        function.set_migration_targets(std::move(others));
  }
  function.attach_arguments();
  return made;
}
template <class F, class... A>
auto spawn_task(const TaskOptions& call_options, F&& f, A&&... arguments) {
  auto made = make_task(nullptr, call_options, std::forward<F>(f), std::forward<A>(arguments)...);
  made.draft.submit();
  if (!made.task.ended()) DeviceTasks::of(made.task.device()).throttle();
  return std::move(made.task);
}

template <class F>
concept NoOptions = !std::same_as<std::remove_cvref_t<F>, TaskOptions>;
using Here = std::source_location;

}  // namespace detail

/// Creates a task that calls f(arguments...). Arguments are copied; std::ref passes a reference. The function may take
/// a std::stop_token before the other arguments. If an argument is a task or a vector of tasks, the new task depends on
/// it, and its results are passed to f. A Task<void> passes nothing. If f is a kernel, it is launched: `spawn(saxpy,
/// Extent{n}, x, y, 2.0f)`.
///
/// The task is placed on a device of its scope (TaskOptions, `with`). Without a scope, it is placed on the device with
/// most of its array data, or on cpu:0. This device is the current device while f runs, so new arrays are created on
/// it. The task inherits placement, mode and options, but no recording and no observers. Throws DeviceError if no
/// device is possible. If too many tasks are unfinished, the calling thread runs some of them first.
template <class F, class... A>
auto spawn(const TaskOptions& options, F&& f, A&&... arguments) {
  return detail::spawn_task(options, std::forward<F>(f), std::forward<A>(arguments)...);
}
// There is one overload for each number of arguments. They need a defaulted argument for the source location of the
// call, and a defaulted argument cannot follow a parameter pack.
template <detail::NoOptions F>
auto spawn(F&& f, detail::Here at = detail::Here::current()) {
  return detail::spawn_task({.where = at}, std::forward<F>(f));
}
template <detail::NoOptions F, class A>
auto spawn(F&& f, A&& a, detail::Here at = detail::Here::current()) {
  return detail::spawn_task({.where = at}, std::forward<F>(f), std::forward<A>(a));
}
template <detail::NoOptions F, class A, class B>
auto spawn(F&& f, A&& a, B&& b, detail::Here at = detail::Here::current()) {
  return detail::spawn_task({.where = at}, std::forward<F>(f), std::forward<A>(a), std::forward<B>(b));
}
template <detail::NoOptions F, class A, class B, class C>
auto spawn(F&& f, A&& a, B&& b, C&& c, detail::Here at = detail::Here::current()) {
  return detail::spawn_task({.where = at}, std::forward<F>(f), std::forward<A>(a), std::forward<B>(b),
                            std::forward<C>(c));
}
template <detail::NoOptions F, class A, class B, class C, class D>
auto spawn(F&& f, A&& a, B&& b, C&& c, D&& d, detail::Here at = detail::Here::current()) {
  return detail::spawn_task({.where = at}, std::forward<F>(f), std::forward<A>(a), std::forward<B>(b),
                            std::forward<C>(c), std::forward<D>(d));
}
/// Deleted overload for more than four arguments. Pass `options` as the first argument instead, for example `{}`.
template <detail::NoOptions F, class A, class B, class C, class D, class... E>
  requires(sizeof...(E) > 0 && !std::same_as<std::tuple<std::remove_cvref_t<E>...>, std::tuple<detail::Here>>)
auto spawn(F&& f, A&& a, B&& b, C&& c, D&& d, E&&... rest) = delete;

/// Returns a task whose result is a tuple of the results of `tasks`, without those of Task<void>. Returns a Task<void>
/// if there are no other results.
template <class... T>
auto when_all(const Task<T>&... tasks) {
  return spawn(
      {.scope = Scope(), .name = "when_all"},
      [](const auto&... results) {
        if constexpr (sizeof...(results) > 0) return std::tuple(results...);
      },
      tasks...);
}
/// Returns a task whose result is the vector of the results of `tasks`. Returns a Task<void> if they have no results.
template <class T>
auto when_all(const std::vector<Task<T>>& tasks) {
  return spawn(
      {.scope = Scope(), .name = "when_all"},
      [](auto... results) {
        if constexpr (sizeof...(results) > 0) return std::get<0>(std::tuple(std::move(results)...));
      },
      tasks);
}

template <class T>
template <class F>
auto Task<T>::then(F&& f, std::source_location where) const {
  return detail::spawn_task({.where = where}, std::forward<F>(f), *this);
}

}  // namespace tessera
