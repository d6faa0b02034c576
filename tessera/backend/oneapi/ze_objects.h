// SPDX-License-Identifier: Apache-2.0
// What is behind the handles that ZeApi gives out. Used within this folder only.
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

/// The device that is current on this thread; there is one in every call that needs it.
ZeDevice& here();

/// An immediate command list, and the events that its commands signal or wait for.
struct ZeStream {
  List handle = nullptr;
  ZeDevice* device = nullptr;
  bool in_order = false;   ///< the driver orders commands; else a barrier stands before each
  bool unordered = false;  ///< a command was appended that nothing orders yet
  bool adopted = false;    ///< the program's: it appends commands too
  List written = nullptr;  ///< the list that commands go to instead, while it is written
  bool barrier = false;    ///< in that list, a command comes before the next
  List target() const { return written ? written : handle; }
  struct RetainedEvent {
    std::shared_ptr<Event_> event;
    bool own;  ///< signalled by this list: once it is, all before it is done
  };
  std::deque<RetainedEvent> retained;

  Code begin(const LoaderFunctions& call);  ///< before each command
  void retain(const LoaderFunctions& call, std::shared_ptr<Event_> event, bool own);
  /// Appends the signal of a new event, after all commands so far.
  Code signal(const LoaderFunctions& call, std::shared_ptr<Event_>* event);
};

/// What the shared implementation calls an event: the newest recording of it.
struct ZeEvent {
  std::mutex lock;
  std::shared_ptr<Event_> event;  ///< null: never recorded, and nothing to wait for
  const ZeDriver* driver = nullptr;
  std::pair<std::shared_ptr<Event_>, const ZeDriver*> get() {
    std::lock_guard guard(lock);
    return {event, driver};
  }
};

struct ZeKernel {
  Kernel handle = nullptr;
  std::mutex lock;
  std::array<std::uint64_t, 3> group = {};  ///< as it was set last
};
struct ZeModule {
  Module handle = nullptr;
  std::vector<std::unique_ptr<ZeKernel>> kernels;
};

}  // namespace tessera::oneapi
