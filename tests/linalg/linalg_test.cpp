// SPDX-License-Identifier: Apache-2.0
// Linear algebra on every device, with LAPACK or with Tessera's own algorithms (the entry linalg_test_without_lapack).
// A residual divided by the size, the norm and the rounding unit must be below 30, the threshold of LAPACK's own tests
// (LAPACK Working Note 41, "Installation Guide for LAPACK", section 6).
#include "tessera/linalg/linalg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tessera/grad/grad.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using linalg::Mode;
using test::expect_throw;
using test::OnEveryDevice;

constexpr double threshold = 30;

/// A matrix on the host.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> at{};
  double operator()(std::int64_t i, std::int64_t j) const { return at[static_cast<std::size_t>(i * columns + j)]; }
  double& operator()(std::int64_t i, std::int64_t j) { return at[static_cast<std::size_t>(i * columns + j)]; }
};

Matrix zeros(std::int64_t m, std::int64_t n) { return {m, n, std::vector<double>(static_cast<std::size_t>(m * n))}; }
Matrix identity(std::int64_t n) {
  Matrix out = zeros(n, n);
  for (std::int64_t i = 0; i < n; ++i) out(i, i) = 1;
  return out;
}
Matrix operator*(const Matrix& a, const Matrix& b) {
  EXPECT_EQ(a.columns, b.rows);
  Matrix out = zeros(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k)
      for (std::int64_t j = 0; j < b.columns; ++j) out(i, j) += a(i, k) * b(k, j);
  return out;
}
Matrix operator-(Matrix a, const Matrix& b) {
  EXPECT_EQ(a.at.size(), b.at.size());
  for (std::size_t i = 0; i < a.at.size(); ++i) a.at[i] -= b.at[i];
  return a;
}
Matrix transposed(const Matrix& a) {
  Matrix out = zeros(a.columns, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j) out(j, i) = a(i, j);
  return out;
}
/// The largest sum of absolute values of a column.
double norm(const Matrix& a) {
  double largest = 0;
  for (std::int64_t j = 0; j < a.columns; ++j) {
    double sum = 0;
    for (std::int64_t i = 0; i < a.rows; ++i) sum += std::abs(a(i, j));
    largest = std::max(largest, sum);
    if (std::isnan(sum)) return sum;
  }
  return largest;
}

std::vector<double> numbers_of(const Array& a) {
  return a.to(Device{Backend::cpu, 0}).astype(DType::f64).to_vector<double>();
}
/// The matrices of (..., m, n).
std::vector<Matrix> matrices_of(const Array& a) {
  const std::vector<double> all = numbers_of(a);
  const std::int64_t m = a.shape(-2), n = a.shape(-1);
  std::int64_t count = 1;
  for (std::size_t d = 0; d + 2 < a.shape().size(); ++d) count *= a.shape()[d];
  std::vector<Matrix> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back({m, n, std::vector<double>(all.begin() + i * m * n, all.begin() + (i + 1) * m * n)});
  return out;
}

double epsilon(DType dtype) {
  return dtype == DType::f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
}

