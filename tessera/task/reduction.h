// SPDX-License-Identifier: Apache-2.0
// Reductions by several tasks. Each task adds to a slot, and the slots are combined before the result is used.
// Internal; users call reduce() (region.h).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/task/combine.h"
#include "tessera/task/part.h"

namespace tessera {

namespace detail {

/// The pending reductions into one storage. A task uses a slot that depends on its submission number, and the slots are
/// combined in a fixed tree. Results therefore do not depend on threads, or on which of several identical devices a
/// task runs on.
class Reductions {
 public:
  static constexpr std::size_t slots = 8;

  /// True if there are pending reductions. May be called without the lock.
  bool any() const noexcept { return any_.load(std::memory_order_acquire); }
  /// RunningTask::number of the task that created the reducing tasks, or 0 if no task created them. Valid while any()
  /// is true.
  std::uint64_t maker() const noexcept { return maker_.load(std::memory_order_relaxed); }
  /// Locked while a task gets its slot and its dependencies, and while slots are combined. The lock is recursive
  /// because combining submits tasks that use the storage.
  std::recursive_mutex& lock() noexcept { return lock_; }
  /// Returns the slot of the next task, which runs on `device`. First combines pending reductions that use a different
  /// operation or that cover a different, overlapping part. The caller must hold lock(). Throws DtypeError if the
  /// operation does not support the dtype.
  Array slot(const Array& result, Combine op, Device device);
  /// Submits tasks that combine the slots into the results. If `part` is given, only combines reductions that overlap
  /// it. Tasks that are submitted later depend on these tasks.
  void combine(const StoragePart* part = nullptr);

 private:
  struct Set {
    Combine op;
    std::weak_ptr<Storage> storage;  // the storage that owns this object
    Shape shape;
    Strides strides;
    std::int64_t offset;
    DType dtype;
    StoragePart part;
    std::uint64_t tasks = 0;
    std::vector<Array> slots;
  };
  static void submit(Set set);

  std::recursive_mutex lock_;
  std::vector<Set> sets_;
  std::atomic<std::uint64_t> maker_ = 0;
  std::atomic<bool> any_ = false;
};

}  // namespace detail
}  // namespace tessera
