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

StagedDownload::~StagedDownload() {
  if (memory_.host == nullptr) return;
  if (use_.queue) core_->wait_ended(use_);
  core_->device().staging.give(memory_);
}

bool StagedDownload::start(Queue& queue, const BufferView& from, const std::string& name) {
  if (use_.queue) core_->wait_ended(use_);
  use_ = {};
  if (core_.get() != &queue.core()) {
    if (memory_.host != nullptr) core_->device().staging.give(std::exchange(memory_, {}));
    core_ = queue.core().shared_from_this();
  }
  if (memory_.host == nullptr) memory_ = core_->device().staging.take();
  if (memory_.host == nullptr) return false;
  bytes_ = from.bytes();
  from.storage->before_read(queue);
  core_->submit(
      name, [&](DriverQueue& driver) { driver.copy(memory_, 0, from.storage->allocation(), from.byte_offset, bytes_); },
      [&](const QueueUse& use) {
        use_ = use;
        if (use.queue) core_->record(use_);  // an event for this buffer only, not for later work
        from.storage->after_read(use_);
      });
  return true;
}

const std::byte* StagedDownload::wait() {
  if (use_.queue) core_->wait(use_);
  use_ = {};
  return memory_.host;
}

bool copy_through_pinned(Queue& target, const BufferView& to, Queue& source, const BufferView& from,
                         const std::string& name) {
  const std::uint64_t bytes = to.bytes();
  StagedDownload pieces[2];
  const auto fetch = [&](StagedDownload& piece, std::uint64_t at) {
    const std::uint64_t part = std::min<std::uint64_t>(StagingPool::piece_bytes, bytes - at);
    return piece.start(source, {from.storage, from.byte_offset + at, part, DType::u8}, name);
  };
  if (!fetch(pieces[0], 0)) return false;
  std::size_t now = 0;
  for (std::uint64_t at = 0; at < bytes;) {
    StagedDownload& piece = pieces[now];
    const std::uint64_t part = piece.bytes(), next = at + part;
    const bool ahead = next < bytes && fetch(pieces[1 - now], next);
    target.upload({to.storage, to.byte_offset + at, part, DType::u8}, piece.wait());
    if (ahead)
      now = 1 - now;
    else if (next < bytes)
      fetch(piece, next);  // only one buffer could be allocated
    at = next;
  }
  return true;
}

}  // namespace tessera
