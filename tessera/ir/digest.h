// SPDX-License-Identifier: Apache-2.0
// What a function is, in a form that one program may keep and another believe.
#pragma once

#include <string>

#include "tessera/ir/node.h"

namespace tessera::ir {

/// SHA-256 of all that `hash_of` takes, 64 hexadecimal digits.
std::string digest_of(const Function& fn);

}  // namespace tessera::ir
