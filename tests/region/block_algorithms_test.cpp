// SPDX-License-Identifier: Apache-2.0
// Compares algorithms of block arrays with plain loops in double. Errors must be within textbook bounds (Higham,
// "Accuracy and Stability of Numerical Algorithms") for f32 and f64. Sizes include no elements, one element, prime
// sizes, one tile, uneven tiles and transposes. Also tests factories and reductions for many tilings and devices.
// docs/guarantees.md quotes these bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "tessera/array/functions.h"
#include "tessera/base/test_seed.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/linalg/linalg.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/task/block_array.h"
#include "tessera/task/block_factors.h"
#include "tessera/task/trace.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

const Device home{};

/// A matrix of doubles on the host.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;
  Matrix(std::int64_t m, std::int64_t n) : rows(m), columns(n), values(static_cast<std::size_t>(m * n)) {}
  double& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  double at(std::int64_t i, std::int64_t j) const { return values[static_cast<std::size_t>(i * columns + j)]; }
};
Matrix of(const BlockArray& a) {
  Matrix m(a.shape()[0], a.rank() == 1 ? 1 : a.shape()[1]);
  if (a.size() != 0) m.values = a.gather(home).astype(DType::f64).to_vector<double>();
  return m;
}
Matrix transposed(const Matrix& a) {
  Matrix t(a.columns, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  return t;
}
Matrix absolute(Matrix a) {
  for (double& v : a.values) v = std::abs(v);
  return a;
}
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.columns; ++j)
      for (std::int64_t p = 0; p < a.columns; ++p) c.at(i, j) += a.at(i, p) * b.at(p, j);
  return c;
}
/// Unblocked Cholesky factorisation like LAPACK's potrf. Returns the lower factor.
Matrix factor(Matrix a) {
  for (std::int64_t j = 0; j < a.columns; ++j) {
    for (std::int64_t p = 0; p < j; ++p) a.at(j, j) -= a.at(j, p) * a.at(j, p);
    a.at(j, j) = std::sqrt(a.at(j, j));
    for (std::int64_t i = 0; i < a.rows; ++i) {
      if (i < j) a.at(i, j) = 0;
      if (i <= j) continue;
      for (std::int64_t p = 0; p < j; ++p) a.at(i, j) -= a.at(i, p) * a.at(j, p);
      a.at(i, j) /= a.at(j, j);
    }
  }
  return a;
}
/// Checks that |got - expected| <= by * scale for each element.
void expect_within(const Matrix& got, const Matrix& expected, const Matrix& scale, double by, const std::string& what) {
  ASSERT_EQ(got.rows, expected.rows) << what;
  ASSERT_EQ(got.columns, expected.columns) << what;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const double off = std::abs(got.values[i] - expected.values[i]);
    ASSERT_LE(off, by * scale.values[i] + 1e-300) << what << ", element " << i;
  }
}

class Cases {
 public:
  explicit Cases(std::mt19937_64& random) : random_(random) {}
  BlockArray matrix(std::int64_t m, std::int64_t n, const Shape& tile, DType dtype, const Scope& scope) {
    return BlockArray::from(values({m, n}).astype(dtype).eval(), tile, scope);
  }
  BlockArray vector(std::int64_t n, std::int64_t tile, DType dtype, const Scope& scope) {
    return BlockArray::from(values({n}).astype(dtype).eval(), {tile}, scope);
  }

 private:
  Array values(const Shape& shape) {
    std::uniform_real_distribution<double> d(-1, 1);
    std::vector<double> all(static_cast<std::size_t>(element_count(shape)));
    for (double& v : all) v = d(random_);
    return all.empty() ? Array::zeros(shape, DType::f64, home) : Array::from(all, shape, home);
  }
  std::mt19937_64& random_;
};
double unit_of(DType dtype) { return dtype == DType::f64 ? 0x1p-53 : 0x1p-24; }
std::vector<DType> floats(bool compiles_slowly) {
  if (compiles_slowly || !device_info(current_device()).can.f64) return {DType::f32};
  return {DType::f32, DType::f64};
}
std::vector<Scope> scopes() {
  const Scope alone{current_device()};
  return {alone, alone | cpu() | interp({0, 1})};
}

