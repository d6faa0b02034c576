// SPDX-License-Identifier: Apache-2.0
// An array's elements as they stand in files: one behind the other in C order, little-endian.
#pragma once

#include <span>
#include <string>

#include "tessera/array/array.h"

namespace tessera::detail {

/// Appends the elements of `a`. Waits for the device.
void append_bytes(std::string& to, const Array& a);
/// An array of the elements in `bytes`, which are as many as the shape says. A bool that is neither 0 nor 1 becomes 1,
/// in `bytes` too.
Array array_of_bytes(std::span<std::byte> bytes, DType dtype, Shape shape, std::optional<Device> device);
/// What array_of_bytes does to bools, for bytes that go elsewhere.
void normalize_bools(std::span<std::byte> bytes, DType dtype);

}  // namespace tessera::detail
