// SPDX-License-Identifier: Apache-2.0
// Interface between the compiled text of a kernel and the scheduler of its threads (blocks.h). It includes no other
// headers, because it is prepended to every emitted text.
#pragma once

namespace tessera::text {

struct Dim {
  unsigned x, y, z;
};

/// The position of a thread, for the compiled text.
struct Thread {
  Dim thread, block, block_size, grid;
  unsigned linear;  ///< linear id in the block
  unsigned width;   ///< width of subgroups, which consist of consecutive threads
};

/// The largest size of a value that lanes can exchange, in bytes.
inline constexpr unsigned exchange_bytes = 64;

struct Host {
  const Thread* (*self)();
  void (*barrier)();
  /// Exchanges values between lanes. Every lane of the subgroup that has a thread must call it with the same `what`.
  /// Returns the values of all lanes, with a stride of `exchange_bytes`. They are valid until the second exchange after
  /// this one.
  const unsigned char* (*exchange)(const char* what, unsigned long long mask, const void* value, unsigned bytes);
  /// Asynchronous copies of the thread, which `wait_async` executes.
  void (*copy_async)(void* to, const void* from, unsigned bytes);
  void (*commit_async)();
  void (*wait_async)(unsigned groups);
  __attribute__((noreturn)) void (*fail)(const char* what);  ///< fails the launch and never returns
};

}  // namespace tessera::text
