// SPDX-License-Identifier: Apache-2.0
// Functions that are composed of other operations and views.
#include "tessera/array/functions.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tessera/array/axis_layout.h"
#include "tessera/array/elementwise.h"
#include "tessera/array/operation.h"

namespace tessera {

using detail::Operation;

namespace {

std::string text(const std::vector<std::int64_t>& values) { return to_string(Shape(values.begin(), values.end())); }

}  // namespace

// Elementwise.

Array log1p(Array a) {
  const auto parts = [](Array x) {
    // Adds back the rounding error of 1 + x with the first term of the series of log(u + lost) (Kahan; Goldberg 1991,
    // theorem 4).
    Array u = 1 + x;
    Array lost = x - (u - 1);
    Array rest = log(u);
    Array exact = where(u == 1, std::move(x), rest);  // keeps the sign of zero, and avoids 0 / 0 at -1
    return where(abs(lost) > 0, std::move(rest) + lost / std::move(u), std::move(exact));
  };
  return detail::compute_in_f32("log1p", std::move(a), parts, [](const Array& x) { return 1 / (1 + x); });
}
Array expm1(Array a) {
  const auto parts = [](Array x) {
    // exp(x) - 1 = 2 t / (1 - t) with t = tanh(x / 2). This has no cancellation if t is small or negative.
    constexpr double limit = 0.5;
    Array t = tanh(0.5 * minimum(x, limit));
    Array near = (t + t) / (1 - t);
    Array large = x > limit;
    return where(std::move(large), exp(std::move(x)) - 1, std::move(near));
  };
  return detail::compute_in_f32("expm1", std::move(a), parts, [](const Array& x) { return exp(x); });
}
Array sign(Array a) {
  const Operation operation("sign", a);
  detail::check_numeric("sign", a.dtype());
  a = detail::without_history(std::move(a));  // Its derivative is zero.
  Array below = is_unsigned_int(a.dtype()) ? a : where(a < 0, -1, a);
  Array above = std::move(a) > 0;
  return operation.finish(where(std::move(above), 1, std::move(below)));
}
Array clip(Array a, ArrayOperand low, ArrayOperand high) {
  detail::RuledOperation operation("clip", a, low, high);
  // The gradients match PyTorch 2.15. If x is outside the bounds, the bound gets the adjoint. If x equals a numeric
  // bound, the adjoint of x is zero. If x equals an array bound, x and the bound get half of the adjoint each, unless
  // the two bounds are equal. If low > high, the upper bound gets the adjoint.
  const auto rule = [&] {
    const auto bound = [](const ArrayOperand& o) { return o.is_array() ? ArrayOperand(Array()) : o; };
    const auto backward = [low = bound(low), high = bound(high)](Backward& b) {
      const ArrayOperand from = low.is_array() ? ArrayOperand(b.operand(1)) : low;
      const ArrayOperand to = high.is_array() ? ArrayOperand(b.operand(2)) : high;
      const Array x = b.operand(0), &g = b.adjoint();
      if (!low.is_array() && !high.is_array()) return b.add(0, [&] { return where((x > from) & (x < to), g, 0); });
      const Array apart = from < to;
      const Array crossed = from > to;
      const auto shared = [&](const ArrayOperand& bound) { return where((x == bound) & apart, 0.5 * g, 0); };
      b.add(0, [&] {
        const Array own = where(((x == from) | (x == to)) & apart, 0.5 * g, g);
        return where((x < from) | (x > to) | crossed, 0, own);
      });
      b.add(1, [&] { return where(crossed, 0, where(x < from, g, shared(from))); });
      b.add(2, [&] { return where((x > to) | crossed, g, shared(to)); });
    };
    return Rule{.backward = backward, .keeps = operand_bits(0, 1, 2)};
  };
  return operation.finish(minimum(maximum(std::move(a), low), high), rule);
}
Array isnan(Array a) {
  const Operation operation("isnan", a);
  return operation.finish(a != a);
}
Array isinf(Array a) {
  const Operation operation("isinf", a);
  if (!is_float(a.dtype())) return operation.finish(a != a);
  return operation.finish(abs(std::move(a)) == std::numeric_limits<double>::infinity());
}
Array isfinite(Array a) {
  const Operation operation("isfinite", a);
  if (!is_float(a.dtype())) return operation.finish(a == a);
  return operation.finish(abs(std::move(a)) < std::numeric_limits<double>::infinity());
}

Array argmin(Array a, int axis, bool keep) {
  if (a.rank() == 0) return argmin(a.reshape({1}), axis);
  const Operation operation("argmin", a);
  detail::check_numeric("argmin", a.dtype());
  const auto d = normalise_axis("argmin", axis, a.shape().size());
  const auto attributes = [&] { return Attributes{{"axis", static_cast<std::int64_t>(d)}, {"keep", keep}}; };
  // Reverses the order of the elements' values. Floats are negated, which keeps NaN. Integers are complemented, because
  // negation can overflow.
  if (is_float(a.dtype())) return operation.finish(argmax(-std::move(a), d, keep), attributes);
  if (is_unsigned_int(a.dtype())) {
    const int bits = 8 * static_cast<int>(dtype_size(a.dtype()));
    a = std::move(a) ^ (~std::uint64_t{0} >> (64 - bits));
  } else {
    a = std::move(a) ^ -1;
  }
  return operation.finish(argmax(std::move(a), d, keep), attributes);
}

// Joining and splitting.

Array stack(std::span<const Array> parts, int axis) {
  const Operation operation("stack", parts);
  if (parts.empty()) fail<ArgumentError>({.operation = "stack", .wrong = "there are no arrays to join"});
  const auto d = normalise_axis("stack", axis, parts[0].shape().size() + 1);
  std::vector<Array> rows;
  for (const Array& part : parts) {
    if (part.shape() != parts[0].shape())
      fail<ShapeError>({.operation = "stack",
                        .with = {{"first", to_string(parts[0].shape())}, {"other", to_string(part.shape())}},
                        .wrong = "the shapes differ"});
    rows.push_back(part.unsqueeze(d));
  }
  return operation.finish(concatenate(rows, d), [&] { return Attributes{{"axis", static_cast<std::int64_t>(d)}}; });
}
Array stack(std::initializer_list<Array> parts, int axis) {
  return stack(std::span(parts.begin(), parts.size()), axis);
}

std::vector<Array> split(const Array& a, const std::vector<std::int64_t>& sizes, int axis) {
  const Operation operation("split", a);
  const auto d = normalise_axis("split", axis, a.shape().size());
  const std::int64_t extent = a.shape(d);
  const bool negative = std::ranges::any_of(sizes, [](std::int64_t n) { return n < 0; });
  if (negative || std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) != extent)
    fail<ShapeError>({.operation = "split",
                      .with = {{"shape", to_string(a.shape())}, {"axis", std::to_string(axis)}, {"sizes", text(sizes)}},
                      .wrong = "the sizes do not add up to the extent of the axis"});
  std::vector<Array> parts;
  std::int64_t at = 0;
  for (std::int64_t n : sizes) parts.push_back(a.slice(d, at, at + n)), at += n;
  return operation.finish(std::move(parts), [&] {
    return Attributes{{"axis", static_cast<std::int64_t>(d)}, {"sizes", sizes}};
  });
}
std::vector<Array> split(const Array& a, std::int64_t sections, int axis) {
  const std::int64_t extent = a.shape(axis);
  if (sections < 1 || extent % sections != 0)
    fail<ShapeError>({.operation = "split",
                      .with = {{"shape", to_string(a.shape())},
                               {"axis", std::to_string(axis)},
                               {"sections", std::to_string(sections)}},
                      .wrong = "the axis cannot be divided into that many equal parts",
                      .remedy = "Specify the size of each part: split(a, {3, 3, 2}, axis)"});
  return split(a, std::vector<std::int64_t>(static_cast<std::size_t>(sections), extent / sections), axis);
}

