// SPDX-License-Identifier: Apache-2.0
// Options of a task, and options that are inherited by all tasks created in a scope.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <string>

#include "tessera/task/scope.h"
#include "tessera/task/stop_token.h"

namespace tessera {

class PlacementPolicy;  // policy.h

/// Options of a task: `spawn({.scope = cuda(all), .priority = 2}, f, x)`, `with({.scope = gpus})`. Options that are not
/// set are inherited from the thread that creates the task.
struct TaskOptions {
  /// Devices on which the task may run; default: the device with most of its data, or cpu:0.
  std::optional<Scope> scope = {};
  /// From -4 to 3 (other values are clamped); default: 0; tasks with a higher priority run first.
  std::optional<int> priority = {};
  /// a std::stop_token that cancels the task if it has not begun; a running task can check `this_task::stop_requested`
  std::optional<StopToken> stop = {};
  std::shared_ptr<PlacementPolicy> policy = {};  ///< chooses one of the devices in the scope (policy.h)
  std::string name = {};  ///< name for messages; default: the kernel's name, or "file:line"; not inherited
  std::source_location where = std::source_location::current();  ///< Where the task was created, for messages.
};

namespace detail {

/// The options that tasks created on a thread inherit; immutable.
struct InheritedOptions : std::enable_shared_from_this<InheritedOptions> {
  std::optional<Scope> scope;
  int priority = 0;
  std::optional<StopToken> stop;
  std::shared_ptr<PlacementPolicy> policy;
};
/// Null if no options are set on this thread.
extern constinit thread_local const InheritedOptions* inherited_options;
/// Returns the options that are inherited on this thread, overridden by the options that `more` sets.
std::shared_ptr<const InheritedOptions> options_with(const TaskOptions& more);
inline std::shared_ptr<const InheritedOptions> shared_options() {
  return inherited_options == nullptr ? nullptr : inherited_options->shared_from_this();
}

}  // namespace detail

/// Sets options for all tasks that this thread creates while the object exists, and for tasks created by these tasks.
/// Created by `with`. Must be destroyed on the thread that created it, and before With objects that were created
/// earlier.
class [[nodiscard]] With {
 public:
  /// Sets the options until the object is destroyed.
  explicit With(const TaskOptions& options);
  ~With();
  With(const With&) = delete;
  With& operator=(const With&) = delete;

 private:
  const std::shared_ptr<const detail::InheritedOptions> mine_;
  const detail::InheritedOptions* const before_;
};
/// Sets options for the current scope: `auto in_force = with({.scope = cuda(all)});`.
[[nodiscard]] inline With with(const TaskOptions& options) { return With(options); }

/// Returns where a task without arrays may run if this thread creates it. This is the scope of the innermost `with`,
/// otherwise the scope of the running task, otherwise cpu:0.
Scope current_scope();

}  // namespace tessera
