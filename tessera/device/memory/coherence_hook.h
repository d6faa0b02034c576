// SPDX-License-Identifier: Apache-2.0
// Called before a storage's memory is read or written, so that the task runtime (task/), which this layer does not
// depend on, can wait for writers or fetch the newest replica.
#pragma once

namespace tessera {

class Storage;

/// Attached to a storage once, for its lifetime. Thread-safe; called without the storage's lock.
class CoherenceHook {
 public:
  virtual ~CoherenceHook() = default;
  /// The calling thread is about to read the memory, or to enqueue work that does. May wait; exceptions fail the read.
  virtual void before_read(Storage& storage) = 0;
  /// Like before_read, for writes.
  virtual void before_write(Storage& storage) = 0;
  /// True if other threads may be writing the memory, so that no operation on it may be deferred.
  virtual bool has_other_writers() const noexcept = 0;
};

}  // namespace tessera
