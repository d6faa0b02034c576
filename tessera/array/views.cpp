// SPDX-License-Identifier: Apache-2.0
// Views of arrays, and copies of their elements.
#include <algorithm>

#include "tessera/array/axis_layout.h"
#include "tessera/array/cached_operation.h"
#include "tessera/array/elementwise.h"
#include "tessera/array/functions.h"
#include "tessera/array/operation.h"
#include "tessera/array/repeated.h"
#include "tessera/base/callback.h"

namespace tessera {

using detail::RuledOperation;

namespace {

std::vector<std::int64_t> numbers(const Shape& shape) { return shape; }

Rule moving(Callback<void(Backward&)> backward) { return {.backward = std::move(backward), .moves = true}; }

/// The backward rule of an operation that returns the elements of its operand in the same order, with another shape.
Rule reshaped() {
  return moving([](Backward& b) { b.add(0, [&] { return b.adjoint().reshape(b.shape(0)); }); });
}

/// Returns an array of `shape` that contains `part` at slice(axis, begin, ..., step) and zeros elsewhere.
Array placed(const Array& part, const Shape& shape, int axis, std::int64_t begin, std::int64_t step) {
  RuledOperation operation("slice", part);
  const std::int64_t end = begin + (part.shape(axis) == 0 ? 0 : (part.shape(axis) - 1) * step + 1);
  Array out = Array::zeros(shape, part.dtype(), part.device());
  out.slice(axis, begin, end, step).assign(part);
  return operation.finish(std::move(out), [&] {
    return Rule{[=](Backward& b) { b.add(0, [&] { return b.adjoint().slice(axis, begin, end, step); }); }};
  });
}

}  // namespace

Array detail::sum_of_slices(std::vector<Backward::Slice> slices, const Shape& shape) {
  std::ranges::sort(slices, {}, &Backward::Slice::begin);
  const int axis = slices[0].axis;
  std::int64_t end = 0;
  bool joins = true;
  for (const Backward::Slice& s : slices) {
    joins = joins && s.axis == axis && s.begin == end && (s.step == 1 || s.adjoint.shape(axis) == 1);
    if (joins) end += s.adjoint.shape(axis);
  }
  if (joins && end == shape[static_cast<std::size_t>(axis)]) {
    std::vector<Array> parts;
    for (Backward::Slice& s : slices) parts.push_back(std::move(s.adjoint));
    return parts.size() == 1 ? parts[0] : concatenate(parts, axis);
  }
  std::optional<Array> sum;
  for (const Backward::Slice& s : slices) {
    Array one = placed(s.adjoint, shape, s.axis, s.begin, s.step);
    sum = sum ? *std::move(sum) + std::move(one) : std::move(one);
  }
  return *std::move(sum);
}

Array Array::with_view(Shape shape, Strides strides, std::int64_t offset) const {
  return ArrayAccess::make(source_, dtype_, std::move(shape), std::move(strides), offset);
}

Array Array::reshape(Shape shape) const {
  RuledOperation operation("reshape", *this);
  const auto made = [&](Array view) {
    const Shape to = view.shape();
    return operation.finish(
        std::move(view),
        [&] {
          return Attributes{{"shape", numbers(to)}};
        },
        reshaped);
  };
  std::int64_t known = 1;
  int open = -1;
  const Shape asked = shape;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && open < 0) open = static_cast<int>(i), shape[i] = 1;
  }
  check_shape("reshape", shape);
  known = element_count(shape);
  if (open >= 0 && known == 0)
    fail<ShapeError>({.operation = "reshape",
                      .with = {{"from", to_string(shape_)}, {"to", to_string(asked)}},
                      .wrong = "-1 is ambiguous together with an extent of 0",
                      .remedy = "Specify all extents"});
  if (open >= 0) shape[static_cast<std::size_t>(open)] = size() / known;
  if (element_count(shape) != size())
    fail<ShapeError>({.operation = "reshape",
                      .with = {{"from", to_string(shape_)}, {"to", to_string(asked)}},
                      .wrong = open < 0 ? "the shapes have different numbers of elements"
                                        : "the number of elements is not divisible by the given extents"});
  if (contiguous()) {
    Strides strides = contiguous_strides(shape);
    return made(with_view(std::move(shape), std::move(strides), offset_));
  }
  // A view is possible if each group of new dimensions corresponds to a group of old dimensions with a uniform stride.
  Strides strides(shape.size());
  std::size_t old_at = 0, new_at = 0;
  bool view = true;
  while (view && new_at < shape.size()) {
    std::size_t old_end = old_at, new_end = new_at;
    std::int64_t old_n = 1, new_n = 1;
    do {
      if (old_n <= new_n && old_end < shape_.size())
        old_n *= shape_[old_end++];
      else if (new_end < shape.size())
        new_n *= shape[new_end++];
      else
        break;
    } while (old_n != new_n || new_end == new_at);
    if (old_n != new_n) {
      view = false;
      break;
    }
    std::int64_t step = 1;
    bool first = true;
    for (std::size_t i = old_end; i-- > old_at;) {  // The stride must be uniform.
      if (shape_[i] == 1) continue;
      if (first)
        step = strides_[i], first = false;
      else if (strides_[i] != step)
        view = false;
      step = strides_[i] * shape_[i];
    }
    std::int64_t inner = 1;
    for (std::size_t i = old_end; i-- > old_at;)
      if (shape_[i] != 1) {
        inner = strides_[i];
        break;
      }
    for (std::size_t i = new_end; i-- > new_at;) strides[i] = inner, inner *= shape[i];
    old_at = old_end, new_at = new_end;
  }
  if (view) return made(with_view(std::move(shape), std::move(strides), offset_));
  return made(as_contiguous().reshape(std::move(shape)));
}

