// SPDX-License-Identifier: Apache-2.0
// The recorded events (trace_hooks.h) as a timeline: tasks with their times, and what each thread did. Internal.
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
  bool went_on = false;  ///< its device was still working when its function returned
  struct Before {
    std::uint64_t task;
    bool order_only;
  };
  std::vector<Before> after;
  std::int64_t worked = 0;        ///< its function's time without waits and copies; if went_on, its device's time
  std::int64_t device_begun = 0;  ///< if went_on: when the device had finished earlier work
  int thread = -1;                ///< index of the executing thread
};

struct Span {
  enum class What : std::uint8_t { task, wait, copy, launch };
  What what = What::task;
  int thread = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t self = 0;    ///< without nested spans
  bool open = false;        ///< had not ended
  std::uint64_t task = 0;   ///< the task's number; for a wait, that of the awaited task, or 0
  std::uint64_t bytes = 0;  ///< of a copy
  Device from, to;          ///< of a copy
  std::string text;         ///< a kernel's name
};

struct Timeline {
  std::vector<std::string> threads;
  std::unordered_map<std::uint64_t, TracedTask> tasks;
  std::vector<std::uint64_t> order;  ///< task numbers, in creation order
  std::vector<Span> spans;           ///< per thread in the order of their ends; they nest
  std::int64_t until = 0;
};
Timeline timeline_of(const RecordedEvents& recorded);

}  // namespace tessera::detail::tracing
