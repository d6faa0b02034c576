// SPDX-License-Identifier: Apache-2.0
// Converts recorded events (trace_hooks.h) to a timeline with the times of tasks and the activities of each thread.
// Internal.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/task/trace_hooks.h"

namespace tessera::detail::tracing {

struct TracedTask {
  std::string name;
  Device device;
  std::uint64_t group = 0;
  std::int64_t made = 0, begun = 0, returned = 0, ended = 0;  ///< 0 if it has not happened yet
  State state = State::not_begun;
  bool went_on = false;  ///< its device was still working when its function returned
  struct Before {
    std::uint64_t task;
    bool order_only;
  };
  std::vector<Before> after;
  /// Time of its function, excluding waits and copies. If went_on is true, time of its work on the device.
  std::int64_t worked = 0;
  std::int64_t device_begun = 0;  ///< if went_on is true: the time when the device had finished earlier work
  int thread = -1;                ///< index of the executing thread
  /// The task is a message to or from a rank.
  struct Message {
    bool sends;
    int peer;
    std::uint64_t bytes;
  };
  std::optional<Message> message;
};

struct Span {
  enum class What : std::uint8_t { task, wait, copy, launch };
  What what = What::task;
  int thread = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t self = 0;    ///< duration without nested spans
  bool open = false;        ///< had not ended when the events were read
  std::uint64_t task = 0;   ///< number of the task; for a wait, number of the task that is waited for, or 0
  std::uint64_t bytes = 0;  ///< size of a copy
  Device from, to;          ///< devices of a copy
  std::string text;         ///< name of a kernel
};

struct Timeline {
  std::vector<std::string> threads;
  std::unordered_map<std::uint64_t, TracedTask> tasks;
  std::vector<std::uint64_t> order;  ///< task numbers in creation order
  std::vector<Span> spans;           ///< for each thread, in the order of their ends; spans are nested
  std::int64_t until = 0;
};
Timeline timeline_of(const RecordedEvents& recorded);

}  // namespace tessera::detail::tracing
