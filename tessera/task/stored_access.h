// SPDX-License-Identifier: Apache-2.0
// An array among the arguments of a task, from when the task is made until it runs. Internal.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "tessera/array/array.h"
#include "tessera/task/access.h"

namespace tessera {

struct Accessed;
enum class Combine : std::uint8_t;

namespace detail {

class Source;
class TaskStorage;
struct AccessDetails;

/// What a task does to an array, and the array: one line of memory, which one thread writes and another reads. Of whole
/// arrays of at most two dimensions the sizes say everything; others, and what few accesses need, is kept apart.
class StoredAccess {
 public:
  StoredAccess(const Accessed& a);
  StoredAccess(Accessed&& a);
  StoredAccess(const Array& array, Access mode = Access::in, MatrixPart triangle = MatrixPart::none);
  StoredAccess(Array&& array, Access mode = Access::in, MatrixPart triangle = MatrixPart::none);
  /// Of an array that somebody else keeps, and that is where the task runs while it does.
  struct ExternalArray {
    Array& array;
  };
  StoredAccess(ExternalArray external, Access mode, MatrixPart triangle);
  static void* operator new(std::size_t bytes) { return executor::slab::allocate(bytes); }
  static void operator delete(void* memory, std::size_t bytes) noexcept { executor::slab::deallocate(memory, bytes); }
  ~StoredAccess() { forget(); }
  StoredAccess(const StoredAccess&) = delete;
  StoredAccess& operator=(const StoredAccess&) = delete;

  Access mode() const noexcept { return mode_; }
  void set_mode(Access mode) noexcept { mode_ = mode; }
  Combine op() const noexcept { return op_; }
  /// The array in the memory where the task has it.
  Array array() const;

 private:
  friend class TaskAccesses;
  friend class TaskStorage;

  static bool fits_inline(const Array& array) noexcept;
  void keep_sizes(const Array& array) noexcept;
  /// Made when first asked for: before the task runs by its maker, and by the thread that begins it; then by who makes
  /// tasks inside it, with the storage's lock held.
  AccessDetails& details();
  AccessDetails* known_details() const noexcept { return details_.load(std::memory_order_acquire); }
  /// Nothing of the array is kept any more.
  void forget() noexcept {
    if (details_.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
      drop_details();
    source_.reset();
  }
  void drop_details() noexcept;

  StoredAccess* next_ = nullptr;  // of the task's
  TaskStorage* data_ = nullptr;   // since it was declared
  std::shared_ptr<Source> source_;
  std::atomic<AccessDetails*> details_ = nullptr;
  std::int64_t sizes_[2];  // of the array; one of none is 1
  DType dtype_ = DType::f32;
  std::uint8_t rank_ = 0;
  Access mode_;
  MatrixPart triangle_;
  Combine op_{};         // of a reduction
  bool packs_ = false;   // where the task runs it has a copy of the view alone
  bool listed_ = false;  // it belongs to the list
  bool empty_ = false;   // it names no element: the memory is the task's own, and its contents are anything
};
static_assert(sizeof(StoredAccess) == 64);

/// Memory for what a task keeps beside its accesses, in the task itself.
struct InlineAccessStorage {
  static constexpr std::size_t bytes = 56;
  alignas(8) std::byte memory[bytes];
};

}  // namespace detail
}  // namespace tessera
