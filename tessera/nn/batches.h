// SPDX-License-Identifier: Apache-2.0
// Ranges that split in-memory samples into batches. The order depends only on the seed and the epoch.
#pragma once

#include <iterator>
#include <map>
#include <memory>
#include <span>  // declares std::ranges::enable_view
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/array/array.h"

namespace tessera {

/// A position in a data set that is read several times: the next batch is batch `batch` of epoch `epoch`.
struct DataPosition {
  std::uint64_t epoch = 0, batch = 0;  ///< Index of the epoch, and of the batch in that epoch. Both start at 0.
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

/// Options of batches().
struct BatchesOptions {
  std::int64_t size = 0;   ///< Samples per batch; the last batch of an epoch may have fewer.
  bool shuffle = false;    ///< Use a different order in each epoch. The order depends only on the seed and the epoch.
  std::uint64_t seed = 0;  ///< Seed for shuffling.
  bool drop_last = false;  ///< Skip the last batch of an epoch if it is not full.
};

namespace detail {

class BatchSource {
 public:
  BatchSource(std::vector<Array> arrays, const BatchesOptions& options);
  std::uint64_t count() const { return count_; }
  /// Returns the arrays of one batch, on the devices of the source arrays. Without shuffling, the returned arrays are
  /// views. With shuffling, they are gathered copies. After share_batches, they contain only one part of the batch.
  std::vector<Array> at(DataPosition place);
  /// Restricts batches to part `part` of `parts`.
  void share_batches(std::int64_t parts, std::int64_t part) { parts_ = parts, part_ = part; }
  /// Returns the fraction of the samples of a batch that its part has.
  double share_of(std::uint64_t batch) const;

  DataPosition position;

 private:
  const Array& order_on(Device device, std::uint64_t epoch);
  std::int64_t batch_begin(std::uint64_t batch) const { return static_cast<std::int64_t>(batch) * options_.size; }
  std::int64_t batch_size(std::uint64_t batch) const;

  std::vector<Array> arrays_;
  BatchesOptions options_;
  std::int64_t samples_ = 0, parts_ = 1, part_ = 0;
  std::uint64_t count_ = 0, epoch_ = 0;
  std::map<Device, Array> order_;  ///< sample order of epoch_, copied to each device that needs it
};

}  // namespace detail

/// An input range of batches, returned by batches(). Each batch is a tuple of N arrays. A loop starts at the current
/// position, stops at the end of the epoch, and sets the position to the start of the next epoch. Copies share one
/// position. Not thread-safe.
template <std::size_t N>
class Batches {
  template <std::size_t... I>
  static auto as_tuple(std::vector<Array>&& a, std::index_sequence<I...>) {
    return std::tuple{std::move(a[I])...};
  }

 public:
  /// A tuple with one array for each array passed to batches().
  using Batch = decltype(as_tuple({}, std::make_index_sequence<N>()));

  /// Called by batches().
  explicit Batches(std::shared_ptr<detail::BatchSource> source) : source_(std::move(source)) {}

  /// An input iterator over the batches of one epoch.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    /// Starts at the current position of the source.
    explicit Iterator(std::shared_ptr<detail::BatchSource> s) : source_(std::move(s)), at_(source_->position) {}
    /// Returns the current batch.
    Batch operator*() const { return as_tuple(source_->at(at_), std::make_index_sequence<N>()); }
    /// Advances to the next batch.
    Iterator& operator++() {
      const bool last = ++at_.batch >= source_->count();
      source_->position = last ? DataPosition{at_.epoch + 1, 0} : at_;
      return *this;
    }
    /// Advances to the next batch.
    void operator++(int) { ++*this; }
    /// True after the last batch of the epoch.
    friend bool operator==(const Iterator& i, std::default_sentinel_t) { return i.at_.batch >= i.source_->count(); }

   private:
    std::shared_ptr<detail::BatchSource> source_;
    DataPosition at_;
  };
  /// The batch at the current position.
  Iterator begin() const { return Iterator(source_); }
  /// The end of the epoch.
  std::default_sentinel_t end() const { return {}; }

