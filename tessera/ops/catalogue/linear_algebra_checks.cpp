// SPDX-License-Identifier: Apache-2.0
// Compares the residuals of factorisations and solves with Higham's bounds (summed in long double for f64). Elements
// that must not be read are NaN. Elements that must not be written are compared with their old values.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/ops/catalogue/check.h"
#include "tessera/ops/linear_algebra.h"

namespace tessera::ops {

namespace {

using Real = long double;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// A matrix on the host and as an array. The array is part of a larger one and may be transposed in memory.
struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> values;
  Array array;

  Matrix(std::int64_t row_count, std::int64_t column_count, std::vector<double> v, DType t, bool transposed,
         Device device)
      : rows(row_count), columns(column_count), values(std::move(v)) {
    const std::int64_t outer = transposed ? columns : rows, inner = transposed ? rows : columns, pitch = inner + 3;
    std::vector<double> around(static_cast<std::size_t>((outer + 2) * pitch), nan);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        around[static_cast<std::size_t>(((transposed ? j : i) + 1) * pitch + (transposed ? i : j) + 2)] = at(i, j);
    array = array_of(around, {outer + 2, pitch}, t, device).slice(0, 1, outer + 1).slice(1, 2, inner + 2);
    if (transposed) array = array.transpose();
  }
  double& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * columns + j)]; }
};

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

struct UpdateCase {
  std::int64_t m, n, k;
  DType dtype = DType::f32;
  bool a_transposed = false, b_transposed = true, c_transposed = false;
  bool lower = false;
  double alpha = -1, beta = 1;
};

double run(const UpdateCase& u, Device device, std::uint64_t seed) {
  Random random(seed);
  const DType t = u.dtype;
  const auto draw = [&](std::int64_t count) { return rounded(random.numbers(count), t); };
  Matrix a(u.m, u.k, draw(u.m * u.k), t, u.a_transposed, device),
      b(u.k, u.n, draw(u.k * u.n), t, u.b_transposed, device);
  std::vector<double> before = draw(u.m * u.n);
  for (std::int64_t i = 0; i < u.m; ++i)
    for (std::int64_t j = 0; j < u.n; ++j)
      if ((u.lower && j > i) || u.beta == 0) before[static_cast<std::size_t>(i * u.n + j)] = nan;
  Matrix c(u.m, u.n, std::move(before), t, u.c_transposed, device);
  multiply_into(c.array, a.array, b.array, {.alpha = u.alpha, .beta = u.beta, .lower = u.lower});
  const std::vector<double> got = values_of(c.array);
  std::vector<double> wanted, allowed;
  const double rounding = unit(t == DType::f64 ? DType::f64 : DType::f32);
  for (std::int64_t i = 0; i < u.m; ++i)
    for (std::int64_t j = 0; j < u.n; ++j) {
      const double old = u.beta == 0 ? 0 : c.at(i, j);
      if (u.lower && j > i) {
        const bool kept = same(got[static_cast<std::size_t>(i * u.n + j)], c.at(i, j));
        wanted.push_back(kept ? nan : 0), allowed.push_back(0);
        continue;
      }
      Real sum = 0, size = 0;
      for (std::int64_t q = 0; q < u.k; ++q) {
        const Real p = static_cast<Real>(a.at(i, q)) * b.at(q, j);
        sum += p, size += std::abs(p);
      }
      wanted.push_back(static_cast<double>(u.alpha * sum + u.beta * old));
      const double walk =
          static_cast<double>(std::abs(u.alpha) * size) * (4 + 2 * std::sqrt(u.k)) + 3 * std::abs(u.beta * old);
      allowed.push_back(walk * rounding + unit(t) * (std::abs(wanted.back()) + walk * rounding) * 1.01 + half_step(t));
    }
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!std::isnan(wanted[i])) most = std::max(most, worst({got[i]}, {wanted[i]}, {allowed[i]}));
  return most;
}

struct SystemCase {
  std::int64_t n, m;
  DType dtype = DType::f32;
  TriangularSystem system;
  bool t_transposed = false, b_transposed = false;  ///< transposed in memory
};

