// SPDX-License-Identifier: Apache-2.0
// Options of a task, and options inherited by all tasks created in a scope.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <string>

#include "tessera/task/scope.h"
#include "tessera/task/stop_token.h"

namespace tessera {

class PlacementPolicy;  // policy.h

/// `spawn({.scope = cuda(all), .priority = 2}, f, x)`, `with({.scope = gpus})`. Unset options are inherited from the
/// thread that creates the task.
struct TaskOptions {
  std::optional<Scope> scope = {};   ///< where it may run; by default where most of its data is, else cpu:0
  std::optional<int> priority = {};  ///< -4 to 3 (clamped), default 0; higher priorities run first
  /// a std::stop_token that cancels it: a task that has not begun does not run; a running one can check `this_task`
  std::optional<StopToken> stop = {};
  std::shared_ptr<PlacementPolicy> policy = {};  ///< chooses among the devices of the scope (policy.h)
  std::string name = {};  ///< for messages; by default the kernel's name, or "file:line"; not inherited
  std::source_location where = std::source_location::current();  ///< Where the task was created, for messages.
};

namespace detail {

/// The options inherited on a thread; immutable.
struct InheritedOptions : std::enable_shared_from_this<InheritedOptions> {
  std::optional<Scope> scope;
  int priority = 0;
  std::optional<StopToken> stop;
  std::shared_ptr<PlacementPolicy> policy;
};
/// Null if no options are set.
extern constinit thread_local const InheritedOptions* inherited_options;
/// The options inherited on this thread, overridden by `more`.
std::shared_ptr<const InheritedOptions> options_with(const TaskOptions& more);
inline std::shared_ptr<const InheritedOptions> shared_options() {
  return inherited_options == nullptr ? nullptr : inherited_options->shared_from_this();
}

}  // namespace detail

/// Options for all tasks that this thread creates during the object's lifetime, and for the tasks that those create.
/// Created by `with`. Must be destroyed on the thread that created it, before enclosing ones.
class [[nodiscard]] With {
 public:
  /// Applies to the tasks that this thread creates until the object is destroyed.
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

/// Where a task without arrays may run if this thread creates it: the scope of the innermost `with`, else of the
/// running task, else cpu:0.
Scope current_scope();

}  // namespace tessera
