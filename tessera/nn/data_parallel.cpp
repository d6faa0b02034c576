// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/data_parallel.h"

#include <algorithm>

#include "tessera/nn/pack.h"

namespace tessera::detail {

void check_devices(const std::vector<Device>& devices) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    static_cast<void>(device_info(devices[i]));
    if (std::ranges::count(devices, devices[i]) != 1)
      fail<ArgumentError>({.operation = "Trainer",
                           .with = {{"devices", to_string(devices[i])}},
                           .wrong = "a device is named twice and would get two replicas",
                           .remedy = "List each device once"});
  }
}

SampleRange part_of_samples(std::int64_t samples, std::int64_t parts, std::int64_t k) {
  const std::int64_t least = samples / parts, more = samples % parts;
  return {.begin = k * least + std::min(k, more), .size = least + (k < more ? 1 : 0)};
}

std::int64_t samples_of(std::span<const Array> batch) {
  std::int64_t samples = -1;
  for (const Array& a : batch) {
    if (a.rank() == 0) continue;
    if (samples >= 0 && a.shape(0) != samples)
      fail<ShapeError>({.operation = "split a batch",
                        .with = {{"arrays", to_string(batch[0].shape()) + ", " + to_string(a.shape())}},
                        .wrong = "the arrays of the batch have different numbers of samples",
                        .remedy = "Axis 0 of each array must be the samples. Arrays without dimensions are not split"});
    samples = a.shape(0);
  }
  if (samples < 1)
    fail<ShapeError>({.operation = "split a batch",
                      .with = {{"samples", std::to_string(std::max<std::int64_t>(0, samples))}},
                      .wrong = "the batch has no samples to split"});
  return samples;
}

std::vector<BatchPart> split_batch(std::span<const Array> batch, const std::vector<Device>& devices) {
  const std::int64_t samples = samples_of(batch);
  std::vector<BatchPart> parts;
  const auto n = static_cast<std::int64_t>(devices.size());
  for (std::int64_t k = 0; k < std::min(n, samples); ++k) {
    const auto [begin, size] = part_of_samples(samples, n, k);
    BatchPart part{.arrays = {}, .weight = static_cast<double>(size) / static_cast<double>(samples)};
    for (const Array& a : batch) {
      const Array mine = a.rank() == 0 ? a : a.slice(0, begin, begin + size);
      part.arrays.push_back(mine.to(devices[static_cast<std::size_t>(k)]));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

Array zero_loss(const ConstParts& parts) {
  std::optional<Array> zero;
  for (const auto& [path, part] : parts) {
    if (!differentiable(*part)) continue;
    const Array term = sum(*part).reshape({}).astype(part->dtype() == DType::f64 ? DType::f64 : DType::f32) * 0;
    zero = zero ? *zero + term.to(zero->device()) : term;
  }
  return *zero;
}

void ReplicaCopies::copy(const ConstParts& from, const Parts& to) {
  writes_.resize(from.size(), ~std::uint64_t{0});
  std::vector<const Array*> here, there;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].second->empty()) continue;
    const std::uint64_t now = from[i].second->eval().view().storage->writes();
    if (std::exchange(writes_[i], now) == now) continue;
    here.push_back(from[i].second), there.push_back(to[i].second);
  }
  const auto copy_one = [](const Array& target, const Array& source) {
    if (target.contiguous() && source.contiguous())
      current_queue(target.device()).copy(target.view_for_writing(), source.view());
    else
      Array(target).assign(source.to(target.device()));
  };
  // Copies ranges that are contiguous in both models with one copy.
  for (std::size_t i = 0, end = 0; i < here.size(); i = end) {
    end = i + 1;
    const auto run = [&](const std::vector<const Array*>& all, std::size_t until) {
      return packed_view(std::span(all).subspan(i, until - i));
    };
    auto source = run(here, end), target = run(there, end);
    while (source && target && end < here.size()) {
      const auto more = run(here, end + 1), other = run(there, end + 1);
      if (!more || !other) break;
      source = more, target = other, ++end;
    }
    copy_one(target ? *target : *there[i], source ? *source : *here[i]);
  }
}

void tree_reduce(std::vector<std::vector<Array>>& rows) {
  for (std::size_t step = 1; step < rows.size(); step *= 2)
    for (std::size_t k = 0; k + step < rows.size(); k += 2 * step)
      for (std::size_t i = 0; i < rows[k].size(); ++i) {
        Array& sum = rows[k][i];
        sum.assign(sum + rows[k + step][i].to(sum.device()));
      }
}

}  // namespace tessera::detail
