// SPDX-License-Identifier: Apache-2.0
// Reduces arrays of several ranks, element by element, in a fixed order. Internal.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/base/dtype.h"
#include "tessera/base/enum_name.h"

namespace tessera::dist {

/// How elements of several ranks are combined.
enum class Reduce : unsigned char { sum, mean, min, max };

/// Combines `count` elements of each input in a tree over the inputs: 0 + 1, 2 + 3, then 0 + 2, and so on. The result
/// therefore depends only on the number of inputs. Integers wrap, f16 and bf16 are combined in f32 and rounded once,
/// and a NaN in any input gives NaN. For bool, min is "and" and max is "or". `out` may be one of the inputs. The dtype
/// must be valid for the operation (check_reduce).
void tree_reduce(Reduce how, DType dtype, std::span<const std::byte* const> inputs, std::byte* out, std::size_t count);

/// Throws DtypeError if `how` is not defined for the dtype: sums of bool, means of bool and integers.
void check_reduce(const char* operation, Reduce how, DType dtype);

}  // namespace tessera::dist
