// SPDX-License-Identifier: Apache-2.0
// Checks of array/: elementwise operations, joining, gathering and random numbers.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "tessera/array/functions.h"
#include "tessera/base/philox.h"
#include "tessera/ops/catalogue/check.h"

namespace tessera::ops {

namespace {

struct UnaryCase {
  const char* name;
  Array (*operation)(Array);
  double (*reference)(double);
  double low = -10, high = 10, relative = 3e-6, absolute = 0;
};

const std::vector<UnaryCase>& unary_cases() {
  static const auto& cases = *new std::vector<UnaryCase>{
      {"abs", abs, [](double x) { return std::fabs(x); }},
      {"negate", operator-, [](double x) { return -x; }},
      {"sqrt", sqrt, [](double x) { return std::sqrt(x); }, 0, 100},
      {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-3, 100},
      {"exp", exp, [](double x) { return std::exp(x); }, -20, 20, 5e-6},
      {"exp2", exp2, [](double x) { return std::exp2(x); }, -20, 20, 5e-6},
      {"log", log, [](double x) { return std::log(x); }, 1e-3, 100, 3e-6, 1e-7},
      {"log2", log2, [](double x) { return std::log2(x); }, 1e-3, 100, 3e-6, 1e-7},
      {"log1p", log1p, [](double x) { return std::log1p(x); }, -0.9, 10},
      {"expm1", expm1, [](double x) { return std::expm1(x); }, -10, 10},
      {"sin", sin, [](double x) { return std::sin(x); }, -10, 10, 3e-6, 1e-6},
      {"cos", cos, [](double x) { return std::cos(x); }, -10, 10, 3e-6, 1e-6},
      {"log10", log10, [](double x) { return std::log10(x); }, 1e-3, 100, 3e-6, 1e-7},
      {"tan", tan, [](double x) { return std::tan(x); }, -10, 10, 3e-6, 1e-6},
      {"asin", asin, [](double x) { return std::asin(x); }, -1, 1},
      {"acos", acos, [](double x) { return std::acos(x); }, -1, 1, 3e-6, 1e-7},
      {"atan", atan, [](double x) { return std::atan(x); }},
      {"sinh", sinh, [](double x) { return std::sinh(x); }},
      {"cosh", cosh, [](double x) { return std::cosh(x); }},
      {"tanh", tanh, [](double x) { return std::tanh(x); }, -10, 10, 3e-6, 1e-7},
      {"erf", erf, [](double x) { return std::erf(x); }, -4, 4, 3e-6, 1e-6},
      {"floor", floor, [](double x) { return std::floor(x); }},
      {"ceil", ceil, [](double x) { return std::ceil(x); }},
      {"trunc", trunc, [](double x) { return std::trunc(x); }},
      {"rint", rint, [](double x) { return std::nearbyint(x); }},
      {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }},
      {"relu", relu, [](double x) { return std::max(x, 0.0); }},
      {"gelu", gelu, [](double x) { return x * 0.5 * (1 + std::erf(x * std::sqrt(0.5))); }, -10, 10, 3e-6, 1e-5},
  };
  return cases;
}

struct BinaryCase {
  const char* name;
  Array (*operation)(ArrayOperand, ArrayOperand);
  double (*reference)(double, double);
  bool integers = false;  // the case applies only to integers
};

const std::vector<BinaryCase>& binary_cases() {
  static const auto& cases = *new std::vector<BinaryCase>{
      {"add", operator+, [](double a, double b) { return a + b; }},
      {"subtract", operator-, [](double a, double b) { return a - b; }},
      {"multiply", operator*, [](double a, double b) { return a * b; }},
      {"divide", operator/, [](double a, double b) { return a / b; }},
      {"minimum", minimum, [](double a, double b) { return std::min(a, b); }},
      {"maximum", maximum, [](double a, double b) { return std::max(a, b); }},
      {"equal", operator==, [](double a, double b) { return a == b ? 1.0 : 0.0; }},
      {"not_equal", operator!=, [](double a, double b) { return a != b ? 1.0 : 0.0; }},
      {"less", operator<, [](double a, double b) { return a < b ? 1.0 : 0.0; }},
      {"less_equal", operator<=, [](double a, double b) { return a <= b ? 1.0 : 0.0; }},
      {"greater", operator>, [](double a, double b) { return a > b ? 1.0 : 0.0; }},
      {"greater_equal", operator>=, [](double a, double b) { return a >= b ? 1.0 : 0.0; }},
      {"remainder", operator%, [](double a, double b) { return std::fmod(a, b); }, true},
      {"and", operator&,
       [](double a, double b) {
         return static_cast<double>(static_cast<std::int64_t>(a) & static_cast<std::int64_t>(b));
       },
       true},
      {"or", operator|,
       [](double a, double b) {
         return static_cast<double>(static_cast<std::int64_t>(a) | static_cast<std::int64_t>(b));
       },
       true},
      {"xor", operator^,
       [](double a, double b) {
         return static_cast<double>(static_cast<std::int64_t>(a) ^ static_cast<std::int64_t>(b));
       },
       true},
  };
  return cases;
}

double check_unary(const UnaryCase& c, const Shape& shape, bool transposed, Device device, std::uint64_t seed) {
  Random random(seed);
  const auto x = rounded(random.numbers(element_count(shape), c.low, c.high), DType::f32);
  std::vector<double> wanted;
  for (double v : x) wanted.push_back(c.reference(v));
  Array a = array_of(x, shape, DType::f32, device);
  if (!transposed)
    return worst(poisoned(device, x.size() * 4, [&] { return c.operation(a); }), wanted, c.relative,
                 c.absolute + 1e-30);
  // The elements of the transposed view, in row-major order.
  std::vector<double> turned;
  const auto rows = static_cast<std::size_t>(shape[0]), columns = static_cast<std::size_t>(shape[1]);
  for (std::size_t j = 0; j < columns; ++j)
    for (std::size_t i = 0; i < rows; ++i) turned.push_back(wanted[i * columns + j]);
  return worst(poisoned(device, x.size() * 4, [&] { return c.operation(a.transpose()); }), turned, c.relative,
               c.absolute + 1e-30);
}

double check_binary(const BinaryCase& c, const Shape& a_shape, const Shape& b_shape, DType t, Device device,
                    std::uint64_t seed) {
  Random random(seed);
  const bool real = is_float(t);
  auto draw = [&](const Shape& s) {  // some pairs are equal, and no divisor is zero
    auto v = random.integers(element_count(s), 1, 20);
    if (real)
      for (double& x : v) x = (x - 10.5) / 4;
    return v;
  };
  const auto a = draw(a_shape), b = draw(b_shape);
  const Shape shape = broadcast_shapes("check", a_shape, b_shape);
  const Strides strides = contiguous_strides(shape);
  std::vector<double> wanted;
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    auto pick = [&](const std::vector<double>& from, const Shape& s) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < s.size(); ++d) {
        const std::size_t skip = shape.size() - s.size();
        at = at * s[d] + (s[d] == 1 ? 0 : i / strides[d + skip] % shape[d + skip]);
      }
      return from[static_cast<std::size_t>(at)];
    };
    double w = c.reference(pick(a, a_shape), pick(b, b_shape));
    if (!real) w = std::trunc(w);
    if (t == DType::u8) w -= 256 * std::floor(w / 256);  // the result wraps around
    wanted.push_back(w);
  }
  const Array x = array_of(a, a_shape, t, device), y = array_of(b, b_shape, t, device);
  return worst(poisoned(device, wanted.size() * dtype_size(t), [&] { return c.operation(x, y); }), wanted, unit(t) * 6,
               1e-30);
}

