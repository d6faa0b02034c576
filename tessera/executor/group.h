// SPDX-License-Identifier: Apache-2.0
// Groups of nodes, and waiting for nodes. Internal.
#pragma once

#include <atomic>
#include <cstdint>

#include "tessera/base/mutex.h"
#include "tessera/executor/node.h"

namespace tessera::executor {

class Sleeper;

/// A set of nodes that can be waited for as a whole. The destructor waits for them.
class Group {
 public:
  /// `window` is the maximum number of unfinished nodes before the submitting thread must help (see `throttle`); 0
  /// means unlimited.
  /// `parent` is the group of the node that submits to this group. Cancelling the parent also cancels this group.
  /// Threads that wait for the parent also run nodes of this group.
  explicit Group(Executor& executor, Group* parent = nullptr, std::uint32_t window = 0);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group();

  /// Waits until all nodes submitted so far have ended. The calling thread may run some of them. Throws Error with the
  /// names of the nodes if the calling thread runs a node of this group or of a nested group, or if the wait would
  /// cause a deadlock.
  void wait();
  /// Called before or after each submission. If more than `window` nodes are unfinished, the caller runs nodes until at
  /// most half of `window` are left. Has no effect inside nodes of the group, because they would wait for themselves.
  void throttle();
  /// Nodes that have not started will not run. Running nodes can check `Node::stop_requested`.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_release); }
  bool cancelled() const noexcept;
  std::uint32_t in_flight() const noexcept;

  Executor& executor() const noexcept { return executor_; }
  Group* parent() const noexcept { return parent_; }
  bool inside(const Group& outer) const noexcept;

 protected:
  /// Called when a node of the group has failed or was skipped or cancelled. Called by the thread that ends the node,
  /// before its successors are notified.
  virtual void failed(const Node&) noexcept {}

 private:
  friend class Node;
  friend class Executor;
  // The upper half of `ended_` is the number of ended nodes. The lower half is the number of nodes that must end before
  // the waiter is woken, or 0. Both are in one atomic variable because the group may be destroyed as soon as the last
  // node is counted.
  static constexpr std::uint64_t one_ended = std::uint64_t{1} << 32;
  void one_has_ended() noexcept;
  void sleep(std::uint32_t until_left);

  Executor& executor_;
  Group* const parent_;
  const std::uint32_t window_;
  std::atomic<bool> cancelled_ = false;
  detail::Mutex one_waits_;
  Sleeper* sleeper_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> submitted_ = 0;
  std::atomic<std::uint32_t> seen_ended_ = 0;
  alignas(64) std::atomic<std::uint64_t> ended_ = 0;
};

/// Waits until `node` has ended, like Executor::wait. Throws Error in a forked child if the node belongs to the parent.
void wait(Node& node);

}  // namespace tessera::executor
