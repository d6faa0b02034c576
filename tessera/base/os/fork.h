// SPDX-License-Identifier: Apache-2.0
// Makes fork() safe in a multi-threaded program. A child contains only the forking thread. Locks that other threads
// held during the fork would stay locked there, and state that they were changing would stay inconsistent.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace tessera::os {

namespace detail {
extern constinit std::atomic<std::uint32_t> fork_count;
}
/// Returns the number of forks between the initial process and this one. Costs one load.
inline std::uint32_t fork_generation() { return detail::fork_count.load(std::memory_order_relaxed); }

/// While an object exists, fork() in other threads waits, for at most ten seconds. Used for short operations with an
/// intermediate state that a child could not use, such as loading a library. Guards can be nested.
class ForkGuard {
 public:
  ForkGuard() noexcept;
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
};

/// Called in a child. Returns true if the fork timed out or happened inside guarded work, so that the guarded state is
/// unreliable.
bool forked_during_guard() noexcept;

/// Per-process state, such as locks and the data they guard. A forked child creates a new T on first use. If T has a
/// constructor that takes a pointer to the parent's T, this constructor is called. It may read only atomics of the
/// parent's object. Usable before static initialisation and until the process ends. Objects are destroyed only by
/// `drop`.
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
  /// Destroys this process's object. The object must not be in use.
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
      // The parent's object is not touched. If several threads create an object, the first one is used.
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
