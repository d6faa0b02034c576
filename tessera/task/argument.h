// SPDX-License-Identifier: Apache-2.0
// How a task stores its function and arguments, and what it passes to the function. Special argument types specialise
// TaskArgument. Internal.
#pragma once

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/callback.h"
#include "tessera/task/access.h"
#include "tessera/task/stored_access.h"
#include "tessera/task/task_node.h"

namespace tessera {
class Extent;
}

namespace tessera::detail {

/// Returns another task's result, which is passed as an argument. Arrays on another device are copied to the current
/// device.
template <class T>
const T& result_on_current_device(const T& result) {
  return result;
}
Array result_on_current_device(const Array& result);

/// Adds the array's bytes, times `weight`, to the devices with the newest contents of the array. The task is placed
/// where most bytes are.
void place_data(TaskPlacer& placer, const Array& array, unsigned weight = 1);
/// Declares the access. The task waits for conflicting tasks, and the array is available on its device when it runs.
void declare_access(TaskNode& node, StoredAccess& access);
/// Like the function above, for an array inside another object. While the task runs, the array refers to memory on the
/// task's device.
void declare_access(TaskNode& node, Array& array, Access mode, MatrixPart triangle = MatrixPart::none);

/// True if an argument of this type does not depend on the task's device. This applies to plain values, and to arrays
/// because they are copied to the device. A task may be moved to another device before it begins if all of its
/// arguments are relocatable.
template <class T>
constexpr bool is_relocatable = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Extent>;
template <>
inline constexpr bool is_relocatable<Array> = true;

/// True if a result of this type may be deferred, and therefore has an eval() function.
template <class T>
constexpr bool is_deferred = false;
template <>
inline constexpr bool is_deferred<Array> = true;

/// A task node that stores its result.
template <class T>
class TaskResult : public TaskNode {
 public:
  using TaskNode::TaskNode;
  std::optional<T> value;
};
template <>
class TaskResult<void> : public TaskNode {
 public:
  using TaskNode::TaskNode;
};

/// How an argument of type T is stored until the task runs.
template <class T>
struct StoredArgument {
  using type = T;
  using Bound = T&;  ///< passed to TaskArgument::unwrap() while the task runs
};
template <>
struct StoredArgument<Array> {
  using type = StoredAccess;
};
/// An array argument of a running task.
struct BoundArray {
  explicit BoundArray(StoredAccess& kept) : array(kept.array()) {}
  Array array;
};
template <>
struct StoredArgument<StoredAccess> {
  using Bound = BoundArray;
};

/// Handles an argument of type T. `place` receives the argument as passed to spawn; the other functions receive the
/// stored argument.
template <class T>
struct TaskArgument {
  /// Called on the submitting thread before the task is created. Restricts the devices. Arguments are numbered from 1.
  static void place(TaskPlacer&, std::size_t, const T&) {}
  /// Called on the submitting thread before submission. Adds dependencies.
  static void attach(TaskNode&, T&) {}
  /// Called on the executing thread. Returns a tuple of the values that the function receives.
  static std::tuple<T&> unwrap(T& stored) { return std::tuple<T&>(stored); }
};
template <class T>
struct TaskArgument<std::reference_wrapper<T>> {
  static void place(TaskPlacer&, std::size_t, const std::reference_wrapper<T>&) {}
  static void attach(TaskNode&, std::reference_wrapper<T>&) {}
  static std::tuple<T&> unwrap(std::reference_wrapper<T>& stored) { return std::tuple<T&>(stored.get()); }
};
template <>
struct TaskArgument<Array> {
  static void place(TaskPlacer& placer, std::size_t, const Array& array) { place_data(placer, array); }
  /// `default_mode` is the access that follows from the type of the function.
  static void attach(TaskNode& node, StoredAccess& kept, Access default_mode) {
    kept.set_mode(default_mode);
    declare_access(node, kept);
  }
  static std::tuple<Array&> unwrap(BoundArray& bound) { return std::tuple<Array&>(bound.array); }
};

/// Handles the function of a task. F is its type.
template <class F>
struct TaskFunction {
  static constexpr bool kernel = requires(const F& f) { f.untyped().function(); };