class Linalg : public OnEveryDevice {
 protected:
  std::vector<DType> dtypes() const {
    if (!device_info(GetParam()).can.f64) return {DType::f32};
    return {DType::f32, DType::f64};
  }
  Array array(const Matrix& a, DType dtype) {
    return Array::from(a.at, Shape{a.rows, a.columns}, Device{Backend::cpu, 0}).astype(dtype).to(GetParam());
  }
  Matrix random_matrix(std::int64_t m, std::int64_t n) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    Matrix out = zeros(m, n);
    for (double& v : out.at) v = uniform(random);
    return out;
  }
  /// A random matrix of one of several kinds, rounded to the dtype.
  Matrix matrix(const std::string& kind, std::int64_t m, std::int64_t n, DType dtype) {
    const double rounding = epsilon(dtype);
    Matrix a = random_matrix(m, n);
    if (kind == "graded")  // rows from 1 to almost the rounding unit
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          a(i, j) *= std::pow(rounding, static_cast<double>(i) / static_cast<double>(m));
    if (kind == "deficient") a = random_matrix(m, std::min(m, n) / 2) * random_matrix(std::min(m, n) / 2, n);
    if (kind == "nearly singular" && n > 1)  // the last column is almost the first
      for (std::int64_t i = 0; i < m; ++i) a(i, n - 1) = a(i, 0) + 8 * rounding * a(i, n - 1);
    if (kind == "zero") a = zeros(m, n);
    if (kind == "large")
      for (double& v : a.at) v *= dtype == DType::f32 ? 1e30 : 1e250;
    if (kind == "small")
      for (double& v : a.at) v *= dtype == DType::f32 ? 1e-30 : 1e-250;
    if (dtype == DType::f32)
      for (double& v : a.at) v = static_cast<float>(v);
    return a;
  }
  void expect_small(const char* what, const Matrix& residual, double scale, std::int64_t size, DType dtype) {
    const double bound = threshold * static_cast<double>(std::max<std::int64_t>(1, size)) * epsilon(dtype) * scale;
    EXPECT_LE(norm(residual), bound) << what;
  }
  void expect_orthonormal(const char* what, const Matrix& q, DType dtype) {  // columns
    expect_small(what, transposed(q) * q - identity(q.columns), 1, q.rows, dtype);
  }
  /// Calls f(matrix, dtype) for all kinds of matrices in several shapes.
  template <class F>
  void for_each_matrix(bool square, F f) {
    const std::vector<std::pair<std::int64_t, std::int64_t>> shapes =
        square ? std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}, {1, 1}, {2, 2}, {13, 13}, {67, 67}}
               : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}, {0, 3}, {3, 0},   {1, 1},   {1, 7},
                                                                    {7, 1}, {5, 5}, {23, 41}, {41, 23}, {67, 67}};
    for (const DType dtype : dtypes())
      for (const auto& [m, n] : shapes)
        for (const char* kind : {"random", "graded", "deficient", "nearly singular", "zero", "large", "small"}) {
          SCOPED_TRACE(std::string(kind) + " " + std::to_string(m) + " x " + std::to_string(n) + " " +
                       std::string(dtype_name(dtype)));
          f(matrix(kind, m, n, dtype), dtype, std::string(kind));
        }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Linalg, ::testing::ValuesIn(testing::all_devices()), [](const auto& info) {
  return std::string(backend_name(info.param.backend)) + std::to_string(info.param.index);
});

TEST_P(Linalg, SolveAndInvHaveSmallResiduals) {
  for_each_matrix(true, [&](const Matrix& a, DType dtype, const std::string& kind) {
    if ((kind == "deficient" || kind == "zero") || (a.rows == 1 && kind == "small")) return;
    const Matrix b = matrix("random", a.rows, 3, dtype);
    // The rounded factors of a nearly singular matrix can be singular.
    if (kind == "nearly singular" && a.rows > 1 &&
        matrices_of(linalg::lu(array(a, dtype)).u)[0](a.rows - 1, a.rows - 1) == 0)
      return expect_throw<ArgumentError>([&] { linalg::solve(array(a, dtype), array(b, dtype)); }, {"singular"});
    const Array x = linalg::solve(array(a, dtype), array(b, dtype));
    EXPECT_EQ(x.device(), GetParam());
    const Matrix got = matrices_of(x)[0];
    if (std::isfinite(norm(got))) expect_small("solve", a * got - b, norm(a) * norm(got) + norm(b), a.rows, dtype);
    const Matrix inverse = matrices_of(linalg::inv(array(a, dtype)))[0];
    if (std::isfinite(norm(inverse)))
      expect_small("inv", a * inverse - identity(a.rows), norm(a) * norm(inverse), a.rows, dtype);
    EXPECT_TRUE((kind != "random" && kind != "graded") || std::isfinite(norm(got) + norm(inverse)));
  });
}

