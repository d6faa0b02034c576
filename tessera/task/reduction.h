// SPDX-License-Identifier: Apache-2.0
// Several tasks that compute parts of one result: each adds to memory of its slot, and what the slots have is combined
// before anybody looks at the result. Internal; users have reduce (region.h).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/task/part.h"

namespace tessera {

/// How results of tasks are put together, and what each begins with: 0, 1, the greatest or the least number.
enum class Combine : std::uint8_t { sum, product, minimum, maximum };
const char* to_string(Combine op);

namespace detail {

/// The reductions into one storage that are under way. A task gets the slot of its number in the order of submission,
/// and slots are combined in a fixed tree: so the numbers do not depend on threads, nor on which of alike devices.
class Reductions {
 public:
  static constexpr std::size_t slots = 8;

  /// Whether there are any: to be read without the lock.
  bool any() const noexcept { return any_.load(std::memory_order_acquire); }
  /// Who made the tasks, while there are any: RunningTask::number, or 0 for the program.
  std::uint64_t maker() const noexcept { return maker_.load(std::memory_order_relaxed); }
  /// Held while a task takes its slot and is put in order, and while the slots are combined. By one thread again and
  /// again: what it submits meanwhile uses the storage.
  std::recursive_mutex& lock() noexcept { return lock_; }
  /// Under the lock: the slot of the next task, which runs on `device`. Reductions of another kind, or into parts that
  /// meet this one, are combined before. DtypeError if there is nothing to begin with.
  Array slot(const Array& result, Combine op, Device device);
  /// Submits tasks that put the slots into what they are of; what is submitted after that comes after them.
  void combine(const StoragePart* part = nullptr);

 private:
  struct Set {
    Combine op;
    std::weak_ptr<Storage> storage;  // which owns this
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
