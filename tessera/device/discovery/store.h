// SPDX-License-Identifier: Apache-2.0
// The cache on disk. Internal: used by device/ and the backends.
#pragma once

#include "tessera/base/os/private_store.h"

namespace tessera {

/// Returns the cache in TESSERA_CACHE_DIR, else in $XDG_CACHE_HOME/tessera, else in ~/.cache/tessera. The cache has no
/// folder if TESSERA_CACHE_DIR, XDG_CACHE_HOME and HOME are all unset. Entries contain no values of environment
/// variables, except the paths of libraries: keys are hashed, and drivers' messages are redacted with `redact_values`
/// (probe_results.h).
os::PrivateStore private_store();

}  // namespace tessera
