// SPDX-License-Identifier: Apache-2.0
// Internal: zlib, opened at run time, so that programs which read no compressed files do not depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::detail {

/// Returns the CRC-32 of zip archives (the polynomial of IEEE 802.3). Needs no library.
std::uint32_t crc32(std::span<const std::byte> bytes);

/// Decompresses raw deflate data (RFC 1951) that has `size` bytes when decompressed. Returns an empty vector if the
/// data are invalid or have another size. Throws DeviceError if zlib is missing.
std::vector<std::byte> inflated(std::span<const std::byte> data, std::size_t size);
/// Compresses to raw deflate data, with zlib's default level. Throws DeviceError if zlib is missing.
std::vector<std::byte> deflated(std::span<const std::byte> bytes);

}  // namespace tessera::detail
