// SPDX-License-Identifier: Apache-2.0
// Registry of pending (deferred) work that reads memory. Before memory is overwritten, the pending results that read it
// are computed. The array layer owns the lists of readers; storages store only the heads. Internal.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/device/device.h"

namespace tessera {

class PendingWork;
class Storage;

/// Pending work of one device: the lists of readers, and the computations in progress on each thread. Its lock is never
/// held during a computation or together with another registry's lock.
struct PendingRegistry {
  std::mutex lock;
  std::condition_variable changed;   ///< notified when a computation has finished
  std::uint64_t visit = 0;           ///< id of the last traversal of readers, used to visit each reader only once
  PendingWork* under_way = nullptr;  ///< computations in progress, newest first
  std::uint64_t begun = 0;           ///< id of the newest computation
  static PendingRegistry& of(Device device);

  /// Waits until other threads have enqueued the computations in progress that read this memory. Their reads are then
  /// recorded in the storages. `hold` owns `lock`. Returns immediately if this thread is running a computation itself,
  /// because two such threads could deadlock.
  void await_readers(std::unique_lock<std::mutex>& hold, const Storage& storage);
  /// Waits until `done` returns true. `done` is called whenever `changed` is notified. Throws DeviceError in a forked
  /// child, where the computing thread does not exist.
  void await(std::unique_lock<std::mutex>& hold, Device device, const std::function<bool()>& done);
};

/// A result that is computed when it is needed.
class PendingResult {
 public:
  virtual ~PendingResult() = default;
  /// Computes the result now, because its inputs are about to be overwritten. Returns false if it was already computed.
  virtual bool flush() = 0;
};

/// Pending work that reads a storage or the result of other pending work.
class PendingReader {
 public:
  /// Appends the results that depend on this work to `out`; some may already be computed. Called with the registry's
  /// lock held. `out` may contain the last references, so it must be destroyed after the lock is released.
  virtual void results(std::uint64_t visit, std::vector<std::shared_ptr<PendingResult>>& out) const = 0;

 protected:
  ~PendingReader() = default;
};

/// Pending work that a thread is computing but has not launched yet. The arrays that referred to it may have been
/// destroyed. Guarded by the registry's lock.
class PendingWork {
 public:
  virtual bool reads(const Storage& storage) const = 0;
  void begin(PendingRegistry& books);
  void end(PendingRegistry& books) noexcept;  ///< does nothing if it was not begun
  bool begun() const { return number_ != 0; }
  bool of_this_thread() const { return thread_ == std::this_thread::get_id(); }

 protected:
  ~PendingWork() = default;

 private:
  friend struct PendingRegistry;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::uint64_t number_ = 0;
  PendingWork *newer_ = nullptr, *older_ = nullptr;
};

/// A node of an intrusive list of readers; unlinked by its owner. Guarded by the registry's lock.
struct ReaderLink {
  const PendingReader* reader = nullptr;
  ReaderLink* next = nullptr;
  ReaderLink** place = nullptr;  ///< the pointer that points to this node; null if not linked

  void link(ReaderLink*& first) {
    next = first, place = &first;
    if (next != nullptr) next->place = &next;
    first = this;
  }
  void unlink() {
    if (place == nullptr) return;
    *place = next;
    if (next != nullptr) next->place = place;
    next = nullptr, place = nullptr;
  }
};

}  // namespace tessera
