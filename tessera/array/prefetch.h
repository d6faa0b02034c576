// SPDX-License-Identifier: Apache-2.0
// Batches on their way to a device while the one before is computed with: `for (auto batch : prefetch(batches,
// device))`. Batches are anything that `to` moves, come in the source's order, and belong to whoever holds them.
#pragma once

#include <deque>
#include <exception>
#include <iterator>
#include <optional>
#include <ranges>

#include "tessera/array/move.h"

namespace tessera {

/// Options of prefetch.
struct PrefetchOptions {
  std::size_t slots = 2;  ///< batches that are held at a time: the one that is given out, and those copied ahead of it
};

/// An input range over another range's batches, each moved to a device by a queue of its own, `slots - 1` ahead of the
/// one that is given out. The source is advanced on the thread that iterates. Batches that are on the device already
/// are passed on as they are. A batch stays valid for as long as anybody holds a copy of it. What the source throws, or
/// the move, is thrown in the place of that batch, after all before it. `begin()` starts over where the source can.
template <std::ranges::view V>
class Prefetcher {
 public:
  /// What the source's iterators yield.
  using Batch = std::remove_cvref_t<std::ranges::range_reference_t<V>>;

  /// ArgumentError for no slots; DeviceError if there is no such device.
  Prefetcher(V source, Device device, PrefetchOptions options = {})
      : source_(std::move(source)), device_(device), slots_(options.slots), queue_(std::make_unique<Queue>(device)) {
    if (slots_ == 0)
      fail<ArgumentError>({.operation = "prefetch",
                           .with = {{"slots", "0"}},
                           .wrong = "without a slot no batch can be held",
                           .remedy = "Use 2 for one batch copied ahead"});
  }

  /// An input iterator over the batches on the device.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    /// The iterator of a started prefetcher.
    explicit Iterator(Prefetcher& p) : prefetcher_(&p) {}
    /// The current batch, on the device. Valid until the iterator advances.
    const Batch& operator*() const { return *prefetcher_->prefetched_.front().batch; }
    /// Moves to the next batch, and starts to copy another.
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

  /// Starts over, with the first batches under way.
  Iterator begin() {
    prefetched_.clear();
    waiting_.reset();
    over_ = false;
    at_.emplace(std::ranges::begin(source_));
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

  void next() {
    prefetched_.pop_front();
    fill();
  }
  /// Copies ahead as far as there are slots; throws if the batch to be given out next is an error.
  void fill() {
    while (!over_ && prefetched_.size() < slots_) {
      try {
        if (!waiting_) {
          if (!fresh_) advance();
          fresh_ = true;  // until its batch has been taken
          if (*at_ == std::ranges::end(source_)) {
            over_ = true;
            break;
          }
          waiting_.emplace(**at_);
          fresh_ = false;
        }
        prefetched_.push_back({move_on_queue(std::as_const(*waiting_), device_, queue_.get()), nullptr});
        waiting_.reset();
      } catch (const OutOfMemory&) {
        if (!prefetched_.empty()) break;  // only ahead of time there is none: again when the batches before have gone
        over_ = true;
        throw;
      } catch (const Stopped& stopped) {
        over_ = true;
        prefetched_.push_back({std::nullopt, stopped.error});
      } catch (...) {
        over_ = true;
        prefetched_.push_back({std::nullopt, std::current_exception()});
      }
    }
    if (!prefetched_.empty() && prefetched_.front().error) {
      const std::exception_ptr error = prefetched_.front().error;
      prefetched_.clear();
      std::rethrow_exception(error);
    }
  }

  /// Where advancing fails nobody knows where the source stands: that is no reason to try again.
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
  std::unique_ptr<Queue> queue_;  ///< outlives nothing: destroyed, it has done its copies
  std::optional<std::ranges::iterator_t<V>> at_;
  bool fresh_ = true, over_ = false;
  std::optional<Batch> waiting_;  ///< taken from the source, and not moved yet
  std::deque<Slot> prefetched_;        ///< the first is given out
};

/// `batches` is kept by reference if it is an lvalue.
template <std::ranges::viewable_range R>
Prefetcher<std::views::all_t<R>> prefetch(R&& batches, Device device, PrefetchOptions options = {}) {
  return {std::views::all(std::forward<R>(batches)), device, options};
}

}  // namespace tessera
