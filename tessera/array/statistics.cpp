// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/array/elementwise.h"
#include "tessera/array/functions.h"
#include "tessera/array/operation.h"
#include "tessera/array/running_sum.h"
#include "tessera/device/launch/block_threads.h"
#include "tessera/device/placement/kernel_backend.h"
#include "tessera/device/queue/recorder.h"

namespace tessera {

using detail::as_floats;
using detail::Operation;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t most_counts = std::int64_t{1} << 30;
constexpr double infinite = std::numeric_limits<double>::infinity();

/// An array whose last axis has the elements that a reduction combines, and the shape of the reduction's result.
struct Lines {
  Array elements;
  Shape shape;
};

Lines lines_of(const char* operation, const Array& a, const std::vector<int>& axes, bool keep) {
  std::vector<bool> reduced(a.shape().size(), axes.empty());
  for (const int axis : axes) {
    const auto d = static_cast<std::size_t>(normalise_axis(operation, axis, reduced.size()));
    if (reduced[d])
      fail<ArgumentError>(
          {.operation = operation, .with = {{"axis", std::to_string(axis)}}, .wrong = "an axis occurs twice"});
    reduced[d] = true;
  }
  std::vector<int> order, last;
  Shape shape, result;
  std::int64_t count = 1;
  for (std::size_t d = 0; d < reduced.size(); ++d) {
    (reduced[d] ? last : order).push_back(static_cast<int>(d));
    if (reduced[d])
      count *= a.shape()[d];
    else
      shape.push_back(a.shape()[d]);
    if (!reduced[d] || keep) result.push_back(reduced[d] ? 1 : a.shape()[d]);
  }
  order.insert(order.end(), last.begin(), last.end());
  shape.push_back(count);
  return {a.permute(order).reshape(shape), result};
}

Array quantile_of(const char* operation, const Array& a, double q, const std::vector<int>& axes, bool keep) {
  const Lines lines = lines_of(operation, as_floats(a), axes, keep);
  const std::int64_t count = lines.elements.shape(-1);
  if (count == 0) return Array::full(lines.shape, not_a_number, lines.elements.dtype(), lines.elements.device());
  const Array sorted = sort(lines.elements);
  const double position = q * static_cast<double>(count - 1);
  const auto below = std::min(static_cast<std::int64_t>(position), count - 1);
  const double fraction = position - static_cast<double>(below);
  const Array low = sorted.select(-1, below), largest = sorted.select(-1, count - 1);
  Array result = low;
  if (fraction > 0) {
    const Array high = sorted.select(-1, below + 1);
    // Equal elements, among them infinities, are returned as they are.
    result = where(low == high, low, low * (1 - fraction) + high * fraction);
  }
  return where(isnan(largest), largest, result).reshape(lines.shape);
}

/// True if a function may read results on the host to choose its kernels: GPUs and recorded work must not wait.
bool host_may_wait(Device device) { return is_built_in(device.backend) && Recorder::number() == 0; }

/// Reduces `a` with its NaN replaced by `neutral`. The result is NaN where all elements are.
template <class Reduce>
Array ignoring_nan(const Array& a, double neutral, const std::vector<int>& axes, bool keep, const Reduce& reduce) {
  if (!is_float(a.dtype())) return reduce(a, axes, keep);
  const Array absent = isnan(a), result = reduce(where(absent, neutral, a), axes, keep);
  // Only a result that is `neutral` can be of elements that are all NaN.
  if (host_may_wait(a.device()) && !any(result == neutral).item<bool>()) return result;
  return where(all(absent, axes, keep), not_a_number, result);
}

}  // namespace

Array median(const Array& a, std::vector<int> axes, bool keep) {
  const Operation operation("median", a);
  return operation.finish(quantile_of("median", a, 0.5, axes, keep),
                          [&] { return detail::reduction_attributes(axes, keep); });
}

Array quantile(const Array& a, double q, std::vector<int> axes, bool keep) {
  const Operation operation("quantile", a);
  if (!(q >= 0 && q <= 1))
    fail<ArgumentError>(
        {.operation = "quantile", .with = {{"q", std::to_string(q)}}, .wrong = "q must be from 0 to 1"});
  return operation.finish(quantile_of("quantile", a, q, axes, keep), [&] {
    Attributes all = detail::reduction_attributes(axes, keep);
    all.push_back({"q", q});
    return all;
  });
}

