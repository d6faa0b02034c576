// SPDX-License-Identifier: Apache-2.0
// Internal to array/. Copies of views that repeat each element.
#pragma once

#include <optional>

#include "tessera/array/array.h"

namespace tessera::detail {

/// Copies an array whose last dimension repeats each element of a contiguous array a few times. Returns nothing for
/// other arrays, and on devices whose blocks are not vectors.
std::optional<Array> copy_repeated(const Array& a);

}  // namespace tessera::detail
