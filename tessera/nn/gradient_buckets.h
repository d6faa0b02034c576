// SPDX-License-Identifier: Apache-2.0
// Divides the buffers of a gradient into buckets, so that each can be sent to other ranks while the backward pass
// computes the rest. Internal.
#pragma once

#include <span>
#include <vector>

#include "tessera/nn/parameter.h"

namespace tessera::detail {

/// The buckets of a gradient. Each is a contiguous part of one buffer. The backward pass completes the last layers
/// first, so buckets are filled from the end of the buffers, and started in this order on all ranks.
class GradientBuckets {
 public:
  /// `buffers` are the result of pack_parts for the arrays of `gradient`. A bucket has at most `bytes` bytes, unless it
  /// is a single array. If all buffers together have no more, there are no buckets. The last bucket has at most 1 MiB,
  /// if possible, because no computation hides its exchange.
  GradientBuckets(std::span<const Array> buffers, const Parts& gradient, std::size_t bytes);

  /// Number of buckets. If there are fewer than two, nothing can be sent early.
  std::size_t size() const { return buckets_.size(); }
  const Array& bucket(std::size_t number) const { return buckets_[number]; }  ///< The elements of a bucket.

  void begin();  ///< Starts a backward pass: all buckets are empty.
  /// Stores the adjoint of trained array `number` (in the order of the gradient's arrays) in its bucket, and returns
  /// its place there. Calls start(bucket) for each bucket that is complete, in order.
  template <class F>
  Array store(std::size_t number, Array adjoint, const F& start) {
    Array place = places_[number].array;
    place.assign(std::move(adjoint));
    --missing_[places_[number].bucket];
    while (next_ < buckets_.size() && missing_[next_] == 0) start(next_++);
    return place;
  }

 private:
  struct Place {
    Array array;
    std::size_t bucket = 0;
  };
  std::vector<Place> places_;         ///< of the trained arrays
  std::vector<Array> buckets_;        ///< in the order in which they are started
  std::vector<std::size_t> missing_;  ///< per bucket: arrays that are not complete
  std::size_t next_ = 0;              ///< the bucket to be started next
};

}  // namespace tessera::detail
