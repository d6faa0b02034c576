// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process, for tests and for programs that want to try several ranks without a launcher.
// Internal.
#pragma once

#include <memory>
#include <vector>

#include "tessera/dist/transport.h"

namespace tessera::dist {

/// Returns the transports of `size` ranks, in order of their ranks. Each may be used by another thread.
std::vector<std::unique_ptr<Transport>> thread_transports(int size);

}  // namespace tessera::dist