TEST_P(Linalg, LuReproducesRowsWithPartialPivoting) {
  for_each_matrix(false, [&](const Matrix& a, DType dtype, const std::string& kind) {
    const linalg::Lu f = linalg::lu(array(a, dtype));
    const Matrix l = matrices_of(f.l)[0], u = matrices_of(f.u)[0];
    const std::int64_t k = std::min(a.rows, a.columns);
    ASSERT_EQ(f.l.shape(), (Shape{a.rows, k}));
    ASSERT_EQ(f.u.shape(), (Shape{k, a.columns}));
    const auto rows = f.rows.to_vector<std::int64_t>();
    Matrix permuted = zeros(a.rows, a.columns);
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t j = 0; j < a.columns; ++j) permuted(i, j) = a(rows[static_cast<std::size_t>(i)], j);
    expect_small("lu", l * u - permuted, norm(l) * norm(u), k, dtype);
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t j = 0; j < k; ++j) {
        EXPECT_LE(std::abs(l(i, j)), 1) << "the pivot is not the largest";
        if (j >= i) {
          EXPECT_EQ(l(i, j), i == j ? 1 : 0);
        }
      }
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < std::min(i, a.columns); ++j) EXPECT_EQ(u(i, j), 0);
    if (kind != "random" || dtype != DType::f64) return;
    // Without near-ties, the pivots are those of Gaussian elimination.
    Matrix rest = a;
    std::vector<std::int64_t> wanted(rows.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<std::int64_t>(i);
    for (std::int64_t c = 0; c < k; ++c) {
      std::int64_t pivot = c;
      for (std::int64_t i = c + 1; i < a.rows; ++i)
        if (std::abs(rest(i, c)) > std::abs(rest(pivot, c))) pivot = i;
      std::swap(wanted[static_cast<std::size_t>(c)], wanted[static_cast<std::size_t>(pivot)]);
      for (std::int64_t j = 0; j < a.columns; ++j) std::swap(rest(c, j), rest(pivot, j));
      for (std::int64_t i = c + 1; i < a.rows; ++i)
        for (std::int64_t j = a.columns; j-- > c;) rest(i, j) -= rest(i, c) / rest(c, c) * rest(c, j);
    }
    EXPECT_EQ(rows, wanted);
  });
}

TEST_P(Linalg, QrReproducesTheMatrix) {
  for_each_matrix(false, [&](const Matrix& a, DType dtype, const std::string&) {
    for (const Mode mode : {Mode::reduced, Mode::complete}) {
      const linalg::Qr f = linalg::qr(array(a, dtype), mode);
      const Matrix q = matrices_of(f.q)[0], r = matrices_of(f.r)[0];
      ASSERT_EQ(q.columns, mode == Mode::complete ? a.rows : std::min(a.rows, a.columns));
      expect_small("q r", q * r - a, norm(a), std::max(a.rows, a.columns), dtype);
      expect_orthonormal("q", q, dtype);
      for (std::int64_t i = 0; i < r.rows; ++i)
        for (std::int64_t j = 0; j < std::min(i, r.columns); ++j) EXPECT_EQ(r(i, j), 0);
    }
  });
}

TEST_P(Linalg, EighReproducesTheLowerTriangle) {
  for_each_matrix(true, [&](Matrix a, DType dtype, const std::string&) {
    const Array given = array(a, dtype);
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t j = 0; j < i; ++j) a(j, i) = a(i, j);
    const linalg::Eigh f = linalg::eigh(given);
    const Matrix v = matrices_of(f.eigenvectors)[0];
    const std::vector<double> w = numbers_of(f.eigenvalues), only = numbers_of(linalg::eigvalsh(given));
    Matrix scaled = v;
    for (std::int64_t i = 0; i < v.rows; ++i)
      for (std::int64_t j = 0; j < v.columns; ++j) scaled(i, j) *= w[static_cast<std::size_t>(j)];
    expect_small("a v", a * v - scaled, norm(a), a.rows, dtype);
    expect_orthonormal("v", v, dtype);
    EXPECT_TRUE(std::ranges::is_sorted(w));
    for (std::size_t i = 0; i < w.size(); ++i)
      EXPECT_NEAR(only[i], w[i], threshold * static_cast<double>(a.rows) * epsilon(dtype) * norm(a));
  });
}