// The bound is |c - a b| <= (k + 2) u |a| |b|, for any order of summation.
TEST_P(OnEveryDevice, ProductsMatchPlainLoops) {
  Cases cases(random);
  struct Case {
    std::int64_t m, k, n;
    Shape a, b;
  };
  const std::vector<Case> all = {{0, 3, 2, {2, 2}, {2, 2}},   {2, 0, 3, {2, 2}, {2, 2}},      {1, 1, 1, {1, 1}, {1, 1}},
                                 {7, 13, 5, {4, 4}, {4, 4}},  {7, 13, 5, {20, 20}, {20, 20}}, {8, 8, 8, {8, 8}, {8, 8}},
                                 {11, 7, 13, {3, 2}, {5, 4}}, {17, 4, 2, {16, 1}, {3, 2}}};
  for (const DType dtype : floats(compiles_slowly()))
    for (const Scope& scope : scopes())
      for (const Case& c : all) {
        const std::string what = std::string(dtype_name(dtype)) + " (" + std::to_string(c.m) + ", " +
                                 std::to_string(c.k) + ", " + std::to_string(c.n) + ") on " + to_string(scope);
        const double by = static_cast<double>(c.k + 2) * unit_of(dtype);
        const BlockArray a = cases.matrix(c.m, c.k, c.a, dtype, scope), b = cases.matrix(c.k, c.n, c.b, dtype, scope);
        const Matrix x = of(a), y = of(b), expected = product(x, y), scale = product(absolute(x), absolute(y));
        expect_within(of(matmul(a, b)), expected, scale, by, what);
        expect_within(of(matmul(transpose(b), transpose(a))), transposed(expected), transposed(scale), by,
                      what + " transposed");
        // Updates c in place: c = 2 a b - c.
        BlockArray to = cases.matrix(c.m, c.n, {4, 3}, dtype, scope);
        const Matrix before = of(to);
        matmul_into(to, a, b, 2, -1);
        Matrix twice = expected, more = scale;
        for (std::size_t i = 0; i < twice.values.size(); ++i) {
          twice.values[i] = 2 * twice.values[i] - before.values[i];
          more.values[i] = 2 * more.values[i] + std::abs(before.values[i]);
        }
        expect_within(of(to), twice, more, 2 * by, what + " in place");
        // The right operand is a vector.
        const BlockArray v = cases.vector(c.k, c.b[0], dtype, scope);
        expect_within(of(matmul(a, v)), product(x, of(v)), product(absolute(x), absolute(of(v))), by, what + " vector");
        // a times its transpose; only the diagonal and the elements below it are computed.
        BlockArray half = cases.matrix(c.m, c.m, {3, 3}, dtype, scope);
        Matrix square = product(x, transposed(x)), square_scale = product(absolute(x), transposed(absolute(x)));
        const Matrix above = of(half);
        syrk_into(half, a, -1, 0);
        for (std::int64_t i = 0; i < c.m; ++i)
          for (std::int64_t j = 0; j < c.m; ++j)
            if (j > i)
              square.at(i, j) = above.at(i, j);
            else
              square.at(i, j) = -square.at(i, j);
        expect_within(of(half), square, square_scale, by, what + " syrk");
      }
  expect_throw<ShapeError>(
      [&] {
        matmul(BlockArray::ones({3, 4}, {2, 2}), BlockArray::ones({3}, {2}));
      },
      {"matmul", "(3, 4)", "(3,)"});
  BlockArray c = BlockArray::ones({4, 4}, {2, 2});
  expect_throw<ShapeError>([&] { syrk_into(c, BlockArray::ones({3, 4}, {2, 2})); }, {"syrk_into", "(3, 4)"});
}

