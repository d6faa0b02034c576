// SPDX-License-Identifier: Apache-2.0
// What a task that has no result throws where its result is asked for.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/executor/node.h"

namespace tessera {

/// A task failed, or one that it comes after. `what()` has the error's own text, the name of the task in which it
/// happened, and those of the tasks that had to be skipped up to the one that was asked.
class TaskError : public Error {
 public:
  TaskError(const std::string& text, std::vector<std::string> tasks, std::exception_ptr cause)
      : Error(text), tasks_(std::move(tasks)), cause_(std::move(cause)) {}
  /// From the one in which it happened to the one that was asked; of a long chain the first and the last.
  const std::vector<std::string>& tasks() const noexcept { return tasks_; }
  /// What the task itself threw; null for a cancellation.
  std::exception_ptr cause() const noexcept { return cause_; }
  /// Throws that.
  [[noreturn]] void rethrow_cause() const;

 private:
  std::vector<std::string> tasks_;
  std::exception_ptr cause_;
};
/// It was cancelled before it ran.
class TaskCancelled : public TaskError {
  using TaskError::TaskError;
};

namespace detail {
/// Throws what `failure` is; nobody is told of it again when the program ends.
[[noreturn, gnu::cold]] void throw_failure(const executor::Failure& failure);
/// "what() of the error", for a line.
std::string text_of(const std::exception_ptr& error);
}  // namespace detail
}  // namespace tessera