// Adds overlapping slices of one array, then adds one slice to the other in place.
double check_overlap(std::int64_t n, Device device, std::uint64_t seed) {
  Random random(seed);
  const auto v = random.integers(n, -50, 50);
  const Array line = array_of(v, {n}, DType::f32, device);
  std::vector<double> sum, after = v;
  for (std::size_t i = 0; i + 1 < v.size(); ++i) sum.push_back(v[i] + v[i + 1]);
  for (std::size_t i = 0; i < sum.size(); ++i) after[i] = sum[i];
  const Array left = line.slice(0, 0, n - 1), right = line.slice(0, 1, n);
  double most = worst(poisoned(device, static_cast<std::uint64_t>(n) * 4, [&] { return left + right; }), sum, 0, 1e-30);
  Array target = left;
  target += right;
  return std::max(most, worst(values_of(line), after, 0, 1e-30));
}

double check_where(Device device, std::uint64_t seed) {
  Random random(seed);
  const auto c = random.integers(35, 0, 1), a = random.integers(35, -9, 9), b = random.integers(7, -9, 9);
  std::vector<double> wanted;
  for (std::size_t i = 0; i < 35; ++i) wanted.push_back(c[i] != 0 ? a[i] : b[i % 7]);
  const Array mask = array_of(c, {5, 7}, DType::boolean, device), x = array_of(a, {5, 7}, DType::i32, device),
              y = array_of(b, {7}, DType::i32, device);
  return worst(poisoned(device, 35 * 4, [&] { return where(mask, x, y); }), wanted, 0, 1e-30);
}

