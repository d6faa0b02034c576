// SPDX-License-Identifier: Apache-2.0
// The ready nodes of one thread: it puts and takes at one end, others take half of it at the other. Internal.
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

/// Entries hold a reference each. An entry whose node somebody has claimed meanwhile is of no use; who takes it drops
/// it.
class TaskQueue {
 public:
  static constexpr unsigned batch = 64;

  void push(Node* node) noexcept {
    const unsigned level = static_cast<unsigned>(node->priority_ - Node::least_priority);
    const std::scoped_lock hold(lock_);
    Ring& ring = rings_[level];
    if (!ring.has_room()) {  // no memory for more: it waits in a chain
      node->overflow_ = overflow_;
      overflow_ = node;
    } else {
      ring.slots[ring.tail++ & (ring.capacity - 1)] = node;
      levels_ |= 1u << level;
    }
    count(+1);
  }

  /// The newest of the highest priority, or null.
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

  /// The older half of those of the highest priority, at most `batch`, oldest first. How many they are.
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

  /// Claims the oldest that `wanted(node)` says is, of the first few; with a reference. Null if there is none.
  /// `wanted` is asked while the node is claimed, so that what it belongs to exists.
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
    for (unsigned i = 0; i < stale_count; ++i) stale[i]->drop();  // runs destructors of functions: without the lock
    return found;
  }

  /// Of the moment; sure in the order of operations on this queue only with `sure`.
  bool looks_empty() const noexcept { return size_.load(std::memory_order_relaxed) == 0; }
  bool is_empty_exact() noexcept {
    const std::scoped_lock hold(lock_);
    return looks_empty();
  }

 private:
  struct Ring {
    std::unique_ptr<Node*[]> slots;
    std::uint32_t capacity = 0, head = 0, tail = 0;  // counted on and on; capacity is a power of two
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

  std::atomic<std::uint32_t> size_ = 0;  // written with the lock held
  SpinLock lock_;
  unsigned levels_ = 0;  // a bit for each ring that has some
  Node* overflow_ = nullptr;
  std::array<Ring, Node::most_priority - Node::least_priority + 1> rings_;
};

}  // namespace tessera::executor
