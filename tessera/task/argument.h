// SPDX-License-Identifier: Apache-2.0
// How a task keeps its function and its arguments, and what it gives them as. Internal; what has a meaning of its own
// as an argument specialises TaskArgument.
#pragma once

#include <functional>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/task/access.h"
#include "tessera/task/kept_access.h"
#include "tessera/task/node.h"

namespace tessera {
class Extent;
}

namespace tessera::detail {

[[noreturn]] void no_task();

/// A task's result as an argument of the task that runs: an array on another device is copied to this task's.
template <class T>
const T& result_here(const T& result) {
  return result;
}
Array result_here(const Array& result);

/// Where the newest contents are counts, `weight` times.
void place_data(Placing& placing, const Array& array, unsigned weight = 1);
/// The task uses it so: it comes after others that do, and gets it where it runs.
void declare_access(TaskNode& node, KeptAccess& access);
/// The same of an array that is kept in something else, and is changed to where the task runs.
void declare_access(TaskNode& node, Array& array, Access mode, MatrixPart triangle = MatrixPart::none);

/// Whether an argument of this type is where the task is, whatever that is: an array of which it gets a copy there, or
/// a plain value. A task of such arguments may be moved before it begins.
template <class T>
constexpr bool follows_its_task = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Extent>;
template <>
inline constexpr bool follows_its_task<Array> = true;

/// Whether a result of this type may be deferred, and has an eval().
template <class T>
constexpr bool is_deferred = false;
template <>
inline constexpr bool is_deferred<Array> = true;

/// A task with room for its result.
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

/// What keeps an argument of type T until the task runs.
template <class T>
struct KeptArgument {
  using type = T;
  using Opened = T&;  ///< and what that is while it runs
};
template <>
struct KeptArgument<Array> {
  using type = KeptAccess;
};
/// While the task runs, the array is an Array.
struct OpenedArray {
  explicit OpenedArray(KeptAccess& kept) : array(kept.array()) {}
  Array array;
};
template <>
struct KeptArgument<KeptAccess> {
  using Opened = OpenedArray;
};

/// An argument of type T: `place` is asked of it as it is given, the others of what keeps it.
template <class T>
struct TaskArgument {
  /// On the submitter, before the task is made: where it may run. Its number counts from 1.
  static void place(Placing&, std::size_t, const T&) {}
  /// On the submitter, before it is submitted: what it comes after.
  static void attach(TaskNode&, T&) {}
  /// On the thread that runs it: a tuple of what the function gets for it.
  static std::tuple<T&> give(T& stored) { return std::tuple<T&>(stored); }
};
template <class T>
struct TaskArgument<std::reference_wrapper<T>> {
  static void place(Placing&, std::size_t, const std::reference_wrapper<T>&) {}
  static void attach(TaskNode&, std::reference_wrapper<T>&) {}
  static std::tuple<T&> give(std::reference_wrapper<T>& stored) { return std::tuple<T&>(stored.get()); }
};
template <>
struct TaskArgument<Array> {
  static void place(Placing& placing, std::size_t, const Array& array) { place_data(placing, array); }
  /// `unsaid`: what the function does to it, as far as its type tells.
  static void attach(TaskNode& node, KeptAccess& kept, Access unsaid) {
    kept.set_mode(unsaid);
    declare_access(node, kept);
  }
  static std::tuple<Array&> give(OpenedArray& opened) { return std::tuple<Array&>(opened.array); }
};

/// A function of type F.
template <class F>
struct TaskFunction {
  static constexpr bool kernel = requires(const F& f) { f.untyped().function(); };