TEST_P(Linalg, SvdReproducesTheMatrix) {
  for_each_matrix(false, [&](const Matrix& a, DType dtype, const std::string& kind) {
    const std::int64_t k = std::min(a.rows, a.columns);
    const std::vector<double> only = numbers_of(linalg::svdvals(array(a, dtype)));
    for (const bool full : {false, true}) {
      const linalg::Svd f = linalg::svd(array(a, dtype), full);
      const Matrix u = matrices_of(f.u)[0], vh = matrices_of(f.vh)[0];
      const std::vector<double> s = numbers_of(f.s);
      ASSERT_EQ(u.columns, full ? a.rows : k);
      ASSERT_EQ(vh.rows, full ? a.columns : k);
      Matrix middle = zeros(u.columns, vh.rows);
      for (std::int64_t i = 0; i < k; ++i) middle(i, i) = s[static_cast<std::size_t>(i)];
      expect_small("u s vh", u * middle * vh - a, norm(a), std::max(a.rows, a.columns), dtype);
      expect_orthonormal("u", u, dtype);
      expect_orthonormal("v", transposed(vh), dtype);
      EXPECT_TRUE(std::ranges::is_sorted(s, std::greater<>()));
      for (std::size_t i = 0; i < s.size(); ++i) {
        EXPECT_GE(s[i], 0);
        EXPECT_NEAR(only[i], s[i], threshold * static_cast<double>(a.rows + a.columns) * epsilon(dtype) * norm(a));
      }
    }
    if (kind == "large" || kind == "small" || k == 0) return;
    const std::int64_t rank = linalg::matrix_rank(array(a, dtype)).item<std::int64_t>();
    if (kind == "random" || kind == "deficient" || kind == "zero") {
      EXPECT_EQ(rank, kind == "random" ? k : kind == "zero" ? 0 : k / 2);
    }
  });
}

TEST_P(Linalg, LeastSquaresHasOrthogonalResidualAndSmallestNorm) {
  for_each_matrix(false, [&](const Matrix& a, DType dtype, const std::string& kind) {
    if (kind == "large" || kind == "small" || kind == "nearly singular" || kind == "graded") return;
    const Matrix b = matrix("random", a.rows, 2, dtype);
    const linalg::Lstsq f = linalg::lstsq(array(a, dtype), array(b, dtype));
    const Matrix x = matrices_of(f.x)[0], p = matrices_of(linalg::pinv(array(a, dtype)))[0];
    const double condition = norm(a) * norm(p);
    const std::int64_t size = std::max(a.rows, a.columns);
    expect_small("a^T (a x - b)", transposed(a) * (a * x - b), (norm(a) + 1) * (norm(b) + norm(a) * norm(x)), size,
                 dtype);
    expect_small("x - p b", x - p * b, (condition + 1) * norm(p) * norm(b), size, dtype);
    // The conditions of Moore and Penrose.
    expect_small("a p a - a", a * p * a - a, (condition + 1) * norm(a), size, dtype);
    expect_small("p a p - p", p * a * p - p, (condition + 1) * norm(p), size, dtype);
    expect_small("a p", a * p - transposed(a * p), condition + 1, size, dtype);
    expect_small("p a", p * a - transposed(p * a), condition + 1, size, dtype);
    if (kind == "deficient" && a.rows > 1 && a.columns > 1) {
      EXPECT_EQ(f.rank.item<std::int64_t>(), std::min(a.rows, a.columns) / 2);
    }
  });
}

TEST_P(Linalg, DeterminantsOfKnownMatrices) {
  for (const DType dtype : dtypes()) {
    const Array a = Array::from({0.f, 2.f, 0.f, 3.f, 0.f, 0.f, 0.f, 0.f, 4.f}, Shape{3, 3}).astype(dtype);
    EXPECT_EQ(numbers_of(linalg::det(a))[0], -24);
    EXPECT_EQ(numbers_of(linalg::slogdet(a).sign)[0], -1);
    EXPECT_NEAR(numbers_of(linalg::slogdet(a).logabsdet)[0], std::log(24.0), 8 * epsilon(dtype));
    const Array singular = Array::from({1.f, 2.f, 2.f, 4.f}, Shape{2, 2}).astype(dtype);
    EXPECT_EQ(numbers_of(linalg::det(singular))[0], 0);
    EXPECT_EQ(numbers_of(linalg::slogdet(singular).sign)[0], 0);
    EXPECT_EQ(numbers_of(linalg::slogdet(singular).logabsdet)[0], -std::numeric_limits<double>::infinity());
    const Array large = Array::eye(50, {}, 0, dtype) * (dtype == DType::f32 ? 1e3 : 1e30);
    EXPECT_TRUE(std::isinf(numbers_of(linalg::det(large))[0]));
    EXPECT_NEAR(numbers_of(linalg::slogdet(large).logabsdet)[0], 50 * std::log(dtype == DType::f32 ? 1e3 : 1e30),
                1e5 * epsilon(dtype));
    // Products of the first pivots overflow or underflow.
    const double huge = dtype == DType::f32 ? 0x1p100 : 0x1p700;
    const auto det_of = [&](const std::vector<double>& pivots) {
      Matrix m = identity(static_cast<std::int64_t>(pivots.size()));
      for (std::int64_t i = 0; i < m.rows; ++i) m(i, i) = pivots[static_cast<std::size_t>(i)];
      return numbers_of(linalg::det(array(m, dtype)))[0];
    };
    EXPECT_EQ(det_of({huge, huge, 0}), 0);
    EXPECT_EQ(det_of({huge, -huge, 1 / huge, 3 / huge}), -3);
    EXPECT_EQ(det_of({1 / huge, 1 / huge, huge, huge}), 1);
    EXPECT_EQ(det_of({1 / huge, 1 / huge}), 0);
    EXPECT_EQ(numbers_of(linalg::det(Array::zeros({0, 0}, dtype)))[0], 1);
    EXPECT_EQ(linalg::det(Array::zeros({2, 0, 3, 3}, dtype)).shape(), (Shape{2, 0}));
  }
}

