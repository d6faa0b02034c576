// SPDX-License-Identifier: Apache-2.0
// Converts arrays to and from the bytes stored in files: contiguous, in C order, little-endian.
#pragma once

#include <span>
#include <string>

#include "tessera/array/array.h"

namespace tessera::detail {

/// Appends the elements of `a` to `to`. Waits for the device.
void append_bytes(std::string& to, const Array& a);
/// Creates an array from `bytes`. The number of bytes must match the shape. Bools other than 0 and 1 are replaced by 1,
/// both in the array and in `bytes`.
Array array_of_bytes(std::span<std::byte> bytes, DType dtype, Shape shape, std::optional<Device> device);
/// Replaces bools other than 0 and 1 by 1, as array_of_bytes does.
void normalize_bools(std::span<std::byte> bytes, DType dtype);

}  // namespace tessera::detail