Array Array::transpose() const {
  RuledOperation operation("transpose", *this);
  Shape shape(shape_.rbegin(), shape_.rend());
  Strides strides(strides_.rbegin(), strides_.rend());
  return operation.finish(with_view(std::move(shape), std::move(strides), offset_), [] {
    return moving([](Backward& b) { b.add(0, [&] { return b.adjoint().transpose(); }); });
  });
}

Array Array::permute(std::vector<int> axes) const {
  RuledOperation operation("permute", *this);
  Shape shape;
  Strides strides;
  std::vector<bool> seen(shape_.size());
  bool once = true;
  for (int& axis : axes) {
    const auto a = static_cast<std::size_t>(normalise_axis("permute", axis, shape_.size()));
    once = once && !seen[a];
    seen[a] = true;
    shape.push_back(shape_[a]), strides.push_back(strides_[a]);
    axis = static_cast<int>(a);
  }
  if (!once || shape.size() != shape_.size())
    fail<ShapeError>({.operation = "permute",
                      .with = {{"shape", to_string(shape_)}},
                      .wrong = "each axis must be named exactly once"});
  return operation.finish(
      with_view(std::move(shape), std::move(strides), offset_),
      [&] {
        return Attributes{{"axes", std::vector<std::int64_t>(axes.begin(), axes.end())}};
      },
      [&] {
        std::vector<int> back(axes.size());
        for (std::size_t i = 0; i < axes.size(); ++i) back[static_cast<std::size_t>(axes[i])] = static_cast<int>(i);
        return moving([back](Backward& b) { b.add(0, [&] { return b.adjoint().permute(back); }); });
      });
}

Array Array::broadcast_to(const Shape& shape) const {
  RuledOperation operation("broadcast_to", *this);
  if (broadcast_shapes("broadcast_to", shape_, shape) != shape)
    fail<ShapeError>({.operation = "broadcast_to",
                      .with = {{"from", to_string(shape_)}, {"to", to_string(shape)}},
                      .wrong = "the shape cannot be broadcast to the other"});
  return operation.finish(
      with_view(shape, detail::broadcast_strides(*this, shape), offset_),
      [&] {
        return Attributes{{"shape", numbers(shape)}};
      },
      [] { return moving([](Backward& b) { b.add(0, [&] { return b.adjoint(); }); }); });
}

Array Array::slice(int axis, std::int64_t begin, std::int64_t end, std::int64_t step) const {
  RuledOperation operation("slice", *this);
  const auto a = static_cast<std::size_t>(normalise_axis("slice", axis, shape_.size()));
  const std::int64_t n = shape_[a];
  if (step == 0) fail<ShapeError>({.operation = "slice", .with = {{"step", "0"}}, .wrong = "the step is zero"});
  const auto attributes = [&] {
    return Attributes{{"axis", static_cast<std::int64_t>(a)}, {"begin", begin}, {"end", end}, {"step", step}};
  };
  if (step < 0) {
    if (begin < 0) begin += n;
    if (end < 0) end += n;
    begin = std::clamp<std::int64_t>(begin, -1, n - 1), end = std::clamp<std::int64_t>(end, -1, begin);
    step = std::max(step, -n - 1);
    const std::int64_t count = begin > end ? (begin - end - 1) / -step + 1 : 0;
    const std::int64_t last = count == 0 ? 0 : begin + (count - 1) * step;
    const Array ahead = slice(static_cast<int>(a), last, count == 0 ? 0 : begin + 1, -step).as_contiguous();
    // A value of -1 would refer to the last element.
    const auto again = [n](std::int64_t at) { return at < 0 ? -n - 1 : at; };
    begin = again(begin), end = again(end);
    return operation.finish(detail::reversed(ahead, {ahead.shape(), a}), attributes, [&] {
      return moving(
          [axis = static_cast<int>(a), first = count == 0 ? 0 : begin + (count - 1) * step, step](Backward& b) {
            b.add_slice(0, axis, first, -step, [&] { return flip(b.adjoint(), {axis}); });
          });
    });
  }
  if (begin < 0) begin += n;
  if (end < 0) end += n;
  begin = std::clamp<std::int64_t>(begin, 0, n), end = std::clamp<std::int64_t>(end, begin, n);
  Shape shape = shape_;
  Strides strides = strides_;
  shape[a] = end > begin ? (end - begin - 1) / step + 1 : 0;
  if (shape[a] > 1) strides[a] *= step;
  // An empty slice keeps the offset of the array, so that the offset remains inside the memory.
  const std::int64_t offset = shape[a] == 0 ? offset_ : offset_ + begin * strides_[a];
  return operation.finish(with_view(std::move(shape), std::move(strides), offset), attributes, [&] {
    return moving([a, begin, step](Backward& b) {
      b.add_slice(0, static_cast<int>(a), begin, step, [&] { return b.adjoint(); });
    });
  });
}

