// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's compiled text block by block. The threads of a block are fibers on the calling thread, in an order
// that varies between blocks to expose missing barriers. Reports deadlocks, lanes that meet at different calls, and
// threads that exit before a barrier.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "tests/drivers/text/host_abi.h"

namespace tessera::text {

/// The functions through which a kernel's text reaches its threads.
const Host& host();

struct BlockRun {
  Dim grid, block;
  unsigned width = 32;           ///< of subgroups
  unsigned long long order = 1;  ///< seed for the order of threads
  /// Called before each block: its memory has the last block's contents, or poison.
  std::function<void()> begin_block;
  /// The kernel for one thread.
  std::function<void(const Thread&)> body;
};
/// Returns an error message; empty on success.
std::string run_blocks(const BlockRun& run);

}  // namespace tessera::text
