// SPDX-License-Identifier: Apache-2.0
// Exceptions that are thrown when a thread waits for a failed task.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/executor/node.h"

namespace tessera {

/// Thrown if a task failed, or if a task that it depends on failed. `what()` contains the text of the original error,
/// the name of the task that threw it, and the names of the skipped tasks between that task and the task that was
/// waited for. If the thread waited for all tasks of a region or of devices (`synchronize`), `what()` also lists the
/// errors of other tasks.
class TaskError : public Error {
 public:
  /// Created by the library.
  TaskError(const std::string& text, std::vector<std::string> tasks, std::exception_ptr cause,
            std::vector<TaskError> others = {})
      : Error(text), tasks_(std::move(tasks)), cause_(std::move(cause)), others_(std::move(others)) {}
  /// Names of the tasks from the one that threw to the one that was waited for. A long chain contains only the first
  /// and last names.
  const std::vector<std::string>& tasks() const noexcept { return tasks_; }
  /// The exception that the task threw, or null if the task was cancelled.
  std::exception_ptr cause() const noexcept { return cause_; }
  /// Rethrows cause().
  [[noreturn]] void rethrow_cause() const;
  /// The other errors: one for each task that failed independently, in the order in which they occurred. `what()`
  /// contains the first eight. Empty if the thread waited for a single task.
  const std::vector<TaskError>& others() const noexcept { return others_; }

 private:
  std::vector<std::string> tasks_;
  std::exception_ptr cause_;
  std::vector<TaskError> others_;
};
/// Thrown if the task was cancelled before it ran.
class TaskCancelled : public TaskError {
  using TaskError::TaskError;
};

namespace detail {
/// Throws the failure and marks it as observed. An observed failure is not printed at exit, and later tasks can use the
/// arrays that the failed task has written.
[[noreturn, gnu::cold]] void throw_failure(const executor::Failure& failure);
/// Like throw_failure, for one or more failures. Throws the first error and attaches the others. Throws a cancellation
/// only if there are no errors.
[[noreturn, gnu::cold]] void throw_failures(std::span<const executor::FailureRef> failures);
/// Returns `what()` of the error on one line.
std::string text_of(const std::exception_ptr& error);
}  // namespace detail
}  // namespace tessera
