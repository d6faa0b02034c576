// SPDX-License-Identifier: Apache-2.0
// Checks of a transport, which all ranks of a job run together.
#pragma once

#include "tessera/dist/transport.h"

namespace tessera::test {

/// Exchanges messages of 0 bytes to 3 MiB between all pairs of ranks, including each rank with itself, and checks
/// contents, order, sizes, senders and cancelled receives; with `errors_return`, also an error. Throws
/// std::runtime_error if a check fails or if messages do not arrive within 30 s.
void check_transport(dist::Transport& transport, bool errors_return);

}  // namespace tessera::test