double check_two(Array (*operation)(ArrayOperand, ArrayOperand), double (*reference)(double, double), double low,
                 Device device, std::uint64_t seed) {
  Random random(seed);
  const auto a = rounded(random.numbers(100, low, 5), DType::f32), b = rounded(random.numbers(100, -4, 4), DType::f32);
  std::vector<double> wanted;
  for (std::size_t i = 0; i < 100; ++i) wanted.push_back(reference(a[i], b[i]));
  const Array x = array_of(a, {100}, DType::f32, device), y = array_of(b, {100}, DType::f32, device);
  return worst(poisoned(device, 400, [&] { return operation(x, y); }), wanted, 1e-5, 0);
}

// Sorts along the first axis, and along the second axis of the transposed array. Equal elements must keep their order.
double check_sort(std::int64_t rows, std::int64_t width, DType t, Device device, std::uint64_t seed) {
  Random random(seed);
  auto v = rounded(random.integers(rows * width, 0, rows), t);
  const bool real = is_float(t);
  if (real)
    for (double& x : v) x = x == 3 ? std::numeric_limits<double>::infinity() : x == 1 ? -2.5 : x;
  std::vector<double> sorted, order;
  for (std::int64_t c = 0; c < width; ++c) {
    std::vector<std::size_t> places(static_cast<std::size_t>(rows));
    std::iota(places.begin(), places.end(), std::size_t{0});
    const auto at = [&](std::size_t r) { return v[r * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)]; };
    std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) { return at(a) < at(b); });
    for (const std::size_t p : places) sorted.push_back(at(p)), order.push_back(static_cast<double>(p));
  }
  const Array a = array_of(v, {rows, width}, t, device);
  const auto bytes = static_cast<std::uint64_t>(v.size());
  const double values =
      worst(poisoned(device, bytes * dtype_size(t), [&] { return sort(a, 0).transpose(); }), sorted, 0, 1e-30);
  return std::max(values,
                  worst(poisoned(device, bytes * 8, [&] { return argsort(a.transpose(), 1); }), order, 0, 1e-30));
}

// Checks masked_select, nonzero and unique.
double check_masks(std::int64_t rows, std::int64_t width, Device device, std::uint64_t seed) {
  Random random(seed);
  const auto v = random.integers(rows * width, -9, 9), m = random.integers(rows, 0, 1);
  std::vector<double> picked, places;
  for (std::size_t i = 0; i < m.size(); ++i) {
    if (m[i] == 0) continue;
    places.push_back(static_cast<double>(i));
    for (std::int64_t c = 0; c < width; ++c)
      picked.push_back(v[i * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)]);
  }
  const std::set<double> once(v.begin(), v.end());
  const Array a = array_of(v, {rows, width}, DType::f32, device), mask = array_of(m, {rows}, DType::boolean, device);
  const auto bytes = static_cast<std::uint64_t>(v.size()) * 4 + 8;
  double most = worst(poisoned(device, bytes, [&] { return masked_select(a, mask); }), picked, 0, 1e-30);
  most = std::max(most, worst(poisoned(device, bytes, [&] { return nonzero(mask)[0]; }), places, 0, 1e-30));
  return std::max(most, worst(poisoned(device, bytes, [&] { return unique(a); }),
                              std::vector<double>(once.begin(), once.end()), 0, 1e-30));
}

