// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/trace_hooks.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/os/per_thread.h"
#include "tessera/device/launch/launch_tracer.h"
#include "tessera/task/task_node.h"
#include "tessera/task/trace.h"
#include "tessera/task/watchdog.h"

namespace tessera::detail::tracing {

constinit std::atomic<std::uint64_t> observer_bits = ~std::uint64_t{0};
constinit std::atomic<int> rank_of_process = -1;

namespace {

constexpr std::int64_t most_bytes = std::int64_t{1} << 30;
constexpr std::size_t longest_text = 1024;

struct Recording {
  // Session numbers continue in child processes, so that logs of the parent's sessions are not used again.
  explicit Recording(const Recording* parent) : last_session(parent == nullptr ? 0 : parent->last_session.load()) {}
  std::mutex lock;
  std::vector<std::shared_ptr<Log>> logs;  // guarded by lock, like the next three members
  unsigned recorders = 0;
  std::int64_t since = 0;
  std::shared_ptr<const TaskCopies> copies;
  std::atomic<std::uint64_t> last_session, session = 0;  // current session; 0 if there is no recording
  std::atomic<std::uint64_t> last_task = 0;
  std::atomic<std::int64_t> room = most_bytes;
  std::atomic<std::uint64_t> dropped = 0;
};
constinit os::PerProcess<Recording> process_recording;

/// State of one thread.
struct Mine {
  std::uint64_t session = 0;
  std::shared_ptr<Log> log;
};

void add(const Event& event, std::string_view text = {}) noexcept {
  Recording& r = *process_recording;
  const std::uint64_t session = r.session.load(std::memory_order_acquire);
  if (session == 0) return;
  try {
    Mine& mine = os::PerThread<Mine, Mine>::get();
    if (mine.session != session) [[unlikely]] {
      auto fresh = std::make_shared<Log>(thread_name());
      const std::lock_guard hold(r.lock);
      if (r.session.load(std::memory_order_relaxed) != session) return;
      r.logs.push_back(fresh);
      mine.log = std::move(fresh), mine.session = session;
    }
    if (mine.log->add(event, text, r.room)) return;
  } catch (const std::bad_alloc&) {
  } catch (const std::system_error&) {}
  r.dropped.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t number_of(const executor::Node* node) noexcept {
  const TaskNode* const task = TaskNode::from(node);
  return task == nullptr ? 0 : task->trace_id();
}

/// Returns the task's name, which is valid until the thread's next call. Names of source locations are cached.
std::string_view name_of(const TaskNode& task) {
  if (!task.explicit_name().empty()) return task.explicit_name();
  struct Places {
    struct Place {
      const char* file = nullptr;
      std::uint_least32_t line = 0;
      std::string name;
    };
    std::array<Place, 64> all;
  };
  const char* const file = task.where().file_name();
  const std::uint_least32_t line = task.where().line();
  auto& places = os::PerThread<Places, Places>::get();
  auto& place = places.all[(line ^ reinterpret_cast<std::uintptr_t>(file) >> 4) % places.all.size()];
  if (place.file != file || place.line != line) place = {file, line, name_of_location(task.where())};
  return place.name;
}

/// Receives wait events from the executor and launch events from the device layer.
class TraceObserver final : public executor::WaitTracer, public LaunchTracer {
 public:
  void wait_begins(const executor::Node* by, executor::Node* target, const executor::Group* group) noexcept override {
    const std::uint64_t who = bits();
    if ((who & recorded) != 0)
      add({.kind = Kind::wait_begins, .task = number_of(by), .other = number_of(target), .at = now()});
    if ((who & watched) != 0) watchdog::wait_begins(by, target, group);
  }
  void wait_ends() noexcept override {
    const std::uint64_t who = bits();
    if ((who & recorded) != 0) add({.kind = Kind::wait_ends, .at = now()});
    if ((who & watched) != 0) watchdog::wait_ends();
  }
  void launch_begins(std::string_view kernel, Device device) noexcept override {
    if ((bits() & recorded) != 0) add({.kind = Kind::launch_begins, .device = device, .at = now()}, kernel);
  }
  void launch_ends() noexcept override {
    if ((bits() & recorded) != 0) add({.kind = Kind::launch_ends, .at = now()});
  }
};
constinit TraceObserver trace_observer;

// Set in this process or its parent, because a child must not overwrite the parent's file.
std::atomic<bool> has_the_file = false;

}  // namespace

void read_environment() {
  const auto asked = [] { return observer_bits.load() >> generation_shift == os::fork_generation(); };
  if (asked()) return;
  static constinit os::PerProcess<std::mutex> one_asks;
  const std::lock_guard only(*one_asks);
  if (asked()) return;
  // Observers are enabled only when all variables are valid. Otherwise each new task reports the error.
  const bool watch = watchdog::start();
  if (const auto file = config::text("TESSERA_TASK_TRACE"); file && !has_the_file) {
    trace_until_exit(*file);
    has_the_file = true;
  }
  set(watch ? watched : 0, true);
}

std::uint64_t bits() noexcept {
  const std::uint64_t all = observer_bits.load(std::memory_order_relaxed);
  return all >> generation_shift == os::fork_generation() ? all & (recorded | watched) : 0;
}

void set(std::uint64_t bit, bool on) noexcept {
  static constinit os::PerProcess<std::mutex> one_sets;
  const std::lock_guard only(*one_sets);
  const std::uint64_t all = on ? bits() | bit : bits() & ~bit;
  observer_bits.store(std::uint64_t{os::fork_generation()} << generation_shift | all);
  LaunchTracer::instance.store((all & recorded) != 0 ? &trace_observer : nullptr, std::memory_order_release);
  executor::WaitTracer::instance.store(all != 0 ? &trace_observer : nullptr, std::memory_order_release);
}

// --- Hooks

std::uint64_t made(const TaskNode& task) {
  read_environment();
  const std::uint64_t who = bits();
  if (who == 0) return 0;
  const std::uint64_t number = process_recording->last_task.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((who & recorded) != 0)
    add({.kind = Kind::made,
         .device = task.device(),
         .task = number,
         .other = reinterpret_cast<std::uintptr_t>(&task.group()),
         .at = now()},
        name_of(task));
  if ((who & watched) != 0) watchdog::made(task);
  return number;
}

void comes_after(const TaskNode& task, const executor::Node& predecessor, executor::Node::Dependency kind) noexcept {
  if ((bits() & recorded) == 0) return;
  const std::uint64_t before = number_of(&predecessor);
  if (before != 0)
    add({.kind = Kind::after,
         .order_only = kind == executor::Node::Dependency::order,
         .task = task.trace_id(),
         .other = before});
}

void begins(const TaskNode& task) noexcept {
  const std::uint64_t who = bits();
  if ((who & recorded) != 0) add({.kind = Kind::begins, .device = task.device(), .task = task.trace_id(), .at = now()});
  if ((who & watched) != 0) watchdog::begins(task);
}

void function_returned(const TaskNode& task) noexcept {
  const std::uint64_t who = bits();
  if ((who & recorded) != 0)
    add({.kind = Kind::function_returned, .device = task.device(), .task = task.trace_id(), .at = now()});
  if ((who & watched) != 0) watchdog::function_returned(task);
}

void ends(const TaskNode& task) noexcept {
  const std::uint64_t who = bits();
  if ((who & recorded) != 0) {
    const executor::Failure* const failure = task.failure().get();
    const State state = failure == nullptr          ? State::ended
                        : failure->cancelled        ? State::cancelled
                        : !failure->through.empty() ? State::skipped
                                                    : State::failed;
    add({.kind = Kind::ends, .state = state, .device = task.device(), .task = task.trace_id(), .at = now()});
  }
  if ((who & watched) != 0) watchdog::ends(task);
}

void is_message(const TaskNode& task, bool sends, int peer, std::uint64_t bytes) noexcept {
  if ((bits() & recorded) == 0) return;
  add({.kind = sends ? Kind::sends : Kind::receives,
       .peer = static_cast<std::uint16_t>(peer),
       .task = task.trace_id(),
       .other = bytes});
}

void gone(const TaskNode& task) noexcept {
  if ((bits() & watched) != 0) watchdog::gone(task);
}

bool CopySpan::begin(Device from, std::uint64_t bytes) noexcept {
  if ((bits() & recorded) == 0) return false;
  add({.kind = Kind::copy_begins, .device = from, .other = bytes, .at = now()});
  return true;
}
void CopySpan::end() noexcept { add({.kind = Kind::copy_ends, .device = to_, .at = now()}); }

// --- Event logs

const char* to_string(State state) {
  constexpr const char* names[] = {"not begun", "running", "ended", "failed", "skipped", "cancelled"};
  return names[static_cast<std::size_t>(state)];
}

Log::Log(std::string name) : thread(std::move(name)) {}
Log::~Log() {
  for (Chunk* c = first_.load(); c != nullptr;) delete std::exchange(c, c->next.load());
}

bool Log::add(Event event, std::string_view text, std::atomic<std::int64_t>& room) noexcept {
  text = text.substr(0, longest_text);
  event.text = static_cast<std::uint16_t>(text.size());
  const std::size_t bytes = sizeof event + text.size();
  std::size_t used = last_ == nullptr ? sizeof last_->bytes : last_->used.load(std::memory_order_relaxed);
  if (used + bytes > sizeof last_->bytes) {
    if (room.fetch_sub(sizeof(Chunk), std::memory_order_relaxed) < static_cast<std::int64_t>(sizeof(Chunk))) {
      room.fetch_add(sizeof(Chunk), std::memory_order_relaxed);
      return false;
    }
    auto* const fresh = new (std::nothrow) Chunk;
    if (fresh == nullptr) return false;
    (last_ == nullptr ? first_ : last_->next).store(fresh, std::memory_order_release);
    last_ = fresh, used = 0;
  }
  std::memcpy(last_->bytes + used, &event, sizeof event);
  if (!text.empty()) std::memcpy(last_->bytes + used + sizeof event, text.data(), text.size());
  last_->used.store(used + bytes, std::memory_order_release);
  return true;
}

void start_recording() {
  auto copies = std::make_shared<const TaskCopies>(task_copies());
  Recording& r = *process_recording;
  const std::lock_guard hold(r.lock);
  if (r.recorders++ != 0) return;
  r.since = now(), r.copies = std::move(copies);
  r.room = most_bytes, r.dropped = 0;
  r.session.store(r.last_session.fetch_add(1) + 1, std::memory_order_release);
  set(recorded, true);
}

void stop_recording() noexcept {
  Recording& r = *process_recording;
  const std::lock_guard hold(r.lock);
  if (r.recorders == 0 || --r.recorders != 0) return;  // in a child process, the recorders belonged to the parent
  set(recorded, false);
  r.session.store(0, std::memory_order_release);
  r.logs.clear();
}

RecordedEvents recorded_events(const char* asked) {
  Recording& r = *process_recording;
  const std::lock_guard hold(r.lock);
  if (r.recorders == 0)
    fail<ArgumentError>({.operation = asked,
                         .wrong = "no trace is active",
                         .remedy = "Start a trace before the tasks are created: auto seen = trace();"});
  return {{r.logs.begin(), r.logs.end()}, r.since, r.dropped.load(), r.copies};
}

namespace {
const std::thread::id main_thread = std::this_thread::get_id();  // initialised when the library is loaded
}

const std::string& thread_name() {
  static std::atomic<unsigned> others = 0;
  struct Name {
    std::string text;
  };
  std::string& name = os::PerThread<Name, Name>::get().text;
  if (name.empty()) {
    if (const unsigned worker = executor::Executor::worker(); worker != 0)
      name = fmt::format("worker {}", worker);
    else if (std::this_thread::get_id() == main_thread)
      name = "main thread";
    else
      name = fmt::format("thread {}", ++others);
  }
  return name;
}

}  // namespace tessera::detail::tracing
