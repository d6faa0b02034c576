// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/memory/storage.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/device/memory/pending.h"
#include "tessera/device/memory/untracked_write.h"
#include "tessera/device/queue/queue_core.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/device/selection/open_device.h"

namespace tessera {
namespace {

/// Records a use. A later use of the same queue covers earlier ones.
void note(QueueUse& known, const QueueUse& use) {
  if (known.queue.get() != use.queue.get()) {
    known = use;
    return;
  }
  // Threads may report uses of one queue out of order. Keep the latest.
  if (use.sequence < known.sequence) return;
  known.sequence = use.sequence;
  if (known.event || use.event) known.event = use.event;
}

/// Calls `what` for a use, unless the use is on a different device that is lost. Work on a lost device has ended, and
/// its error does not affect this storage.
template <class F>
void unless_lost(const QueueUse& use, Device home, F&& what) {
  const OpenDevice& device = use.queue->device();
  if (device.device == home) return what();
  if (device.lost()) return;
  try {
    what();
  } catch (const DeviceError&) {
    if (!device.lost()) throw;
  }
}

}  // namespace

std::shared_ptr<Storage> Storage::allocate(Device device, std::size_t bytes, std::string label) {
  if (Recorder* const recorder = Recorder::of_this_thread()) [[unlikely]]
    if (auto storage = recorder->allocate(device, bytes, label)) return storage;
  return open_device(device).pool.allocate(bytes, std::move(label));
}

std::shared_ptr<Storage> Storage::wrap_host(void* data, std::size_t bytes, std::shared_ptr<void> owner) {
  if (data == nullptr && bytes != 0)
    fail<ArgumentError>(
        {.operation = "wrap_host", .with = {{"bytes", std::to_string(bytes)}}, .wrong = "the pointer is null"});
  std::shared_ptr<Storage> storage(new Storage);
  storage->device_ = {Backend::cpu, 0};
  storage->bytes_ = bytes;
  storage->label_ = "host memory";
  storage->allocation_ = {data, static_cast<std::byte*>(data), bytes};
  storage->owner_ = std::move(owner);
  storage->expose();  // the owner may write the memory at any time
  return storage;
}

std::shared_ptr<Storage> Storage::wrap_device(Device device, void* native, std::size_t bytes,
                                              std::shared_ptr<void> owner) {
  if (native == nullptr)
    fail<ArgumentError>({.operation = "wrap_device",
                         .with = {{"device", to_string(device)}, {"bytes", std::to_string(bytes)}},
                         .wrong = "the handle is null"});
  std::shared_ptr<Storage> storage(new Storage);
  storage->device_ = device;
  storage->bytes_ = bytes;
  storage->label_ = "wrapped device memory";
  storage->allocation_ = open_device(device).driver->wrap(native, bytes);
  storage->owner_ = std::move(owner);
  storage->expose();
  return storage;
}

std::string Storage::name() const {
  if (!label_.empty()) return "storage '" + label_ + "'";
  return "an unnamed storage of " + config::format_bytes(bytes_) + " on " + to_string(device_);
}

Storage::~Storage() {
  delete coherence_hook_.load(std::memory_order_relaxed);
  const auto forked = [](const QueueUse& use) { return use.queue && use.queue->device().forked(); };
  if (forked(last_write_) || std::ranges::any_of(reads_, forked)) {
    try {
      reads_.push_back(std::move(last_write_));
      for (QueueUse& use : reads_) QueueCore::leave(std::move(use.event));
    } catch (...) {}
    return;
  }
  if (pool_ != nullptr) {
    pool_->release(*this);
    return;
  }
  // The owner of wrapped memory may free it next, so wait for all uses.
  for (const QueueUse& read : reads_) read.queue->wait_ended(read);
  if (last_write_.queue) last_write_.queue->wait_ended(last_write_);
}

void Storage::before_read(Queue& queue) { before_read(queue.core()); }
void Storage::before_write(Queue& queue) { before_write(queue.core()); }

constinit thread_local const Storage* Storage::bypassed_ = nullptr;
constinit thread_local UntrackedWriteHook untracked_write_hook = nullptr;

CoherenceHook& Storage::set_coherence_hook(std::unique_ptr<CoherenceHook> fresh) {
  CoherenceHook* none = nullptr;
  if (coherence_hook_.compare_exchange_strong(none, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *none;
}

void Storage::before_read(QueueCore& queue) {
  if (CoherenceHook* const e = coherence_hook()) [[unlikely]]
    e->before_read(*this);
  if (!used_.load(std::memory_order_acquire)) return;
  QueueUse write;
  std::vector<QueueUse> earlier;
  {
    std::lock_guard hold(lock_);
    if (last_write_.queue) {
      if (last_write_.queue.get() == &queue) return;
      write = last_write_;
    } else if (writes() == 0) {
      // Nothing has been written to this storage yet. Work of the memory's previous owner may still write to it.
      for (const QueueUse& use : reads_)
        if (use.queue.get() != &queue) earlier.push_back(use);
    }
  }
  if (write.queue) queue.order_after(write);
  for (const QueueUse& use : earlier) unless_lost(use, device_, [&] { queue.order_after(use); });
}

void Storage::before_write(QueueCore& queue) {
  if (untracked_write_hook != nullptr && writes() != 0 && bypassed_ != this && coherence_hook() == nullptr) [[unlikely]]
    untracked_write_hook(*this);
  if (CoherenceHook* const e = coherence_hook()) [[unlikely]]
    e->before_write(*this);
  if (!used_.load(std::memory_order_acquire)) return;
  QueueUse write;
  std::vector<QueueUse> reads;
  {
    std::lock_guard hold(lock_);
    const auto foreign = [&](const QueueUse& use) { return use.queue && use.queue.get() != &queue; };
    if (foreign(last_write_)) write = last_write_;
    for (const QueueUse& read : reads_)
      if (foreign(read)) reads.push_back(read);
  }
  if (write.queue) queue.order_after(write);
  for (const QueueUse& read : reads) unless_lost(read, device_, [&] { queue.order_after(read); });
}

bool Storage::try_before_write(Queue& queue) noexcept {
  std::vector<QueueUse> uses;
  try {
    const std::lock_guard hold(lock_);  // not while locking queues, because a queue's callback may lock this too
    uses = reads_;
    uses.push_back(last_write_);
  } catch (...) {
    return false;
  }
  return std::ranges::all_of(uses,
                             [&](const QueueUse& use) { return !use.queue || queue.core().try_order_after(use); });
}

void Storage::after_read(const QueueUse& use) {
  if (!use.queue) return;
  std::lock_guard hold(lock_);
  used_.store(true, std::memory_order_release);
  for (QueueUse& read : reads_)
    if (read.queue.get() == use.queue.get()) return note(read, use);
  reads_.push_back(use);
}

void Storage::after_write(const QueueUse& use) {
  if (bypassed_ != this) writes_.fetch_add(1, std::memory_order_relaxed);
  // A write by the host is already complete, and no queue has used this storage yet, so there is nothing to order.
  if (!use.queue && !used_.load(std::memory_order_acquire)) return;
  std::lock_guard hold(lock_);
  if (!use.queue) {
    // The host has waited for the uses that it found. Other threads may have submitted uses of other parts since then.
    const auto ended = [](const QueueUse& u) { return u.queue && u.queue->ended(u); };
    std::erase_if(reads_, ended);
    if (ended(last_write_)) last_write_ = {};
    return;
  }
  used_.store(true, std::memory_order_release);
  reads_.clear();  // the write is ordered after all of these reads
  note(last_write_, use);
}

void Storage::wait_readable() {
  Recorder::refuse("reading on the host");
  if (CoherenceHook* const e = coherence_hook()) [[unlikely]]
    e->before_read(*this);
  QueueUse write;
  std::vector<QueueUse> earlier;
  {
    std::lock_guard hold(lock_);
    write = last_write_;
    if (!write.queue && writes() == 0) earlier = reads_;
  }
  if (write.queue) write.queue->wait(write);
  for (const QueueUse& use : earlier) unless_lost(use, device_, [&] { use.queue->wait(use); });
}

void Storage::wait_writable() {
  Recorder::refuse("writing on the host");
  if (untracked_write_hook != nullptr && writes() != 0 && bypassed_ != this && coherence_hook() == nullptr) [[unlikely]]
    untracked_write_hook(*this);
  if (CoherenceHook* const e = coherence_hook()) [[unlikely]]
    e->before_write(*this);
  std::vector<QueueUse> uses;
  {
    std::lock_guard hold(lock_);
    uses = reads_;
    uses.push_back(last_write_);
  }
  for (const QueueUse& use : uses)
    if (use.queue) unless_lost(use, device_, [&] { use.queue->wait(use); });
}

void Storage::expose() {
  exposures_.fetch_add(1, std::memory_order_relaxed);
  writes_.fetch_add(1, std::memory_order_relaxed);
  if (pool_ != nullptr) open_device(device_).driver->host_writes(allocation_, 0, bytes_);
}

void Storage::unexpose() {
  writes_.fetch_add(1, std::memory_order_relaxed);
  exposures_.fetch_sub(1, std::memory_order_relaxed);
}

void Storage::add_reader(ReaderLink& link) {
  link.link(readers_);
  // Modified only under the registry's lock, so an atomic read-modify-write operation is not needed.
  reader_count_.store(reader_count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void Storage::flush_readers() {
  if (bypassed_ == this || reader_count_.load(std::memory_order_acquire) == 0) return;
  // While tasks write the storage, only they have pending reads of it, and they compute these themselves. Computing
  // them here could deadlock, because this thread and the tasks would wait for each other.
  if (const CoherenceHook* const e = coherence_hook(); e != nullptr && e->has_other_writers()) return;
  // Repeat, because other threads may defer more reads meanwhile. If a computation throws, the write is not performed.
  for (bool more = true; more && reader_count_.load(std::memory_order_acquire) != 0;) {
    std::vector<std::shared_ptr<PendingResult>> results;
    {
      PendingRegistry& books = PendingRegistry::of(device_);
      std::unique_lock hold(books.lock);
      const std::uint64_t visit = ++books.visit;
      for (const ReaderLink* l = readers_; l != nullptr; l = l->next) l->reader->results(visit, results);
      books.await_readers(hold, *this);
    }
    more = false;
    // Without the lock, because a flush launches kernels, which call this function again.
    for (const auto& result : results) more = result->flush() || more;
  }
}

}  // namespace tessera
