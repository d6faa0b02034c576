// SPDX-License-Identifier: Apache-2.0
// Groups of nodes, and waiting for nodes. Internal.
#pragma once

#include <atomic>
#include <cstdint>

#include "tessera/base/mutex.h"
#include "tessera/executor/node.h"

namespace tessera::executor {

class Sleeper;

/// A set of nodes that is waited for as a whole. The destructor waits for them.
class Group {
 public:
  /// `window`: the maximum number of nodes in flight before the submitter must help (`throttle`); 0: unlimited.
  /// `parent`: the group of the node that submits to this group. Cancelling the parent cancels this group, and waits
  /// for the parent also run this group's nodes.
  explicit Group(Executor& executor, Group* parent = nullptr, std::uint32_t window = 0);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  virtual ~Group();

  /// Waits until all nodes submitted before have ended, and runs some of them. Throws Error, naming the nodes, if the
  /// calling thread runs a node of the group or of a nested one, or if this wait closes a cycle.
  void wait();
  /// Call before or after each submission: if more than `window` nodes are in flight, the caller runs nodes until half
  /// of that are left. No effect inside the group's own nodes, which would wait for themselves.
  void throttle();
  /// Nodes that have not started will not run; running ones see `Node::stop_requested`.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_release); }
  bool cancelled() const noexcept;
  std::uint32_t in_flight() const noexcept;

  Executor& executor() const noexcept { return executor_; }
  Group* parent() const noexcept { return parent_; }
  bool inside(const Group& outer) const noexcept;

 protected:
  /// Called when a node of the group has failed, or was skipped or cancelled, by the thread that ends it, before its
  /// successors are notified.
  virtual void failed(const Node&) noexcept {}

 private:
  friend class Node;
  friend class Executor;
  // Upper half: the number of ended nodes. Lower half: how many more must end before the waiter is woken, or 0. Packed
  // in one atomic, since the group may be destroyed as soon as the last node is counted.
  static constexpr std::uint64_t one_ended = std::uint64_t{1} << 32;
  void one_has_ended() noexcept;
  void sleep(std::uint32_t until_left);

  Executor& executor_;
  Group* const parent_;
  const std::uint32_t window_;
  std::atomic<bool> cancelled_ = false;
  Mutex one_waits_;
  Sleeper* sleeper_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> submitted_ = 0;
  std::atomic<std::uint32_t> seen_ended_ = 0;  // the submitter's cached lower bound of the ended nodes
  alignas(64) std::atomic<std::uint64_t> ended_ = 0;
};

/// Waits until `node` has ended; see Executor::wait. Throws Error in a forked child if the node belongs to the parent.
void wait(Node& node);

}  // namespace tessera::executor