// On the CPU, a tile of the right operand that at least four products read is packed only once. The results are
// bit-identical to those without shared packing. In this test, the packed 400 x 400 tiles are shared, but the smaller
// tiles at the edges are not.
TEST(BlockProducts, SharedPackedTilesGiveIdenticalResults) {
  std::mt19937_64 random(test_seed());
  Cases cases(random);
  const std::int64_t m = 1230, k = 807, n = 801, side = 400;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    SCOPED_TRACE(dtype_name(dtype));
    const BlockArray a = cases.matrix(m, k, {side, side}, dtype, cpu()),
                     b = cases.matrix(k, n, {side, side}, dtype, cpu());
    BlockArray c = cases.matrix(m, n, {side, side}, dtype, cpu());
    const BlockArray expected = c.copy();
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 3; ++j)
        for (std::int64_t p = 0; p < 3; ++p) {
          Array to = expected.tile(i, j).array();
          multiply_into(to, a.tile(i, p).array(), b.tile(p, j).array(), {.alpha = 2, .beta = p == 0 ? -1.0 : 1.0});
        }
    const Trace seen = trace();
    matmul_into(c, a, b, 2, -1);
    std::map<std::string, std::uint64_t> counts;
    for (const TaskTimes& t : summary().times) counts[t.name] += t.count;
    EXPECT_EQ(counts["multiply"], 4u * 3 * 3);
    EXPECT_EQ(counts["pack"], device_info(home).can.subgroup_widths.front() > 1 ? 2u * 2 : 0u);
    EXPECT_TRUE(all(c.gather(home) == expected.gather(home)).item<bool>()) << "TESSERA_TEST_SEED=" << test_seed();
  }
  // Invalid operands are rejected even if tiles are packed.
  const auto tiles = [&](DType dtype) { return BlockArray::ones({4 * side, 4 * side}, {side, side}, dtype, cpu()); };
  const BlockArray ones = tiles(DType::f32);
  BlockArray c = tiles(DType::f32), other = tiles(DType::f32), last = tiles(DType::f32), whole = tiles(DType::i32);
  expect_throw<TaskError>([&] { matmul(whole, whole); }, {"must have the same float dtype", "i32"});
  expect_throw<TaskError>([&] { matmul_into(c, ones, tiles(DType::f16)); }, {"must have the same float dtype", "f16"});
  expect_throw<TaskError>([&] { matmul_into(other, other, ones); }, {"an operand overlaps the memory that is written"});
  expect_throw<TaskError>([&] { matmul_into(last, ones, last); }, {"an operand overlaps the memory that is written"});
}

// The bound is |l lt - a| <= 4 (n + 1) u |l| |l|t. l must match the result of plain loops as closely as the condition
// number of the matrix allows.
TEST_P(OnEveryDevice, FactorsAndSolutionsMatchPlainLoops) {
  Cases cases(random);
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes = {{0, 3}, {1, 1},   {1, 4},   {7, 3},
                                                                    {8, 4}, {13, 13}, {13, 20}, {13, 5}};
  for (const DType dtype : floats(compiles_slowly()))
    for (const Scope& scope : scopes())
      for (const auto& [n, side] : sizes) {
        const std::string what = std::string(dtype_name(dtype)) + ", n = " + std::to_string(n) + " in tiles of " +
                                 std::to_string(side) + " on " + to_string(scope);
        const double u = unit_of(dtype), by = 4 * static_cast<double>(n + 1) * u;
        const BlockArray x = cases.matrix(n, n, {side, side}, dtype, scope);
        const BlockArray a =
            matmul(x, transpose(x)) + static_cast<double>(n) * BlockArray::identity(n, {side, side}, dtype, scope);
        const Matrix before = of(a);
        const BlockArray l = cholesky(a);
        const Matrix got = of(l);
        EXPECT_EQ(of(a).values, before.values) << "the input is unchanged";
        const Matrix back = product(got, transposed(got)), scale = product(absolute(got), transposed(absolute(got)));
        expect_within(back, before, scale, by, what);
        const Matrix expected = factor(before);
        double largest = 0;
        for (const double v : expected.values) largest = std::max(largest, std::abs(v));
        Matrix flat(n, n);
        std::ranges::fill(flat.values, largest);
        expect_within(got, expected, flat, 4 * by, what + ", the factor");
        // The bound is |t x - b| <= 4 (n + 1) u |t| |x|.
        const BlockArray b = cases.matrix(n, 5, {std::max<std::int64_t>(side - 1, 1), 2}, dtype, scope);
        for (const bool turned : {false, true}) {
          const Matrix t = turned ? transposed(got) : got, solved = of(solve_triangular(l, b, turned));
          expect_within(product(t, solved), of(b), product(absolute(t), absolute(solved)), by,
                        what + (turned ? ", the transposed system" : ", the system"));
        }
      }
  // If the matrix is not positive definite, the error contains the order of the leading minor that is not positive, in
  // whichever tile it ends.
  for (const std::int64_t row : {0, 3, 6}) {
    BlockArray bad = BlockArray::identity(7, {3, 3}, DType::f32, scopes().back());
    bad.assign({row, row}, BlockArray::full({1, 1}, {1, 1}, -1));
    expect_throw<ArgumentError>([&] { cholesky(bad); }, {"positive definite", std::to_string(row + 1)});
  }
}

