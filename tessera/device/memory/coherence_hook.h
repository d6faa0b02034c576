// SPDX-License-Identifier: Apache-2.0
// What is to be asked before a storage's memory is used: who else uses it, and whether newer contents are elsewhere.
// Tasks are behind it (task/), which this layer does not know.
#pragma once

namespace tessera {

class Storage;

/// Attached to a storage, once and for as long as that lives. From any thread; without the storage's lock held.
class CoherenceHook {
 public:
  virtual ~CoherenceHook() = default;
  /// The calling thread is about to read the memory, or to put work into a queue that does. May wait; what it throws,
  /// the read throws.
  virtual void before_read(Storage& storage) = 0;
  /// The same of writing.
  virtual void before_write(Storage& storage) = 0;
  /// Whether others than the calling thread may be writing it, so that nothing can be deferred on it.
  virtual bool has_other_writers() const noexcept = 0;
};

}  // namespace tessera
