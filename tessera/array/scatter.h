// SPDX-License-Identifier: Apache-2.0
// scatter and scatter_add into the memory of a contiguous array.
#pragma once

#include "tessera/array/array.h"

namespace tessera::detail {

/// Does what `target.assign(scatter(target, indices, updates, axis))` does, without copying all of `target`, which must
/// be contiguous. The operands may share memory with it.
void scatter_into(Array& target, const Array& indices, const Array& updates, int axis);
/// The same for scatter_add.
void scatter_add_into(Array& target, const Array& indices, const Array& updates, int axis);

}  // namespace tessera::detail
