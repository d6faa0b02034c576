// SPDX-License-Identifier: Apache-2.0
// Ranges of batches of in-memory samples. The order is a function of seed and epoch.
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

/// A position in a data set that is read repeatedly: before batch `batch` of epoch `epoch`.
struct DataPosition {
  std::uint64_t epoch = 0, batch = 0;  ///< Index of the epoch and of the batch within it, from 0.
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

/// Options of batches().
struct BatchesOptions {
  std::int64_t size = 0;   ///< samples per batch; the last batch of an epoch may have fewer
  bool shuffle = false;    ///< shuffle differently in each epoch, as a function of seed and epoch
  std::uint64_t seed = 0;  ///< seed of the shuffle
  bool drop_last = false;  ///< omit the last batch if it is not full
};

namespace detail {

class BatchSource {
 public:
  BatchSource(std::vector<Array> arrays, const BatchesOptions& options);
  std::uint64_t count() const { return count_; }
  /// The arrays of one batch, on their devices: views, or gathered copies if shuffled.
  std::vector<Array> at(DataPosition place);

  DataPosition position;

 private:
  const Array& order_on(Device device, std::uint64_t epoch);

  std::vector<Array> arrays_;
  BatchesOptions options_;
  std::int64_t samples_ = 0;
  std::uint64_t count_ = 0, epoch_ = 0;
  std::map<Device, Array> order_;  ///< of epoch_, on each device that needed it
};

}  // namespace detail

/// The range that `batches` returns: an input range of tuples of N arrays. A loop runs from the current position to the
/// end of its epoch and leaves the position at the start of the next epoch. Copies share one position; not thread-safe.
template <std::size_t N>
class Batches {
  template <std::size_t... I>
  static auto as_tuple(std::vector<Array>&& a, std::index_sequence<I...>) {
    return std::tuple{std::move(a[I])...};
  }

 public:
  /// A tuple with one array for each argument of batches().
  using Batch = decltype(as_tuple({}, std::make_index_sequence<N>()));

  /// Made by batches().
  explicit Batches(std::shared_ptr<detail::BatchSource> source) : source_(std::move(source)) {}

  /// An input iterator over the batches of one epoch.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    /// Starts at the source's position.
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
  /// Position of the next batch. If batches are prefetched, this is ahead of the batch that the loop has received.
  DataPosition position() const { return source_->position; }
  /// Moves to a position. Throws ArgumentError if an epoch has fewer batches.
  void set_position(DataPosition to) {
    check(to);
    source_->position = to;
  }

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
/// .shuffle = true}))`. The order of an epoch is a Philox permutation (Fisher-Yates) of seed and epoch, computed on the
/// host. Shuffled batches are gathered on the arrays' devices; others are views. Throws ShapeError if the arrays have
/// different numbers of samples or none; ArgumentError if the size is below 1, or if drop_last leaves no batch.
Batches<1> batches(const Array& a, const BatchesOptions& options);
Batches<2> batches(const Array& a, const Array& b, const BatchesOptions& options);
Batches<3> batches(const Array& a, const Array& b, const Array& c, const BatchesOptions& options);
Batches<4> batches(const Array& a, const Array& b, const Array& c, const Array& d, const BatchesOptions& options);

/// A range whose batches are f(batch, position) of another range's batches. Random numbers that f derives from the
/// position are the same after a resume.
template <class Source, class F>
class MappedBatches {
 public:
  /// What the function returns.
  using Batch = std::remove_cvref_t<std::invoke_result_t<const F&, typename Source::Batch, DataPosition>>;
  /// Made by map_batches().
  MappedBatches(Source source, F f) : source_(std::move(source)), f_(std::make_shared<const F>(std::move(f))) {}

  /// An input iterator that calls the function for each batch.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;
    /// Begins at the source's position.
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
  /// The number of batches in an epoch.
  std::uint64_t size() const { return source_.size(); }
  /// The source's position.
  DataPosition position() const { return source_.position(); }
  /// Moves the source to a position.
  void set_position(DataPosition to) { source_.set_position(to); }

 private:
  Source source_;
  std::shared_ptr<const F> f_;
};
/// Applies `f(batch)` or `f(batch, position)` to each batch as it is read.
template <class Source, class F>
MappedBatches<Source, F> map_batches(Source source, F f) {
  return {std::move(source), std::move(f)};
}

}  // namespace tessera

template <std::size_t N>
inline constexpr bool std::ranges::enable_view<tessera::Batches<N>> = true;
template <class Source, class F>
inline constexpr bool std::ranges::enable_view<tessera::MappedBatches<Source, F>> = true;
