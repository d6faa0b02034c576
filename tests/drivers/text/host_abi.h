// SPDX-License-Identifier: Apache-2.0
// Interface between a kernel's compiled text and the runner of its threads (blocks.h). Plain data without headers,
// because it is prepended to every emitted text.
#pragma once

namespace tessera::text {

struct Dim {
  unsigned x, y, z;
};

/// One thread as seen by its text.
struct Thread {
  Dim thread, block, block_size, grid;
  unsigned linear;  ///< linear id within the block
  unsigned width;   ///< of subgroups: consecutive threads of the block
};

/// Largest value that lanes can exchange.
inline constexpr unsigned exchange_bytes = 64;

struct Host {
  const Thread* (*self)();
  void (*barrier)();
  /// Called with the same `what` by every lane of the subgroup that has a thread. Returns the values of all lanes,
  /// `exchange_bytes` apart, valid until the thread's second next exchange.
  const unsigned char* (*exchange)(const char* what, unsigned long long mask, const void* value, unsigned bytes);
  __attribute__((noreturn)) void (*fail)(const char* what);  ///< fails the launch; never returns
};

}  // namespace tessera::text
