// SPDX-License-Identifier: Apache-2.0
// Searches in sorted arrays, and what follows from them.
#include <algorithm>
#include <array>

#include "tessera/array/elementwise.h"
#include "tessera/array/functions.h"
#include "tessera/array/operation.h"
#include "tessera/array/statistics.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"

namespace tessera {

using detail::as_floats;
using detail::Operation;
using ir::Value;

namespace {

void check_line(const char* operation, const Array& a) {
  if (a.rank() != 1)
    fail<ShapeError>({.operation = operation,
                      .with = {{"shape", to_string(a.shape())}},
                      .wrong = "the array does not have exactly one dimension"});
}

struct SearchSpec {
  DType dtype;
  SearchSide side;
  friend bool operator==(const SearchSpec&, const SearchSpec&) = default;
  std::size_t hash() const { return static_cast<std::size_t>(dtype) * 2 + static_cast<std::size_t>(side); }
};

/// Each thread searches for one value. All threads of a subgroup take the same number of steps.
ir::Function trace_search(const SearchSpec& spec) {
  ir::Builder builder("searchsorted", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto sorted = ir::buffer_param("sorted", spec.dtype, ir::Access::read);
  const auto values = ir::buffer_param("values", spec.dtype, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::i64, ir::Access::read_write);
  const Value count = ir::scalar_param("count", DType::index), steps = ir::scalar_param("steps", DType::index);
  const DType t = spec.dtype;
  const bool small = t == DType::f16 || t == DType::bf16, floats = is_float(t);
  const auto comparable = [&](Value v) {
    return t == DType::boolean ? ir::cast(DType::i32, v) : small ? ir::cast(DType::f32, v) : v;
  };
  const Value value = comparable(values.load(ir::global_id(0)));
  // NaN are larger than all other numbers, and equal.
  const auto comes_before = [&](Value element) {
    if (spec.side == SearchSide::left) {
      const Value less = element < value;
      return floats ? less | ((value != value) & (element == element)) : less;
    }
    const Value less = element <= value;
    return floats ? less | (value != value) : less;
  };
  // The result is at least `begin` and at most `begin` + `length`.
  const ir::Variable begin(DType::index, ir::index_literal(0)), length(DType::index, count);
  ir::for_(0, steps, 1, [&](Value) {
    const Value half = ir::max(length.get() / 2, ir::index_literal(1)), middle = begin.get() + half;
    begin.set(ir::select(comes_before(comparable(sorted.load(middle - 1))), middle, begin.get()));
    length.set(length.get() - half);
  });
  out.store(ir::global_id(0), ir::cast(DType::i64, begin.get()));
  return builder.finish();
}

}  // namespace

Array detail::as_floats(const Array& a) {
  if (is_float(a.dtype())) return a;
  return a.astype(device_info(a.device()).can.f64 ? DType::f64 : DType::f32);
}

Array searchsorted(const Array& sorted, const Array& values, SearchSide side) {
  const Operation operation("searchsorted", sorted, values);
  check_line("searchsorted", sorted);
  const std::array both{&sorted, &values};
  const Device device = detail::common_device("searchsorted", both);
  const DType common = promote(sorted.dtype(), values.dtype());
  const Array line = detail::without_history(sorted).astype(common).as_contiguous();
  const Array wanted = detail::without_history(values).astype(common).as_contiguous();
  Array out = Array::empty(values.shape(), DType::i64, device);
  std::int64_t steps = 0;
  for (std::int64_t length = line.size(); length > 0; length -= std::max<std::int64_t>(length / 2, 1)) ++steps;
  static auto& family = *new KernelFamily<SearchSpec>(trace_search);
  if (out.size() != 0)
    family({common, side})
        .launch({static_cast<std::uint64_t>(out.size()), 1, 1},
                {line.view(), wanted.view(), out.view_for_writing(), LaunchArgument::index(line.size()),
                 LaunchArgument::index(steps)});
  return operation.finish(std::move(out), [&] { return Attributes{{"side", static_cast<std::int64_t>(side)}}; });
}

Array isin(const Array& a, const Array& values) {
  const Operation operation("isin", a, values);
  if (values.size() == 0) return operation.finish(Array::full(a.shape(), 0, DType::boolean, a.device()));
  const DType common = promote(a.dtype(), values.dtype());
  const Array sorted = sort(detail::without_history(values).astype(common).reshape({values.size()}));
  const Array wanted = detail::without_history(a).astype(common);
  const Array position = minimum(searchsorted(sorted, wanted), sorted.size() - 1);
  return operation.finish(take(sorted, position) == wanted);
}

Array interpolate(const Array& x, const Array& at, const Array& heights) {
  const Operation operation("interpolate", x, at, heights);
  check_line("interpolate", at);
  if (at.shape() != heights.shape() || at.size() == 0)
    fail<ShapeError>({.operation = "interpolate",
                      .with = {{"at", to_string(at.shape())}, {"heights", to_string(heights.shape())}},
                      .wrong = "the function needs the same number of positions and heights, and at least one"});
  const Array places = as_floats(at), values = as_floats(heights), wanted = as_floats(x);
  const std::int64_t last = at.size() - 1;
  if (last == 0) return operation.finish(where(isnan(wanted), wanted, values.select(0, 0)));
  const Array right = clip(searchsorted(places, wanted, SearchSide::right), 1, last);
  const Array x0 = take(places, right - 1), x1 = take(places, right);
  const Array y0 = take(values, right - 1), y1 = take(values, right);
  const Array left_of = wanted < places.select(0, 0), right_of = wanted >= places.select(0, last);
  // Outside of the positions, and between equal ones, the values below are not used, but must be finite for gradients.
  const Array inside = where(left_of | right_of, x0, wanted), width = where(x1 == x0, 1, x1 - x0);
  const Array between = where((inside == x0) | (y0 == y1), y0, y0 + (y1 - y0) * ((inside - x0) / width));
  const Array value = where(left_of, values.select(0, 0), where(right_of, values.select(0, last), between));
  return operation.finish(where(isnan(wanted), wanted, value));
}

Inverse unique_inverse(const Array& a) {
  const Operation operation("unique_inverse", a);
  const Array values = unique(a);
  std::vector<Array> both = operation.finish({values, searchsorted(values, a)}, [] { return Attributes{}; });
  return {both[0], both[1]};
}

}  // namespace tessera
