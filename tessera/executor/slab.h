// SPDX-License-Identifier: Apache-2.0
// An allocator for objects that one thread creates and another thread destroys, millions of times per second. Each
// thread caches free blocks of each size. It exchanges them with a shared depot in batches called magazines. Internal.
#pragma once

#include <cstddef>

#include "tessera/base/spin_lock.h"

namespace tessera::executor {

using tessera::SpinLock;

namespace slab {

/// Prefetches all cache lines of a memory range that another thread wrote and that this thread will use soon. The lines
/// are loaded in parallel while the thread does other work.
void prefetch(const void* memory, std::size_t bytes) noexcept;

/// Allocates `bytes`, aligned to 64 up to a size of 2,048 bytes. Throws std::bad_alloc.
void* allocate(std::size_t bytes);
/// Frees memory. `bytes` must be the size that was passed to `allocate`.
void deallocate(void* memory, std::size_t bytes) noexcept;

/// A standard allocator that uses these functions, for containers and shared pointers.
template <class T>
struct Allocator {
  using value_type = T;
  Allocator() noexcept = default;
  template <class U>
  Allocator(const Allocator<U>&) noexcept {}
  T* allocate(std::size_t count) { return static_cast<T*>(slab::allocate(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept { slab::deallocate(memory, count * sizeof(T)); }
  friend bool operator==(Allocator, Allocator) noexcept { return true; }
};

}  // namespace slab
}  // namespace tessera::executor