/// The rows of a matrix in another order.
Matrix reordered(const Matrix& a, const std::vector<std::int64_t>& rows) {
  Matrix out(a.rows, a.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j) out.at(i, j) = a.at(rows[static_cast<std::size_t>(i)], j);
  return out;
}
/// The order of rows of Gaussian elimination with partial pivoting.
std::vector<std::int64_t> rows_by_pivot(Matrix a) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(a.rows));
  std::iota(rows.begin(), rows.end(), 0);
  for (std::int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k; i < a.rows; ++i)
      if (std::abs(a.at(i, k)) > std::abs(a.at(pivot, k))) pivot = i;
    std::swap(rows[static_cast<std::size_t>(k)], rows[static_cast<std::size_t>(pivot)]);
    for (std::int64_t j = 0; j < a.columns; ++j) std::swap(a.at(k, j), a.at(pivot, j));
    for (std::int64_t i = k + 1; i < a.rows; ++i)
      for (std::int64_t j = a.columns; j-- > k;) a.at(i, j) -= a.at(i, k) / a.at(k, k) * a.at(k, j);
  }
  return rows;
}
double norm(const Matrix& a) {
  double sum = 0;
  for (const double v : a.values) sum += v * v;
  return std::sqrt(sum);
}
/// Checks that the elements below (or above) the diagonal are 0.
void expect_triangle(const Matrix& a, bool lower, const std::string& what) {
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j)
      if (lower ? j > i : j < i) {
        ASSERT_EQ(a.at(i, j), 0) << what << ", element " << i << ", " << j;
      }
}

