// SPDX-License-Identifier: Apache-2.0
// An allocator for objects that one thread creates and another destroys, millions of times per second. Each thread
// caches blocks of each size; surpluses and shortages are exchanged with a shared depot in whole magazines. Internal.
#pragma once

#include <cstddef>

#include "tessera/base/spin_lock.h"

namespace tessera::executor {

using tessera::SpinLock;

namespace slab {

/// Prefetches lines that another thread wrote last and that the calling thread will use soon, all at once, while it
/// does other work.
void prefetch(const void* memory, std::size_t bytes) noexcept;

/// Allocates `bytes`, aligned to 64 up to 2,048 bytes. Throws std::bad_alloc.
void* allocate(std::size_t bytes);
/// `bytes` must equal the size passed to `allocate`.
void deallocate(void* memory, std::size_t bytes) noexcept;

/// A standard allocator on top of it, for containers and shared pointers.
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
