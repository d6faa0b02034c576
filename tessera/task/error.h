// SPDX-License-Identifier: Apache-2.0
// The exceptions that waiting for a failed task throws.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/executor/node.h"

namespace tessera {

/// A task failed, or a task that it depends on. `what()` contains the original error's text, the name of the task that
/// threw it, and the names of the skipped tasks up to the one waited for. If all tasks of a region or of devices
/// (`synchronize`) were waited for, it also lists the errors of the other tasks.
class TaskError : public Error {
 public:
  /// Created by the library.
  TaskError(const std::string& text, std::vector<std::string> tasks, std::exception_ptr cause,
            std::vector<TaskError> others = {})
      : Error(text), tasks_(std::move(tasks)), cause_(std::move(cause)), others_(std::move(others)) {}
  /// Names from the task that threw to the task that was waited for; only the first and last ones of a long chain.
  const std::vector<std::string>& tasks() const noexcept { return tasks_; }
  /// The exception thrown by the task; null for a cancellation.
  std::exception_ptr cause() const noexcept { return cause_; }
  /// Rethrows cause().
  [[noreturn]] void rethrow_cause() const;
  /// The other errors, one per task that failed on its own, in the order in which they occurred. `what()` contains the
  /// first eight. Empty if a single task was waited for.
  const std::vector<TaskError>& others() const noexcept { return others_; }

 private:
  std::vector<std::string> tasks_;
  std::exception_ptr cause_;
  std::vector<TaskError> others_;
};
/// The task was cancelled before it ran.
class TaskCancelled : public TaskError {
  using TaskError::TaskError;
};

namespace detail {
/// Throws the failure and marks it as observed: it is not printed at exit, and later tasks use whatever the failed task
/// left in its arrays.
[[noreturn, gnu::cold]] void throw_failure(const executor::Failure& failure);
/// The same for one or more failures: throws the first error with the others attached. Cancellations are thrown only if
/// there are no errors.
[[noreturn, gnu::cold]] void throw_failures(std::span<const executor::FailureRef> failures);
/// "what() of the error", on one line.
std::string text_of(const std::exception_ptr& error);
}  // namespace detail
}  // namespace tessera