Array pad(const Array& a, const std::vector<Padding>& widths, double value) {
  detail::RuledOperation operation("pad", a);
  Shape shape = a.shape();
  const auto widths_attribute = [&] {
    std::vector<std::int64_t> all;
    for (const Padding& p : widths) all.push_back(p.before), all.push_back(p.after);
    return all;
  };
  const bool negative = std::ranges::any_of(widths, [](const Padding& p) { return p.before < 0 || p.after < 0; });
  if (widths.size() != shape.size() || negative)
    fail<ShapeError>({.operation = "pad",
                      .with = {{"shape", to_string(shape)}, {"widths", text(widths_attribute())}},
                      .wrong = negative ? "a width is negative" : "exactly one pair of widths per axis is required",
                      .remedy = negative ? "Use slice() to remove elements" : ""});
  for (std::size_t d = 0; d < shape.size(); ++d) shape[d] += widths[d].before + widths[d].after;
  Array out = Array::full(shape, value, a.dtype(), a.device());
  Array inside = out;
  for (std::size_t d = 0; d < shape.size(); ++d)
    inside = inside.slice(static_cast<int>(d), widths[d].before, widths[d].before + a.shape()[d]);
  inside.assign(a);
  const auto rule = [&] {
    return Rule{[widths](Backward& b) {
      b.add(0, [&] {
        Array g = b.adjoint();
        for (std::size_t d = 0; d < widths.size(); ++d)
          g = g.slice(static_cast<int>(d), widths[d].before, widths[d].before + b.shape(0)[d]);
        return g;
      });
    }};
  };
  return operation.finish(
      std::move(out),
      [&] {
        return Attributes{{"widths", widths_attribute()}, {"value", value}};
      },
      rule);
}

