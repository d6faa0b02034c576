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

/// exit destroys the calling thread's thread_local objects first, in reverse order of their construction.
struct MainThread {
  ~MainThread() {
    for (std::size_t i = functions.size(); i-- > 0;)
      if (auto* const function = functions[i].load()) function();
  }
};

bool watch_main_thread() {
  if (!is_main_thread()) return false;  // the library was opened by another
  // glibc ends the process if it has no memory to register a destructor. From a block of this size it takes some.
  void* volatile const room = std::malloc(4096);  // volatile: a compiler may leave the pair of calls out
  if (room == nullptr) return false;
  std::free(room);
  static thread_local const MainThread watched;
  static_cast<void>(&watched);
  return true;
}

/// While the library is loaded, so that nearly every other thread_local object of the thread is younger.
[[maybe_unused]] const bool watched = watch_main_thread();

}  // namespace

void at_main_thread_exit(void (*function)()) noexcept {
  for (auto& place : functions) {
    void (*there)() = nullptr;
    if (place.compare_exchange_strong(there, function) || there == function) return;
  }
}

}  // namespace tessera::os
