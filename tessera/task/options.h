// SPDX-License-Identifier: Apache-2.0
// What may be said of a task when it is made, and of all that are made in some part of a program.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <stop_token>
#include <string>

#include "tessera/task/scope.h"

namespace tessera {

class PlacementPolicy;  // policy.h

/// `spawn({.scope = cuda(all), .priority = 2}, f, x)`, `with({.scope = gpus})`. What is not said is as it is in force
/// where the task is made.
struct TaskOptions {
  std::optional<Scope> scope;   ///< where it may run; by default where most of its data is, else cpu:0
  std::optional<int> priority;  ///< -4 to 3 (others count as these); by default 0. Higher ones go first
  std::optional<std::stop_token>
      stop;  ///< cancels it: before it has begun it does not run; after that, see `this_task`
  std::shared_ptr<PlacementPolicy> policy;  ///< which of the devices of its scope it gets (policy.h)
  std::string name;                         ///< for people; by default the kernel's, or "file:line". Not inherited
  std::source_location where = std::source_location::current();  ///< Where the task was made, for messages.
};

namespace detail {

/// The options in force on a thread; never changed.
struct InheritedOptions : std::enable_shared_from_this<InheritedOptions> {
  std::optional<Scope> scope;
  int priority = 0;
  std::optional<std::stop_token> stop;
  std::shared_ptr<PlacementPolicy> policy;
};
/// Null: nothing was said.
extern constinit thread_local const InheritedOptions* inherited_options;
/// Those in force on this thread, with what `more` says.
std::shared_ptr<const InheritedOptions> options_with(const TaskOptions& more);
inline std::shared_ptr<const InheritedOptions> shared_options() {
  return inherited_options == nullptr ? nullptr : inherited_options->shared_from_this();
}

}  // namespace detail

/// Options for all tasks that this thread makes while it lives, and in turn for those that these make. Made by `with`.
/// Ends on the thread that made it, before those around it.
class [[nodiscard]] With {
 public:
  /// Applies to the tasks that this thread makes until the object is destroyed.
  explicit With(const TaskOptions& options);
  ~With();
  With(const With&) = delete;
  With& operator=(const With&) = delete;

 private:
  const std::shared_ptr<const detail::InheritedOptions> mine_;
  const detail::InheritedOptions* const before_;
};
/// `auto in_force = with({.scope = cuda(all)});`
[[nodiscard]] inline With with(const TaskOptions& options) { return With(options); }

/// Where a task without arrays that this thread makes may run: the innermost `with`'s scope, else that of the task that
/// it runs, else cpu:0.
Scope current_scope();

}  // namespace tessera
