// SPDX-License-Identifier: Apache-2.0
// Nodes that may run in any order, but one at a time.
#pragma once

#include "tessera/executor/node.h"

namespace tessera::executor {

/// A node that is gated takes its turns in `Node::try_acquire_resources` and gives them when it has run. Who finds one
/// taken is kept here, and asks again when it is given: nobody holds a thread meanwhile.
class CommuteLock {
 public:
  CommuteLock() = default;
  CommuteLock(const CommuteLock&) = delete;
  CommuteLock& operator=(const CommuteLock&) = delete;

  /// Whether `node` has it now; else the node is not to be touched any more.
  bool take(Node& node) noexcept;
  void give() noexcept;

 private:
  SpinLock lock_;
  bool taken_ = false;
  Node *first_ = nullptr, *last_ = nullptr;  // who waits, by Node::overflow_
};

}  // namespace tessera::executor
