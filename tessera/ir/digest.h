// SPDX-License-Identifier: Apache-2.0
// A collision-resistant identity of functions, for caches on disk.
#pragma once

#include <string>

#include "tessera/ir/node.h"

namespace tessera::ir {

/// SHA-256 over the same data as `hash_of`, as 64 hexadecimal digits.
std::string digest_of(const Function& fn);

}  // namespace tessera::ir