// The bounds are |P a - l u| <= 4 (k + 1) u |l| |u| and, for P a x = P b, |P (a x - b)| <= 8 (n + 1) u |l| |u| |x|
// (Higham, theorems 9.3 and 9.4). The Frobenius norms of a - q r and of q^T q - 1 are at most 8 m k u times those of a
// and 1 (theorem 19.4). Least squares matches linalg::lstsq of arrays in f64, within the square of the condition number
// (theorem 20.1).
TEST_P(OnEveryDevice, LuAndQrFactorsMatchPlainLoops) {
  Cases cases(random);
  struct Case {
    std::int64_t m, n, side;
  };
  const std::vector<Case> all = {{0, 3, 2}, {3, 0, 2},    {1, 1, 4},  {7, 7, 3},  {8, 8, 4}, {13, 13, 5},
                                 {9, 6, 3}, {13, 13, 20}, {13, 5, 3}, {5, 13, 3}, {7, 13, 4}};
  for (const DType dtype : floats(compiles_slowly()))
    for (const Scope& scope : scopes())
      for (const auto& [m, n, side] : all) {
        const std::string what = std::string(dtype_name(dtype)) + " (" + std::to_string(m) + ", " + std::to_string(n) +
                                 ") in tiles of " + std::to_string(side) + " on " + to_string(scope);
        const std::int64_t k = std::min(m, n);
        const double unit = unit_of(dtype), by = 4 * static_cast<double>(k + 1) * unit;
        const BlockArray a = cases.matrix(m, n, {side, side}, dtype, scope);
        const Matrix before = of(a);
        const linalg::BlockLu lu = linalg::lu(a);
        const Matrix l = of(lu.l), u = of(lu.u);
        const std::vector<std::int64_t> rows = m == 0 ? std::vector<std::int64_t>() : lu.rows.to_vector<std::int64_t>();
        EXPECT_EQ(rows, rows_by_pivot(before)) << what;
        expect_triangle(l, true, what), expect_triangle(u, false, what);
        for (std::int64_t i = 0; i < k; ++i) ASSERT_EQ(l.at(i, i), 1) << what;
        const Matrix scale = product(absolute(l), absolute(u));
        expect_within(product(l, u), reordered(before, rows), scale, by, what + ", l u");

        const linalg::BlockQr qr = linalg::qr(a);
        const Matrix q = of(qr.q), r = of(qr.r);
        expect_triangle(r, false, what);
        Matrix rest = product(q, r), other = product(transposed(q), q);
        for (std::size_t i = 0; i < rest.values.size(); ++i) rest.values[i] -= before.values[i];
        for (std::int64_t i = 0; i < k; ++i) other.at(i, i) -= 1;
        const double limit = 8 * static_cast<double>(m * k) * unit;
        EXPECT_LE(norm(rest), limit * norm(before)) << what;
        EXPECT_LE(norm(other), limit) << what;
        EXPECT_EQ(of(a).values, before.values) << "the input is unchanged";

        const BlockArray b = cases.matrix(m, 5, {std::max<std::int64_t>(side - 1, 1), 2}, dtype, scope);
        const auto whole = [](const BlockArray& x) { return x.gather(home).astype(DType::f64).eval(); };
        Matrix best(n, 5), largest(n, 5);
        double condition = 1;
        if (k != 0) {
          best.values = linalg::lstsq(whole(a), whole(b)).x.to_vector<double>();
          condition = linalg::cond(whole(a)).item<double>();
        }
        for (const double v : best.values)
          for (double& x : largest.values) x = std::max(x, std::abs(v));
        expect_within(of(linalg::lstsq(a, b)), best, largest, 4 * limit * condition * condition,
                      what + ", least squares");
        if (m != n) continue;
        const Matrix x = of(linalg::solve(a, b));
        expect_within(reordered(product(before, x), rows), reordered(of(b), rows), product(scale, absolute(x)), 2 * by,
                      what + ", the system");
      }
  const BlockArray square = BlockArray::ones({6, 6}, {3, 3}, DType::f32, scopes().back());
  for (const std::int64_t column : {0, 4}) {
    BlockArray singular = cases.matrix(7, 7, {3, 3}, DType::f32, scopes().back());
    singular.assign({0, column}, BlockArray::zeros({7, 1}, {7, 1}, DType::f32, scopes().back()));
    EXPECT_EQ(of(linalg::lu(singular).u).at(column, column), 0);
    expect_throw<ArgumentError>([&] { linalg::solve(singular, singular); },
                                {"linalg::solve", "singular", "pivot column", std::to_string(column)});
    expect_throw<ArgumentError>([&] { linalg::lstsq(singular, singular); }, {"linalg::lstsq", "full rank"});
  }
  expect_throw<ShapeError>([&] { linalg::lu(BlockArray::ones({4}, {2})); }, {"linalg::lu", "not a matrix"});
  expect_throw<ShapeError>([&] { linalg::qr(square.retile({3, 2})); }, {"linalg::qr", "not square", "retile"});
  expect_throw<DtypeError>([&] { linalg::lu(square.astype(DType::i32)); }, {"linalg::lu", "f32 or f64"});
  expect_throw<ShapeError>([&] { linalg::solve(square, BlockArray::ones({5, 1}, {3, 1})); }, {"numbers of rows"});
  expect_throw<ShapeError>([&] { linalg::solve(square.slice({0, 0}, {6, 4}), square); }, {"not square", "lstsq"});
}

TEST_P(OnEveryDevice, FactoriesUseTheGivenTilesAndDevices) {
  const DeviceScope at(home);
  const Scope several = Scope(GetParam()) | interp({0, 1, 2});
  const std::vector<Distribution> distributions = {
      {}, block_cyclic(), by_rows(), by_columns(), [](const Shape&, const Shape&, const std::vector<Device>& d) {
        return d.back();
      }};
  for (const Shape& shape : {Shape{9, 7}, Shape{4, 4}, Shape{1, 13}, Shape{0, 3}})
    for (const Scope& scope : {Scope(GetParam()), several})
      for (const Distribution& by : distributions) {
        const Shape tile{4, 3};
        const auto n = static_cast<std::size_t>(element_count(shape));
        const BlockArray made[] = {BlockArray::zeros(shape, tile, DType::f32, scope, by),
                                   BlockArray::ones(shape, tile, DType::i32, scope, by),
                                   BlockArray::full(shape, tile, 2.5, DType::f32, scope, by),
                                   BlockArray::random_uniform(shape, tile, 1, scope, by),
                                   BlockArray::random_normal(shape, tile, 1, scope, by),
                                   BlockArray::from(Array::full(shape, 4), tile, scope, by)};
        for (const BlockArray& a : made) {
          EXPECT_EQ(a.shape(), shape);
          std::int64_t elements = 0;
          for (const Tile& t : a.tiles()) {
            EXPECT_TRUE(scope.contains(t.device()));
            EXPECT_EQ(t.array().device(), t.device());
            elements += element_count(t.shape());
          }
          EXPECT_EQ(elements, a.size()) << "the tiles cover the array";
          if (n != 0) {
            EXPECT_TRUE(a.scope().inside(scope));
          }
        }
        EXPECT_EQ(made[0].gather(home).to_vector<float>(), std::vector<float>(n, 0));
        EXPECT_EQ(made[1].gather(home).to_vector<std::int32_t>(), std::vector<std::int32_t>(n, 1));
        EXPECT_EQ(made[2].gather(home).to_vector<float>(), std::vector<float>(n, 2.5f));
        EXPECT_EQ(made[5].gather(home).to_vector<float>(), std::vector<float>(n, 4));
      }
  // If there are enough tiles, each device gets one, even for five devices and a grid with four columns.
  const Scope five = several | cpu();
  const BlockArray cyclic = BlockArray::zeros({8, 8}, {2, 2}, DType::f32, five);
  EXPECT_EQ(cyclic.scope(), five);
  const auto all = five.devices();
  const BlockArray row = BlockArray::zeros({2, 64}, {2, 2}, DType::f32, five),
                   list = BlockArray::zeros({64}, {2}, DType::f32, five);
  EXPECT_EQ(row.scope(), five);
  EXPECT_EQ(list.scope(), five);
}

