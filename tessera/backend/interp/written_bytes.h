// SPDX-License-Identifier: Apache-2.0
// Tracks which bytes of device memory have been written since allocation. With TESSERA_CHECK=1 the interpreter uses
// this to detect reads of uninitialised memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace tessera {

/// Stores a flag for each byte of memory. A flag occupies a whole byte instead of a bit, so that threads that write
/// different parts of an allocation do not race. Memory that was not added, such as wrapped user memory, counts as
/// written. Thread-safe if the threads access different bytes or are synchronised in another way.
class WrittenBytes {
 public:
  void add(const std::byte* data, std::size_t bytes);
  void remove(const std::byte* data) noexcept;
  /// Returns the flags from `at` to the end of its allocation, or null if the memory was not added.
  std::uint8_t* find(const std::byte* at) const noexcept;
  void set(const std::byte* at, std::size_t bytes, bool written) noexcept;
  /// Copies the flags of `from` to `to`. The ranges may overlap.
  void copy(const std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

 private:
  struct Flags {
    std::size_t bytes = 0;
    std::unique_ptr<std::uint8_t[]> written;
  };
  mutable std::mutex lock_;
  std::map<const std::byte*, Flags, std::greater<>> allocations_;  ///< by address, in descending order
};

}  // namespace tessera