double check_cast(DType from, DType to, Device device, std::uint64_t seed) {
  Random random(seed);
  auto v = random.integers(77, 0, from == DType::boolean || to == DType::boolean ? 1 : 100);
  if (is_float(from))
    for (double& x : v) x += to == DType::boolean ? 0 : is_float(to) ? 0.25 : 0.5;
  v = rounded(v, from);
  auto wanted = v;
  if (!is_float(to))
    for (double& x : wanted) x = std::trunc(x);
  wanted = rounded(wanted, to);
  const Array a = array_of(v, {77}, from, device);
  return worst(poisoned(device, 77 * dtype_size(to), [&] { return a.astype(to); }), wanted, 0, 1e-30);
}

double check_take(std::int64_t rows, std::int64_t width, std::int64_t count, DType t, Device device,
                  std::uint64_t seed) {
  Random random(seed);
  const auto v = random.integers(rows * width, 0, 100);
  auto ids = random.integers(count, 0, rows - 1);
  if (count > 1) ids[1] = static_cast<double>(rows);
  std::vector<double> wanted;
  for (double id : ids)
    for (std::int64_t i = 0; i < width; ++i)
      wanted.push_back(
          id < static_cast<double>(rows) ? v[static_cast<std::size_t>(static_cast<std::int64_t>(id) * width + i)] : 0);
  const Array table = array_of(v, {rows, width}, t, device), which = array_of(ids, {count}, DType::i32, device);
  return worst(poisoned(device, wanted.size() * dtype_size(t), [&] { return take(table, which); }), wanted, 0, 1e-30);
}

// Scatters rows of (rows, width) along the first axis, and along the second axis of the transposed array.
double check_scatter(bool add, bool turned, std::int64_t rows, std::int64_t width, std::int64_t count, Device device,
                     std::uint64_t seed) {
  Random random(seed);
  const auto v = random.integers(rows * width, -9, 9), u = random.integers(count * width, -9, 9);
  const auto ids = random.integers(count, -1, rows);
  auto wanted = v;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] >= 0 && ids[i] < static_cast<double>(rows))
      for (std::size_t w = 0; w < static_cast<std::size_t>(width); ++w) {
        double& to = wanted[static_cast<std::size_t>(ids[i]) * static_cast<std::size_t>(width) + w];
        to = u[i * static_cast<std::size_t>(width) + w] + (add ? to : 0);
      }
  const Array a = array_of(v, {rows, width}, DType::f32, device), which = array_of(ids, {count}, DType::i32, device);
  const Array updates = array_of(u, {count, width}, DType::f32, device);
  const auto run = [&](const Array& into, const Array& from, int axis) {
    return add ? scatter_add(into, which, from, axis) : scatter(into, which, from, axis);
  };
  return worst(
      poisoned(device, wanted.size() * 4,
               [&] { return turned ? run(a.transpose(), updates.transpose(), 1).transpose() : run(a, updates, 0); }),
      wanted, 0, 1e-30);
}

double check_cumsum(const Shape& shape, Device device, std::uint64_t seed) {
  Random random(seed);
  const auto v = random.integers(element_count(shape), -9, 9);
  auto wanted = v;
  const auto inner = static_cast<std::size_t>(shape[1]), rows = static_cast<std::size_t>(shape[0]);
  for (std::size_t i = inner; i < wanted.size(); ++i) wanted[i] += wanted[i - inner];
  const Array a = array_of(v, shape, DType::f32, device);
  const double down = worst(poisoned(device, wanted.size() * 4, [&] { return cumsum(a, 0); }), wanted, 0, 1e-30);
  wanted = v;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 1; j < inner; ++j) wanted[i * inner + j] += wanted[i * inner + j - 1];
  return std::max(down, worst(poisoned(device, wanted.size() * 4, [&] { return cumsum(a, 1); }), wanted, 0, 1e-30));
}

