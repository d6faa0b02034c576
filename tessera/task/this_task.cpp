// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/this_task.h"

#include "tessera/device/memory/storage.h"
#include "tessera/task/argument.h"

namespace tessera {

namespace this_task {
namespace {
const detail::TaskNode& task(const char* asked) {
  const detail::TaskNode* const node = detail::TaskNode::current();
  if (node == nullptr)
    fail<Error>({.operation = asked,
                 .wrong = "the calling thread is not running a task",
                 .remedy = "Call it in a task's function, or check this_task::exists() first"});
  return *node;
}
}  // namespace

bool exists() noexcept { return detail::TaskNode::current() != nullptr; }
Device device() { return task("this_task::device").device(); }
Queue& queue() { return current_queue(task("this_task::queue").device()); }
std::string name() { return task("this_task::name").name(); }
bool stop_requested() { return task("this_task::stop_requested").stop_requested(); }

}  // namespace this_task

Array detail::result_on_current_device(const Array& result) {
  const Device here = current_device();
  return result.device() == here ? result : result.to(here);
}

void detail::throw_no_task(const RankedTask* ranked) {
  if (ranked != nullptr)
    fail<ArgumentError>({.operation = "task",
                         .with = {{"rank of the task", std::to_string(ranked->rank)}},
                         .wrong = "the task runs on another rank",
                         .remedy = "Call wait() or fetch() on all ranks"});
  fail<ArgumentError>({.operation = "task",
                       .wrong = "the Task is empty: default-constructed or moved from",
                       .remedy = "Use the Task that spawn() returned"});
}

}  // namespace tessera
