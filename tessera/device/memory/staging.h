// SPDX-License-Identifier: Apache-2.0
// Pinned host memory in pieces, used as staging buffers for copies between devices. Each source device has a pool.
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
  /// Returns a piece that the host can address. Its `host` is null if the driver has no pinned memory.
  Allocation take();
  void give(const Allocation& piece) noexcept;
  std::uint64_t trim() noexcept;  ///< frees unused pieces; returns their bytes

 private:
  static constexpr std::size_t most_kept = 4;
  OpenDevice& owner_;
  std::mutex lock_;
  std::vector<Allocation> kept_;  // guarded by lock_
};

/// Copies between devices that have no host-addressable memory. Two pieces are used in turn: while one is uploaded to
/// the target, the next is downloaded from the source. Returns when the last piece is queued on the target. Returns
/// false, with nothing done, if the source's driver has no pinned memory.
bool copy_through_pinned(Queue& target, const BufferView& to, Queue& source, const BufferView& from,
                         const std::string& name);

/// Uploads without an intermediate copy if the device uses host memory: waits until the memory is unused, then calls
/// `write` to fill it in place. Returns false, with nothing done, for other devices.
bool upload_in_place(Queue& queue, const BufferView& to, const std::function<void(std::byte*)>& write);

}  // namespace tessera
