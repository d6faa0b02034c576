// SPDX-License-Identifier: Apache-2.0
// An array's elements as stored in files: contiguous in C order, little-endian.
#pragma once

#include <span>
#include <string>

#include "tessera/array/array.h"

namespace tessera::detail {

/// Appends the elements of `a`. Waits for the device.
void append_bytes(std::string& to, const Array& a);
/// Makes an array from `bytes`, whose size must match the shape. A bool that is neither 0 nor 1 becomes 1, also in
/// `bytes`.
Array array_of_bytes(std::span<std::byte> bytes, DType dtype, Shape shape, std::optional<Device> device);
/// Replaces bools other than 0 by 1, as array_of_bytes does.
void normalize_bools(std::span<std::byte> bytes, DType dtype);

}  // namespace tessera::detail
