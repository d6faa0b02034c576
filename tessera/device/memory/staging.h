// SPDX-License-Identifier: Apache-2.0
// Pinned host memory in pieces, through which copies between devices go, kept by the device that they come from.
// Internal to device/.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "tessera/device/memory/storage.h"

namespace tessera {

struct OpenDevice;

class StagingPool {
 public:
  static constexpr std::size_t piece_bytes = 4 * 1024 * 1024;

  explicit StagingPool(OpenDevice& owner) : owner_(owner) {}
  /// A piece that the host can address; without `host` if the driver has none.
  Allocation take();
  void give(const Allocation& piece) noexcept;
  std::uint64_t trim() noexcept;  ///< gives what is not in use back to the driver; the bytes

 private:
  static constexpr std::size_t most_kept = 4;
  OpenDevice& owner_;
  std::mutex lock_;
  std::vector<Allocation> kept_;  // under lock_
};

/// Copies between devices whose memories the host cannot address, in pieces, two of them on their way at a time: while
/// one goes up to the target, the next comes down from the source. Returns when the last is queued on the target.
/// False, and nothing was done, if the source's driver has no pinned memory.
bool copy_through_pinned(Queue& target, const BufferView& to, Queue& source, const BufferView& from,
                         const std::string& name);

/// An upload without a copy, where the device's memory is the host's: `write` fills it where it lies, once nobody uses
/// it any more. False, and nothing was done, where it is not.
bool upload_in_place(Queue& queue, const BufferView& to, const std::function<void(std::byte*)>& write);

}  // namespace tessera