Array prod(const Array& a, std::vector<int> axes, bool keep) {
  const Operation operation("prod", a);
  const DType t = a.dtype();
  const bool is_small = t == DType::f16 || t == DType::bf16;
  const DType wide = is_small ? DType::f32 : is_float(t) ? t : is_unsigned_int(t) ? DType::u64 : DType::i64;
  Lines lines = lines_of("prod", a.astype(wide), axes, keep);
  Array& x = lines.elements;
  if (x.shape(-1) == 0) x = Array::ones(lines.shape, wide, a.device()).unsqueeze(-1);
  // On GPUs, threads that multiply long parts of a row would read distant elements.
  constexpr std::int64_t most_on_gpus = 4096;
  const bool one_pass = blocks_are_vectors(kernel_backend(x.device())) || x.shape(-1) <= most_on_gpus;
  if (one_pass && !x.has_history() && x.size() > 0) {
    const Array elements = x.as_contiguous();
    x = detail::running_total(elements, {elements.shape(), elements.shape().size() - 1}, wide,
                              detail::Running::product);
  }
  for (std::int64_t count; (count = x.shape(-1)) > 1;) {
    const std::int64_t half = count / 2;
    const Array pairs = x.slice(-1, 0, half) * x.slice(-1, half, 2 * half);
    x = count % 2 == 0 ? pairs : concatenate({pairs, x.slice(-1, 2 * half, count)}, -1);
  }
  const Array out = x.reshape(lines.shape);
  return operation.finish(is_small ? out.astype(t) : out, [&] { return detail::reduction_attributes(axes, keep); });
}
Array nanprod(const Array& a, std::vector<int> axes, bool keep) {
  const Operation operation("nanprod", a);
  return operation.finish(prod(is_float(a.dtype()) ? where(isnan(a), 1, a) : a, axes, keep),
                          [&] { return detail::reduction_attributes(axes, keep); });
}

Array nansum(const Array& a, std::vector<int> axes, bool keep) {
  const Operation operation("nansum", a);
  return operation.finish(sum(is_float(a.dtype()) ? where(isnan(a), 0, a) : a, axes, keep),
                          [&] { return detail::reduction_attributes(axes, keep); });
}
Array nanmean(const Array& a, std::vector<int> axes, bool keep) {
  const Operation operation("nanmean", a);
  const auto attributes = [&] { return detail::reduction_attributes(axes, keep); };
  if (!is_float(a.dtype())) return operation.finish(mean(a, axes, keep), attributes);
  const Array absent = isnan(a);
  const Array count = sum(!absent, axes, keep);
  const bool is_small = a.dtype() == DType::f16 || a.dtype() == DType::bf16;
  const Array total = sum(where(absent, 0, is_small ? a.astype(DType::f32) : a), axes, keep);
  return operation.finish((total / count.astype(total.dtype())).astype(a.dtype()), attributes);
}
Array nanmax(const Array& a, std::vector<int> axes, bool keep) {
  const Operation operation("nanmax", a);
  return operation.finish(
      ignoring_nan(a, -infinite, axes, keep, [](const Array& x, auto& d, bool k) { return max(x, d, k); }),
      [&] { return detail::reduction_attributes(axes, keep); });
}
Array nanmin(const Array& a, std::vector<int> axes, bool keep) {
  const Operation operation("nanmin", a);
  return operation.finish(
      ignoring_nan(a, infinite, axes, keep, [](const Array& x, auto& d, bool k) { return min(x, d, k); }),
      [&] { return detail::reduction_attributes(axes, keep); });
}

