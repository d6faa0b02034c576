// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/main_thread_exit.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>

#include "tessera/base/os/system.h"

namespace tessera::os {
namespace {

constinit std::array<std::atomic<void (*)()>, 8> functions{};

/// exit() first destroys the thread_local objects of the calling thread, in reverse order of construction.
struct MainThread {
  ~MainThread() {
    for (std::size_t i = functions.size(); i-- > 0;)
      if (auto* const function = functions[i].load()) function();
  }
};

bool watch_main_thread() {
  if (!is_main_thread()) return false;  // another thread loaded the library
  // If glibc cannot allocate memory to register a destructor, it aborts. Check that an allocation of that size
  // succeeds.
  void* volatile const room = std::malloc(4096);  // volatile prevents the compiler from removing malloc and free
  if (room == nullptr) return false;
  std::free(room);
  static thread_local const MainThread watched;
  static_cast<void>(&watched);
  return true;
}

/// Constructed when the library is loaded. Nearly all thread_local objects of the main thread are constructed later and
/// destroyed earlier.
[[maybe_unused]] const bool watched = watch_main_thread();

}  // namespace

void at_main_thread_exit(void (*function)()) noexcept {
  for (auto& place : functions) {
    void (*there)() = nullptr;
    if (place.compare_exchange_strong(there, function) || there == function) return;
  }
}

}  // namespace tessera::os
