// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "tessera/base/printable.h"

namespace tessera {

void TaskError::rethrow_cause() const {
  if (cause_) std::rethrow_exception(cause_);
  throw *this;
}

namespace detail {

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "cancelled";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

namespace {

std::vector<std::string> tasks_of(const executor::Failure& failure) {
  std::vector<std::string> tasks = {failure.origin->name};
  tasks.insert(tasks.end(), failure.through.begin(), failure.through.end());
  return tasks;
}
std::string what_of(const executor::Failure& failure) {
  std::string skipped;
  if (!failure.through.empty())
    skipped = fmt::format("; skipped because of it: {}{}",
                          failure.left_out != 0 ? fmt::format("{} others, then ", failure.left_out) : "",
                          fmt::join(failure.through, ", "));
  return error_text(
      {.operation = "task " + failure.origin->name,
       .wrong = (failure.cancelled ? "cancelled before it ran" : text_of(failure.origin->error)) + skipped});
}
[[noreturn]] void throw_with(const executor::Failure& failure, std::vector<TaskError> others) {
  constexpr std::size_t most_shown = 8;
  std::string what = what_of(failure);
  if (!others.empty())
    what += fmt::format("\n{} {}:", count_noun(others.size(), "other task"),
                        failure.cancelled ? "did not run either" : "also failed");
  for (std::size_t i = 0; i < std::min(others.size(), most_shown); ++i) what += fmt::format("\n  {}", others[i].what());
  if (others.size() > most_shown) what += fmt::format("\n  and {} more", others.size() - most_shown);
  if (failure.cancelled) throw TaskCancelled(what, tasks_of(failure), nullptr, std::move(others));
  throw TaskError(what, tasks_of(failure), failure.origin->error, std::move(others));
}

}  // namespace

void throw_failure(const executor::Failure& failure) {
  failure.origin->observed.store(true, std::memory_order_relaxed);
  throw_with(failure, {});
}

void throw_failures(std::span<const executor::FailureRef> failures) {
  for (const executor::FailureRef& f : failures) f->origin->observed.store(true, std::memory_order_relaxed);
  auto first = std::ranges::find_if(failures, [](const executor::FailureRef& f) { return !f->cancelled; });
  if (first == failures.end()) first = failures.begin();
  std::vector<TaskError> others;
  for (const executor::FailureRef& f : failures)
    if (f != *first && f->cancelled == (*first)->cancelled)
      others.emplace_back(what_of(*f), tasks_of(*f), f->origin->error);
  throw_with(**first, std::move(others));
}

}  // namespace detail
}  // namespace tessera