namespace {

/// The positions in a sorted axis of the k largest or smallest elements. Of equal elements, the first one comes first:
/// argsort is stable, so the reversed axis is sorted for the largest.
Array order_of(const Array& key, std::int64_t k, int d, bool largest) {
  const std::int64_t extent = key.shape(d);
  if (!largest) return argsort(key, d).slice(d, 0, k).copy();
  return flip((extent - 1) - argsort(flip(key, {d}), d).slice(d, extent - k, extent), {d});
}

/// The positions of some elements of a line, in ascending order, among which are the k largest or smallest. They are
/// those up to an element of a sorted sample. Returns nothing if the line is short or there are no few such elements.
std::optional<Array> candidates(const Array& line, std::int64_t k, bool largest) {
  const std::int64_t n = line.size();
  constexpr std::int64_t samples = 4096, worthwhile = 4 * samples;
  if (line.rank() != 1 || n < worthwhile || k > n / 16) return {};
  if (!host_may_wait(line.device())) return {};  // for their number
  const Array sample = sort(line.slice(0, 0, n, n / samples));
  const double expected = static_cast<double>(k * sample.size()) / static_cast<double>(n);
  const auto rank = static_cast<std::int64_t>(expected + 4 * std::sqrt(expected) + 8);
  const Array limit = sample.select(0, largest ? sample.size() - 1 - rank : rank);
  std::vector<Array> found = nonzero(largest ? !(line < limit) : !(line > limit));  // NaN are always among them
  if (found[0].size() < k || found[0].size() > n / 4) return {};
  return std::move(found[0]);
}

}  // namespace

TopK topk(const Array& a, std::int64_t k, int axis, bool largest) {
  const Operation operation("topk", a);
  const int d = normalise_axis("topk", axis, a.shape().size());
  if (k < 0 || k > a.shape(d))
    fail<ArgumentError>(
        {.operation = "topk",
         .with = {{"shape", to_string(a.shape())}, {"axis", std::to_string(axis)}, {"k", std::to_string(k)}},
         .wrong = "k must be from 0 to the number of elements along the axis"});
  const Array key = detail::without_history(a);
  const std::optional<Array> few = candidates(key, k, largest);
  Array order = few ? take(*few, order_of(take(key, *few), k, 0, largest)) : order_of(key, k, d, largest);
  std::vector<Array> both = operation.finish({take_along_axis(a, order, d), order}, [&] {
    return Attributes{{"k", k}, {"axis", static_cast<std::int64_t>(d)}, {"largest", largest}};
  });
  return {both[0], both[1]};
}

Array bincount(const Array& a, std::int64_t least) {
  const Operation operation("bincount", a);
  detail::check_index_dtype("bincount", a);
  const auto reject = [](const char* name, const std::string& value, const std::string& wrong) {
    fail<ArgumentError>({.operation = "bincount", .with = {{name, value}}, .wrong = wrong});
  };
  if (least < 0) reject("least", std::to_string(least), "the number of counts must not be negative");
  const Array line = a.reshape({a.size()}).astype(DType::i64);
  std::int64_t count = least;
  if (line.size() != 0) {
    const auto limits = stack({min(line), max(line)}).to_vector<std::int64_t>();
    if (limits[0] < 0) reject("smallest", std::to_string(limits[0]), "the elements must be from 0 to 2^63 - 1");
    if (limits[1] >= most_counts) reject("largest", std::to_string(limits[1]), "there would be more than 2^30 counts");
    count = std::max(count, limits[1] + 1);
  }
  const Array zeros = Array::zeros({count}, DType::i64, a.device());
  return operation.finish(scatter_add(zeros, line, Array::ones({line.size()}, DType::i64, a.device())), [&] {
    return Attributes{{"least", least}};
  });
}

Histogram histogram(const Array& a, std::int64_t bins, double low, double high) {
  const Operation operation("histogram", a);
  if (bins < 1 || !std::isfinite(low) || !std::isfinite(high) || !(low < high))
    fail<ArgumentError>(
        {.operation = "histogram",
         .with = {{"bins", std::to_string(bins)}, {"low", std::to_string(low)}, {"high", std::to_string(high)}},
         .wrong = "there must be at least one interval, and low must be less than high"});
  const Array x = as_floats(a).reshape({a.size()});
  Array edges = Array::linspace(low, high, bins + 1, x.dtype(), x.device());
  const Array is_inside = (x >= edges.select(0, 0)) & (x <= edges.select(0, bins));
  const Array interval = minimum(searchsorted(edges, x, SearchSide::right) - 1, bins - 1);
  // Elements outside are counted in an interval of their own.
  const Array counted = where(is_inside, interval, bins), zeros = Array::zeros({bins + 1}, DType::i64, x.device());
  Array counts = scatter_add(zeros, counted, Array::ones({x.size()}, DType::i64, x.device())).slice(0, 0, bins).copy();
  std::vector<Array> both = operation.finish({std::move(counts), std::move(edges)}, [&] {
    return Attributes{{"bins", bins}, {"low", low}, {"high", high}};
  });
  return {both[0], both[1]};
}

}  // namespace tessera