Array Array::select(int axis, std::int64_t index) const {
  RuledOperation operation("select", *this);
  const auto a = static_cast<std::size_t>(normalise_axis("select", axis, shape_.size()));
  const std::int64_t i = index < 0 ? index + shape_[a] : index;
  if (i < 0 || i >= shape_[a])
    fail<ShapeError>(
        {.operation = "select",
         .with = {{"index", std::to_string(index)}, {"axis", std::to_string(axis)}, {"shape", to_string(shape_)}},
         .wrong = "the index is out of range"});
  Shape shape = shape_;
  Strides strides = strides_;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(a));
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(a));
  return operation.finish(
      with_view(std::move(shape), std::move(strides), offset_ + i * strides_[a]),
      [&] {
        return Attributes{{"axis", static_cast<std::int64_t>(a)}, {"index", i}};
      },
      [&] {
        return moving([a = static_cast<int>(a), i](Backward& b) {
          b.add_slice(0, a, i, 1, [&] { return b.adjoint().unsqueeze(a); });
        });
      });
}

Array Array::unsqueeze(int axis) const {
  RuledOperation operation("unsqueeze", *this);
  const auto a = static_cast<std::size_t>(normalise_axis("unsqueeze", axis, shape_.size() + 1));
  Shape shape = shape_;
  Strides strides = strides_;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(a), 1);
  strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(a), 0);
  return operation.finish(
      with_view(std::move(shape), std::move(strides), offset_),
      [&] {
        return Attributes{{"axis", static_cast<std::int64_t>(a)}};
      },
      reshaped);
}

Array Array::squeeze(int axis) const {
  RuledOperation operation("squeeze", *this);
  if (shape(axis) != 1)
    fail<ShapeError>({.operation = "squeeze",
                      .with = {{"axis", std::to_string(axis)}, {"shape", to_string(shape_)}},
                      .wrong = "the axis has more than one element"});
  return operation.finish(
      select(axis, 0),
      [&] {
        return Attributes{{"axis", static_cast<std::int64_t>(normalise_axis("squeeze", axis, shape_.size()))}};
      },
      reshaped);
}

Array Array::as_contiguous() const {
  const detail::Operation operation("as_contiguous", *this);
  return operation.finish(contiguous() ? *this : copy());
}

Array Array::copy() const {
  RuledOperation operation("copy", *this);
  // Contiguous arrays are copied without a kernel. In large arrays, the launch overhead does not matter.
  std::optional<detail::CachedOperation> repeated;
  if (std::optional<Array> copied = detail::copy_repeated(*this)) return operation.finish(*std::move(copied), reshaped);
  if (size() <= (1 << 17) && !contiguous()) repeated.emplace(detail::CachedOperation::copy, *this);
  if (repeated && *repeated) {
    detail::count_fused_launch();
    return operation.finish((*repeated)(), reshaped);
  }
  Array out = empty(shape_, dtype_, device());
  if (repeated && repeated->kept()) {
    detail::Fused fused(device());
    const int elements = fused.input({source_->memory(), dtype_, strides_, offset_});
    fused.output(fused.operation(ir::Op::cast, 0, dtype_, std::span(&elements, 1)),
                 {out.source_->memory(), dtype_, out.strides_, 0});
    detail::trace_flush(fused, "its result is written in place");
    detail::run(fused, out, *repeated);
  } else {
    out.assign(*this);
  }
  return operation.finish(std::move(out), reshaped);
}

Array Array::to(Device target) const {
  RuledOperation operation("to", *this);
  const auto attributes = [&] { return Attributes{{"device", to_string(target)}}; };
  const auto back = [] { return moving([](Backward& b) { b.add(0, [&] { return b.adjoint().to(b.device(0)); }); }); };
  if (target == device()) return operation.finish(*this, attributes, back);
  device_info(target);
  const Array flat = as_contiguous();
  Array out = empty(shape_, dtype_, target);
  if (size()) current_queue(target).copy(out.view(), flat.view());
  return operation.finish(std::move(out), attributes, back);
}

}  // namespace tessera