Array flip(const Array& a, std::vector<int> axes) {
  detail::RuledOperation operation("flip", a);
  std::vector<bool> named(a.shape().size(), axes.empty());
  for (const int axis : axes) named[static_cast<std::size_t>(normalise_axis("flip", axis, a.shape().size()))] = true;
  // In a contiguous array, adjacent axes can be reversed as a single axis.
  Array out = a;
  std::vector<int> turned;
  for (std::size_t d = 0; d < named.size();) {
    if (!named[d]) {
      ++d;
      continue;
    }
    detail::AxisLayout run(a.shape(), d);
    for (run.extent = 1; d < named.size() && named[d]; ++d) {
      turned.push_back(static_cast<int>(d));
      run.extent *= a.shape()[d];
    }
    run.inner = element_count(Shape(a.shape().begin() + static_cast<std::ptrdiff_t>(d), a.shape().end()));
    if (run.extent > 1) out = detail::reversed(out.as_contiguous(), run);
  }
  if (out.source() == a.source()) out = a.copy();
  const auto attributes = [&] { return Attributes{{"axes", std::vector<std::int64_t>(turned.begin(), turned.end())}}; };
  return operation.finish(std::move(out), attributes, [&] {
    return Rule{.backward =
                    [turned](Backward& b) {
                      b.add(0, [&] { return turned.empty() ? b.adjoint() : flip(b.adjoint(), turned); });
                    },
                .moves = true};
  });
}

// Masks.

namespace {

Array triangle(const char* name, const Array& a, std::int64_t k, bool lower) {
  const Operation operation(name, a);
  if (a.rank() < 2)
    fail<ShapeError>({.operation = name,
                      .with = {{"shape", to_string(a.shape())}},
                      .wrong = "the array has fewer than two dimensions"});
  const auto positions = [&](int axis) { return Array::arange(a.shape(axis), 0, 1, DType::i64, a.device()); };
  const Array distance = positions(-1).unsqueeze(0) - positions(-2).unsqueeze(1);
  const Array stays = lower ? distance <= k : distance >= k;
  const auto attributes = [&] { return Attributes{{"k", k}}; };
  if (a.dtype() == DType::boolean) return operation.finish(a & stays, attributes);
  return operation.finish(where(stays, a, 0), attributes);
}

}  // namespace

Array tril(const Array& a, std::int64_t k) { return triangle("tril", a, k, true); }
Array triu(const Array& a, std::int64_t k) { return triangle("triu", a, k, false); }

Array one_hot(const Array& indices, std::int64_t classes, DType dtype) {
  const Operation operation("one_hot", indices);
  detail::check_index_dtype("one_hot", indices);
  if (classes < 0)
    fail<ShapeError>(
        {.operation = "one_hot", .with = {{"classes", std::to_string(classes)}}, .wrong = "the count is negative"});
  const Array all = Array::arange(classes, 0, 1, DType::i64, indices.device());
  return operation.finish((indices.unsqueeze(-1) == all).astype(dtype), [&] {
    return Attributes{{"classes", classes}};
  });
}

// Statistics.

