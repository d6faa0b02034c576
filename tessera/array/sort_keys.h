// SPDX-License-Identifier: Apache-2.0
// Keys for sorting: unsigned integers that sort in the same order as the elements. NaN sorts last, and -0 before +0.
// Internal to array/.
#pragma once

#include "tessera/ir/value.h"

namespace tessera::detail {

/// The number of low bits that differ between the keys of a dtype.
int key_bits(DType t);
/// The dtype of the keys: u64 for 64-bit elements, else u32.
DType key_dtype(DType t);
/// A constant of a key's dtype. For u32, the upper half of `bits` is ignored.
ir::Value key_constant(DType key, std::uint64_t bits);
ir::Value key_of(ir::Value element);
/// The element of dtype `t` with this key. All NaNs have the same key.
ir::Value element_of(ir::Value key, DType t);

}  // namespace tessera::detail
