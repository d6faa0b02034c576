// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/fork.h"

#include <atomic>

#include <pthread.h>
#include <time.h>

namespace tessera::os {
namespace {

constexpr time_t longest_wait = 10;  // seconds

std::atomic<bool> amid = false;

// POSIX primitives have no constructor or destructor and can be reinitialised in a child.
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
unsigned inside = 0;   // number of threads that a fork must wait for; guarded by `lock`
unsigned forking = 0;  // number of threads that are about to fork; new guards wait for them; guarded by `lock`
constinit thread_local unsigned depth = 0;

// The lock is held during the fork, so that the guarded state is consistent in the child.
void before_fork() {
  ::pthread_mutex_lock(&lock);
  if (depth != 0) return;
  ++forking;
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += longest_wait;
  while (inside != 0 && ::pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until) == 0) {}
}
void after_fork_in_parent() {
  if (depth == 0) --forking;
  ::pthread_cond_broadcast(&changed);
  ::pthread_mutex_unlock(&lock);
}
void after_fork_in_child() {
  detail::fork_count.fetch_add(1, std::memory_order_relaxed);
  const unsigned mine = depth != 0 ? 1 : 0;
  if (inside != mine) amid = true;
  inside = mine;
  forking = 0;
  ::pthread_mutex_unlock(&lock);  // otherwise, the thread sanitizer reports the mutex as locked
  lock = PTHREAD_MUTEX_INITIALIZER;
  changed = PTHREAD_COND_INITIALIZER;
}
[[maybe_unused]] const int watching_forks = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

}  // namespace

constinit std::atomic<std::uint32_t> detail::fork_count = 0;

bool forked_during_guard() noexcept { return amid.load(std::memory_order_relaxed); }

ForkGuard::ForkGuard() noexcept {
  if (depth++ != 0) return;
  ::pthread_mutex_lock(&lock);
  while (forking != 0) ::pthread_cond_wait(&changed, &lock);
  ++inside;
  ::pthread_mutex_unlock(&lock);
}

ForkGuard::~ForkGuard() {
  if (--depth != 0) return;
  ::pthread_mutex_lock(&lock);
  --inside;
  if (forking != 0) ::pthread_cond_broadcast(&changed);
  ::pthread_mutex_unlock(&lock);
}

}  // namespace tessera::os