TEST(BlockRandom, NumbersDoNotDependOnTilingOrDevices) {
  const std::vector<Shape> tilings = {{7, 9}, {4, 4}, {3, 5}, {1, 9}, {20, 20}};
  const std::vector<Device> four = (cpu() | interp({0, 1, 2})).devices();
  const auto uniform = BlockArray::random_uniform({7, 9}, {7, 9}, 5, cpu()).gather(home).to_vector<float>();
  std::set<std::vector<float>> normal_on_one_kind;
  for (const Shape& tile : tilings) {
    const BlockArray u = BlockArray::random_uniform({7, 9}, tile, 5, Scope(four));
    EXPECT_EQ(u.gather(home).to_vector<float>(), uniform) << to_string(tile);
    for (const Device d : four)
      EXPECT_EQ(BlockArray::random_uniform({7, 9}, tile, 5, d).gather(home).to_vector<float>(), uniform);
    normal_on_one_kind.insert(
        BlockArray::random_normal({7, 9}, tile, 5, interp({0, 1, 2})).gather(home).to_vector<float>());
  }
  EXPECT_EQ(normal_on_one_kind.size(), 1u) << "independent of the tiling";
  EXPECT_NE(BlockArray::random_uniform({7, 9}, {4, 4}, 6, cpu()).gather(home).to_vector<float>(), uniform);
}

