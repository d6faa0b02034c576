// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/interp/written_bytes.h"

#include <cstring>

namespace tessera {

void WrittenBytes::add(const std::byte* data, std::size_t bytes) {
  Flags flags{bytes, std::make_unique<std::uint8_t[]>(bytes)};
  std::lock_guard hold(lock_);
  allocations_[data] = std::move(flags);
}

void WrittenBytes::remove(const std::byte* data) noexcept {
  std::lock_guard hold(lock_);
  allocations_.erase(data);
}

std::uint8_t* WrittenBytes::find(const std::byte* at) const noexcept {
  std::lock_guard hold(lock_);
  const auto found = allocations_.lower_bound(at);
  if (found == allocations_.end()) return nullptr;
  const auto offset = static_cast<std::size_t>(at - found->first);
  return offset < found->second.bytes ? found->second.written.get() + offset : nullptr;
}

void WrittenBytes::set(const std::byte* at, std::size_t bytes, bool written) noexcept {
  if (std::uint8_t* const flags = find(at)) std::memset(flags, written ? 1 : 0, bytes);
}

void WrittenBytes::copy(const std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::uint8_t* const flags = find(to);
  if (!flags) return;
  if (const std::uint8_t* const other = find(from))
    std::memmove(flags, other, bytes);
  else
    std::memset(flags, 1, bytes);
}

}  // namespace tessera