  /// After its arguments.
  static void place([[maybe_unused]] Placing& placing, const F&) {
    if constexpr (requires { F::backends; }) placing.only(F::backends(), "variants");
  }
  static std::string name(const F& f) {
    if constexpr (kernel)
      return f.name();
    else
      return {};
  }
  /// What it does to its argument of this number, if nothing is said: a kernel's first is how many threads it has.
  static Access access(const F& f, std::size_t number) {
    if constexpr (kernel) {
      const auto& parameters = f.untyped().function().params;
      if (number > 0 && number <= parameters.size() && parameters[number - 1].access != ir::Access::read)
        return Access::inout;
    }
    return Access::in;
  }
  /// Whether it is given a std::stop_token before what its arguments give.
  template <class... G>
  static constexpr bool takes_stop =
      !kernel && !std::is_invocable_v<F&, G...> && std::is_invocable_v<F&, std::stop_token, G...>;
  template <class... G>
  static decltype(auto) call(TaskNode& node, F& f, G&&... given) {
    if constexpr (kernel) {
      // What a kernel writes is given by arrays; a result that others have too is such an array as well.
      return launch(f, std::remove_const_t<std::remove_reference_t<G>>(given)...);
    } else if constexpr (std::is_invocable_v<F&, G...>) {
      return std::invoke(f, std::forward<G>(given)...);
    } else {
      static_assert(std::is_invocable_v<F&, std::stop_token, G...>,
                    "the function cannot be called with these arguments: a Task<T> gives a const T&, what is stored "
                    "a T&, std::ref(x) x itself, a Task<void> nothing");
      return std::invoke(f, node.stop_token(), std::forward<G>(given)...);
    }
  }

 private:
  template <class... G>
  static void launch(const F& f, G&&... given) {
    f.launch(given...);
  }
};

/// A task of a function of type F and arguments of types A.
template <class F, class... A>
struct TaskResultOf {
  template <class B>
  using Opened = typename KeptArgument<typename KeptArgument<B>::type>::Opened;
  using Given = decltype(std::tuple_cat(TaskArgument<A>::give(std::declval<Opened<A>&>())...));
  template <class... G>
  static auto call(std::tuple<G...>*)
      -> decltype(TaskFunction<F>::call(std::declval<TaskNode&>(), std::declval<F&>(), std::declval<G>()...));
  using type = std::decay_t<decltype(call(static_cast<Given*>(nullptr)))>;
  template <class... G>
  static constexpr bool takes_stop(std::tuple<G...>*) {
    return TaskFunction<F>::template takes_stop<G...>;
  }
};

template <class F, class... A>
class FunctionTask final : public TaskResult<typename TaskResultOf<F, A...>::type> {
 public:
  using Result = typename TaskResultOf<F, A...>::type;

  template <class G, class... B>
  FunctionTask(executor::Group& group, Device device, std::shared_ptr<const OptionsInForce> options,
               const TaskOptions& said, std::string kernel_name, G&& f, B&&... arguments)
      : TaskResult<Result>(group, device, std::move(options), said, std::move(kernel_name)),
        kept_(std::in_place, std::forward<G>(f), std::forward<B>(arguments)...) {}
  ~FunctionTask() override { this->forget_data(); }

  void attach_arguments() {
    // Made now: later another thread may be cancelling.
    using Of = TaskResultOf<F, A...>;
    if constexpr (Of::takes_stop(static_cast<typename Of::Given*>(nullptr))) this->stop_token();
    [[maybe_unused]] std::size_t number = 0;
    std::apply([&](F& f, auto&... arguments) { (attach_one<A>(f, number++, arguments), ...); }, *kept_);
    if (TaskData* const data = this->data()) data->order();
  }

 protected:
  std::byte* room() noexcept override {
    if constexpr (has_accesses)
      return room_.memory;
    else
      return nullptr;
  }
  void call() override {
    std::apply(
        [&](F& f, auto&... kept) {
          std::tuple<F&, typename TaskResultOf<F, A...>::template Opened<A>...> opened(f, kept...);
          std::apply([&](F&, auto&... arguments) { call_with(f, std::tuple_cat(TaskArgument<A>::give(arguments)...)); },
                     opened);
        },
        *kept_);
    // What is deferred reads memory that others may write once this has ended.
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
  static constexpr bool has_accesses = (std::is_same_v<typename KeptArgument<A>::type, KeptAccess> || ...);
  struct NoRoom {};
  [[no_unique_address]] std::conditional_t<has_accesses, AccessRoom, NoRoom> room_;
  std::optional<std::tuple<F, typename KeptArgument<A>::type...>> kept_;  // until it has run
};

}  // namespace tessera::detail
