// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/time_slice.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace tessera::os {

namespace {

/// The argument of sched_setattr(2), version 0.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes), policy = 0;  // SCHED_OTHER
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0;  // nanoseconds; the runtime is the slice
};
static_assert(sizeof(SchedulingAttributes) == 48);

}  // namespace

void request_short_slices() noexcept {
  if (::sched_getscheduler(0) != SCHED_OTHER) return;  // the user has chosen another policy
  SchedulingAttributes attributes;
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime = 500'000;  // enough for a copy between processes; the default is 1 to 4 ms
  ::syscall(SYS_sched_setattr, 0, &attributes, 0u);
}

}  // namespace tessera::os
