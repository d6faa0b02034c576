// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera::detail {

/// Whether this thread runs a function again, in a walk (recompute): what it notes beside its result was noted before.
bool is_recomputing();

}  // namespace tessera::detail
