// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/printable.h"
#include "tessera/device/settings.h"
#include "tessera/task/task_node.h"
#include "tessera/task/trace_hooks.h"

namespace tessera::detail::watchdog {

namespace {

using tracing::now;
constexpr std::size_t most_lines = 16;  // maximum number of lines for each kind; further ones are only counted

struct Task {
  std::uint64_t number = 0;  // increases in creation order
  std::int64_t begun = 0;
  std::string thread;              // the executing thread
  bool function_returned = false;  // its work on the device continues
};
struct Wait {
  std::string thread;
  const executor::Node* by;
  executor::Node* target;
  const executor::Group* group;
  std::int64_t since;
};

std::string for_long(std::int64_t nanoseconds) { return fmt::format("{:.1f} s", double(nanoseconds) * 1e-9); }

struct Dog {
  std::mutex lock;  // while this is locked, no unfinished task is destroyed
  std::map<const TaskNode*, Task> tasks;
  std::vector<Wait> waits;
  std::int64_t last = 0;  // when a task last ended, or when the first one was created
  std::int64_t period = 0;
  std::uint64_t made = 0;

  void watch() {
    const std::chrono::nanoseconds look(std::clamp<std::int64_t>(period / 8, 1'000'000, 500'000'000));
    std::int64_t warned = 0;
    for (;;) {
      std::this_thread::sleep_for(look);
      std::string text;
      std::vector<executor::NodeRef> held;  // dropped after unlocking, because they may be the last references
      try {
        const std::lock_guard hold(lock);
        const std::int64_t quiet = now() - last;
        if (tasks.empty() || quiet < period || now() - warned < period) continue;
        text = report(quiet, held);
        warned = now();
      } catch (const std::exception&) {
        continue;  // out of memory for the message
      }
      logging::print(text);
    }
  }

  static std::string name_of(const executor::Node& node) { return printable_name(node.name()); }
  static std::string called(const executor::Node& node) {
    const TaskNode* const task = TaskNode::from(&node);
    return task == nullptr ? name_of(node) : fmt::format("{} ({})", name_of(node), to_string(task->device()));
  }
  static std::string what_for(const Wait& w) {
    return w.target != nullptr ? name_of(*w.target)
                               : fmt::format("the {} unfinished tasks of a region", w.group->in_flight());
  }

  std::string report(std::int64_t quiet, std::vector<executor::NodeRef>& held) const {
    std::vector<const std::pair<const TaskNode* const, Task>*> running, others;
    for (const auto& entry : tasks) (entry.second.begun != 0 ? running : others).push_back(&entry);
    std::ranges::sort(running, {}, [](const auto* e) { return e->second.begun; });
    std::ranges::sort(others, {}, [](const auto* e) { return e->second.number; });
    std::string text =
        fmt::format("warning: no task has ended for {}, and {} {} unfinished (TESSERA_WATCHDOG={:g})", for_long(quiet),
                    tasks.size(), tasks.size() == 1 ? "is" : "are", double(period) * 1e-9);
    const auto lines = [&](const auto& all, const char* more, auto&& line) {
      for (std::size_t i = 0; i < std::min(all.size(), most_lines); ++i) text += "\n  " + line(*all[i]);
      if (all.size() > most_lines) text += fmt::format("\n  {} more {}", all.size() - most_lines, more);
    };
    lines(running, "run", [&](const auto& entry) {
      const Task& t = entry.second;
      std::string s = fmt::format("{} {} for {}", called(*entry.first),
                                  t.function_returned ? "has had work on its device" : "has been running",
                                  for_long(now() - t.begun));
      if (!t.function_returned) s += " on " + t.thread;
      for (const Wait& w : waits)
        if (w.by == entry.first) s += fmt::format(", and is waiting for {}", what_for(w));
      return s;
    });
    lines(others, "have not begun", [&](const auto& entry) {
      std::string s = called(*entry.first) + " has not begun";
      // Successors have no references to the task here. Predecessors exist until this task runs.
      auto before = const_cast<TaskNode*>(entry.first)->predecessors();
      for (std::size_t i = 0; i < std::min<std::size_t>(before.size(), 4); ++i)
        s += fmt::format("{}{}", i == 0 ? ": it depends on " : ", ", name_of(*before[i]));
      if (before.size() > 4) s += fmt::format(" and {} others", before.size() - 4);
      if (before.empty()) s += ": it is waiting for a thread";
      std::ranges::move(before, std::back_inserter(held));
      return s;
    });
    std::vector<const Wait*> outside;
    for (const Wait& w : waits)
      if (w.by == nullptr) outside.push_back(&w);
    lines(outside, "threads are waiting", [&](const Wait& w) {
      return fmt::format("the {} has been waiting for {} for {}", w.thread, what_for(w), for_long(now() - w.since));
    });
    return text;
  }
};
constinit os::PerProcess<Dog> dog;

template <class F>
void with_task(const TaskNode& task, F&& f) noexcept {
  Dog& d = *dog;
  const std::lock_guard hold(d.lock);
  if (const auto at = d.tasks.find(&task); at != d.tasks.end()) f(d, at);
}

}  // namespace

bool start() {
  const auto period = static_cast<std::int64_t>(watchdog_seconds().value_or(0) * 1e9);
  if (period == 0) return false;
  Dog& d = *dog;
  {
    const std::lock_guard hold(d.lock);
    if (std::exchange(d.period, period) != 0) return true;
  }
  std::thread([&d] { d.watch(); }).detach();
  return true;
}

void made(const TaskNode& task) {
  Dog& d = *dog;
  const std::lock_guard hold(d.lock);
  if (d.tasks.empty()) d.last = now();
  d.tasks.try_emplace(&task).first->second.number = ++d.made;
}
void begins(const TaskNode& task) noexcept {
  with_task(task, [](Dog&, auto at) { at->second.begun = now(), at->second.thread = tracing::thread_name(); });
}
void function_returned(const TaskNode& task) noexcept {
  with_task(task, [](Dog&, auto at) { at->second.function_returned = true; });
}
void ends(const TaskNode& task) noexcept {
  with_task(task, [](Dog& d, auto at) {
    d.tasks.erase(at);
    d.last = now();
  });
}
void gone(const TaskNode& task) noexcept {
  with_task(task, [](Dog& d, auto at) { d.tasks.erase(at); });
}

void wait_begins(const executor::Node* by, executor::Node* target, const executor::Group* group) noexcept {
  Dog& d = *dog;
  try {
    const std::lock_guard hold(d.lock);
    d.waits.push_back({tracing::thread_name(), by, target, group, now()});
  } catch (const std::bad_alloc&) {}  // out of memory: the wait is not recorded
}
void wait_ends() noexcept {
  Dog& d = *dog;
  const std::lock_guard hold(d.lock);
  const auto mine = std::ranges::find(d.waits.rbegin(), d.waits.rend(), tracing::thread_name(), &Wait::thread);
  if (mine != d.waits.rend()) d.waits.erase(std::next(mine).base());
}

}  // namespace tessera::detail::watchdog
