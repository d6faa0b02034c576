// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/per_thread.h"

#include <pthread.h>

namespace tessera::os {

unsigned make_thread_key(void (*destroy)(void*)) noexcept {
  pthread_key_t key{};
  return ::pthread_key_create(&key, destroy) == 0 ? static_cast<unsigned>(key) + 1 : 0;
}

void set_thread_value(unsigned key, void* value) noexcept {
  if (key != 0) ::pthread_setspecific(static_cast<pthread_key_t>(key - 1), value);
}

}  // namespace tessera::os
