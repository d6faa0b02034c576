// SPDX-License-Identifier: Apache-2.0
// Hook that is called before a storage's memory is read or written, so that the task runtime can wait for writers or
// fetch the newest replica. It is an interface because this layer must not depend on task/.
#pragma once

namespace tessera {

class Storage;

/// Attached to a storage until the storage is destroyed. Thread-safe. Called without the storage's lock.
class CoherenceHook {
 public:
  virtual ~CoherenceHook() = default;
  /// Called before the calling thread reads the memory or enqueues work that reads it. May block. If it throws, the
  /// read fails.
  virtual void before_read(Storage& storage) = 0;
  /// Like before_read, for writes.
  virtual void before_write(Storage& storage) = 0;
  /// True if other threads may be writing the memory. Operations on it must then not be deferred.
  virtual bool has_other_writers() const noexcept = 0;
};

}  // namespace tessera
