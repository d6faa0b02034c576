// SPDX-License-Identifier: Apache-2.0
// Which bytes of a checking device's memory were written since they were allocated: how reads of uninitialised memory
// are found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace tessera {

/// One flag for each byte, not one bit, so that threads that write different parts of one allocation do not race.
/// Memory that was not added, such as the user's own that is wrapped, counts as written. Safe for use by several
/// threads, as long as they use different bytes or synchronise otherwise.
class WrittenBytes {
 public:
  void add(const std::byte* data, std::size_t bytes);
  void remove(const std::byte* data) noexcept;
  /// The flags from `at` on, up to the end of its allocation. Null for memory that was not added.
  std::uint8_t* find(const std::byte* at) const noexcept;
  void set(const std::byte* at, std::size_t bytes, bool written) noexcept;
  /// Gives `to` the flags of `from`. The two may overlap.
  void copy(const std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

 private:
  struct Flags {
    std::size_t bytes = 0;
    std::unique_ptr<std::uint8_t[]> written;
  };
  mutable std::mutex lock_;
  std::map<const std::byte*, Flags, std::greater<>> allocations_;  ///< by address, the highest first
};

}  // namespace tessera