TEST_P(Linalg, BatchesAndViewsGiveTheResultsOfEachMatrix) {
  const Array whole = array(random_matrix(24, 30), DType::f32).reshape({2, 3, 4, 30});
  const Array a = whole.slice(-1, 2, 26, 3).slice(-2, 0, 4).slice(-1, 0, 4);  // (2, 3, 4, 4) with a column stride of 3
  const Array turned = a.permute({1, 0, 3, 2});
  const Array b = array(random_matrix(4, 2), DType::f32);
  const Array x = linalg::solve(turned, b);  // b is broadcast
  ASSERT_EQ(x.shape(), (Shape{3, 2, 4, 2}));
  const linalg::Svd s = linalg::svd(turned, false);
  const linalg::Qr q = linalg::qr(turned);
  const linalg::Eigh e = linalg::eigh(turned);
  const linalg::Lu l = linalg::lu(turned);
  const linalg::Slogdet d = linalg::slogdet(turned);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 2; ++j) {
      const auto one = [&](const Array& all) { return numbers_of(all.select(0, i).select(0, j)); };
      const Array matrix = turned.select(0, i).select(0, j).copy();
      EXPECT_EQ(one(x), numbers_of(linalg::solve(matrix, b)));
      EXPECT_EQ(one(s.u), numbers_of(linalg::svd(matrix, false).u));
      EXPECT_EQ(one(s.s), numbers_of(linalg::svd(matrix, false).s));
      EXPECT_EQ(one(s.vh), numbers_of(linalg::svd(matrix, false).vh));
      EXPECT_EQ(one(q.q), numbers_of(linalg::qr(matrix).q));
      EXPECT_EQ(one(q.r), numbers_of(linalg::qr(matrix).r));
      EXPECT_EQ(one(e.eigenvalues), numbers_of(linalg::eigh(matrix).eigenvalues));
      EXPECT_EQ(one(e.eigenvectors), numbers_of(linalg::eigh(matrix).eigenvectors));
      EXPECT_EQ(one(l.rows), numbers_of(linalg::lu(matrix).rows));
      EXPECT_EQ(one(d.logabsdet), numbers_of(linalg::slogdet(matrix).logabsdet));
      EXPECT_EQ(one(linalg::inv(turned)), numbers_of(linalg::inv(matrix)));
    }
  const Array many = array(random_matrix(12, 5), DType::f32).reshape({3, 4, 5}),
              one = array(random_matrix(4, 4), DType::f32);
  EXPECT_EQ(numbers_of(linalg::solve(one, many).select(0, 1)), numbers_of(linalg::solve(one, many.select(0, 1))));
  EXPECT_EQ(linalg::solve(one, many.select(0, 0).select(1, 0)).shape(), (Shape{4}));
  EXPECT_EQ(linalg::solve(Array::zeros({2, 0, 0}), Array::zeros({0, 3})).shape(), (Shape{2, 0, 3}));
  const Array positive = matmul(turned, linalg::matrix_transpose(turned)) + Array::eye(4);
  const Array c = linalg::cholesky(positive);
  EXPECT_EQ(numbers_of(c.select(0, 2).select(0, 1)), numbers_of(linalg::cholesky(positive.select(0, 2).select(0, 1))));
  EXPECT_EQ(numbers_of(linalg::cholesky(positive, true)), numbers_of(linalg::matrix_transpose(c)));
}

