// SPDX-License-Identifier: Apache-2.0
#include "tests/drivers/machine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <thread>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tessera::fake {
namespace {

thread_local const char* calling = "";
std::atomic<bool> forked = false;
std::atomic<Machine*> the_machine = nullptr;

constexpr std::size_t arena_bytes = std::size_t{64} << 30;

}  // namespace

void merge(Clock& clock, const Clock& other) {
  for (const auto& [stream, sequence] : other) {
    std::uint64_t& mine = clock[stream];
    mine = std::max(mine, sequence);
  }
}

Machine& Machine::get() {
  static Machine* machine = [] {
    auto* made = new Machine;  // never destroyed, because its threads outlive main
    the_machine = made;
    return made;
  }();
  return *machine;
}

Machine::Machine() : settings_(Settings::from_environment()), faults_(Faults::from_environment()) {
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

// Entry of each call.

Code Machine::initialise(const char* call) {
  if (const Code code = forked ? enter(call) : ok; code != ok) return code;
  calling = call;
  static bool printed = false;
  if (!std::exchange(printed, true) && faults_.find("print-init")) {
    std::printf("{\"protocol\": 1, \"report\": {}}\nfake driver says hello\n");
    std::fflush(stdout);
  }
  if (faults_.find("crash-init")) std::abort();
  if (faults_.find("kill-init")) std::raise(SIGKILL);
  if (faults_.find("segv-init")) std::fprintf(stderr, "fake driver: about to fault\n"), std::raise(SIGSEGV);
  if (const Fault* f = faults_.find("exit-init"))
    std::fprintf(stderr, "fake driver: giving up\n"), std::exit(f->code.value_or(1));
  static std::atomic<bool> slept = false;
  if (const Fault* slow = faults_.find("slow-init"); slow != nullptr && !slept.exchange(true))
    std::this_thread::sleep_for(std::chrono::milliseconds(slow->code.value_or(1000)));
  if (faults_.find("hang-init"))
    for (;;) pause();
  if (const Fault* f = faults_.find("init")) return f->code.value_or(unknown_error);
  std::lock_guard hold(lock_);
  if (initialised_) return primaries_.empty() ? no_device : ok;
  const int devices = faults_.find("no-devices") ? 0 : settings_.devices;
  for (int d = 0; d < devices; ++d) {
    auto* context = new Context{Handle{.kind = Kind::context}, d};
    context->context = context;
    primaries_.push_back(context);
    used_.push_back(0);
    void* arena = mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    arena_.push_back(reinterpret_cast<std::uint64_t>(arena));
    next_.push_back(arena_.back() + 4096);
  }
  initialised_ = true;
  return devices == 0 ? no_device : ok;
}

Code Machine::enter(const char* call, bool counted) {
  calling = call;
  if (forked) {  // a thread that does not exist in this process may hold the lock
    const std::string text = std::string(call) + ": the driver is used in a forked child";
    breaches_.push_back(text);
    std::fprintf(stderr, "fake driver: %s\n", text.c_str());
    return not_initialized;
  }
  std::lock_guard hold(lock_);
  if (counting_ && counted) ++counts_["calls"], ++counts_[call];
  if (!initialised_) return breach_locked("called before the driver was initialised", not_initialized);
  if (primaries_.empty()) return no_device;
  return ok;
}

Code Machine::enter(const char* call, Context* context, bool counted) {
  if (const Code code = enter(call, counted); code != ok) return code;
  std::lock_guard hold(lock_);
  if (context == nullptr) return breach_locked("no context is current on this thread", invalid_context);
  if (!context->live || context->retained == 0)
    return breach_locked("the current context has been released", invalid_context);
  return context->sticky;
}

Code Machine::breach(const std::string& text, Code code) {
  std::lock_guard hold(lock_);
  return breach_locked(text, code);
}
Code Machine::breach_locked(const std::string& text, Code code) {
  breaches_.push_back(std::string(calling) + ": " + text);
  if (!settings_.breaches.empty()) {
    if (std::FILE* file = std::fopen(settings_.breaches.c_str(), "a")) {
      std::fprintf(file, "%s\n", breaches_.back().c_str());
      std::fclose(file);
    }
  }
  return code;
}

// Handles.

void Machine::keep(Handle* handle) {
  handles_[handle] = handle;
  static const char* const names[] = {"context",  "stream", "event",           "module",
                                      "function", "graph",  "node of a graph", "executable"};
  ++counts_[std::string(names[static_cast<int>(handle->kind)]) + "s"];
}

Handle* Machine::handle_of(void* handle, Kind kind, Code* code) {
  static const char* const names[] = {"context",  "stream", "event",           "module",
                                      "function", "graph",  "node of a graph", "executable"};
  const std::string name = names[static_cast<int>(kind)];
  const auto it = handles_.find(handle);
  *code = ok;
  if (it == handles_.end())
    *code = breach_locked("invalid handle of a " + name, invalid_handle);
  else if (it->second->kind != kind)
    *code = breach_locked("the handle does not refer to a " + name, invalid_handle);
  else if (!it->second->live)
    *code = breach_locked("the " + name + " has been destroyed", invalid_handle);
  return *code == ok ? it->second : nullptr;
}

Context* Machine::primary(int device) {
  std::lock_guard hold(lock_);
  if (device < 0 || static_cast<std::size_t>(device) >= primaries_.size()) return nullptr;
  return primaries_[static_cast<std::size_t>(device)];
}

Code Machine::retain(int device, Context** context) {
  Context* c = primary(device);
  if (c == nullptr) return invalid_device;
  // Level Zero creates contexts explicitly, so the fault does not apply here.
  if (const Fault* f = opencl ? nullptr : faults_.find("context", device)) return f->code.value_or(out_of_memory);
  bool first = false;
  {
    std::lock_guard hold(lock_);
    if (c->retained++ == 0) {
      keep(c);
      c->live = first = true;
    }
  }
  if (first && c->null_stream == nullptr) {
    Stream* stream = nullptr;
    create_stream(*c, true, &stream);
    std::lock_guard hold(lock_);
    stream->null = true;
    c->null_stream = stream;
  }
  *context = c;
  return ok;
}

// For tests.

std::vector<std::string> Machine::breaches() {
  if (forked) return breaches_;
  std::lock_guard hold(lock_);
  return breaches_;
}
void Machine::forget_breaches() {
  std::lock_guard hold(lock_);
  breaches_.clear();
}
std::uint64_t Machine::count(const std::string& what) {
  std::lock_guard hold(lock_);
  return counts_[what];
}
void Machine::hold(bool held) {
  {
    std::lock_guard hold(lock_);
    held_ = held;
  }
  changed_.notify_all();
}
void Machine::set_resolver(const Resolver* resolver) {
  std::lock_guard hold(lock_);
  resolver_ = resolver;
}

std::uint64_t Machine::live(const std::string& what) {
  std::lock_guard hold(lock_);
  std::uint64_t n = 0;
  if (what == "memory" || what == "host" || what == "bytes") {
    for (const auto& [address, memory] : memory_)
      if (memory->host == (what == "host")) n += what == "bytes" ? memory->bytes : 1;
    return n;
  }
  for (const auto& [address, handle] : handles_) {
    if (!handle->live) continue;
    const bool own = handle->kind == Kind::stream && static_cast<Stream*>(handle)->null;
    if ((what == "streams" && handle->kind == Kind::stream && !own) ||
        (what == "events" && handle->kind == Kind::event) || (what == "modules" && handle->kind == Kind::module) ||
        (what == "graphs" && handle->kind == Kind::graph) ||
        (what == "executables" && handle->kind == Kind::executable) ||
        (what == "contexts" && handle->kind == Kind::context))
      ++n;
  }
  return n;
}

void Machine::at_exit() {
  if (forked) return;
  calling = "at exit";
  if (settings_.leaks)
    for (const char* what : {"memory", "host", "streams", "events", "modules", "graphs", "executables", "contexts"})
      if (const std::uint64_t n = live(what)) breach(std::to_string(n) + " left: " + what, ok);
  {
    std::lock_guard hold(lock_);
    for (const auto& [address, handle] : handles_)
      if (handle->kind == Kind::stream) {
        const auto& stream = *static_cast<Stream*>(handle);
        if (stream.completed < stream.submitted && stream.context->sticky == ok)
          breach_locked("the process ends while work is queued: " +
                            (stream.work.empty() ? std::string("it runs") : stream.work.front().what),
                        ok);
      }
  }
  const std::vector<std::string> seen = breaches();
  for (const std::string& text : seen) std::fprintf(stderr, "fake driver: %s\n", text.c_str());
  if (!seen.empty()) _exit(86);
}

namespace {
/// Runs after all other code of the process. If the library was never called, there is no machine.
__attribute__((destructor)) void last_look() {
  if (Machine* machine = the_machine) machine->at_exit();
}
}  // namespace
}  // namespace tessera::fake

