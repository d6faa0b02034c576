// SPDX-License-Identifier: Apache-2.0
// The ready nodes of one thread. The owner pushes and pops nodes at one end; other threads steal half of them at the
// other end. Internal.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

#include "tessera/executor/node.h"

namespace tessera::executor {

/// Each entry owns a reference. An entry becomes stale when another thread claims its node. The thread that removes a
/// stale entry releases the reference.
class TaskQueue {
 public:
  static constexpr unsigned batch = 64;

  void push(Node* node) noexcept {
    const unsigned level = static_cast<unsigned>(node->priority_ - Node::least_priority);
    const std::scoped_lock hold(lock_);
    Ring& ring = rings_[level];
    if (!ring.has_room()) {  // no memory to grow the ring: append to the overflow list
      node->overflow_ = overflow_;
      overflow_ = node;
    } else {
      ring.slots[ring.tail++ & (ring.capacity - 1)] = node;
      levels_ |= 1u << level;
    }
    count(+1);
  }

  /// Removes and returns the newest node of the highest priority; null if the queue is empty.
  Node* pop() noexcept {
    if (looks_empty()) return nullptr;
    const std::scoped_lock hold(lock_);
    if (levels_ == 0) return take_overflow();
    const unsigned level = highest();
    Ring& ring = rings_[level];
    Node* const node = ring.slots[--ring.tail & (ring.capacity - 1)];
    taken(level);
    count(-1);
    return node;
  }

  /// Steals the older half of the nodes with the highest priority, at most `batch`, oldest first. Returns their number.
  unsigned steal(std::array<Node*, batch>& into) noexcept {
    if (looks_empty()) return 0;
    const std::scoped_lock hold(lock_);
    if (levels_ == 0) return (into[0] = take_overflow()) != nullptr;
    const unsigned level = highest();
    Ring& ring = rings_[level];
    const unsigned some = std::min((ring.tail - ring.head + 1) / 2, batch);
    for (unsigned i = 0; i < some; ++i) into[i] = ring.slots[ring.head++ & (ring.capacity - 1)];
    taken(level);
    count(-static_cast<int>(some));
    return some;
  }

  /// Claims the oldest of the first few nodes for which `wanted(node)` returns true. Returns a reference, or null if
  /// there is none. `wanted` is called while the node is claimed, so that the node's group still exists.
  template <class F>
  NodeRef claim(F&& wanted) noexcept {
    std::array<Node*, batch> stale;
    unsigned stale_count = 0;
    NodeRef found;
    if (!looks_empty()) {
      const std::scoped_lock hold(lock_);
      for (unsigned left = levels_; left != 0 && !found;) {
        const unsigned level = static_cast<unsigned>(std::bit_width(left)) - 1;
        left &= ~(1u << level);
        Ring& ring = rings_[level];
        for (unsigned at = ring.head, looked = 0; at != ring.tail && looked < batch && !found; ++at, ++looked) {
          Node* const node = ring.slots[at & (ring.capacity - 1)];
          const Node::State state = node->state();
          const bool claimed = state == Node::State::ready && node->claim();
          if (claimed && !wanted(*node)) {
            node->state_.store(Node::State::ready, std::memory_order_release);
          } else if (claimed || state != Node::State::ready) {
            if (at != ring.head) {
              if (claimed) found = NodeRef(*node);
            } else {
              ++ring.head;
              count(-1);
              if (claimed)
                found = NodeRef::adopt(node);
              else
                stale[stale_count++] = node;
            }
          }
          if (stale_count == batch) break;
        }
        taken(level);
        if (stale_count == batch) break;
      }
    }
    for (unsigned i = 0; i < stale_count; ++i)
      stale[i]->drop();  // after unlocking, because this runs destructors of functions
    return found;
  }

  /// A snapshot. Use `is_empty_exact` if the order relative to other operations matters.
  bool looks_empty() const noexcept { return size_.load(std::memory_order_relaxed) == 0; }
  bool is_empty_exact() noexcept {
    const std::scoped_lock hold(lock_);
    return looks_empty();
  }

 private:
  struct Ring {
    std::unique_ptr<Node*[]> slots;
    std::uint32_t capacity = 0, head = 0, tail = 0;  // indices grow without wrapping around; capacity is a power of two
    bool has_room() noexcept {
      if (tail - head < capacity) return true;
      const std::uint32_t larger = capacity == 0 ? 256 : 2 * capacity;
      std::unique_ptr<Node*[]> grown(new (std::nothrow) Node*[larger]);
      if (!grown) return false;
      for (std::uint32_t i = head; i != tail; ++i) grown[i - head] = slots[i & (capacity - 1)];
      slots = std::move(grown);
      tail -= head;
      head = 0;
      capacity = larger;
      return true;
    }
  };
  unsigned highest() const noexcept { return static_cast<unsigned>(std::bit_width(levels_)) - 1; }
  void taken(unsigned level) noexcept {
    if (rings_[level].head == rings_[level].tail) levels_ &= ~(1u << level);
  }
  Node* take_overflow() noexcept {
    Node* const node = overflow_;
    if (node == nullptr) return nullptr;
    overflow_ = node->overflow_;
    count(-1);
    return node;
  }
  void count(int more) noexcept {
    size_.store(size_.load(std::memory_order_relaxed) + static_cast<std::uint32_t>(more), std::memory_order_relaxed);
  }

  std::atomic<std::uint32_t> size_ = 0;  // written under the lock
  SpinLock lock_;
  unsigned levels_ = 0;  // bit mask of the rings that are not empty
  Node* overflow_ = nullptr;
  std::array<Ring, Node::most_priority - Node::least_priority + 1> rings_;
};

}  // namespace tessera::executor
