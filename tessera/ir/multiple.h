// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/ir/fwd.h"

namespace tessera::ir {

/// Returns a power of two, at most 2^32, of which the integer is a multiple in every thread.
std::uint64_t known_multiple(const Function& fn, NodeId id);

}  // namespace tessera::ir
