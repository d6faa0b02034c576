// SPDX-License-Identifier: Apache-2.0
// Hook for writes to memory that a task did not declare. The task runtime installs it; this layer does not depend on
// task/.
#pragma once

#include <utility>

namespace tessera {

class Storage;

using UntrackedWriteHook = void (*)(Storage& storage);
/// Called before the calling thread overwrites memory that has contents but no CoherenceHook. The hook may attach one.
/// Null unless the thread runs a task.
extern constinit thread_local UntrackedWriteHook untracked_write_hook;

/// Disables the hook on this thread for the scope's lifetime. Used for memory that its owner protects with a lock.
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
