// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/memory/staging.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/device/driver.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/selection/open_device.h"

namespace tessera {

Allocation StagingPool::take() {
  {
    std::lock_guard hold(lock_);
    if (!kept_.empty()) {
      const Allocation piece = kept_.back();
      kept_.pop_back();
      return piece;
    }
  }
  try {
    const Allocation piece = owner_.driver->allocate(piece_bytes, MemoryKind::pinned);
    if (piece.host != nullptr) return piece;
    owner_.driver->release(piece);
  } catch (const OutOfMemory&) {  // the caller has a fallback
  } catch (const DeviceLost& e) {
    owner_.mark_lost(e.what());
    owner_.check();  // throws a DeviceLost with the remedy
  }
  return {};
}

void StagingPool::give(const Allocation& piece) noexcept {
  if (owner_.gone()) return;  // already freed with the driver's context
  try {
    std::lock_guard hold(lock_);
    if (kept_.size() < most_kept) return kept_.push_back(piece);
  } catch (...) {  // out of memory for the list
  }
  owner_.driver->release(piece);
}

std::uint64_t StagingPool::trim() noexcept {
  std::vector<Allocation> pieces;
  {
    std::lock_guard hold(lock_);
    pieces.swap(kept_);
  }
  if (owner_.gone()) return 0;
  for (const Allocation& piece : pieces) owner_.driver->release(piece);
  return pieces.size() * piece_bytes;
}

namespace {

/// A staging buffer that queued work may be writing. The destructor waits for that work and returns the buffer to the
/// pool.
struct Piece {
  explicit Piece(QueueCore& queue) : core(queue) {}
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  ~Piece() {
    if (memory.host == nullptr) return;
    if (use.queue) core.wait_ended(use);
    core.device().staging.give(memory);
  }
  QueueCore& core;
  Allocation memory;
  QueueUse use;
  std::uint64_t bytes = 0;
};

}  // namespace

bool copy_through_pinned(Queue& target, const BufferView& to, Queue& source, const BufferView& from,
                         const std::string& name) {
  QueueCore& core = source.core();
  const std::uint64_t bytes = to.bytes();
  Piece pieces[2] = {Piece(core), Piece(core)};
  const auto fetch = [&](Piece& piece, std::uint64_t at) {
    if (piece.memory.host == nullptr) piece.memory = core.device().staging.take();
    if (piece.memory.host == nullptr) return false;
    piece.bytes = std::min<std::uint64_t>(StagingPool::piece_bytes, bytes - at);
    from.storage->before_read(source);
    core.submit(
        name,
        [&](DriverQueue& driver) {
          driver.copy(piece.memory, 0, from.storage->allocation(), from.byte_offset + at, piece.bytes);
        },
        [&](const QueueUse& use) {
          piece.use = use;
          if (use.queue) core.record(piece.use);  // an event for this buffer only, not for the next one
          from.storage->after_read(piece.use);
        });
    return true;
  };
  if (!fetch(pieces[0], 0)) return false;
  std::size_t now = 0;
  for (std::uint64_t at = 0; at < bytes;) {
    Piece& piece = pieces[now];
    const std::uint64_t next = at + piece.bytes;
    const bool ahead = next < bytes && fetch(pieces[1 - now], next);
    if (piece.use.queue) core.wait(piece.use);
    piece.use = {};
    target.upload({to.storage, to.byte_offset + at, piece.bytes, DType::u8}, piece.memory.host);
    if (ahead)
      now = 1 - now;
    else if (next < bytes)
      fetch(piece, next);  // only one buffer could be allocated
    at = next;
  }
  return true;
}

}  // namespace tessera
