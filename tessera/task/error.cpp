// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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
    return "something that is no std::exception";
  }
}

void throw_failure(const executor::Failure& failure) {
  failure.origin->told.store(true, std::memory_order_relaxed);
  std::vector<std::string> tasks = {failure.origin->name};
  tasks.insert(tasks.end(), failure.through.begin(), failure.through.end());
  std::string skipped;
  if (!failure.through.empty())
    skipped = fmt::format("; skipped because of it: {}{}",
                          failure.left_out != 0 ? fmt::format("{} others, then ", failure.left_out) : "",
                          fmt::join(failure.through, ", "));
  const std::string asked = "task " + failure.origin->name;
  if (failure.cancelled)
    throw TaskCancelled(error_text({.asked = asked, .wrong = "cancelled before it ran" + skipped}), std::move(tasks),
                        nullptr);
  throw TaskError(error_text({.asked = asked, .wrong = text_of(failure.origin->error) + skipped}), std::move(tasks),
                  failure.origin->error);
}

}  // namespace detail
}  // namespace tessera