double check_concatenate(std::int64_t rows, Device device, std::uint64_t seed) {
  Random random(seed);
  const auto a = random.integers(rows * 3, -9, 9), b = random.integers(rows * 2, -9, 9);
  std::vector<double> wanted;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
    for (std::size_t j = 0; j < 3; ++j) wanted.push_back(a[i * 3 + j]);
    for (std::size_t j = 0; j < 2; ++j) wanted.push_back(b[j * static_cast<std::size_t>(rows) + i]);
  }
  const Array x = array_of(a, {rows, 3}, DType::f32, device), y = array_of(b, {2, rows}, DType::i32, device);
  return worst(poisoned(device, wanted.size() * 4,
                        [&] {
                          return concatenate({x, y.transpose()}, 1);
                        }),
               wanted, 0, 1e-30);
}

// Compares bits with a host implementation of Philox, uniform numbers with their bounds, and normal numbers with their
// moments.
double check_random(std::int64_t n, Device device, std::uint64_t seed) {
  std::vector<double> wanted;
  for (std::int64_t i = 0; i < n; ++i)
    wanted.push_back(philox4x32(seed, static_cast<std::uint64_t>(i / 4))[static_cast<std::size_t>(i % 4)]);
  double most =
      worst(poisoned(device, static_cast<std::uint64_t>(n) * 4, [&] { return random_bits({n}, seed, device); }), wanted,
            0, 1e-30);
  const auto uniform =
      poisoned(device, static_cast<std::uint64_t>(n) * 4, [&] { return random_uniform({n}, seed, -2, 3, device); });
  for (double u : uniform)
    if (!(u >= -2 && u <= 3)) most = 1e9;
  const auto normal =
      poisoned(device, static_cast<std::uint64_t>(n) * 4, [&] { return random_normal({n}, seed, 1, 2, device); });
  if (n < 1000) return most;
  double mean = 0, square = 0, flat = 0;
  for (double v : normal) mean += v, square += (v - 1) * (v - 1);
  for (double u : uniform) flat += u;
  const double count = static_cast<double>(n);
  // The estimates must be within six standard deviations.
  most = std::max(most, std::abs(mean / count - 1) / (6 * 2 / std::sqrt(count)));
  most = std::max(most, std::abs(square / count - 4) / (6 * 4 * std::sqrt(2 / count)));
  return std::max(most, std::abs(flat / count - 0.5) / (6 * 5 / std::sqrt(12 * count)));
}

}  // namespace

