// SPDX-License-Identifier: Apache-2.0
// Writes to memory of which no task has said anything. Tasks are behind it (task/), which this layer does not know.
#pragma once

#include <utility>

namespace tessera {

class Storage;

using BeforeUnwatchedWrite = void (*)(Storage& storage);
/// Called before the calling thread changes memory that had contents and has no Elsewhere; it may give it one. Null,
/// unless the thread runs a task.
extern constinit thread_local BeforeUnwatchedWrite before_unwatched_write;

/// While one lives, the thread's writes are not reported: memory that its owner guards by a lock, for any task.
class GuardedWrites {
 public:
  GuardedWrites() noexcept : before_(std::exchange(before_unwatched_write, nullptr)) {}
  ~GuardedWrites() { before_unwatched_write = before_; }
  GuardedWrites(const GuardedWrites&) = delete;
  GuardedWrites& operator=(const GuardedWrites&) = delete;

 private:
  const BeforeUnwatchedWrite before_;
};

}  // namespace tessera
