// SPDX-License-Identifier: Apache-2.0
// Location of Tessera's cache on disk. Internal: used by device/ and the backends.
#pragma once

#include "tessera/base/os/private_store.h"

namespace tessera {

/// TESSERA_CACHE_DIR, else tessera/ in XDG_CACHE_HOME, else in ~/.cache; without a folder if none is set. Entries never
/// contain values of environment variables except a library's own path: keys are hashed, and drivers' messages are
/// redacted with `redact_values` (probe_results.h).
os::PrivateStore private_store();

}  // namespace tessera