TEST_P(Linalg, NormsConditionsAndProductsOfKnownMatrices) {
  using linalg::MatrixNorm;
  const Array a = Array::from({3.f, 0.f, 0.f, -4.f}, Shape{2, 2});
  const auto norm_of = [&](MatrixNorm norm) { return linalg::matrix_norm(a, norm).item<float>(); };
  EXPECT_FLOAT_EQ(norm_of(MatrixNorm::frobenius), 5);
  EXPECT_FLOAT_EQ(norm_of(MatrixNorm::nuclear), 7);
  EXPECT_FLOAT_EQ(norm_of(MatrixNorm::largest_singular), 4);
  EXPECT_FLOAT_EQ(norm_of(MatrixNorm::smallest_singular), 3);
  const Array b = Array::from({1.f, -2.f, 3.f, 4.f, 5.f, -6.f}, Shape{2, 3});
  EXPECT_EQ(linalg::matrix_norm(b, MatrixNorm::largest_column_sum).item<float>(), 9);
  EXPECT_EQ(linalg::matrix_norm(b, MatrixNorm::smallest_column_sum).item<float>(), 5);
  EXPECT_EQ(linalg::matrix_norm(b, MatrixNorm::largest_row_sum).item<float>(), 15);
  EXPECT_EQ(linalg::matrix_norm(b, MatrixNorm::smallest_row_sum).item<float>(), 6);
  EXPECT_EQ(linalg::matrix_norm(b, MatrixNorm::frobenius, true).shape(), (Shape{1, 1}));
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(linalg::vector_norm(b, 1).item<float>(), 21);
  EXPECT_EQ(linalg::vector_norm(b, infinity, {0}).to_vector<float>(), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(linalg::vector_norm(b, -infinity, {1}, true).shape(), (Shape{2, 1}));
  EXPECT_EQ(linalg::vector_norm(a, 0).item<float>(), 2);
  EXPECT_NEAR(linalg::vector_norm(b, 3).item<float>(), std::cbrt(1 + 8 + 27 + 64 + 125 + 216), 1e-5);
  EXPECT_FLOAT_EQ(linalg::cond(a).item<float>(), 4.f / 3);
  EXPECT_FLOAT_EQ(linalg::cond(a, MatrixNorm::smallest_singular).item<float>(), 0.75f);
  EXPECT_FLOAT_EQ(linalg::cond(a, MatrixNorm::largest_column_sum).item<float>(), 4.f / 3);
  EXPECT_TRUE(std::isinf(linalg::cond(Array::from({1.f, 0.f, 0.f, 0.f}, Shape{2, 2})).item<float>()));
  EXPECT_EQ(linalg::cond(Array::zeros({2, 3})).item<float>(), infinity);
  EXPECT_EQ(linalg::cond(Array::zeros({2, 3}), MatrixNorm::smallest_singular).item<float>(), 0);
  const Array halves = Array::from({300.f, -300.f}).astype(DType::f16);
  EXPECT_EQ(linalg::vector_norm(halves).dtype(), DType::f16);
  EXPECT_EQ(numbers_of(linalg::vector_norm(halves))[0], 424.25);
  EXPECT_EQ(numbers_of(linalg::vector_norm(halves, 3, {0}, true))[0], 378);
  const Array x = Array::from({1.f, 2.f, 3.f}), y = Array::from({4.f, 5.f, 7.f});
  EXPECT_EQ(linalg::cross(x, y).to_vector<float>(), (std::vector<float>{-1, 5, -3}));
  EXPECT_EQ(linalg::cross(b, x).to_vector<float>(), (std::vector<float>{-12, 0, 4, 27, -18, 3}));
  EXPECT_EQ(linalg::vecdot(b, x).to_vector<float>(), (std::vector<float>{6, -4}));
  EXPECT_EQ(linalg::matrix_power(a, 3).to_vector<float>(), (std::vector<float>{27, 0, 0, -64}));
  EXPECT_EQ(linalg::matrix_power(a, 0).to_vector<float>(), (std::vector<float>{1, 0, 0, 1}));
  EXPECT_NEAR(linalg::matrix_power(a, -2).to_vector<float>()[3], 1.0 / 16, 1e-6);
  EXPECT_EQ(linalg::diagonal(a).to_vector<float>(), (std::vector<float>{3, -4}));
  EXPECT_EQ(linalg::trace(a).item<float>(), -1);
}

TEST_P(Linalg, SingularMatricesAreReportedWithTheirPlace) {
  const Array good = Array::from({2.f, 1.f, 1.f, 1.f, 3.f, 2.f, 1.f, 0.f, 0.f}, Shape{3, 3});
  const Array bad = Array::from({1.f, 2.f, 3.f, 2.f, 4.f, 6.f, 1.f, 1.f, 1.f}, Shape{3, 3});
  const Array batch = stack({good, good, good, bad}).reshape({2, 2, 3, 3});
  const Array b = Array::ones({3});
  expect_throw<ArgumentError>([&] { linalg::solve(batch, b.unsqueeze(-1)); },
                              {"linalg::solve", "matrix (1, 1) of the batch is singular", "pivot column = 2"});
  expect_throw<ArgumentError>([&] { linalg::inv(bad); }, {"linalg::inv", "the matrix is singular", "pivot column = 2"});
  expect_throw<ArgumentError>([&] { linalg::matrix_power(bad, -1); }, {"singular"});
  expect_throw<ArgumentError>([&] { linalg::inv(Array::zeros({1, 1})); }, {"pivot column = 0"});
  EXPECT_EQ(linalg::solve(batch.slice(1, 0, 1), b.unsqueeze(-1)).shape(), (Shape{2, 1, 3, 1}));
  const std::vector<float> x = linalg::solve(good, b).to_vector<float>();
  EXPECT_NEAR(x[0], 1, 1e-5);
  expect_throw<ArgumentError>([&] { linalg::cholesky(stack({good, bad})); }, {"not positive definite", "matrix (0,)"});
}

TEST_P(Linalg, InvalidArgumentsAreRejected) {
  const Array a = Array::eye(3), wide = Array::ones({3, 4}), broken = Array::from({1.f, NAN, NAN, 1.f}, Shape{2, 2});
  expect_throw<ArgumentError>(
      [&] {
        linalg::svd(stack({Array::eye(2), broken}));
      },
      {"matrix (1,) of the batch", "NaN"});
  expect_throw<ArgumentError>([&] { linalg::eigh(broken); }, {"linalg::eigh", "NaN"});
  expect_throw<ArgumentError>([&] { linalg::pinv(broken); }, {"NaN"});
  EXPECT_TRUE(std::isnan(linalg::det(broken).item<float>()));
  expect_throw<ShapeError>([&] { linalg::solve(wide, a); }, {"linalg::solve", "(3, 4)"});
  expect_throw<ShapeError>([&] { linalg::solve(a, Array::ones({4})); }, {"(4,)"});
  expect_throw<ShapeError>([&] { linalg::inv(Array::ones({3})); }, {"fewer than two"});
  expect_throw<DtypeError>([&] { linalg::qr(a.astype(DType::f16)); }, {"f16"});
  expect_throw<DtypeError>([&] { linalg::svd(a.astype(DType::i32)); }, {"i32"});
  expect_throw<DtypeError>([&] { linalg::solve(a, a.astype(DType::f16)); }, {"f16"});
  expect_throw<DtypeError>([&] { linalg::vector_norm(a.astype(DType::i32)); }, {"i32"});
  expect_throw<ArgumentError>([&] { linalg::pinv(a, -1.0); }, {"rtol"});
  expect_throw<ArgumentError>([&] { linalg::vector_norm(a, NAN); }, {"NaN"});
  expect_throw<ArgumentError>([&] { linalg::cond(Array::ones({0, 3})); }, {"(0, 3)"});
  expect_throw<ShapeError>([&] { linalg::cross(wide, wide); }, {"three elements"});
  const Device other = GetParam() == Device{Backend::cpu, 0} ? Device{Backend::interp, 0} : Device{Backend::cpu, 0};
  expect_throw<DeviceError>([&] { linalg::solve(a, a.to(other)); }, {to_string(other)});
  expect_throw<ArgumentError>([&] { grad([](const Array& x) { return sum(linalg::svd(x).u); })(a); },
                              {"full_matrices"});
  expect_throw<ArgumentError>(
      [&] {
        grad([](const Array& x) { return sum(linalg::qr(x, Mode::complete).q); })(Array::ones({3, 2}));
      },
      {"Mode::reduced"});
}

TEST_P(Linalg, DeterminantOfASingularMatrixHasAGradient) {
  const Array a = Array::from({1.f, 0.f, 0.f, 0.f, 2.f, 0.f, 0.f, 0.f, 0.f}, Shape{3, 3});
  const Array g = grad([](const Array& x) { return sum(linalg::det(x)); })(a);
  const std::vector<float> got = g.to_vector<float>();
  for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(got[i], i == 8 ? 2 : 0, 1e-6) << i;
}

TEST_P(Linalg, NormsHaveAGradientAtZero) {
  for (const double order : {1.5, 2.0, 3.0}) {
    const auto norm = [order](const Array& x) { return linalg::vector_norm(x, order); };
    EXPECT_EQ(grad(norm)(Array::zeros({3})).to_vector<float>(), (std::vector<float>{0, 0, 0})) << order;
    const std::vector<float> g = grad(norm)(Array::from({0.f, -2.f})).to_vector<float>();
    EXPECT_NEAR(g[0], 0, 1e-6) << order;
    EXPECT_NEAR(g[1], -1, 1e-6) << order;
  }
}

TEST_P(Linalg, EqualEigenvaluesHaveAGradient) {
  const Array one = Array::eye(3), weights = Array::from({1.f, 2.f, 4.f});
  const std::vector<float> identity = one.to_vector<float>();
  const auto near = [](const Array& a, const std::vector<float>& expected) {
    const std::vector<float> got = a.to_vector<float>();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5) << i;
  };
  near(grad([](const Array& x) { return sum(linalg::eigvalsh(x)); })(one), identity);
  near(grad([](const Array& x) { return sum(linalg::eigh(x).eigenvalues); })(one), identity);
  // Distinct eigenvalues: both have the gradient v diag(g) v^T.
  const Array a = Array::from({2.f, 1.f, 0.f, 1.f, 3.f, 1.f, 0.f, 1.f, 7.f}, Shape{3, 3});
  const Array v = linalg::eigh(a).eigenvectors;
  const std::vector<float> expected = linalg::matmul(v * weights, linalg::matrix_transpose(v)).to_vector<float>();
  near(grad([&](const Array& x) { return sum(linalg::eigvalsh(x) * weights); })(a), expected);
  near(grad([&](const Array& x) { return sum(linalg::eigh(x).eigenvalues * weights); })(a), expected);
}

