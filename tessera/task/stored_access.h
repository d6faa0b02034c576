// SPDX-License-Identifier: Apache-2.0
// Stores an array argument from the creation of a task until the task runs. Internal.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "tessera/array/array.h"
#include "tessera/executor/slab.h"
#include "tessera/task/access.h"

namespace tessera {

struct Accessed;
enum class Combine : std::uint8_t;

namespace detail {

class Source;
class TaskStorage;
struct AccessDetails;

/// An array argument and its access mode. It fits into one cache line, which one thread writes and another reads.
/// `sizes_` describes contiguous whole arrays with at most two dimensions. All other information is in AccessDetails.
class StoredAccess {
 public:
  StoredAccess(const Accessed& a);
  StoredAccess(Accessed&& a);
  StoredAccess(const Array& array, Access mode = Access::in, MatrixPart triangle = MatrixPart::none);
  StoredAccess(Array&& array, Access mode = Access::in, MatrixPart triangle = MatrixPart::none);
  /// An array inside another object. It refers to memory on the task's device while the task runs.
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
  /// Returns the array on the task's device.
  Array array() const;

 private:
  friend class TaskAccesses;
  friend class TaskStorage;

  static bool fits_inline(const Array& array) noexcept;
  void keep_sizes(const Array& array) noexcept;
  /// Returns the details, and creates them on first use. Until the task runs, only the creating thread may call this
  /// function. After that, only the thread that begins the task may call it, and then threads that create nested tasks
  /// and hold the storage's lock.
  AccessDetails& details();
  AccessDetails* known_details() const noexcept { return details_.load(std::memory_order_acquire); }
  /// Drops all references to the array.
  void forget() noexcept {
    if (details_.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
      drop_details();
    source_.reset();
  }
  void drop_details() noexcept;

  StoredAccess* next_ = nullptr;  // next access in the task's list
  TaskStorage* data_ = nullptr;   // set when the access is declared
  std::shared_ptr<Source> source_;
  std::atomic<AccessDetails*> details_ = nullptr;
  std::int64_t sizes_[2];  // the array's extents; unused entries are 1
  DType dtype_ = DType::f32;
  std::uint8_t rank_ = 0;
  Access mode_;
  MatrixPart triangle_;
  Combine op_{};         // operation of a reduction
  bool packs_ = false;   // the task only receives a packed copy of the view
  bool listed_ = false;  // owned by the list
  bool empty_ = false;   // the array has no elements; the task gets its own uninitialised memory
};
static_assert(sizeof(StoredAccess) == 64);

/// Memory inside a task in which its TaskAccesses is stored.
struct InlineAccessStorage {
  static constexpr std::size_t bytes = 56;
  alignas(8) std::byte memory[bytes];
};

}  // namespace detail
}  // namespace tessera
