// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/rearrange.h"

#include <algorithm>
#include <numeric>

#include "tessera/array/operation.h"

namespace tessera {

using detail::Operation;

namespace {

std::vector<int> axes_in_order(const Array& a) {
  std::vector<int> order(a.shape().size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void check_count(const char* operation, std::int64_t count) {
  if (count < 0)
    fail<ArgumentError>(
        {.operation = operation, .with = {{"count", std::to_string(count)}}, .wrong = "the count is negative"});
}

Attributes axis_attribute(const char* name, std::int64_t value, const std::optional<int>& axis) {
  Attributes all{{name, value}};
  if (axis) all.push_back({"axis", static_cast<std::int64_t>(*axis)});
  return all;
}

}  // namespace

Array moveaxis(const Array& a, int from, int to) {
  const Operation operation("moveaxis", a);
  const int at = normalise_axis("moveaxis", from, a.shape().size());
  const int target = normalise_axis("moveaxis", to, a.shape().size());
  std::vector<int> order = axes_in_order(a);
  order.erase(order.begin() + at);
  order.insert(order.begin() + target, at);
  return operation.finish(a.permute(order), [&] {
    return Attributes{{"from", static_cast<std::int64_t>(at)}, {"to", static_cast<std::int64_t>(target)}};
  });
}

Array swapaxes(const Array& a, int first, int second) {
  const Operation operation("swapaxes", a);
  const int one = normalise_axis("swapaxes", first, a.shape().size());
  const int other = normalise_axis("swapaxes", second, a.shape().size());
  std::vector<int> order = axes_in_order(a);
  std::swap(order[static_cast<std::size_t>(one)], order[static_cast<std::size_t>(other)]);
  return operation.finish(a.permute(order), [&] {
    return Attributes{{"first", static_cast<std::int64_t>(one)}, {"second", static_cast<std::int64_t>(other)}};
  });
}

Array diag(const Array& a, std::int64_t offset) {
  const Operation operation("diag", a);
  if (a.rank() < 2)
    fail<ShapeError>({.operation = "diag",
                      .with = {{"shape", to_string(a.shape())}},
                      .wrong = "the array has fewer than two dimensions"});
  const std::int64_t rows = a.shape(-2), columns = a.shape(-1);
  const std::int64_t count =
      std::max<std::int64_t>(0, offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns));
  const std::int64_t begin = count == 0 ? 0 : offset >= 0 ? offset : -offset * columns;
  Shape shape(a.shape().begin(), a.shape().end() - 2);
  shape.push_back(rows * columns);
  const std::int64_t end = count == 0 ? 0 : begin + (count - 1) * (columns + 1) + 1;
  return operation.finish(a.reshape(shape).slice(-1, begin, end, columns + 1), [&] {
    return Attributes{{"offset", offset}};
  });
}

Array trace(const Array& a, std::int64_t offset) {
  const Operation operation("trace", a);
  return operation.finish(sum(diag(a, offset), {-1}), [&] { return Attributes{{"offset", offset}}; });
}

Array roll(const Array& a, std::int64_t shift, std::optional<int> axis) {
  const Operation operation("roll", a);
  const auto attributes = [&] { return axis_attribute("shift", shift, axis); };
  const Array line = axis ? a : a.reshape({a.size()});
  const int d = normalise_axis("roll", axis.value_or(0), line.shape().size());
  const std::int64_t extent = line.shape(d);
  const std::int64_t start = extent == 0 ? 0 : ((extent - shift % extent) % extent);
  Array out = start == 0 ? line.copy() : concatenate({line.slice(d, start, extent), line.slice(d, 0, start)}, d);
  return operation.finish(axis ? std::move(out) : out.reshape(a.shape()), attributes);
}

Array repeat(const Array& a, std::int64_t count, std::optional<int> axis) {
  const Operation operation("repeat", a);
  check_count("repeat", count);
  const Array line = axis ? a : a.reshape({a.size()});
  const int d = normalise_axis("repeat", axis.value_or(0), line.shape().size());
  Shape shape = line.shape(), wide = shape;
  wide.insert(wide.begin() + d + 1, count);
  shape[static_cast<std::size_t>(d)] *= count;
  return operation.finish(line.unsqueeze(d + 1).broadcast_to(wide).copy().reshape(shape),
                          [&] { return axis_attribute("count", count, axis); });
}

Array tile(const Array& a, std::vector<std::int64_t> counts) {
  const Operation operation("tile", a);
  for (const std::int64_t count : counts) check_count("tile", count);
  const auto attributes = [counts] { return Attributes{{"counts", counts}}; };
  Shape shape = a.shape();
  const std::size_t rank = std::max(shape.size(), counts.size());
  while (shape.size() < rank) shape.insert(shape.begin(), 1);
  counts.insert(counts.begin(), rank - counts.size(), 1);
  Shape apart, wide;
  for (std::size_t d = 0; d < rank; ++d) {
    for (const std::int64_t extent : {std::int64_t{1}, shape[d]}) apart.push_back(extent);
    for (const std::int64_t extent : {counts[d], shape[d]}) wide.push_back(extent);
    shape[d] *= counts[d];
  }
  return operation.finish(a.reshape(apart).broadcast_to(wide).copy().reshape(shape), attributes);
}

Array diff(const Array& a, std::int64_t order, int axis) {
  const Operation operation("diff", a);
  check_count("diff", order);
  const int d = normalise_axis("diff", axis, a.shape().size());
  Array out = order == 0 ? a.copy() : a;
  for (std::int64_t i = 0; i < order && out.shape(d) > 0; ++i) {
    const Array after = out.slice(d, 1, out.shape(d)), before = out.slice(d, 0, out.shape(d) - 1);
    out = out.dtype() == DType::boolean ? after != before : after - before;
  }
  return operation.finish(std::move(out), [&] { return axis_attribute("order", order, d); });
}

std::vector<Array> meshgrid(const std::vector<Array>& arrays, Indexing indexing) {
  const Operation operation("meshgrid", std::span(arrays));
  Shape shape;
  for (const Array& x : arrays) {
    if (x.rank() != 1)
      fail<ShapeError>({.operation = "meshgrid",
                        .with = {{"shape", to_string(x.shape())}},
                        .wrong = "the array does not have exactly one dimension"});
    shape.push_back(x.size());
  }
  const bool swapped = indexing == Indexing::xy && arrays.size() > 1;
  if (swapped) std::swap(shape[0], shape[1]);
  std::vector<Array> out;
  for (std::size_t k = 0; k < arrays.size(); ++k) {
    Shape line(arrays.size(), 1);
    line[swapped && k < 2 ? 1 - k : k] = arrays[k].size();
    out.push_back(arrays[k].reshape(line).broadcast_to(shape));
  }
  return operation.finish(std::move(out), [&] {
    return Attributes{{"indexing", static_cast<std::int64_t>(indexing)}};
  });
}

}  // namespace tessera
