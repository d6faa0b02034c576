// SPDX-License-Identifier: Apache-2.0
// Memory for things that are made by one thread and given up by another, millions of times a second: each thread keeps
// some of each size, and what it has too much or too little of goes as a whole magazine from and to all. Internal.
#pragma once

#include <cstddef>

#include "tessera/base/spin_lock.h"

namespace tessera::executor {

using tessera::SpinLock;

namespace slab {

/// The calling thread will use these lines soon, and another one wrote them last: they come while it does something
/// else, and all at once.
void prefetch(const void* memory, std::size_t bytes) noexcept;

/// Memory for `bytes`, aligned to 64 up to 2,048 of them. std::bad_alloc.
void* allocate(std::size_t bytes);
/// `bytes` as they were asked for.
void deallocate(void* memory, std::size_t bytes) noexcept;

/// The same for the standard library's containers and shared pointers.
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