  std::uint64_t size() const { return source_->count(); }  ///< batches per epoch
  /// Position of the next batch. With prefetching, this is ahead of the batch that the loop is processing.
  DataPosition position() const { return source_->position; }
  /// Moves to a position. Throws ArgumentError if the epoch has too few batches.
  void set_position(DataPosition to) {
    check(to);
    source_->position = to;
  }
  /// Restricts batches to one of `parts` nearly equal parts, so that each rank reads only its own samples. Used by
  /// fit().
  void share_batches(std::int64_t parts, std::int64_t part) { source_->share_batches(parts, part); }
  /// The fraction of the samples of a batch that its part contains.
  double share_of(std::uint64_t batch) const { return source_->share_of(batch); }

 private:
  void check(DataPosition to) const {
    if (to.batch >= source_->count())
      fail<ArgumentError>({.operation = "set_position",
                           .with = {{"batch", std::to_string(to.batch)}, {"batches", std::to_string(size())}},
                           .wrong = "the epoch has fewer batches"});
  }
  std::shared_ptr<detail::BatchSource> source_;
};

/// Splits arrays of samples along axis 0 into batches: `for (auto [x, y] : batches(images, labels, {.size = 128,
/// .shuffle = true}))`. Shuffling permutes the samples with Fisher-Yates and Philox random numbers on the host; the
/// permutation depends only on the seed and the epoch. Shuffled batches are gathered on the arrays' devices. Batches
/// without shuffling are views. Throws ShapeError if the arrays have no samples or different numbers of samples. Throws
/// ArgumentError if the size is below 1, or if no batch is left because of drop_last.
Batches<1> batches(const Array& a, const BatchesOptions& options);
Batches<2> batches(const Array& a, const Array& b, const BatchesOptions& options);
Batches<3> batches(const Array& a, const Array& b, const Array& c, const BatchesOptions& options);
Batches<4> batches(const Array& a, const Array& b, const Array& c, const Array& d, const BatchesOptions& options);

/// A range that applies a function to each batch of another range: f(batch, position). If f derives random numbers from
/// the position, a resumed run draws the same numbers.
template <class Source, class F>
class MappedBatches {
 public:
  /// The return type of the function.
  using Batch = std::remove_cvref_t<std::invoke_result_t<const F&, typename Source::Batch, DataPosition>>;
  /// Called by map_batches().
  MappedBatches(Source source, F f) : source_(std::move(source)), f_(std::make_shared<const F>(std::move(f))) {}

  /// An input iterator that calls the function for each batch.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    /// Starts at the current position of the source.
    Iterator(const Source& source, std::shared_ptr<const F> f)
        : at_(source.begin()), position_(source.position()), f_(std::move(f)) {}
    /// Calls the function with the current batch.
    Batch operator*() const { return (*f_)(*at_, position_); }
    /// Advances to the next batch.
    Iterator& operator++() {
      ++at_, ++position_.batch;
      return *this;
    }
    /// Advances to the next batch.
    void operator++(int) { ++*this; }
    /// True after the last batch of the epoch.
    friend bool operator==(const Iterator& i, std::default_sentinel_t end) { return i.at_ == end; }

   private:
    decltype(std::declval<const Source&>().begin()) at_;
    DataPosition position_;
    std::shared_ptr<const F> f_;
  };
  /// The batch at the current position.
  Iterator begin() const { return Iterator(source_, f_); }
  /// The end of the epoch.
  std::default_sentinel_t end() const { return {}; }
  /// Number of batches per epoch.
  std::uint64_t size() const { return source_.size(); }
  /// Position of the source.
  DataPosition position() const { return source_.position(); }
  /// Moves the source to a position.
  void set_position(DataPosition to) { source_.set_position(to); }

 private:
  Source source_;
  std::shared_ptr<const F> f_;
};
/// Returns a range that applies `f(batch)` or `f(batch, position)` to each batch when it is read.
template <class Source, class F>
MappedBatches<Source, F> map_batches(Source source, F f) {
  return {std::move(source), std::move(f)};
}

}  // namespace tessera

template <std::size_t N>
inline constexpr bool std::ranges::enable_view<tessera::Batches<N>> = true;
template <class Source, class F>
inline constexpr bool std::ranges::enable_view<tessera::MappedBatches<Source, F>> = true;
