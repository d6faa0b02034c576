// SPDX-License-Identifier: Apache-2.0
// Runs compiled text of a kernel: block after block, the threads of a block as fibers on the calling thread, in an
// order that differs from block to block, so that a missing barrier shows. Threads that wait for others that never
// come, lanes that meet at different places, and threads that leave before a barrier are errors.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "tests/drivers/text/host_abi.h"

namespace tessera::text {

/// What a kernel's text reaches its threads by.
const Host& host();

struct BlockRun {
  Dim grid, block;
  unsigned width = 32;           ///< of subgroups
  unsigned long long order = 1;  ///< of threads: a seed
  /// Before each block: its memory is what the last one left, or poison.
  std::function<void()> begin_block;
  /// The kernel for one thread.
  std::function<void(const Thread&)> body;
};
/// Empty, or what went wrong.
std::string run_blocks(const BlockRun& run);

}  // namespace tessera::text