#define EXPORT extern "C" __attribute__((visibility("default")))

/// Returns the number of rule violations. Writes a line for each of them to `text`, as long as there is space.
EXPORT int tessera_fake_breaches(char* text, std::size_t bytes) {
  const auto seen = tessera::fake::Machine::get().breaches();
  std::string all;
  for (const std::string& s : seen) all += s + "\n";
  if (bytes != 0) std::snprintf(text, bytes, "%s", all.c_str());
  return static_cast<int>(seen.size());
}
EXPORT void tessera_fake_forget_breaches() { tessera::fake::Machine::get().forget_breaches(); }
/// Returns the current number of "memory" (allocations), "bytes", "host" (pinned allocations), "streams", "events",
/// "modules", "graphs", "executables" or "contexts".
EXPORT std::uint64_t tessera_fake_live(const char* what) { return tessera::fake::Machine::get().live(what); }
/// If `wanted` is 1, counts all following calls, in "calls" and under the name of the entry point.
EXPORT void tessera_fake_count_calls(int wanted) { tessera::fake::Machine::get().count_calls(wanted != 0); }
/// Returns the total number of "calls", "launches", "graph launches", "operations", "allocations", "host allocations",
/// "peer copies", "streams", "events", "modules", ..., of calls of an entry point, of waits for unfinished work that
/// occupy a core ("polling waits") or not ("blocking waits"), or of bytes that finished copies have moved from host to
/// device memory ("bytes up") and back ("bytes down").
EXPORT std::uint64_t tessera_fake_count(const char* what) { return tessera::fake::Machine::get().count(what); }
/// If `held` is 1, pauses all streams before their next work item, until a call with 0.
EXPORT void tessera_fake_hold(int held) { tessera::fake::Machine::get().hold(held != 0); }
/// If `really` is 0, all following calls succeed but do nothing, to measure the time that they take on the host. Wait
/// for all work before this call.
EXPORT void tessera_fake_execute(int really) { tessera::fake::Machine::get().execute(really != 0); }
EXPORT int tessera_fake_outside_device(void* handle) {
  auto& machine = tessera::fake::Machine::get();
  tessera::fake::Code code = 0;
  tessera::fake::Context* const any = machine.primary(0);
  if (any == nullptr || handle == nullptr) return -1;
  const auto* const stream = machine.stream_of(*any, handle, &code, false);
  return stream == nullptr ? -1 : stream->context->device;
}
EXPORT int tessera_fake_outside_submit(void* handle, const char* what, const tessera::fake::OutsideTouch* touches,
                                       int count, void (*run)(void*, void* const*), void* state) {
  auto& machine = tessera::fake::Machine::get();
  tessera::fake::Code code = 0;
  auto* const stream = machine.stream_of(*machine.primary(0), handle, &code, false);
  return stream == nullptr ? code : machine.outside(*stream, what, touches, count, run, state);
}
EXPORT void tessera_fake_outside_breach(const char* text) { tessera::fake::Machine::get().breach(text, 0); }
EXPORT void tessera_fake_set_resolver(const tessera::fake::Resolver* resolver) {
  tessera::fake::Machine::get().set_resolver(resolver);
}
