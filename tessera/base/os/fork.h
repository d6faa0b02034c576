// SPDX-License-Identifier: Apache-2.0
// What makes fork() safe in a program with threads: a child has the forking thread only, and whatever another was
// changing, or held locked, stays so for ever.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace tessera::os {

namespace detail {
extern constinit std::atomic<std::uint32_t> fork_count;
}
/// 0 in the process that started, and one more in each child that `fork` made of it. A read of a variable.
inline std::uint32_t fork_generation() { return detail::fork_count.load(std::memory_order_relaxed); }

/// While one lives, fork() in another thread waits, for ten seconds at most: for short work whose half-done state no
/// child could use, such as loading a library. They may stand in each other.
class ForkGuard {
 public:
  ForkGuard() noexcept;
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
};

/// In a child: its fork did not wait to the end, or a thread forked within such work, so what ForkGuard guards is not
/// to be relied on.
bool forked_during_guard() noexcept;

/// State of which each process has its own, locks and what they guard: a child of fork makes a new one when it needs
/// it, T(&the parent's) if it has such a constructor, which may only read what is atomic. Usable from before any static
/// object is made until the process ends; destroyed by `drop` only.
template <class T>
class PerProcess {
 public:
  constexpr PerProcess() = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& get() {
    Entry* entry = current_.load(std::memory_order_acquire);
    if (entry == nullptr || entry->generation != fork_generation()) [[unlikely]]
      return make(entry);
    return entry->value;
  }
  T* operator->() { return &get(); }
  T& operator*() { return get(); }
  /// Destroys this process's one; nobody may be using it.
  void drop() noexcept {
    Entry* const entry = current_.exchange(nullptr);
    if (entry != nullptr && entry->generation == fork_generation()) delete entry;
  }

 private:
  struct Entry {
    explicit Entry(std::uint32_t g) : generation(g) {}
    Entry(std::uint32_t g, const T* parents) : generation(g), value(parents) {}
    const std::uint32_t generation;
    T value;
  };
  [[gnu::noinline]] T& make(Entry* entry) {
    const std::uint32_t generation = fork_generation();
    while (entry == nullptr || entry->generation != generation) {
      // The parent's is left as it is. Of several that are made at once one is taken.
      Entry* fresh = nullptr;
      if constexpr (std::is_constructible_v<T, const T*>)
        fresh = new Entry(generation, entry == nullptr ? nullptr : &entry->value);
      else
        fresh = new Entry(generation);
      if (current_.compare_exchange_strong(entry, fresh, std::memory_order_acq_rel)) return fresh->value;
      delete fresh;
    }
    return entry->value;
  }
  std::atomic<Entry*> current_ = nullptr;
};

}  // namespace tessera::os
