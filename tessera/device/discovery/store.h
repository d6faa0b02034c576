// SPDX-License-Identifier: Apache-2.0
// Where Tessera keeps on disk what later processes may use. Internal: device/ and backends keep things there.
#pragma once

#include "tessera/base/os/private_store.h"

namespace tessera {

/// TESSERA_CACHE_DIR, else tessera/ in XDG_CACHE_HOME, else in ~/.cache; with no place where none of these is set. What
/// is kept in it holds no value of an environment variable but a library's own path: keys are hashes, and drivers'
/// words go through `redact_values` (probe_results.h).
os::PrivateStore private_store();

}  // namespace tessera
