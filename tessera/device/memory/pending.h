// SPDX-License-Identifier: Apache-2.0
// Deferred work that reads memory: which results wait on a storage, so that whoever writes it has them computed before.
// Who defers (array/) keeps the lists; storages only know where they begin.
// Internal.
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

/// The books of what is deferred on one device: lists of readers, and which thread computes what. Never held while
/// something is computed, or together with another's.
struct PendingRegistry {
  std::mutex lock;
  std::condition_variable changed;   ///< something that a thread was computing is done
  std::uint64_t visit = 0;           ///< number of the last walk over readers, which meets each of them once
  PendingWork* under_way = nullptr;  ///< what threads are computing, newest first
  std::uint64_t begun = 0;           ///< number of the newest
  static PendingRegistry& of(Device device);

  /// Waits until what other threads are computing from this memory by now has been put into queues, where storages see
  /// it. `hold`: of `lock`. Not in a thread that computes itself: two could wait for each other.
  void await_readers(std::unique_lock<std::mutex>& hold, const Storage& storage);
  /// Waits until `done`, which a thread tells by `changed`. DeviceError in a child of fork, where the thread is none of
  /// this process's.
  void await(std::unique_lock<std::mutex>& hold, Device device, const std::function<bool()>& done);
};

/// Something that is computed when it is needed.
class PendingResult {
 public:
  virtual ~PendingResult() = default;
  /// Computes it now, because what it reads is about to be written; false if there was nothing to do.
  virtual bool flush() = 0;
};

/// Deferred work that reads a storage or other deferred work.
class PendingReader {
 public:
  /// Adds the results that need this work, some of which may be computed by now. Under the books' lock, so that `out`
  /// goes only after it: these may be the last references.
  virtual void results(std::uint64_t visit, std::vector<std::shared_ptr<PendingResult>>& out) const = 0;

 protected:
  ~PendingReader() = default;
};

/// Deferred work that a thread is computing: its launch, which reads memory, is still to come, though perhaps no array
/// holds it any more. All under the books' lock.
class PendingWork {
 public:
  virtual bool reads(const Storage& storage) const = 0;
  void begin(PendingRegistry& books);
  void end(PendingRegistry& books) noexcept;  ///< also if it did not begin
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

/// A reader's place in the list of those that read the same; unlinked by its owner. All under the books' lock.
struct ReaderLink {
  const PendingReader* reader = nullptr;
  ReaderLink* next = nullptr;
  ReaderLink** place = nullptr;  ///< what points to this one; null: in no list

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