void add_array_checks(Checks& checks) {
  for (const UnaryCase& c : unary_cases()) {
    for (const Shape& s : {Shape{0}, Shape{1}, Shape{5, 77}, Shape{65537, 2}})
      checks.push_back({c.name, to_string(s),
                        [&c, s](Device device, std::uint64_t seed) { return check_unary(c, s, false, device, seed); }});
    checks.push_back({c.name, "(33, 20)^T", [&c](Device device, std::uint64_t seed) {
                        return check_unary(c, {33, 20}, true, device, seed);
                      }});
  }
  for (const BinaryCase& c : binary_cases()) {
    auto add = [&](Shape a, Shape b, DType t) {
      checks.push_back(
          {c.name, to_string(a) + ", " + to_string(b) + " " + std::string(dtype_name(t)),
           [&c, a, b, t](Device device, std::uint64_t seed) { return check_binary(c, a, b, t, device, seed); }});
    };
    for (DType t : c.integers ? std::vector{DType::i32, DType::u8} : std::vector{DType::f32, DType::i32})
      add({0}, {1}, t), add({1}, {1}, t), add({6, 1, 9}, {5, 1}, t), add({65537, 3}, {3}, t);
    if (!c.integers)
      for (DType t : {DType::f16, DType::bf16, DType::i64, DType::u8}) add({7, 19}, {7, 1}, t);
  }
  for (std::int64_t n : {2, 3, 1000, 65540})
    checks.push_back({"add overlapping", to_string(Shape{n}),
                      [n](Device device, std::uint64_t seed) { return check_overlap(n, device, seed); }});
  checks.push_back({"where", "(5, 7), (5, 7), (7)", check_where});
  const auto two = [&](const char* name, Array (*operation)(ArrayOperand, ArrayOperand),
                       double (*reference)(double, double), double low) {
    checks.push_back({name, "(100)", [=](Device device, std::uint64_t seed) {
                        return check_two(operation, reference, low, device, seed);
                      }});
  };
  two(
      "pow", pow, [](double a, double b) { return std::pow(a, b); }, 0.1);
  two(
      "atan2", atan2, [](double a, double b) { return std::atan2(a, b); }, -5);
  two(
      "hypot", hypot, [](double a, double b) { return std::hypot(a, b); }, -5);
  two(
      "copysign", copysign, [](double a, double b) { return std::copysign(a, b); }, -5);
  for (const DType t : {DType::f32, DType::f16, DType::i32, DType::u8})
    for (const auto& [rows, width] :
         {std::pair<std::int64_t, std::int64_t>{1, 5}, {100, 7}, {300, 3}, {t == DType::f32 ? 70001 : 5000, 1}})
      checks.push_back(
          {"sort", to_string(Shape{rows, width}) + " " + std::string(dtype_name(t)),
           [=, r = rows, w = width](Device device, std::uint64_t seed) { return check_sort(r, w, t, device, seed); }});
  for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {99, 7}, {65537, 1}})
    checks.push_back(
        {"masked_select", to_string(Shape{rows, width}),
         [r = rows, w = width](Device device, std::uint64_t seed) { return check_masks(r, w, device, seed); }});
  for (DType from : {DType::f32, DType::f16, DType::i32, DType::u8, DType::boolean, DType::i64})
    for (DType to : {DType::f32, DType::bf16, DType::i8, DType::u16, DType::boolean, DType::f16})
      if (from != to)
        checks.push_back({"astype", std::string(dtype_name(from)) + " to " + std::string(dtype_name(to)),
                          [=](Device device, std::uint64_t seed) { return check_cast(from, to, device, seed); }});
  for (const auto& [rows, width, count] :
       {std::array<std::int64_t, 3>{5, 7, 0}, std::array<std::int64_t, 3>{1, 1, 1},
        std::array<std::int64_t, 3>{9, 33, 20}, std::array<std::int64_t, 3>{3, 2, 65537}})
    checks.push_back({"take", to_string(Shape{count}) + " of " + to_string(Shape{rows, width}),
                      [r = rows, w = width, n = count](Device device, std::uint64_t seed) {
                        return check_take(r, w, n, DType::f32, device, seed);
                      }});
  checks.push_back({"take", "(9) of (5, 3) f16",
                    [](Device device, std::uint64_t seed) { return check_take(5, 3, 9, DType::f16, device, seed); }});
  for (const bool add : {false, true})
    for (const bool turned : {false, true})
      for (const auto& [rows, width, count] :
           {std::array<std::int64_t, 3>{5, 7, 0}, std::array<std::int64_t, 3>{1, 1, 1},
            std::array<std::int64_t, 3>{9, 33, 40}, std::array<std::int64_t, 3>{70000, 1, 3000}})
        checks.push_back({add ? "scatter_add" : "scatter",
                          to_string(Shape{count}) + " into " + to_string(Shape{rows, width}) + (turned ? "^T" : ""),
                          [=, r = rows, w = width, n = count](Device device, std::uint64_t seed) {
                            return check_scatter(add, turned, r, w, n, device, seed);
                          }});
  for (const Shape& shape : {Shape{1, 1}, Shape{7, 33}, Shape{30011, 2}, Shape{2, 30011}})
    checks.push_back({"cumsum", to_string(shape),
                      [shape](Device device, std::uint64_t seed) { return check_cumsum(shape, device, seed); }});
  for (std::int64_t rows : {0, 1, 37, 65537})
    checks.push_back({"concatenate", to_string(Shape{rows, 3}) + ", " + to_string(Shape{2, rows}) + "^T",
                      [rows](Device device, std::uint64_t seed) { return check_concatenate(rows, device, seed); }});
  for (std::int64_t n : {0, 1, 6, 70001})
    checks.push_back({"random", to_string(Shape{n}),
                      [n](Device device, std::uint64_t seed) { return check_random(n, device, seed); }});
}

}  // namespace tessera::ops
