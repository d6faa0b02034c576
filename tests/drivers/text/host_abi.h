// SPDX-License-Identifier: Apache-2.0
// What compiled text of a kernel and the runner of its threads (blocks.h) tell each other. Plain data without any
// header: it is put before every emitted text.
#pragma once

namespace tessera::text {

struct Dim {
  unsigned x, y, z;
};

/// One thread as its text sees it.
struct Thread {
  Dim thread, block, block_size, grid;
  unsigned linear;  ///< within the block
  unsigned width;   ///< of subgroups: lanes are cut from the block in order
};

/// Largest value that lanes hand one another.
inline constexpr unsigned exchange_bytes = 64;

struct Host {
  const Thread* (*self)();
  void (*barrier)();
  /// Every lane of the subgroup that has a thread calls it with the same `what`; gives the values of all,
  /// `exchange_bytes` apart. They stay until this thread's next but one exchange.
  const unsigned char* (*exchange)(const char* what, unsigned long long mask, const void* value, unsigned bytes);
  __attribute__((noreturn)) void (*fail)(const char* what);  ///< the launch has failed; never returns
};

}  // namespace tessera::text
