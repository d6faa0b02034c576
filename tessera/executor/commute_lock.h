// SPDX-License-Identifier: Apache-2.0
// Mutual exclusion for nodes that may run in any order, but not concurrently.
#pragma once

#include "tessera/executor/node.h"

namespace tessera::executor {

/// A gated node acquires the lock in `Node::try_acquire_resources` and releases it when it has run. If the lock is
/// taken, the node is queued and retried on release; a waiting node does not occupy a thread.
class CommuteLock {
 public:
  CommuteLock() = default;
  CommuteLock(const CommuteLock&) = delete;
  CommuteLock& operator=(const CommuteLock&) = delete;

  /// Returns whether `node` acquired the lock. If not, the caller must not access the node any more.
  bool take(Node& node) noexcept;
  void give() noexcept;

 private:
  SpinLock lock_;
  bool taken_ = false;
  Node *first_ = nullptr, *last_ = nullptr;  // the queue of waiting nodes, linked by Node::overflow_
};

}  // namespace tessera::executor
