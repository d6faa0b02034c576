// SPDX-License-Identifier: Apache-2.0
// Pools of pinned host memory, used as staging buffers for copies between devices. Each source device has its own pool.
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
  /// Returns a staging buffer that the host can address. Its `host` is null if the driver has no pinned memory.
  Allocation take();
  void give(const Allocation& piece) noexcept;
  std::uint64_t trim() noexcept;  ///< frees unused buffers and returns their total size in bytes

 private:
  static constexpr std::size_t most_kept = 4;
  OpenDevice& owner_;
  std::mutex lock_;
  std::vector<Allocation> kept_;  // guarded by lock_
};

/// A download to a staging buffer. The host can wait for it without waiting for work that is queued later.
class StagedDownload {
 public:
  StagedDownload() = default;
  StagedDownload(const StagedDownload&) = delete;
  StagedDownload& operator=(const StagedDownload&) = delete;
  ~StagedDownload();  ///< waits for the copy
  /// Enqueues the copy of at most StagingPool::piece_bytes, after the previous copy has ended. Returns false without
  /// copying anything if the driver has no pinned memory.
  bool start(Queue& queue, const BufferView& from, const std::string& name);
  /// Blocks until the copy has ended, and returns the bytes. Throws its error.
  const std::byte* wait();
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<QueueCore> core_;
  Allocation memory_;
  QueueUse use_;
  std::uint64_t bytes_ = 0;
};

/// Starts a download of `from`, which is on the queue's device. Returns false and does nothing if the queue computes in
/// the calling thread, if the host can address the memory, or if the driver has no pinned memory.
bool start_download(StagedDownload& download, Queue& queue, const BufferView& from);

/// Copies between devices without host-addressable memory. Uses two staging buffers alternately: while one is uploaded
/// to the target, the next part is downloaded from the source into the other. Returns when the last part is enqueued on
/// the target. Returns false without copying anything if the source's driver has no pinned memory.
bool copy_through_pinned(Queue& target, const BufferView& to, Queue& source, const BufferView& from,
                         const std::string& name);

/// Fills memory in place if the device uses host memory. Waits until the memory is unused, then calls `write` with its
/// address. For other devices, returns false and does nothing.
bool upload_in_place(Queue& queue, const BufferView& to, const Callback<void(std::byte*)>& write);

}  // namespace tessera