double run(const SystemCase& s, Device device, std::uint64_t seed) {
  Random random(seed);
  const bool right = s.system.side == Side::right, lower = s.system.triangle == Triangle::lower;
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < s.n; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      const double small = random.uniform(-1, 1) / std::sqrt(static_cast<double>(s.n)),
                   large = random.uniform(1, 2) * (random.bits() % 2 ? 1 : -1);
      numbers.push_back(i == j ? (s.system.unit_diagonal ? nan : large) : (i > j) == lower ? small : nan);
    }
  Matrix t(s.n, s.n, rounded(std::move(numbers), s.dtype), s.dtype, s.t_transposed, device);
  const std::int64_t rows = right ? s.m : s.n, columns = right ? s.n : s.m;
  Matrix b(rows, columns, rounded(random.numbers(rows * columns), s.dtype), s.dtype, s.b_transposed, device);
  const auto got = values_of(solve_triangular(t.array, b.array, s.system));
  solve_triangular_into(t.array, b.array, s.system);
  if (values_of(b.array) != got) return std::numeric_limits<double>::infinity();
  // The residual of each equation. Element (i, q) refers to the matrix after it has been transposed.
  const auto element = [&](std::int64_t i, std::int64_t q) {
    if (s.system.transposed != right) std::swap(i, q);
    if (i == q && s.system.unit_diagonal) return 1.0;
    return i == q || (i > q) == lower ? t.at(i, q) : 0.0;
  };
  const auto x = [&](std::int64_t i, std::int64_t j) {
    return got[static_cast<std::size_t>(right ? j * s.n + i : i * s.m + j)];
  };
  std::vector<double> residuals, allowed;
  for (std::int64_t i = 0; i < s.n; ++i)
    for (std::int64_t j = 0; j < s.m; ++j) {
      Real sum = 0, size = 0;
      for (std::int64_t q = 0; q < s.n; ++q) {
        const Real p = static_cast<Real>(element(i, q)) * x(q, j);
        sum += p, size += std::abs(p);
      }
      residuals.push_back(static_cast<double>(sum - (right ? b.at(j, i) : b.at(i, j))));
      allowed.push_back(static_cast<double>(size) * unit(s.dtype) * static_cast<double>(s.n + 4));
    }
  return worst(residuals, std::vector<double>(residuals.size()), allowed);
}

struct CholeskyCase {
  std::int64_t n;
  DType dtype = DType::f32;
  bool transposed = false;  ///< transposed in memory
};

double run(const CholeskyCase& c, Device device, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t n = c.n;
  const auto factor = random.numbers(n * n);
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = i == j ? 0.1 : 0;  // makes the matrix close to singular
      for (std::int64_t q = 0; q < n; ++q)
        sum += factor[static_cast<std::size_t>(i * n + q)] * factor[static_cast<std::size_t>(j * n + q)];
      numbers.push_back(j <= i ? sum : nan);
    }
  Matrix a(n, n, rounded(std::move(numbers), c.dtype), c.dtype, c.transposed, device);
  const auto l = values_of(cholesky(a.array));
  Array failure = Array::zeros({1}, DType::i32, device);
  cholesky_into(a.array, failure);
  check_cholesky(failure);
  const auto in_place = values_of(a.array);
  std::vector<double> residuals, allowed;
  for (const auto* result : {&l, &in_place}) {
    const auto at = [&](std::int64_t i, std::int64_t j) { return (*result)[static_cast<std::size_t>(i * n + j)]; };
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        if (j > i) {  // must be zero, or unchanged if the operation is in place
          if (!same(at(i, j), result == &l ? 0 : nan)) return std::numeric_limits<double>::infinity();
          continue;
        }
        Real sum = 0, size = 0;
        for (std::int64_t q = 0; q <= j; ++q) {
          const Real p = static_cast<Real>(at(i, q)) * at(j, q);
          sum += p, size += std::abs(p);
        }
        residuals.push_back(static_cast<double>(sum - a.at(i, j)));
        allowed.push_back(static_cast<double>(size) * unit(c.dtype) * static_cast<double>(n + 4));
      }
  }
  return worst(residuals, std::vector<double>(residuals.size()), allowed);
}

std::string text(DType t) { return " " + std::string(dtype_name(t)); }

}  // namespace

