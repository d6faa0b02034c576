// SPDX-License-Identifier: Apache-2.0
// The cache on disk. Internal: used by device/ and the backends.
#pragma once

#include "tessera/base/os/private_store.h"

namespace tessera {

/// Returns the cache in TESSERA_CACHE_DIR, else in the folder tessera/ of XDG_CACHE_HOME, else of ~/.cache. It has no
/// folder if none of these is set. Entries contain no values of environment variables, except the paths of libraries:
/// keys are hashed, and drivers' messages are redacted with `redact_values` (probe_results.h).
os::PrivateStore private_store();

}  // namespace tessera