TEST_P(OnEveryDevice, ReductionsOverAnyAxesMatchArrays) {
  const DeviceScope at(home);
  const Array x = random_uniform({5, 6, 7}, 1, -1, 1),
              whole = random_uniform({5, 6, 7}, 2, -50, 50).astype(DType::i32).eval();
  const std::vector<std::vector<int>> axes = {{0}, {1}, {-1}, {0, 1}, {2, 0}, {0, 1, 2}};
  for (const Scope& scope : scopes())
    for (const Shape& tile : {Shape{2, 4, 3}, Shape{5, 6, 7}, Shape{1, 5, 7}}) {
      const BlockArray a = BlockArray::from(x, tile, scope), n = BlockArray::from(whole, tile, scope);
      for (const auto& over : axes) {
        const auto same = [&](const BlockArray& got, const Array& expected, float by) {
          EXPECT_EQ(got.shape(), expected.shape());
          const auto g = got.gather(home).astype(DType::f32).to_vector<float>(),
                     e = expected.astype(DType::f32).to_vector<float>();
          ASSERT_EQ(g.size(), e.size());
          for (std::size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(g[i], e[i], by);
        };
        same(sum(a, over), sum(x, over, true), 2e-5f);
        same(max(a, over), max(x, over, true), 0);
        same(min(a, over), min(x, over, true), 0);
        same(mean(a, over), mean(x, over, true), 1e-6f);
        same(sum(n, over), sum(whole, over, true), 0);
        same(max(n, over), max(whole, over, true), 0);
      }
      EXPECT_NEAR(mean(a, 1).gather(home).to_vector<float>()[0], mean(x, {1}, true).to_vector<float>()[0], 1e-6);
    }
  const BlockArray none = BlockArray::zeros({0, 3}, {2, 2});
  EXPECT_EQ(sum(none, 0).gather(home).to_vector<float>(), std::vector<float>(3, 0));
  EXPECT_EQ(sum(none).item<float>(), 0);
  expect_throw<ShapeError>([&] { max(none, 0); }, {"max"});
  expect_throw<ShapeError>([&] { mean(none, 0); }, {"mean", "empty"});
  expect_throw<ShapeError>([&] { sum(none, {0, 0}); }, {"twice"});
  expect_throw<ShapeError>([&] { sum(none, 2); }, {"sum", "2"});
}

TEST_P(OnEveryDevice, ElementwiseOperationsAndSlicesMatchArrays) {
  const DeviceScope at(home);
  const Array x = random_uniform({6, 5}, 1, 1, 2);
  const auto values = [](const auto& a) {
    if constexpr (std::is_same_v<std::decay_t<decltype(a)>, BlockArray>)
      return a.gather(home).template to_vector<float>();
    else
      return a.template to_vector<float>();
  };
  for (const Scope& scope : scopes()) {
    const BlockArray a = BlockArray::from(x, {4, 2}, scope);
    EXPECT_EQ(values(1 - a), values(1 - x));
    EXPECT_EQ(values(-a + 3), values(-x + 3));
    const auto inverse = values(2 / a), expected = values(2 / x);
    for (std::size_t i = 0; i < inverse.size(); ++i) EXPECT_NEAR(inverse[i], expected[i], 1e-6);
    EXPECT_EQ(values(map([](const Array& t) { return maximum(t, 1.5f); }, a)), values(maximum(x, 1.5f)));
    EXPECT_EQ(values(a.slice({2, 1}, {2, 4})), std::vector<float>{}) << "no rows";
    BlockArray b = BlockArray::zeros({6, 5}, {5, 3}, DType::f32, scope);
    b.assign({0, 0}, a);  // the tilings differ
    EXPECT_EQ(values(b), values(x));
    b.assign({4, 2}, BlockArray::full({2, 2}, {1, 1}, 9, DType::f32, scope));
    EXPECT_EQ(values(b.slice({4, 2}, {6, 4})), std::vector<float>(4, 9));
    const BlockArray shared = b;
    b.fill(3);
    EXPECT_EQ(values(shared), std::vector<float>(30, 3)) << "copies share tiles";
    EXPECT_NE(to_string(a).find("in tiles of (4, 2)"), std::string::npos);
    expect_throw<ShapeError>([&] { map([](const Array& t) { return t.slice(0, 0, 1); }, a); }, {"map", "shape"});
    expect_throw<ShapeError>([&] { a + BlockArray::ones({5, 6}, {4, 2}); }, {"(6, 5)", "(5, 6)"});
    expect_throw<ShapeError>([&] { a.retile({0, 2}); }, {"at least 1"});
  }
}

// In two dimensions, periodic differences conserve mass.
TEST_P(OnEveryDevice, StencilsConserveMassAndReadOldValues) {
  const DeviceScope at(home);
  for (const Scope& scope : scopes()) {
    BlockArray a = BlockArray::zeros({12, 10}, {5, 4}, DType::f32, scope);
    a.assign({5, 4}, BlockArray::full({2, 2}, {1, 1}, 64, DType::f32, scope));
    for (const Edge edge : {Edge::wrap, Edge::clamp}) {
      BlockArray heat = a;
      for (int step = 0; step < 8; ++step)
        heat = stencil(heat, {.edge = edge}, [](const Neighbours& n) {
          return n(0, 0) + 0.125 * (n(-1, 0) + n(1, 0) + n(0, -1) + n(0, 1) - 4 * n(0, 0));
        });
      EXPECT_NEAR(sum(heat).item<float>(), 256, 1e-3);
      EXPECT_EQ(sum(a).item<float>(), 256) << "the input is unchanged";
    }
    const BlockArray same = stencil(a, {.distance = 0}, [](const Neighbours& n) { return n(0, 0); });
    EXPECT_EQ(same.gather(home).to_vector<float>(), a.gather(home).to_vector<float>());
  }
  expect_throw<ShapeError>(
      [&] { stencil(BlockArray::zeros({4}, {2}), {}, [](const Neighbours& n) { return n(0, 0); }); },
      {"stencil", "not a matrix"});
}

}  // namespace
}  // namespace tessera
