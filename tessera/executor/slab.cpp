// SPDX-License-Identifier: Apache-2.0
#include "tessera/executor/slab.h"

#include <mutex>
#include <new>
#include <utility>

#include "tessera/base/os/fork.h"
#include "tessera/base/os/per_thread.h"

namespace tessera::executor::slab {
namespace {

constexpr std::size_t granule = 64, classes = 32;
constexpr unsigned magazine_size = 64;

struct Free {
  Free* next;
  Free* next_magazine;  // set only in the first block of a magazine
};

// Full magazines, shared by all threads. A forked child has its own depot, because the parent's lock may be held there
// forever.
struct Depot {
  SpinLock lock;
  Free* magazines[classes] = {};
  void* chunks = nullptr;  // linked list of chunks; they are kept until the process ends

  Free* allocate(std::size_t kind) noexcept {
    const std::scoped_lock hold(lock);
    Free* const first = magazines[kind];
    if (first != nullptr) magazines[kind] = first->next_magazine;
    return first;
  }
  void deallocate(std::size_t kind, Free* first) noexcept {
    const std::scoped_lock hold(lock);
    first->next_magazine = std::exchange(magazines[kind], first);
  }
  Free* fresh(std::size_t kind) {
    const std::size_t bytes = (kind + 1) * granule;
    auto* const chunk =
        static_cast<std::byte*>(::operator new(granule + magazine_size * bytes, std::align_val_t{granule}));
    {
      const std::scoped_lock hold(lock);
      ::new (chunk) void*(std::exchange(chunks, chunk));
    }
    Free* first = nullptr;
    for (unsigned i = magazine_size; i-- > 0;) first = ::new (chunk + granule + i * bytes) Free{first, nullptr};
    return first;
  }
};
constinit os::PerProcess<Depot> depot;

// A thread's cache. It has two magazines per size, so that alternating allocations and deallocations do not use the
// depot.
class Cache {
 public:
  Cache() = default;
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache() {
    for (std::size_t kind = 0; kind < classes; ++kind) {
      if (kinds_[kind].some != nullptr) depot->deallocate(kind, kinds_[kind].some);
      if (kinds_[kind].full != nullptr) depot->deallocate(kind, kinds_[kind].full);
    }
  }
  void* allocate(std::size_t kind) {
    Kind& k = kinds_[kind];
    if (k.some == nullptr) {
      k.some = std::exchange(k.full, nullptr);
      if (k.some == nullptr) k.some = depot->allocate(kind);
      if (k.some == nullptr) k.some = depot->fresh(kind);
      k.count = magazine_size;
    }
    if (k.count > 0) --k.count;  // a magazine left by an exited thread may contain fewer blocks than its count
    Free* const taken = k.some;
    k.some = taken->next;
    if (k.some != nullptr) prefetch(k.some, (kind + 1) * granule);
    return taken;
  }
  void deallocate(std::size_t kind, void* memory) noexcept {
    Kind& k = kinds_[kind];
    if (k.count >= magazine_size) {
      if (k.full != nullptr) depot->deallocate(kind, k.full);
      k.full = std::exchange(k.some, nullptr);
      k.count = 0;
    }
    k.some = ::new (memory) Free{k.some, nullptr};
    ++k.count;
  }

 private:
  struct Kind {
    Free* some = nullptr;
    Free* full = nullptr;
    unsigned count = 0;  // number of blocks in `some`
  };
  Kind kinds_[classes];
};
struct ForNodes;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool by_hand = false;  // separate allocations let sanitizers detect use after free
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool by_hand = false;
#else
constexpr bool by_hand = true;
#endif
#else
constexpr bool by_hand = true;
#endif

}  // namespace

// Prefetch for writing; a line prefetched for reading would need a second request. Processors without this instruction
// ignore it.
#if defined(__x86_64__)
[[gnu::target("prfchw")]]
#endif
void prefetch(const void* memory, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += granule) __builtin_prefetch(static_cast<const char*>(memory) + at, 1);
}

void* allocate(std::size_t bytes) {
  if (!by_hand || bytes > granule * classes) return ::operator new(bytes, std::align_val_t{granule});
  return os::PerThread<Cache, ForNodes>::get().allocate((bytes - 1) / granule);
}

void deallocate(void* memory, std::size_t bytes) noexcept {
  if (!by_hand || bytes > granule * classes) return ::operator delete(memory, std::align_val_t{granule});
  os::PerThread<Cache, ForNodes>::get().deallocate((bytes - 1) / granule, memory);
}

}  // namespace tessera::executor::slab
