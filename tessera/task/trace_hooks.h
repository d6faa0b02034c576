// SPDX-License-Identifier: Apache-2.0
// What tasks do, as it is seen while somebody looks: hooks, and what they write down. Each thread writes into memory of
// its own, without locks. While nobody looks a hook is a read of two numbers and a branch. Internal.
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

// Who looks: these bits, below the number of the process among its forks: a child asks the environment again.
constexpr std::uint64_t recorded = 1;  ///< everything is written down
constexpr std::uint64_t watched = 2;   ///< the watchdog knows what is under way
constexpr unsigned generation_shift = 2;
extern constinit std::atomic<std::uint64_t> observer_bits;
/// Somebody looks, or the environment has not been asked yet.
inline bool maybe_enabled() noexcept {
  return observer_bits.load(std::memory_order_relaxed) != std::uint64_t{os::fork_generation()} << generation_shift;
}
/// The bits; none if the environment has not been asked.
std::uint64_t bits() noexcept;
void set(std::uint64_t bit, bool on) noexcept;

// --- Hooks

/// On the thread that makes it, when its name and device are known. Its number; 0: nobody looks. ArgumentError for a
/// variable of the environment.
std::uint64_t made(const TaskNode& task);
/// It comes after that one.
void comes_after(const TaskNode& task, const executor::Node& predecessor, executor::Node::Dependency kind) noexcept;
void begins(const TaskNode& task) noexcept;
/// Its function has returned; the work that it gave its device goes on.
void function_returned(const TaskNode& task) noexcept;
void ends(const TaskNode& task) noexcept;
/// It is destroyed, and may not have been submitted.
void gone(const TaskNode& task) noexcept;

/// Bytes go from one device to another while this lives.
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

// --- What is written down

enum class Kind : std::uint8_t {
  made,               // text: its name; other: its group
  after,              // other: the predecessor's number
  begins,             //
  function_returned,  //
  ends,               // how
  wait_begins,        // other: the task's number, if it is one that is waited for
  wait_ends,          //
  copy_begins,        // device: from; other: bytes
  copy_ends,          // device: to
  launch_begins,      // text: the kernel's name
  launch_ends         //
};
enum class State : std::uint8_t { not_begun, running, ended, failed, skipped, cancelled };
const char* to_string(State state);
struct Event {
  Kind kind;
  State state = State::not_begun;
  bool order_only = false;  ///< of `after`: its result is not needed
  std::uint16_t text = 0;   ///< bytes that follow; set by the log
  Device device;
  std::uint64_t task = 0, other = 0;
  std::int64_t at = 0;
};

/// The events of one thread in their order. Written by it, read by anybody meanwhile.
class Log {
 public:
  explicit Log(std::string thread);
  ~Log();
  const std::string thread;  ///< "worker 1"
  /// False if there is no more room: `room` is what all may take.
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

/// Since the first of those began who record now. ArgumentError if nobody does: `asked` is what would be told.
struct RecordedEvents {
  std::vector<std::shared_ptr<const Log>> logs;
  std::int64_t since = 0;
  std::uint64_t dropped = 0;                 ///< events for which there was no room
  std::shared_ptr<const TaskCopies> copies;  ///< when it began
};
RecordedEvents recorded_events(const char* asked);
/// From the first to the last `stop_recording` everything is written down.
void start_recording();
void stop_recording() noexcept;
/// What the environment asks for, asked once in each process. ArgumentError, each time, if that cannot be had.
void read_environment();
/// A trace that is written when the program ends (trace.cpp); while the environment is asked. ArgumentError if `file`
/// cannot be written.
void trace_until_exit(const std::string& file);
/// Writes the files of all traces; warns of what fails. By the end of the program, after its tasks.
void end_traces() noexcept;
/// Has `end_traces` called then (system.cpp).
void at_exit();

/// The calling thread, for people: "main thread", "worker 1", "thread 2".
const std::string& thread_name();

}  // namespace tracing
}  // namespace detail
}  // namespace tessera
