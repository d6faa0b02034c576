// SPDX-License-Identifier: Apache-2.0
// Hooks for tracing and the watchdog, and the event logs that they write. Each thread writes to its own log without
// locks. If there is no observer, a hook costs two reads and a branch. Internal.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/os/fork.h"
#include "tessera/device/device.h"
#include "tessera/executor/executor.h"

namespace tessera {

struct TaskCopies;

namespace detail {

class TaskNode;

namespace tracing {

using Clock = std::chrono::steady_clock;
inline std::int64_t now() { return Clock::now().time_since_epoch().count(); }  // nanoseconds
static_assert(Clock::period::num == 1 && Clock::period::den == 1'000'000'000);

// The active observers, as a bit mask. The higher bits contain the process's fork generation, so that a child process
// reads the environment again.
constexpr std::uint64_t recorded = 1;  ///< events are recorded
constexpr std::uint64_t watched = 2;   ///< the watchdog tracks unfinished tasks
constexpr unsigned generation_shift = 2;
extern constinit std::atomic<std::uint64_t> observer_bits;
/// Returns true if there is an observer, or if the environment has not been read yet.
inline bool maybe_enabled() noexcept {
  return observer_bits.load(std::memory_order_relaxed) != std::uint64_t{os::fork_generation()} << generation_shift;
}
/// Returns the observer bits, or 0 if the environment has not been read.
std::uint64_t bits() noexcept;
void set(std::uint64_t bit, bool on) noexcept;

// --- Hooks

/// Called on the creating thread when the name and device are known. Returns the task's number, or 0 if there are no
/// observers. Throws ArgumentError if an environment variable is invalid.
std::uint64_t made(const TaskNode& task);
/// Called when `task` depends on `predecessor`.
void comes_after(const TaskNode& task, const executor::Node& predecessor, executor::Node::Dependency kind) noexcept;
void begins(const TaskNode& task) noexcept;
/// Called when the function has returned. Its work on the device may continue.
void function_returned(const TaskNode& task) noexcept;
void ends(const TaskNode& task) noexcept;
/// Called if the task is a message to or from a rank. It begins when its tile may be read or written, and ends when the
/// data have been transferred.
void is_message(const TaskNode& task, bool sends, int peer, std::uint64_t bytes) noexcept;
/// Called when the task is destroyed. The task may not have been submitted.
void gone(const TaskNode& task) noexcept;

/// Records a copy between devices. The copy takes place while the object exists.
class CopySpan {
 public:
  CopySpan(Device from, Device to, std::uint64_t bytes) noexcept : to_(to), seen_(maybe_enabled()) {
    if (seen_) [[unlikely]]
      seen_ = begin(from, bytes);
  }
  ~CopySpan() {
    if (seen_) [[unlikely]]
      end();
  }
  CopySpan(const CopySpan&) = delete;
  CopySpan& operator=(const CopySpan&) = delete;

 private:
  bool begin(Device from, std::uint64_t bytes) noexcept;
  void end() noexcept;
  const Device to_;
  bool seen_;
};

// --- Event logs

enum class Kind : std::uint8_t {
  made,               // text: name; other: group
  after,              // other: number of the predecessor
  begins,             //
  function_returned,  //
  ends,               // state: how the task ended
  wait_begins,        // other: number of the task that is waited for, if any
  wait_ends,          //
  copy_begins,        // device: source; other: bytes
  copy_ends,          // device: destination
  launch_begins,      // text: name of the kernel
  launch_ends,        //
  sends,
  receives  // the task is a message; other: bytes
};
enum class State : std::uint8_t { not_begun, running, ended, failed, skipped, cancelled };
const char* to_string(State state);
struct Event {
  Kind kind;
  State state = State::not_begun;
  bool order_only = false;  ///< for `after`: the result is not needed
  std::uint16_t text = 0;   ///< number of bytes of text after the event; set by the log
  std::uint16_t peer = 0;   ///< for messages: the other rank
  Device device;
  std::uint64_t task = 0, other = 0;
  std::int64_t at = 0;
};

/// The events of one thread in order. Only this thread writes it. Other threads may read it at the same time.
class Log {
 public:
  explicit Log(std::string thread);
  ~Log();
  const std::string thread;  ///< name of the thread, such as "worker 1"
  /// Returns false if the memory limit is reached. `room` is the number of bytes that remain for all logs.
  bool add(Event event, std::string_view text, std::atomic<std::int64_t>& room) noexcept;
  template <class F>
  void for_each(F&& f) const {  // f(event, text)
    for (const Chunk* c = first_.load(std::memory_order_acquire); c != nullptr;
         c = c->next.load(std::memory_order_acquire)) {
      const std::size_t used = c->used.load(std::memory_order_acquire);
      for (std::size_t at = 0; at < used;) {
        Event event;
        std::memcpy(&event, c->bytes + at, sizeof event);
        f(event, std::string_view(c->bytes + at + sizeof event, event.text));
        at += sizeof event + event.text;
      }
    }
  }

 private:
  struct Chunk {
    std::atomic<Chunk*> next = nullptr;
    std::atomic<std::size_t> used = 0;
    char bytes[(std::size_t{64} << 10) - 64];
  };
  std::atomic<Chunk*> first_ = nullptr;
  Chunk* last_ = nullptr;
};

/// The events since the oldest active recording began. recorded_events() throws ArgumentError if there is no recording.
/// `asked` is the name of the operation for the message.
struct RecordedEvents {
  std::vector<std::shared_ptr<const Log>> logs;
  std::int64_t since = 0;
  std::uint64_t dropped = 0;  ///< number of events that were dropped because the memory limit was reached
  std::shared_ptr<const TaskCopies> copies;  ///< counters when the recording began
};
RecordedEvents recorded_events(const char* asked);
/// Events are recorded while there are more calls of start_recording() than of stop_recording().
void start_recording();
void stop_recording() noexcept;
/// Reads the environment variables once per process. Throws ArgumentError if they are invalid, including on later
/// calls.
void read_environment();
/// The rank of this process among several, or -1. It becomes part of the names of files that TESSERA_TASK_TRACE names.
extern constinit std::atomic<int> rank_of_process;
/// Starts a trace that is written when the program ends (trace.cpp). Called by read_environment(). Throws ArgumentError
/// if `file` cannot be written.
void trace_until_exit(const std::string& file);
/// Writes the files of all traces, and prints warnings for failures. Called at the end of the program, after all tasks
/// have ended.
void end_traces() noexcept;
/// Registers `end_traces`, so that it is called at the end of the program (device_tasks.cpp).
void at_exit();

/// Returns the calling thread's name for messages: "main thread", "worker 1", "thread 2".
const std::string& thread_name();

}  // namespace tracing
}  // namespace detail
}  // namespace tessera
