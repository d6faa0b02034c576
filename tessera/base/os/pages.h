// SPDX-License-Identifier: Apache-2.0
// Memory in whole pages of the operating system.
#pragma once

#include <cstddef>

namespace tessera::os {

/// Maps zeroed memory. `alignment` is a power of two. Returns nullptr if there is none.
void* map_pages(std::size_t bytes, std::size_t alignment) noexcept;
/// Returns memory of map_pages to the system. `bytes` must be the same as for map_pages.
void unmap_pages(void* data, std::size_t bytes) noexcept;
/// Returns the free memory of malloc to the system, where the C library can. Takes milliseconds.
void trim_heap() noexcept;

}  // namespace tessera::os
