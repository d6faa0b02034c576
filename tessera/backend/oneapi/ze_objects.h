// SPDX-License-Identifier: Apache-2.0
// The objects behind ZeApi's handles. Used within this folder only.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/backend/oneapi/ze_api.h"

namespace tessera::oneapi {

inline void* pointer_of(stream::Address address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

/// The current device of this thread; set in every call that needs it.
ZeDevice& here();

/// An immediate command list, and the events that its commands signal or wait for.
struct ZeStream {
  List handle = nullptr;
  ZeDevice* device = nullptr;
  bool in_order = false;   ///< the driver orders commands; otherwise a barrier precedes each
  bool unordered = false;  ///< a command was appended that no barrier follows yet
  bool adopted = false;    ///< owned by the program, which also appends commands
  List written = nullptr;  ///< while a list is being recorded: receives the commands instead
  bool barrier = false;    ///< in that list, the next command needs a barrier before it
  List target() const { return written ? written : handle; }
  struct RetainedEvent {
    std::shared_ptr<Event_> event;
    bool own;  ///< signalled by this list; once it is, all earlier commands are complete
  };
  std::deque<RetainedEvent> retained;

  Code begin(const LoaderFunctions& call);  ///< call before each command
  void retain(const LoaderFunctions& call, std::shared_ptr<Event_> event, bool own);
  /// Appends the signal of a new event after all commands so far.
  Code signal(const LoaderFunctions& call, std::shared_ptr<Event_>* event);
};

/// An event of stream::Api: its most recent recording.
struct ZeEvent {
  std::mutex lock;
  std::shared_ptr<Event_> event;  ///< null: never recorded, so nothing to wait for
  const ZeDriver* driver = nullptr;
  std::pair<std::shared_ptr<Event_>, const ZeDriver*> get() {
    std::lock_guard guard(lock);
    return {event, driver};
  }
};

struct ZeKernel {
  Kernel handle = nullptr;
  std::mutex lock;
  std::array<std::uint64_t, 3> group = {};  ///< the block size that was set last
};
struct ZeModule {
  Module handle = nullptr;
  std::vector<std::unique_ptr<ZeKernel>> kernels;
};

}  // namespace tessera::oneapi
