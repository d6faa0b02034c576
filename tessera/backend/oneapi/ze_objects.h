// SPDX-License-Identifier: Apache-2.0
// The objects behind ZeApi's handles. Used only in this folder.
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

/// Returns the current device of this thread. stream::Api requires that callers set it before they call ZeApi.
ZeDevice& here();

/// An immediate command list, and the events that its commands signal or wait for.
struct ZeStream {
  List handle = nullptr;
  ZeDevice* device = nullptr;
  bool in_order = false;   ///< true if the driver runs commands in order; otherwise barriers are inserted
  bool unordered = false;  ///< true if there is a command after the last barrier
  bool adopted = false;    ///< true if the program owns the list and may append commands
  List written = nullptr;  ///< the list that is being recorded; null if none
  bool barrier = false;    ///< true if the next recorded command needs a barrier before it
  List target() const { return written ? written : handle; }
  struct RetainedEvent {
    std::shared_ptr<Event_> event;
    bool own;  ///< signalled by this list, after all earlier commands have completed
  };
  std::deque<RetainedEvent> retained;

  Code begin(const LoaderFunctions& call);  ///< inserts a barrier if necessary; call before each command
  void retain(const LoaderFunctions& call, std::shared_ptr<Event_> event, bool own);
  /// Appends a barrier that signals a new event when all earlier commands have completed.
  Code signal(const LoaderFunctions& call, std::shared_ptr<Event_>* event);
};

/// An event of stream::Api. Stores its most recent recording.
struct ZeEvent {
  bool blocking = false;  ///< true if waits do not occupy a core
  std::mutex lock;
  std::shared_ptr<Event_> event;  ///< null if never recorded; waits then return immediately
  const ZeDriver* driver = nullptr;
  std::pair<std::shared_ptr<Event_>, const ZeDriver*> get() {
    std::lock_guard guard(lock);
    return {event, driver};
  }
};

struct ZeKernel {
  Kernel handle = nullptr;
  std::mutex lock;
  std::array<std::uint64_t, 3> group = {};  ///< the block size that was set most recently
};
struct ZeModule {
  Module handle = nullptr;
  std::vector<std::unique_ptr<ZeKernel>> kernels;
};

}  // namespace tessera::oneapi