namespace {

Array spread(const char* name, Array a, const std::vector<int>& axes, double correction, bool keep, bool root) {
  const Operation operation(name, a);
  const DType given = a.dtype();
  const bool small = given == DType::f16 || given == DType::bf16;
  if (small)
    a = a.astype(DType::f32);
  else if (!is_float(given))
    a = a.astype(device_info(a.device()).can.f64 ? DType::f64 : DType::f32);
  const std::int64_t before = a.size();
  Array difference = a - mean(a, axes, true);
  a = Array();
  Array square = difference * difference;
  difference = Array();  // released, so that it is fused and not written to memory
  Array total = sum(std::move(square), axes, keep);
  const std::int64_t results = total.size();
  const double count = results == 0 ? 0 : static_cast<double>(before / results);
  Array result = std::move(total) / std::max(count - correction, 0.0);
  if (root && result.has_history()) {  // The square root has no derivative at 0. As in PyTorch, the gradient is then 0.
    const Array flat = result == 0;
    result = where(flat, 0, sqrt(where(flat, 1, std::move(result))));
  } else if (root) {
    result = sqrt(std::move(result));
  }
  if (small) result = result.astype(given);
  return operation.finish(std::move(result), [&] {
    Attributes all = detail::reduction_attributes(axes, keep);
    all.push_back({"correction", correction});
    return all;
  });
}

}  // namespace

Array var(Array a, std::vector<int> axes, double correction, bool keep) {
  return spread("var", std::move(a), axes, correction, keep, false);
}
Array stddev(Array a, std::vector<int> axes, double correction, bool keep) {
  return tessera::std(std::move(a), std::move(axes), correction, keep);
}
Array std(Array a, std::vector<int> axes, double correction, bool keep) {
  return spread("std", std::move(a), axes, correction, keep, true);
}

Array logsumexp(Array a, std::vector<int> axes, bool keep) {
  const auto attributes = [&] { return detail::reduction_attributes(axes, keep); };
  const Operation operation("logsumexp", a);
  detail::check_numeric("logsumexp", a.dtype());
  const DType given = a.dtype();
  if (given != DType::f32 && given != DType::f64) a = a.astype(DType::f32);
  Shape shape;  // the result's shape without the kept axes
  std::vector<bool> reduced(a.shape().size(), axes.empty());
  for (int axis : axes) reduced[static_cast<std::size_t>(normalise_axis("logsumexp", axis, reduced.size()))] = true;
  for (std::size_t d = 0; d < reduced.size(); ++d)
    if (!reduced[d]) shape.push_back(a.shape()[d]);
  Array largest;
  if (a.size() != 0) {
    // If a row has no finite maximum, subtracting 0 is correct: the sum of exp is then 0 or infinity.
    largest = max(detail::without_history(a), axes, true);  // The result does not depend on this shift.
    largest = where(isfinite(largest), largest, 0);
    a = std::move(a) - largest;
    if (!keep) largest = largest.reshape(shape);
  }
  Array result = log(sum(exp(std::move(a)), axes, keep));
  if (largest.size() != 0) result = std::move(result) + std::move(largest);
  if (is_float(given)) result = result.astype(given);
  return operation.finish(std::move(result), attributes);
}

// Updates.

Array update_slice(const Array& a, const Array& updates, const std::vector<std::int64_t>& starts) {
  detail::RuledOperation operation("update_slice", a, updates);
  bool inside = starts.size() == a.shape().size() && updates.shape().size() == a.shape().size();
  for (std::size_t d = 0; inside && d < starts.size(); ++d)
    inside = starts[d] >= 0 && starts[d] + updates.shape()[d] <= a.shape()[d];
  if (!inside)
    fail<ShapeError>(
        {.operation = "update_slice",
         .with = {{"a", to_string(a.shape())}, {"updates", to_string(updates.shape())}, {"starts", text(starts)}},
         .wrong = "the updates do not fit inside the array at this position"});
  const auto part = [starts](Array of, const Shape& extents) {
    for (std::size_t d = 0; d < starts.size(); ++d)
      of = of.slice(static_cast<int>(d), starts[d], starts[d] + extents[d]);
    return of;
  };
  Array out = a.copy();
  part(out, updates.shape()).assign(updates);
  const auto rule = [&] {
    return Rule{[starts, part](Backward& b) {
      const Array g = b.adjoint();
      b.add(0, [&] { return update_slice(g, Array::zeros(b.shape(1), g.dtype(), g.device()), starts); });
      b.add(1, [&] { return part(g, b.shape(1)); });
    }};
  };
  return operation.finish(
      std::move(out),
      [&] {
        return Attributes{{"starts", starts}};
      },
      rule);
}

}  // namespace tessera
