// SPDX-License-Identifier: Apache-2.0
// What was recorded (recording.h), put together: tasks with their times, and what each thread did. Internal.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/task/trace_hooks.h"

namespace tessera::detail::tracing {

struct TracedTask {
  std::string name;
  Device device;
  std::uint64_t group = 0;
  std::int64_t made = 0, begun = 0, returned = 0, ended = 0;  ///< 0: not yet
  State state = State::not_begun;
  bool went_on = false;  ///< its device had work left when its function returned
  struct Before {
    std::uint64_t task;
    bool order_only;
  };
  std::vector<Before> after;
  std::int64_t worked = 0;        ///< of its function: without waits and copies. Of one that went on: of its device
  std::int64_t device_begun = 0;  ///< of one that went on: when its device had done what came before
  int thread = -1;                ///< that ran it
};

struct Span {
  enum class What : std::uint8_t { task, wait, copy, launch };
  What what = What::task;
  int thread = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t self = 0;    ///< without what stands in it
  bool open = false;        ///< it had not ended
  std::uint64_t task = 0;   ///< its number; of a wait, that of the task that is waited for, or 0
  std::uint64_t bytes = 0;  ///< of a copy
  Device from, to;          ///< of a copy
  std::string text;         ///< a kernel's name
};

struct Timeline {
  std::vector<std::string> threads;
  std::unordered_map<std::uint64_t, TracedTask> tasks;
  std::vector<std::uint64_t> order;  ///< their numbers, as they were made
  std::vector<Span> spans;           ///< of a thread in the order of their ends; they nest
  std::int64_t until = 0;
};
Timeline timeline_of(const RecordedEvents& recorded);

}  // namespace tessera::detail::tracing
