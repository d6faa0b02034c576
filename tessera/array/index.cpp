// SPDX-License-Identifier: Apache-2.0
// Indexing by several indices: a view for positions and slices, then one `take` or `scatter` for all arrays of
// positions.
#include "tessera/array/index.h"

#include <algorithm>

#include "tessera/array/functions.h"
#include "tessera/array/rearrange.h"
#include "tessera/array/scatter.h"

namespace tessera {

namespace {

/// The indices of an array, applied in two steps.
struct IndexedView {
  Array view;                 ///< positions and slices are applied; slices with negative steps are in memory order
  std::vector<int> reversed;  ///< axes of `view` that were sliced with negative steps
  std::vector<int> axes;      ///< axes of `view` that are indexed by arrays
  std::vector<Array> arrays;  ///< the positions along `axes`
  bool first = false;         ///< the axes of the arrays come first in the result
};

bool is_position(const AxisIndex& i) {
  return std::holds_alternative<Array>(i) || std::holds_alternative<std::int64_t>(i);
}

int axes_of(const AxisIndex& i) {
  if (const Array* array = std::get_if<Array>(&i)) return array->dtype() == DType::boolean ? array->rank() : 1;
  return std::holds_alternative<std::int64_t>(i) || std::holds_alternative<Slice>(i);
}

/// Applies a slice as a view. Returns true if its elements are in the opposite order.
bool apply_slice(const char* name, const Slice& s, Array& view, int axis) {
  const std::int64_t n = view.shape(axis);
  if (s.step == 0) fail<ArgumentError>({.operation = name, .wrong = "the step of a slice is 0"});
  if (s.step > 0) {
    const std::int64_t begin = s.begin.value_or(0), end = s.end.value_or(n);
    if (begin != 0 || end != n || s.step != 1) view = view.slice(axis, begin, end, s.step);
    return false;
  }
  const auto bound = [n](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + n : at, -1, n - 1); };
  const std::int64_t begin = s.begin ? bound(*s.begin) : n - 1, end = s.end ? bound(*s.end) : -1;
  const std::int64_t step = std::max(s.step, -n - 1);  // so that it can be negated
  const std::int64_t count = begin > end ? (begin - end - 1) / -step + 1 : 0;
  const std::int64_t last = begin + (count - 1) * step;
  view = count == 0 ? view.slice(axis, 0, 0) : view.slice(axis, last, begin + 1, -step);
  return count > 1;
}

void check_mask(const char* name, const Array& a, int axis, const Array& mask) {
  for (int d = 0; d < mask.rank(); ++d)
    if (axis + d >= a.rank() || mask.shape(d) != a.shape(axis + d))
      fail<ShapeError>({.operation = name,
                        .with = {{"shape", to_string(a.shape())}, {"mask", to_string(mask.shape())}},
                        .wrong = "the mask's shape does not match the axes that it covers"});
}

IndexedView apply_indices(const char* name, const Array& a, const std::vector<AxisIndex>& indices) {
  int used = 0;
  for (const AxisIndex& i : indices) used += axes_of(i);
  const auto ellipses =
      std::ranges::count_if(indices, [](const AxisIndex& i) { return std::holds_alternative<Ellipsis>(i); });
  if (used > a.rank() || ellipses > 1)
    fail<ArgumentError>(
        {.operation = name,
         .with = {{"shape", to_string(a.shape())}, {"indices", std::to_string(used)}},
         .wrong = ellipses > 1 ? "there is more than one ellipsis" : "there are more indices than axes"});
  const bool has_arrays =
      std::ranges::any_of(indices, [](const AxisIndex& i) { return std::holds_alternative<Array>(i); });
  IndexedView out{.view = a};
  int axis = 0;
  std::size_t last_advanced = indices.size();
  for (std::size_t at = 0; at < indices.size(); ++at) {
    const AxisIndex& i = indices[at];
    if (has_arrays && is_position(i)) {
      if (last_advanced != indices.size() && at != last_advanced + 1) out.first = true;
      last_advanced = at;
    }
    if (std::holds_alternative<NewAxis>(i)) {
      out.view = out.view.unsqueeze(axis++);
    } else if (std::holds_alternative<Ellipsis>(i)) {
      axis += a.rank() - used;
    } else if (const auto* position = std::get_if<std::int64_t>(&i)) {
      out.view = out.view.select(axis, *position);
    } else if (const auto* s = std::get_if<Slice>(&i)) {
      if (apply_slice(name, *s, out.view, axis)) out.reversed.push_back(axis);
      ++axis;
    } else if (const Array& array = std::get<Array>(i); array.dtype() != DType::boolean) {
      if (!is_int(array.dtype()))
        fail<DtypeError>({.operation = name,
                          .with = {{"index", std::string(dtype_name(array.dtype()))}},
                          .wrong = "an array of positions must have an integer dtype"});
      out.axes.push_back(axis++), out.arrays.push_back(array);
    } else {
      if (array.rank() == 0)
        fail<ShapeError>({.operation = name,
                          .wrong = "a mask without axes cannot be combined with other indices",
                          .remedy = "Use masked_select or where"});
      check_mask(name, out.view, axis, array);
      for (Array& positions : nonzero(array)) out.axes.push_back(axis++), out.arrays.push_back(std::move(positions));
    }
  }
  return out;
}

/// An array whose axes that are indexed by arrays are merged to one.
struct Merged {
  Array array;
  Shape apart;             ///< the shape before merging
  std::vector<int> order;  ///< the order of the axes of the view in `apart`
  int axis;                ///< the merged axis
};
Merged merge(const IndexedView& s) {
  Merged out{.array = s.reversed.empty() ? s.view : flip(s.view, s.reversed), .apart = {}, .order = {}, .axis = 0};
  const auto is_indexed = [&](int d) { return std::ranges::find(s.axes, d) != s.axes.end(); };
  for (int d = 0; d < s.view.rank(); ++d)
    if (!is_indexed(d)) out.order.push_back(d);
  out.axis = s.first ? 0 : s.axes[0];
  out.order.insert(out.order.begin() + out.axis, s.axes.begin(), s.axes.end());
  out.array = out.array.permute(out.order), out.apart = out.array.shape();
  Shape merged;
  for (int d = 0; d < out.axis; ++d) merged.push_back(out.apart[static_cast<std::size_t>(d)]);
  merged.push_back(1);
  for (std::size_t d = static_cast<std::size_t>(out.axis); d < out.apart.size(); ++d)
    if (d < static_cast<std::size_t>(out.axis) + s.axes.size())
      merged.back() *= out.apart[d];
    else
      merged.push_back(out.apart[d]);
  if (s.axes.size() > 1) out.array = out.array.reshape(merged);
  return out;
}

/// The positions along the merged axis; -1 where a position is out of range.
Array positions_of(const IndexedView& s) {
  Array out;
  for (std::size_t i = 0; i < s.arrays.size(); ++i) {
    const std::int64_t n = s.view.shape(s.axes[i]);
    const Array& given = s.arrays[i];
    Array at = given.astype(DType::i64);
    if (is_signed_int(given.dtype())) at = where(at < 0, at + n, at);
    at = where((at >= 0) & (at < n), at, -1);
    out = i == 0 ? at : where((out >= 0) & (at >= 0), out * n + at, -1);
  }
  return out;
}

Array array_of(const ArrayOperand& values, const Array& like) {
  if (values.is_array()) return values.array();
  if (like.dtype() == DType::boolean) return Array::full({}, values.value() != 0, DType::boolean, like.device());
  return Array::zeros({}, like.dtype(), like.device()) + values;
}

/// Returns the only index if it is a mask.
const Array* only_mask(const std::vector<AxisIndex>& indices) {
  const Array* const array = indices.size() == 1 ? std::get_if<Array>(&indices[0]) : nullptr;
  return array != nullptr && array->dtype() == DType::boolean ? array : nullptr;
}

/// Changes the elements at arrays of positions: in the memory of the array if the merged array is a view of it, else
/// with a copy of the indexed part.
template <class Change>
void rewrite(const IndexedView& s, Change&& change) {
  Merged m = merge(s);
  const bool in_place = !m.array.pending() && m.array.source() == s.view.source() && m.array.contiguous();
  if (!in_place) m.array = m.array.copy();
  change(m.array, positions_of(s), m.axis);
  if (in_place) return;
  Array changed = m.array.reshape(m.apart);
  std::vector<int> back(m.order.size());
  for (std::size_t d = 0; d < back.size(); ++d) back[static_cast<std::size_t>(m.order[d])] = static_cast<int>(d);
  changed = changed.permute(back);
  Array view = s.view;
  view.assign(s.reversed.empty() ? changed : flip(changed, s.reversed));
}

/// Values in the order in which they are written to the view.
Array in_order(const IndexedView& s, const Array& values) {
  return s.reversed.empty() ? values : flip(values.broadcast_to(s.view.shape()), s.reversed);
}

}  // namespace

