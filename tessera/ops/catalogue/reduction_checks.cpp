// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/ops/catalogue/check.h"

namespace tessera::ops {

namespace {

enum Kind : std::uint8_t { sum_, mean_, max_, min_, any_, all_, argmax_ };
constexpr const char* names[] = {"sum", "mean", "max", "min", "any", "all", "argmax"};

struct ReductionCase {
  Kind kind;
  Shape shape;
  std::vector<int> axes;  // empty: all axes
  DType dtype = DType::f32;
  bool strided = false;  // reads every second row of an array with twice as many rows
};

double run(const ReductionCase& c, Device device, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t count = element_count(c.shape);
  // The elements are integers, so that sums are exact in f32 and some elements are equal.
  const bool logical = c.dtype == DType::boolean;
  const auto v = random.integers(count,
                                 logical                    ? 0
                                 : is_unsigned_int(c.dtype) ? 0
                                                            : -20,
                                 logical ? random.integer(0, 1) : 20);
  std::vector<bool> reduced(c.shape.size(), c.axes.empty());
  for (int a : c.axes) reduced[static_cast<std::size_t>(a)] = true;
  const Strides strides = contiguous_strides(c.shape);
  std::int64_t results = 1, total = 1;
  for (std::size_t d = 0; d < c.shape.size(); ++d) (reduced[d] ? total : results) *= c.shape[d];
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(results));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < c.shape.size(); ++d)
      if (!reduced[d]) at = at * c.shape[d] + i / strides[d] % c.shape[d];
    groups[static_cast<std::size_t>(at)].push_back(v[static_cast<std::size_t>(i)]);
  }
  std::vector<double> wanted, allowed;
  for (const auto& g : groups) {
    double s = 0, most = -std::numeric_limits<double>::infinity(), least = -most, where = 0, size = 0;
    bool some = false, every = true;
    for (std::size_t i = 0; i < g.size(); ++i) {
      s += g[i], size += std::abs(g[i]);
      if (g[i] > most) most = g[i], where = static_cast<double>(i);
      least = std::min(least, g[i]);
      some = some || g[i] != 0, every = every && g[i] != 0;
    }
    const double results_of[] = {s,    s / static_cast<double>(total), most, least, some ? 1.0 : 0.0, every ? 1.0 : 0.0,
                                 where};
    wanted.push_back(results_of[c.kind]);
    const DType result = c.kind == sum_    ? c.dtype
                         : c.kind == mean_ ? (is_float(c.dtype) ? c.dtype : DType::f32)
                                           : DType::i32;
    // Sums of integers are rounded if they exceed 2^24.
    const double walk =
        c.kind <= mean_ && size >= 0x1p24 ? size * 0x1p-24 * 8 / (c.kind == mean_ ? static_cast<double>(total) : 1) : 0;
    allowed.push_back(walk + std::abs(wanted.back()) * (unit(result) * 1.01 + (c.kind == mean_ ? 0x1p-22 : 0)) + 1e-30);
  }
  Array a;
  if (c.strided) {
    std::vector<double> wide;
    const auto row = static_cast<std::size_t>(count / c.shape[0]);
    for (std::size_t i = 0; i < v.size(); ++i) {
      wide.push_back(v[i]);
      if ((i + 1) % row == 0) wide.insert(wide.end(), row, logical ? 0 : 33);
    }
    Shape twice = c.shape;
    twice[0] *= 2;
    a = array_of(wide, twice, c.dtype, device).slice(0, 0, twice[0], 2);
  } else {
    a = array_of(v, c.shape, c.dtype, device);
  }
  const auto got = poisoned(device, static_cast<std::uint64_t>(results) * 8, [&]() -> Array {
    switch (c.kind) {
      case sum_: return sum(a, c.axes);
      case mean_: return mean(a, c.axes);
      case max_: return max(a, c.axes);
      case min_: return min(a, c.axes);
      case any_: return any(a, c.axes);
      case all_: return all(a, c.axes);
      default: return argmax(a, c.axes[0]);
    }
  });
  return worst(got, wanted, allowed);
}

}  // namespace

void add_reduction_checks(Checks& checks) {
  std::vector<ReductionCase> cases;
  for (Kind k : {sum_, mean_, max_, min_, any_, all_}) {
    const DType t = k >= any_ ? DType::boolean : DType::f32;
    const Shape shapes[] = {{1}, {7}, {5, 33}, {3, 1000}, {65537, 3}, {3, 70001}};
    for (const Shape& s : shapes) {
      cases.push_back({k, s, {}, t});
      cases.push_back({k, s, {static_cast<int>(s.size()) - 1}, t, s.size() > 1});
      if (s.size() > 1) cases.push_back({k, s, {0}, t});
    }
    cases.push_back({k, {4, 5, 6, 7}, {0, 2}, t});
    cases.push_back({k, {4, 5, 6, 7}, {1, 3}, t, true});
    if (k < any_)
      for (DType other : {DType::f16, DType::bf16, DType::f64, DType::i32, DType::u8, DType::i64})
        cases.push_back({k, {9, 50}, {1}, other});
  }
  for (Kind k : {sum_, any_, all_}) cases.push_back({k, {0, 4}, {0}, k == sum_ ? DType::f32 : DType::boolean});
  for (const Shape& s : {Shape{1}, Shape{5, 33}, Shape{65537, 3}, Shape{2, 70001}})
    for (int axis = 0; axis < static_cast<int>(s.size()); ++axis) cases.push_back({argmax_, s, {axis}});
  cases.push_back({argmax_, {9, 50}, {1}, DType::f16}), cases.push_back({argmax_, {9, 50}, {0}, DType::i32, true});
  for (const ReductionCase& c : cases) {
    std::string shape = to_string(c.shape);
    if (!c.axes.empty()) {
      shape += " axis";
      for (int a : c.axes) shape += " " + std::to_string(a);
    }
    shape += " " + std::string(dtype_name(c.dtype)) + (c.strided ? " strided" : "");
    checks.push_back({names[c.kind], shape, [c](Device device, std::uint64_t seed) { return run(c, device, seed); }});
  }
}

}  // namespace tessera::ops
