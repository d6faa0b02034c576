// SPDX-License-Identifier: Apache-2.0
// Copies batches to a device while the previous batch is processed: `for (auto batch : prefetch(batches, device))`. A
// batch can have any type that `to` accepts. The order of the source is kept.
#pragma once

#include <exception>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "tessera/array/move.h"
#include "tessera/base/owner.h"
#include "tessera/base/range.h"

namespace tessera {

/// Options of prefetch.
struct PrefetchOptions {
  /// The number of batches on the device at a time: the current batch and the batches copied ahead.
  std::size_t slots = 2;
};

/// An input range over the batches of another range. Each batch is copied to a device on a separate queue, up to `slots
/// - 1` batches ahead of the current one. Batches that are already on the device are passed through. A batch is valid
/// as long as a copy of it exists.
///
/// The source is advanced on the iterating thread. If the source or a copy throws, the exception is rethrown when the
/// iteration reaches that batch. `begin()` restarts the iteration if the source supports it.
template <detail::Range V>
class Prefetcher {
 public:
  /// The type of the source's elements.
  using Batch = detail::ElementOf<V>;

  /// Throws ArgumentError if there are no slots, and DeviceError if the device does not exist.
  Prefetcher(V source, Device device, PrefetchOptions options = {})
      : source_(std::move(source)), device_(device), slots_(options.slots), queue_(new Queue(device)) {
    if (slots_ == 0)
      fail<ArgumentError>({.operation = "prefetch",
                           .with = {{"slots", "0"}},
                           .wrong = "at least one slot is needed",
                           .remedy = "Use 2 to copy one batch ahead"});
  }

  /// An input iterator over the batches on the device.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    /// Creates the iterator of a prefetcher on which `begin()` has been called.
    explicit Iterator(Prefetcher& p) : prefetcher_(&p) {}
    /// The current batch, on the device. Valid until the iterator advances.
    const Batch& operator*() const { return *prefetcher_->prefetched_.front()->batch; }
    /// Advances to the next batch, and starts to copy another.
    Iterator& operator++() {
      prefetcher_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    /// True after the last batch.
    bool over() const { return prefetcher_->prefetched_.empty(); }
    /// True after the last batch.
    friend bool operator==(const Iterator& i, std::default_sentinel_t) { return i.over(); }

   private:
    Prefetcher* prefetcher_;
  };

  /// Restarts the iteration and starts the first copies.
  Iterator begin() {
    prefetched_.clear();
    waiting_.reset();
    over_ = false;
    at_.emplace(std::begin(source_));
    fresh_ = true;
    fill();
    return Iterator(*this);
  }
  /// The end of the batches.
  std::default_sentinel_t end() const { return {}; }

 private:
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr error;
  };

  void add(Slot slot) { prefetched_.push_back(detail::Owner<Slot>(new Slot(std::move(slot)))); }
  void next() {
    prefetched_.erase(prefetched_.begin());
    fill();
  }
  /// Fills all free slots. Throws if the batch at the front could not be read or copied.
  void fill() {
    while (!over_ && prefetched_.size() < slots_) {
      try {
        if (!waiting_) {
          if (!fresh_) advance();
          fresh_ = true;  // false while `waiting_` has the source's current batch
          if (*at_ == std::end(source_)) {
            over_ = true;
            break;
          }
          waiting_.emplace(**at_);
          fresh_ = false;
        }
        add({move_on_queue(std::as_const(*waiting_), device_, queue_.get()), nullptr});
        waiting_.reset();
      } catch (const OutOfMemory&) {
        if (!prefetched_.empty()) break;  // Retried when earlier batches have been released.
        over_ = true;
        throw;
      } catch (const Stopped& stopped) {
        over_ = true;
        add({std::nullopt, stopped.error});
      } catch (...) {
        over_ = true;
        add({std::nullopt, std::current_exception()});
      }
    }
    if (!prefetched_.empty() && prefetched_.front()->error) {
      const std::exception_ptr error = prefetched_.front()->error;
      prefetched_.clear();
      std::rethrow_exception(error);
    }
  }

  /// The source's position is unknown if advancing fails, so it is not retried.
  void advance() {
    try {
      ++*at_;
    } catch (const OutOfMemory&) {
      throw Stopped{std::current_exception()};
    }
  }
  struct Stopped {
    std::exception_ptr error;
  };

  V source_;
  Device device_;
  std::size_t slots_;
  detail::Owner<Queue> queue_;  ///< its destructor waits for the copies
  std::optional<detail::IteratorOf<V>> at_;
  bool fresh_ = true, over_ = false;
  std::optional<Batch> waiting_;                 ///< read from the source, but not copied yet
  std::vector<detail::Owner<Slot>> prefetched_;  ///< the first is the current one
};

/// Prefetches `batches` to `device`. An lvalue `batches` is stored by reference.
template <detail::Range R>
Prefetcher<detail::ViewOf<R>> prefetch(R&& batches, Device device, PrefetchOptions options = {}) {
  return {detail::view_of(std::forward<R>(batches)), device, options};
}

}  // namespace tessera
