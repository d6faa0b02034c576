// SPDX-License-Identifier: Apache-2.0
// A collision-resistant digest of functions, for caches on disk.
#pragma once

#include <string>

#include "tessera/ir/node.h"

namespace tessera::ir {

/// Returns the SHA-256 of the data that `hash_of` hashes, as 64 hexadecimal digits.
std::string digest_of(const Function& fn);

}  // namespace tessera::ir