void add_linear_algebra_checks(Checks& checks) {
  std::vector<UpdateCase> updates;
  const auto f32 = DType::f32, f64 = DType::f64;
  for (const DType t : {f32, f64})
    for (const bool lower : {false, true}) {
      updates.push_back({1, 1, 1, t, false, true, false, lower});
      updates.push_back({37, 37, 19, t, false, true, false, lower, 2.5, -0.5});
      updates.push_back({64, 64, 64, t, false, true, false, lower});
      updates.push_back({131, 131, 67, t, false, true, false, lower, 1, 0});
    }
  updates.push_back({64, 96, 32, f32, false, false}), updates.push_back({50, 1, 70, f32});
  updates.push_back({1, 50, 70, f32, false, false}), updates.push_back({3, 70, 20, f32});
  updates.push_back({70, 3, 300, f64});
  updates.push_back({40, 60, 700, f64});  // longer than `depth` of the packed kernels
  // staged in a single step
  updates.push_back({130, 100, 420, f32}), updates.push_back({64, 49, 512, f32, false, false});
  for (int how = 0; how < 8; ++how)
    updates.push_back({70, 45, 33, f32, (how & 1) != 0, (how & 2) != 0, (how & 4) != 0, false, 1, 1});
  updates.push_back({45, 45, 33, f32, true, false, true, true}), updates.push_back({600, 40, 500, f32});
  updates.push_back({40, 50, 30, DType::f16, false, true, false, false, 0.5, 2});
  for (const UpdateCase& u : updates) {
    const auto memory = [](bool transposed) { return transposed ? "^T" : ""; };
    const std::string shape =
        to_string(Shape{u.m, u.n}) + memory(u.c_transposed) + " += " + to_string(Shape{u.m, u.k}) +
        memory(u.a_transposed) + " x " + to_string(Shape{u.k, u.n}) + memory(u.b_transposed) + text(u.dtype) +
        (u.lower ? " lower" : "") + " alpha " + std::to_string(u.alpha) + " beta " + std::to_string(u.beta);
    checks.push_back({"multiply_into", shape, [u](Device device, std::uint64_t seed) { return run(u, device, seed); }});
  }

  std::vector<SystemCase> systems;
  for (int how = 0; how < 16; ++how) {
    const TriangularSystem system{how & 1 ? Side::right : Side::left, how & 2 ? Triangle::upper : Triangle::lower,
                                  (how & 4) != 0, (how & 8) != 0};
    systems.push_back({67, 41, how % 3 ? f32 : f64, system});
    systems.push_back({5, 3, how % 3 ? f64 : f32, system, true, true});
  }
  for (const DType t : {f32, f64})
    for (const auto& [n, m] : {std::array<std::int64_t, 2>{1, 1}, std::array<std::int64_t, 2>{64, 64},
                               std::array<std::int64_t, 2>{300, 50}, std::array<std::int64_t, 2>{30, 1}}) {
      systems.push_back({n, m, t, {Side::right, Triangle::lower, true, false}});
      systems.push_back({n, m, t, {Side::left, Triangle::upper, false, false}});
    }
  for (const SystemCase& s : systems) {
    const std::string shape = to_string(Shape{s.n, s.n}) + (s.t_transposed ? "^T" : "") + ", " + std::to_string(s.m) +
                              " right sides" + (s.b_transposed ? "^T" : "") + text(s.dtype) +
                              (s.system.side == Side::right ? " right" : "") +
                              (s.system.triangle == Triangle::upper ? " upper" : "") +
                              (s.system.transposed ? " transposed" : "") + (s.system.unit_diagonal ? " unit" : "");
    checks.push_back(
        {"solve_triangular", shape, [s](Device device, std::uint64_t seed) { return run(s, device, seed); }});
  }

  for (const DType t : {f32, f64})
    for (const std::int64_t n : {0, 1, 2, 7, 16, 31, 64, 67, 130, 200})
      for (const bool transposed : {false, true}) {
        if (transposed && n != 31 && n != 130) continue;
        const CholeskyCase c{n, t, transposed};
        checks.push_back({"cholesky", to_string(Shape{n, n}) + (transposed ? "^T" : "") + text(t),
                          [c](Device device, std::uint64_t seed) { return run(c, device, seed); }});
      }
}

}  // namespace tessera::ops
