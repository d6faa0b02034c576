// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/batches.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tessera/nn/data_parallel.h"
#include "tessera/nn/seed.h"

namespace tessera {

namespace detail {

BatchSource::BatchSource(std::vector<Array> arrays, const BatchesOptions& options)
    : arrays_(std::move(arrays)), options_(options) {
  for (const Array& a : arrays_)
    if (a.rank() == 0)
      fail<ShapeError>({.operation = "batches", .wrong = "an array without dimensions has no samples"});
  samples_ = arrays_[0].shape(0);
  for (const Array& a : arrays_)
    if (a.shape(0) != samples_)
      fail<ShapeError>({.operation = "batches",
                        .with = {{"first", to_string(arrays_[0].shape())}, {"another", to_string(a.shape())}},
                        .wrong = "the arrays have different numbers of samples (extents of axis 0)"});
  if (samples_ == 0)
    fail<ShapeError>(
        {.operation = "batches", .with = {{"shape", to_string(arrays_[0].shape())}}, .wrong = "there are no samples"});
  if (options_.size < 1)
    fail<ArgumentError>({.operation = "batches",
                         .with = {{"size", std::to_string(options_.size)}},
                         .wrong = "the batch size must be at least 1",
                         .remedy = "Set .size"});
  const std::int64_t full = samples_ / options_.size, rest = samples_ % options_.size;
  count_ = static_cast<std::uint64_t>(full + (rest != 0 && !options_.drop_last ? 1 : 0));
  if (count_ == 0)
    fail<ArgumentError>({.operation = "batches",
                         .with = {{"samples", std::to_string(samples_)}, {"size", std::to_string(options_.size)}},
                         .wrong = "drop_last leaves no batch: there are fewer samples than the batch size"});
}

const Array& BatchSource::order_on(Device device, std::uint64_t epoch) {
  if (epoch_ != epoch) order_.clear();
  epoch_ = epoch;
  const auto [at, made] = order_.try_emplace(device);
  if (!made) return at->second;
  const auto n = static_cast<std::size_t>(samples_);
  const std::uint64_t seed = seed_of(options_.seed, epoch);
  const auto permutation = [&]<class I>(I) {
    std::vector<I> order(n);
    std::iota(order.begin(), order.end(), I{0});
    for (std::size_t i = n - 1; i > 0; --i) {
      const PhiloxCounter words = philox4x32(seed, i);
      const double u = philox_uniform(words[0], words[1]);
      std::swap(order[i], order[std::min(i, static_cast<std::size_t>(u * static_cast<double>(i + 1)))]);
    }
    return Array::from(order, {}, device);
  };
  try {
    at->second = samples_ <= std::numeric_limits<std::int32_t>::max() ? permutation(std::int32_t{0})
                                                                      : permutation(std::int64_t{0});
  } catch (...) {
    order_.erase(at);
    throw;
  }
  return at->second;
}

std::int64_t BatchSource::batch_size(std::uint64_t batch) const {
  return std::min(options_.size, samples_ - batch_begin(batch));
}

double BatchSource::share_of(std::uint64_t batch) const {
  const std::int64_t all = batch_size(batch);
  return static_cast<double>(part_of_samples(all, parts_, part_).size) / static_cast<double>(all);
}

std::vector<Array> BatchSource::at(DataPosition place) {
  const SampleRange part = part_of_samples(batch_size(place.batch), parts_, part_);
  const std::int64_t begin = batch_begin(place.batch) + part.begin, end = begin + part.size;
  std::vector<Array> out;
  for (const Array& a : arrays_)
    out.push_back(options_.shuffle ? take(a, order_on(a.device(), place.epoch).slice(0, begin, end))
                                   : a.slice(0, begin, end));
  return out;
}

}  // namespace detail

namespace {
template <std::size_t N>
Batches<N> made(std::vector<Array> arrays, const BatchesOptions& options) {
  return Batches<N>(std::make_shared<detail::BatchSource>(std::move(arrays), options));
}
}  // namespace

Batches<1> batches(const Array& a, const BatchesOptions& o) { return made<1>({a}, o); }
Batches<2> batches(const Array& a, const Array& b, const BatchesOptions& o) { return made<2>({a, b}, o); }
Batches<3> batches(const Array& a, const Array& b, const Array& c, const BatchesOptions& o) {
  return made<3>({a, b, c}, o);
}
Batches<4> batches(const Array& a, const Array& b, const Array& c, const Array& d, const BatchesOptions& o) {
  return made<4>({a, b, c, d}, o);
}

}  // namespace tessera
