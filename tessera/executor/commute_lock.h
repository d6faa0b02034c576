// SPDX-License-Identifier: Apache-2.0
// Mutual exclusion for nodes that may run in any order, but not concurrently.
#pragma once

#include "tessera/executor/node.h"

namespace tessera::executor {

/// A gated node acquires the lock in `Node::try_acquire_resources` and releases it after it has run. If another node
/// has the lock, the node is queued and retried on release. Waiting nodes do not occupy a thread.
class CommuteLock {
 public:
  CommuteLock() = default;
  CommuteLock(const CommuteLock&) = delete;
  CommuteLock& operator=(const CommuteLock&) = delete;

  /// Returns whether `node` acquired the lock. If it returns false, the caller must not access the node any more.
  bool take(Node& node) noexcept;
  void give() noexcept;

 private:
  SpinLock lock_;
  bool taken_ = false;
  Node *first_ = nullptr, *last_ = nullptr;  // queue of waiting nodes, linked by Node::overflow_
};

}  // namespace tessera::executor
