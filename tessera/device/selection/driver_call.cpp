// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/selection/driver_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/child.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/per_thread.h"
#include "tessera/device/selection/open_device.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

/// The driver call of one thread. Written by that thread and read by the watchdog.
struct Slot {
  /// Incremented at the beginning and end of an outermost call, so it is odd during a call.
  std::atomic<std::uint64_t> calls = 0;
  std::atomic<const OpenDevice*> device = nullptr;
  std::atomic<const std::string*> name = nullptr;
  std::atomic<DriverCall::Kind> kind = DriverCall::Kind::call;
  // Used only by the watchdog:
  std::uint64_t seen = 0;
  Clock::time_point since = {};
  bool reported = false;
};

struct Watch {
  std::mutex lock;
  std::vector<std::shared_ptr<Slot>> slots;
  bool watching = false;
};
constinit os::PerProcess<Watch> watch;

void report(const Slot& slot, double seconds) {
  const OpenDevice& device = *slot.device.load();
  const std::string who = fmt::format("{} ({})", to_string(device.device), device.info.name);
  const std::string& name = *slot.name.load();
  logging::warn(slot.kind == DriverCall::Kind::wait
                    ? fmt::format("waiting for {} for {:.3g} s; latest work in its queue: {}", who, seconds, name)
                    : fmt::format("a call of the driver of {} has not returned for {:.3g} s: {}", who, seconds, name));
}

/// Checks all threads periodically, so that driver calls need not read a clock.
[[noreturn]] void look(Watch& w, double seconds) {
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const auto pause = std::clamp<Clock::duration>(limit / 4, std::chrono::milliseconds(5), std::chrono::seconds(3));
  for (;;) {
    std::this_thread::sleep_for(pause);
    const std::lock_guard hold(w.lock);
    std::erase_if(w.slots, [](const auto& slot) { return slot.use_count() == 1; });  // their threads have ended
    const auto now = Clock::now();
    for (const auto& slot : w.slots) {
      const std::uint64_t calls = slot->calls.load(std::memory_order_acquire);
      if (calls != slot->seen) {
        slot->seen = calls, slot->since = now, slot->reported = false;
        continue;
      }
      const auto patience = slot->kind == DriverCall::Kind::build ? 6 * limit : limit;
      if (calls % 2 == 0 || slot->reported || now - slot->since < patience) continue;
      slot->reported = true;
      try {
        report(*slot, std::chrono::duration<double>(now - slot->since).count());
      } catch (const std::exception&) {  // out of memory
      }
    }
  }
}

void start_watching(Watch& w) {
  if (std::exchange(w.watching, true)) return;
  constexpr double usual = 10;
  double seconds = usual;
  try {
    seconds = watchdog_seconds().value_or(usual);
  } catch (const ArgumentError&) {  // functions that need the setting report it
  }
  std::thread([&w, seconds] { look(w, seconds); }).detach();
}

/// The calling thread's slot. Null if memory is exhausted.
struct Mine {
  std::shared_ptr<Slot> slot;
  std::uint32_t generation = 0;
  Slot* get() noexcept {
    if (slot != nullptr && generation == os::fork_generation()) [[likely]]
      return slot.get();
    try {
      auto fresh = std::make_shared<Slot>();
      Watch& w = *watch;
      const std::lock_guard hold(w.lock);
      w.slots.push_back(fresh);
      start_watching(w);
      slot = std::move(fresh), generation = os::fork_generation();
      return slot.get();
    } catch (const std::exception&) {  // out of memory or threads
      return nullptr;
    }
  }
};
using MySlot = os::PerThread<Mine, Slot>;

constinit thread_local unsigned depth = 0;  // nesting depth of driver calls on this thread
constinit thread_local Slot* inside = nullptr;
constinit thread_local std::uint32_t marked_in = 0;  // fork generation in which the call was marked

void mark(Slot& slot, const OpenDevice& device, DriverCall::Kind kind, const std::string& name) noexcept {
  marked_in = os::fork_generation();
  slot.device.store(&device, std::memory_order_relaxed);
  slot.name.store(&name, std::memory_order_relaxed);
  slot.kind.store(kind, std::memory_order_relaxed);
  slot.calls.fetch_add(1, std::memory_order_release);
}

}  // namespace

DriverCall::DriverCall(const OpenDevice& device, Kind kind, const std::string& name) noexcept
    : marked_(!is_built_in(device.device.backend)) {
  if (!marked_ || depth++ != 0) return;
  inside = MySlot::get().get();
  if (inside != nullptr) mark(*inside, device, kind, name);
}

DriverCall::~DriverCall() {
  if (!marked_ || --depth != 0 || inside == nullptr) return;
  inside->calls.fetch_add(1, std::memory_order_release);
  inside = nullptr;
}

UserCodeScope::UserCodeScope() noexcept : depth_(std::exchange(depth, 0)) {
  Slot* const slot = std::exchange(inside, nullptr);
  if (depth_ == 0 || slot == nullptr) return;
  slot_ = slot, device_ = slot->device.load(), name_ = slot->name.load(), kind_ = slot->kind.load();
  slot->calls.fetch_add(1, std::memory_order_release);
}

UserCodeScope::~UserCodeScope() {
  depth = depth_;
  if (slot_ == nullptr) return;
  inside = static_cast<Slot*>(slot_);
  mark(*inside, *device_, kind_, *name_);
}

void refuse_exit_of_drivers() noexcept {
  // Otherwise, this is a child process that the driver forked.
  if (depth == 0 || inside == nullptr || marked_in != os::fork_generation()) return;
  const OpenDevice& device = *inside->device.load();
  try {
    logging::print(fmt::format("error: the driver of {} ({}) ended the program during: {}", to_string(device.device),
                               device.info.name, *inside->name.load()));
  } catch (const std::exception&) {  // out of memory
  }
  os::leave(1);
}

}  // namespace tessera
