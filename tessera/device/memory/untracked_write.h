// SPDX-License-Identifier: Apache-2.0
// Writes to memory of which no task has said anything. Tasks are behind it (task/), which this layer does not know.
#pragma once

#include <utility>

namespace tessera {

class Storage;

using UntrackedWriteHook = void (*)(Storage& storage);
/// Called before the calling thread changes memory that had contents and has no Elsewhere; it may give it one. Null,
/// unless the thread runs a task.
extern constinit thread_local UntrackedWriteHook untracked_write_hook;

/// While one lives, the thread's writes are not reported: memory that its owner guards by a lock, for any task.
class UntrackedWritesAllowed {
 public:
  UntrackedWritesAllowed() noexcept : before_(std::exchange(untracked_write_hook, nullptr)) {}
  ~UntrackedWritesAllowed() { untracked_write_hook = before_; }
  UntrackedWritesAllowed(const UntrackedWritesAllowed&) = delete;
  UntrackedWritesAllowed& operator=(const UntrackedWritesAllowed&) = delete;

 private:
  const UntrackedWriteHook before_;
};

}  // namespace tessera
