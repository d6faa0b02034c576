// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/gradient_buckets.h"

#include <algorithm>

namespace tessera::detail {

namespace {

constexpr std::size_t last_bytes = std::size_t{1} << 20;

/// A trained array in its buffer.
struct Member {
  std::size_t number = 0;  ///< among the trained arrays
  std::int64_t begin = 0, size = 0;
};

/// Divides members of a buffer, in the order of their places, into ranges [begin, end) for buckets.
std::vector<std::pair<std::size_t, std::size_t>> divide(const std::vector<Member>& members, std::size_t element_bytes,
                                                        std::size_t bytes) {
  const auto size_of = [&](std::size_t i) { return static_cast<std::size_t>(members[i].size) * element_bytes; };
  std::size_t first_end = 0;  // members that the backward pass completes last
  for (std::size_t sum = 0; first_end < members.size() && (sum += size_of(first_end)) <= std::min(bytes, last_bytes);)
    ++first_end;
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  std::size_t end = members.size(), sum = 0;
  for (std::size_t i = members.size(); i-- > first_end;) {
    if (i + 1 != end && sum + size_of(i) > bytes) ranges.emplace_back(i + 1, end), end = i + 1, sum = 0;
    sum += size_of(i);
  }
  if (end > first_end) ranges.emplace_back(first_end, end);
  if (first_end > 0) ranges.emplace_back(0, first_end);
  return ranges;
}

}  // namespace

GradientBuckets::GradientBuckets(std::span<const Array> buffers, const Parts& gradient, std::size_t bytes) {
  std::size_t total = 0;
  for (const Array& b : buffers) total += static_cast<std::size_t>(b.size()) * dtype_size(b.dtype());
  if (total <= bytes) return;
  struct Bucket {
    std::size_t completed_by = 0;  ///< the first trained array, which the backward pass usually completes last
    Array elements;
    std::vector<std::size_t> members;
  };
  std::vector<std::vector<Member>> members(buffers.size());
  for (const auto& [path, part] : gradient) {
    if (!part->trained() || part->empty()) continue;
    const BufferView view = part->view();
    const auto buffer = static_cast<std::size_t>(
        std::ranges::find_if(buffers, [&](const Array& b) { return b.view().storage == view.storage; }) -
        buffers.begin());
    const std::uint64_t before = view.byte_offset - buffers[buffer].view().byte_offset;
    members[buffer].push_back(
        {places_.size(), static_cast<std::int64_t>(before / dtype_size(part->dtype())), part->size()});
    places_.push_back({.array = *part});
  }
  std::vector<Bucket> all;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    std::ranges::sort(members[b], {}, &Member::begin);
    for (const auto& [begin, end] : divide(members[b], dtype_size(buffers[b].dtype()), bytes)) {
      const Member &first = members[b][begin], &last = members[b][end - 1];
      Bucket bucket{.completed_by = first.number, .elements = buffers[b].slice(0, first.begin, last.begin + last.size)};
      for (std::size_t i = begin; i < end; ++i) {
        bucket.completed_by = std::min(bucket.completed_by, members[b][i].number);
        bucket.members.push_back(members[b][i].number);
      }
      all.push_back(std::move(bucket));
    }
  }
  std::ranges::sort(all, std::ranges::greater(), &Bucket::completed_by);
  for (const Bucket& bucket : all) {
    for (const std::size_t number : bucket.members) places_[number].bucket = buckets_.size();
    buckets_.push_back(bucket.elements);
  }
  begin();
}

void GradientBuckets::begin() {
  missing_.assign(buckets_.size(), 0);
  for (const Place& place : places_) ++missing_[place.bucket];
  next_ = 0;
}

}  // namespace tessera::detail
