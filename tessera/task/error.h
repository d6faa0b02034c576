// SPDX-License-Identifier: Apache-2.0
// What a task that has no result throws where its result is asked for.
#pragma once

#include <exception>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/executor/node.h"

namespace tessera {

/// A task failed, or one that it comes after. `what()` has the error's own text, the name of the task in which it
/// happened, and those of the tasks that had to be skipped up to the one waited for. Where all tasks of a region,
/// or of devices (`synchronize`), were waited for, it also lists the errors of the other tasks.
class TaskError : public Error {
 public:
  /// Made by tasks.
  TaskError(const std::string& text, std::vector<std::string> tasks, std::exception_ptr cause,
            std::vector<TaskError> others = {})
      : Error(text), tasks_(std::move(tasks)), cause_(std::move(cause)), others_(std::move(others)) {}
  /// From the one in which it happened to the one that was asked; of a long chain the first and the last.
  const std::vector<std::string>& tasks() const noexcept { return tasks_; }
  /// What the task itself threw; null for a cancellation.
  std::exception_ptr cause() const noexcept { return cause_; }
  /// Throws that.
  [[noreturn]] void rethrow_cause() const;
  /// The other errors, one for each task in which one happened, in the order in which they were seen; `what()` has the
  /// first eight. Empty where one task was waited for.
  const std::vector<TaskError>& others() const noexcept { return others_; }

 private:
  std::vector<std::string> tasks_;
  std::exception_ptr cause_;
  std::vector<TaskError> others_;
};
/// It was cancelled before it ran.
class TaskCancelled : public TaskError {
  using TaskError::TaskError;
};

namespace detail {
/// Throws what `failure` is, and marks it as reported: it is not printed when the program ends, and tasks made later
/// use what its task left.
[[noreturn, gnu::cold]] void throw_failure(const executor::Failure& failure);
/// Likewise for several, at least one: throws the first error with the others. Cancellations are thrown if there are no
/// errors.
[[noreturn, gnu::cold]] void throw_failures(std::span<const executor::FailureRef> failures);
/// "what() of the error", for a line.
std::string text_of(const std::exception_ptr& error);
}  // namespace detail
}  // namespace tessera
