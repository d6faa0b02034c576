// SPDX-License-Identifier: Apache-2.0
// Runs the compiled text of a kernel, one block after another. The threads of a block are fibers on the calling thread.
// Their order varies between blocks, to expose missing barriers. Reports deadlocks, subgroups whose lanes execute
// different calls, and threads that exit before a barrier.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "tests/drivers/text/host_abi.h"

namespace tessera::text {

/// Returns the functions that compiled text calls to access its threads.
const Host& host();

struct BlockRun {
  Dim grid, block;
  unsigned width = 32;           ///< width of subgroups
  unsigned long long order = 1;  ///< seed for the order of the threads
  /// Called before each block, for example to initialise its shared memory.
  std::function<void()> begin_block;
  /// Runs the kernel for one thread.
  std::function<void(const Thread&)> body;
};
/// Runs all blocks. Returns an error message, or an empty string on success.
std::string run_blocks(const BlockRun& run);

}  // namespace tessera::text