std::string provider_with(const std::string& library) {
  return test::run_in_child({{"TESSERA_LAPACK_LIBRARY", library}}, [] {
    const float x = linalg::solve(Array::from({1.f, 4.f, 2.f, 3.f}, Shape{2, 2}, Device{Backend::interp, 0}),
                                  Array::from({5.f, 5.f}, {}, Device{Backend::interp, 0}))
                        .to_vector<float>()[0];
    return linalg::provider() + (std::abs(x - 1) < 1e-6 ? ", right" : ", wrong");
  });
}

TEST(LinalgLibrary, UnusableLibrariesAreReplacedByOwnAlgorithms) {
  EXPECT_EQ(provider_with("none"), "Tessera's own algorithms (TESSERA_LAPACK_LIBRARY is 'none'), right");
  const std::string missing = provider_with("/nonexistent/liblapack.so");
  EXPECT_NE(missing.find("own algorithms"), std::string::npos) << missing;
  EXPECT_NE(missing.find("/nonexistent/liblapack.so"), std::string::npos) << missing;
  EXPECT_EQ(provider_with("libm.so.6"), "Tessera's own algorithms (libm.so.6: it has no sgetrf_), right");
  const std::string wide = provider_with(TESSERA_ILP64_LAPACK);
  EXPECT_NE(wide.find("(ILP64)), right"), std::string::npos) << wide;
}

}  // namespace
}  // namespace tessera
