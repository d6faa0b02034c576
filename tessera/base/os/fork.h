// SPDX-License-Identifier: Apache-2.0
// Makes fork() safe in a multi-threaded program. A child contains only the forking thread, so locks held and state
// being changed by other threads would stay that way.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace tessera::os {

namespace detail {
extern constinit std::atomic<std::uint32_t> fork_count;
}
/// The number of forks between the initial process and this one. Costs one load.
inline std::uint32_t fork_generation() { return detail::fork_count.load(std::memory_order_relaxed); }

/// While one exists, fork() in other threads waits, for at most ten seconds. For short operations whose intermediate
/// state would be unusable in a child, such as loading a library. Guards can be nested.
class ForkGuard {
 public:
  ForkGuard() noexcept;
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
};

/// In a child: true if the fork timed out or happened inside guarded work, so that the guarded state is unreliable.
bool forked_during_guard() noexcept;

/// State that each process has its own copy of, such as locks and the data they guard. A forked child creates a new T
/// at its first use, from a pointer to the parent's T if T has such a constructor, which may read only atomics. Usable
/// before static initialisation and until the process ends; destroyed only by `drop`.
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
  /// Destroys this process's object, which must not be in use.
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
      // The parent's object is not touched. If several threads create one, the first is used.
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