Array index(const Array& a, const std::vector<AxisIndex>& indices) {
  if (const Array* mask = only_mask(indices)) return masked_select(a, *mask);
  const IndexedView s = apply_indices("index", a, indices);
  if (s.arrays.empty()) return s.reversed.empty() ? s.view : flip(s.view, s.reversed);
  const Merged m = merge(s);
  return take(m.array, positions_of(s), m.axis);
}

void index_assign(Array& a, const std::vector<AxisIndex>& indices, const ArrayOperand& values) {
  const Array* mask = only_mask(indices);
  if (mask != nullptr && (!values.is_array() || values.array().size() == 1)) {
    check_mask("index_assign", a, 0, *mask);
    Array full = *mask;
    while (full.rank() < a.rank()) full = full.unsqueeze(full.rank());
    const Array value = array_of(values, a).reshape({}).astype(a.dtype());
    a.assign(where(full, value, a));
    return;
  }
  const IndexedView s = apply_indices("index_assign", a, indices);
  const Array given = array_of(values, a);
  if (s.arrays.empty()) {
    Array view = s.view;
    view.assign(in_order(s, given));
  } else {
    rewrite(s, [&](Array& target, const Array& at, int axis) { detail::scatter_into(target, at, given, axis); });
  }
}

void index_add(Array& a, const std::vector<AxisIndex>& indices, const ArrayOperand& values) {
  const IndexedView s = apply_indices("index_add", a, indices);
  const Array given = array_of(values, a);
  if (s.arrays.empty()) {
    Array view = s.view;
    view += in_order(s, given);
  } else {
    rewrite(s, [&](Array& target, const Array& at, int axis) { detail::scatter_add_into(target, at, given, axis); });
  }
}

}  // namespace tessera