  /// Called after place() was called for each argument.
  static void place([[maybe_unused]] TaskPlacer& placer, const F&) {
    if constexpr (requires { F::backends; }) placer.restrict_to(F::backends(), "variants");
  }
  static std::string name(const F& f) {
    if constexpr (kernel)
      return f.name();
    else
      return {};
  }
  /// Returns the access of argument `number` if the caller did not declare one. Argument 0 of a kernel is its extent.
  static Access access(const F& f, std::size_t number) {
    if constexpr (kernel) {
      const auto& parameters = f.untyped().function().params;
      if (number > 0 && number <= parameters.size() && parameters[number - 1].access != ir::Access::read)
        return Access::inout;
    }
    return Access::in;
  }
  /// True if the function takes a std::stop_token before its other arguments.
  template <class... G>
  static constexpr bool takes_stop_token =
      !kernel && !std::is_invocable_v<F&, G...> && std::is_invocable_v<F&, StopToken, G...>;
  template <class... G>
  static decltype(auto) call(TaskNode& node, F& f, G&&... given) {
    if constexpr (kernel) {
      // A kernel may write to its arrays. Results of other tasks are passed as const, so const is removed.
      return launch(f, std::remove_const_t<std::remove_reference_t<G>>(given)...);
    } else if constexpr (std::is_invocable_v<F&, G...>) {
      return detail::invoke(f, std::forward<G>(given)...);
    } else {
      static_assert(
          std::is_invocable_v<F&, StopToken, G...>,
          "the function cannot be called with these arguments: a Task<T> is passed as const T&, a stored value "
          "as T&, std::ref(x) as x, and a Task<void> is not passed");
      return detail::invoke(f, node.stop_token(), std::forward<G>(given)...);
    }
  }

 private:
  template <class... G>
  static void launch(const F& f, G&&... given) {
    f.launch(given...);
  }
};

/// The result type of a task with a function of type F and arguments of types A.
template <class F, class... A>
struct TaskResultOf {
  template <class B>
  using Bound = typename StoredArgument<typename StoredArgument<B>::type>::Bound;
  using Given = decltype(std::tuple_cat(TaskArgument<A>::unwrap(std::declval<Bound<A>&>())...));
  template <class... G>
  static auto call(std::tuple<G...>*)
      -> decltype(TaskFunction<F>::call(std::declval<TaskNode&>(), std::declval<F&>(), std::declval<G>()...));
  using type = std::decay_t<decltype(call(static_cast<Given*>(nullptr)))>;
  template <class... G>
  static constexpr bool takes_stop_token(std::tuple<G...>*) {
    return TaskFunction<F>::template takes_stop_token<G...>;
  }
};

template <class F, class... A>
class FunctionTask final : public TaskResult<typename TaskResultOf<F, A...>::type> {
 public:
  using Result = typename TaskResultOf<F, A...>::type;

  template <class G, class... B>
  FunctionTask(executor::Group& group, Device device, std::shared_ptr<const InheritedOptions> options,
               const TaskOptions& call_options, std::string kernel_name, G&& f, B&&... arguments)
      : TaskResult<Result>(group, device, std::move(options), call_options, std::move(kernel_name)),
        kept_(std::in_place, std::forward<G>(f), std::forward<B>(arguments)...) {}
  ~FunctionTask() override { this->forget_data(); }

  void attach_arguments() {
    // Create the stop source now, because another thread may cancel the task as soon as it is submitted.
    using Of = TaskResultOf<F, A...>;
    if constexpr (Of::takes_stop_token(static_cast<typename Of::Given*>(nullptr))) this->stop_token();
    [[maybe_unused]] std::size_t number = 0;
    std::apply([&](F& f, auto&... arguments) { (attach_one<A>(f, number++, arguments), ...); }, *kept_);
    if (TaskData* const data = this->data()) data->order();
  }

 protected:
  std::byte* inline_storage() noexcept override {
    if constexpr (has_accesses)
      return inline_storage_.memory;
    else
      return nullptr;
  }
  void call() override {
    std::apply(
        [&](F& f, auto&... kept) {
          std::tuple<F&, typename TaskResultOf<F, A...>::template Bound<A>...> bound(f, kept...);
          std::apply(
              [&](F&, auto&... arguments) { call_with(f, std::tuple_cat(TaskArgument<A>::unwrap(arguments)...)); },
              bound);
        },
        *kept_);
    // A deferred result would read memory that other tasks may write after this task has ended.
    if constexpr (is_deferred<Result>) this->value->eval();
  }
  void done() noexcept override {
    TaskNode::done();
    kept_.reset();
  }

 private:
  template <class Given>
  void call_with(F& f, Given&& all) {
    std::apply(
        [&]<class... G>(G&&... given) {
          if constexpr (std::is_void_v<Result>)
            TaskFunction<F>::call(*this, f, std::forward<G>(given)...);
          else
            this->value.emplace(TaskFunction<F>::call(*this, f, std::forward<G>(given)...));
        },
        std::forward<Given>(all));
  }
  template <class B, class K>
  void attach_one(F& f, std::size_t number, K& kept) {
    if constexpr (requires { TaskArgument<B>::attach(*this, kept, Access::in); })
      TaskArgument<B>::attach(*this, kept, TaskFunction<F>::access(f, number));
    else
      TaskArgument<B>::attach(*this, kept);
  }
  static constexpr bool has_accesses = (std::is_same_v<typename StoredArgument<A>::type, StoredAccess> || ...);
  struct NoInlineStorage {};
  [[no_unique_address]] std::conditional_t<has_accesses, InlineAccessStorage, NoInlineStorage> inline_storage_;
  std::optional<std::tuple<F, typename StoredArgument<A>::type...>> kept_;  // destroyed when the task has run
};

}  // namespace tessera::detail
