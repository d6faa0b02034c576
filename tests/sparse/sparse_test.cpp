// SPDX-License-Identifier: Apache-2.0
// Sparse matrices on every device, compared with loops in double and with results of SciPy.
#include "tessera/sparse/sparse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "tessera/array/functions.h"
#include "tessera/array/move.h"
#include "tessera/array/rearrange.h"
#include "tessera/array/saved_arrays.h"
#include "tessera/grad/grad.h"
#include "tessera/ops/product.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using sparse::Coo;
using sparse::Csr;
using test::expect_throw;
using test::OnEveryDevice;

using Numbers = std::vector<double>;

Numbers numbers_of(const Array& a) { return a.to(Device{Backend::cpu, 0}).astype(DType::f64).to_vector<double>(); }

/// The relative rounding error of a number. 16-bit results are rounded once, after sums in f32.
double epsilon_of(DType t) {
  switch (t) {
    case DType::f16: return 1.0 / 2048;
    case DType::bf16: return 1.0 / 256;
    case DType::f64: return std::numeric_limits<double>::epsilon();
    default: return std::numeric_limits<float>::epsilon();
  }
}

class Sparse : public OnEveryDevice {
 protected:
  std::vector<DType> dtypes() const {
    if (compiles_slowly()) return {DType::f32};
    if (is_slow()) return {DType::f32, DType::f16};
    std::vector<DType> out{DType::f32, DType::f16, DType::bf16};
    if (device_info(GetParam()).can.f64) out.push_back(DType::f64);
    return out;
  }
  static bool is_slow() {
    return is_reference(GetParam().backend) || std::getenv("TESSERA_FAKE_DEVICES") != nullptr || compiles_slowly();
  }
  static Array array(const Numbers& v, Shape shape, DType t) {
    const std::vector<float> narrow(v.begin(), v.end());
    return t == DType::f64 ? Array::from(v, shape) : Array::from(narrow, shape).astype(t);
  }
  static Array indices(const std::vector<std::int64_t>& v, DType t) { return Array::from(v).astype(t); }
  Array randoms(Shape shape, DType t) {
    Numbers v;
    for (float x : test::OnEveryDevice::numbers(element_count(shape))) v.push_back(x);
    return array(v, shape, t);
  }
  /// A matrix with up to `longest` entries in each row, in any order. Columns can occur several times.
  Csr matrix(std::int64_t rows, std::int64_t columns, std::int64_t longest, DType t, DType index = DType::i32) {
    std::vector<std::int64_t> offsets{0}, at;
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t count = columns == 0 ? 0 : std::uniform_int_distribution<std::int64_t>(0, longest)(random);
      for (std::int64_t e = 0; e < count; ++e)
        at.push_back(std::uniform_int_distribution<std::int64_t>(0, columns - 1)(random));
      offsets.push_back(std::ssize(at));
    }
    return {randoms({std::ssize(at)}, t), indices(at, index), indices(offsets, index), {rows, columns}};
  }

  /// Compares with sums of `row[i]` products: `size[i]` is the sum of their absolute values.
  static void expect_near(const Array& got, const Numbers& want, const Numbers& size, const std::string& what) {
    const Numbers all = numbers_of(got);
    ASSERT_EQ(all.size(), want.size()) << what;
    const double epsilon = epsilon_of(got.dtype());
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_LE(std::abs(all[i] - want[i]), epsilon * std::abs(want[i]) + 40 * epsilon_of(DType::f32) * size[i] *
                                                                              (got.dtype() == DType::f64 ? 1e-8 : 1))
          << what << ", element " << i << ": " << all[i] << " instead of " << want[i];
  }

  /// The product of `a` with a matrix (n, k) by loops, and the sums of absolute values.
  static std::pair<Numbers, Numbers> product(const Csr& a, const Numbers& x, std::size_t width) {
    const Numbers values = numbers_of(a.values), columns = numbers_of(a.columns), offsets = numbers_of(a.offsets);
    const auto rows = static_cast<std::size_t>(a.shape[0]);
    Numbers sums(rows * width), sizes(rows * width);
    for (std::size_t i = 0; i < rows; ++i)
      for (auto e = static_cast<std::size_t>(offsets[i]); e < static_cast<std::size_t>(offsets[i + 1]); ++e)
        for (std::size_t k = 0; k < width; ++k) {
          const double term = values[e] * x[static_cast<std::size_t>(columns[e]) * width + k];
          sums[i * width + k] += term, sizes[i * width + k] += std::abs(term);
        }
    return {sums, sizes};
  }

  void check_product(const Csr& a, const Array& x) {
    const auto width = x.rank() == 1 ? std::size_t{1} : static_cast<std::size_t>(x.shape(-1));
    const auto [want, size] = product(a, numbers_of(x), width);
    const Array y = matmul(a, x);
    EXPECT_EQ(y.dtype(), promote(a.dtype(), x.dtype()));
    EXPECT_EQ(y.shape(), x.rank() == 1 ? Shape({a.shape[0]}) : Shape({a.shape[0], x.shape(-1)}));
    expect_near(y, want, size,
                to_string(a.shape) + " times " + to_string(x.shape()) + " " + std::string(dtype_name(x.dtype())));
  }
};

TEST_P(Sparse, ProductMatchesLoops) {
  const std::vector<Shape> shapes = {{0, 0}, {0, 5}, {5, 0}, {1, 1}, {7, 13}, {97, 31}};
  for (const DType t : dtypes())
    for (const Shape& shape : shapes)
      for (const DType index : {DType::i32, DType::i64}) {
        if (is_slow() && (index == DType::i64) != (t == DType::f32)) continue;
        const Csr a = matrix(shape[0], shape[1], 9, t, index);
        check_indices(a);
        check_product(a, randoms({shape[1]}, t));
        for (const std::int64_t width : {0, 1, 3, 17}) check_product(a, randoms({shape[1], width}, t));
      }
}

TEST_P(Sparse, ProductOfLongRowsMatchesLoops) {
  for (const DType t : dtypes()) {
    const Csr a = matrix(5, 211, 500, t);
    check_product(a, randoms({211}, t));
    if (compiles_slowly()) return;
    check_product(a, randoms({211, 3}, t));
    check_product(a, randoms({211, 16}, t));
  }
  // More rows than subgroups of a launch, and some of them are empty.
  const Csr b = matrix(301, 100, 160, DType::f32, DType::i64);
  check_product(b, randoms({100}, DType::f32));
}

TEST_P(Sparse, ProductAcceptsViewsBatchesAndOtherDtypes) {
  const Csr a = matrix(11, 7, 5, DType::f32);
  check_product(a, randoms({4, 7}, DType::f32).transpose());
  if (compiles_slowly()) return;
  check_product(a, randoms({14}, DType::f32).slice(0, 1, 14, 2));
  check_product(a, randoms({7, 2}, DType::f16));
  check_product(a, Array::arange(7, 0, 1, DType::i32));
  const Csr strided{randoms({a.entries(), 2}, DType::f32).select(1, 1), a.columns, a.offsets, a.shape};
  check_product(strided, randoms({7}, DType::f32));
  const Array batch = randoms({2, 3, 7, 4}, DType::f32), y = matmul(a, batch);
  EXPECT_EQ(y.shape(), Shape({2, 3, 11, 4}));
  EXPECT_EQ(numbers_of(y.select(0, 1).select(0, 2)), numbers_of(matmul(a, batch.select(0, 1).select(0, 2))));
  EXPECT_EQ(matmul(a, randoms({0, 7, 4}, DType::f32)).shape(), Shape({0, 11, 4}));
  const Array left = randoms({2, 5, 11}, DType::f32);
  EXPECT_EQ(matmul(left, a).shape(), Shape({2, 5, 7}));
  EXPECT_EQ(numbers_of(matmul(left, a).select(0, 1)),
            numbers_of(matmul(transpose(a), left.select(0, 1).transpose()).transpose()));
  EXPECT_EQ(numbers_of(matmul(left.select(0, 0).select(0, 3), a)),
            numbers_of(matmul(left, a).select(0, 0).select(0, 3)));
  // The order of additions does not change between runs.
  const Csr large = matrix(64, 64, 200, DType::f32);
  const Array x = randoms({64}, DType::f32);
  EXPECT_EQ(numbers_of(matmul(large, x)), numbers_of(matmul(large, x)));
  EXPECT_EQ(numbers_of(matmul(x, large)), numbers_of(matmul(x, large)));
}

TEST_P(Sparse, ResultsEqualThoseOfSciPy) {
  // Written by tools/make_sparse_cases.py.
  const nlohmann::json all = nlohmann::json::parse(std::ifstream("tests/data/sparse_cases.json"));
  for (const DType t : dtypes())
    for (const DType index : {DType::i32, DType::i64})
      for (const auto& c : all["cases"]) {
        if (index == DType::i64 && (is_slow() || t != DType::f32)) continue;
        if (t == DType::bf16 || (is_slow() && t != DType::f32)) continue;
        if (compiles_slowly() && c["shape"][0] != 13) continue;
        const auto read = [&](const auto& from, const char* key) { return from[key].template get<Numbers>(); };
        const auto equal = [&](const Csr& got, const auto& want) {
          check_indices(got);
          EXPECT_EQ(numbers_of(got.values), read(want, "data"));
          EXPECT_EQ(numbers_of(got.columns), read(want, "indices"));
          EXPECT_EQ(numbers_of(got.offsets), read(want, "indptr"));
        };
        const Shape shape{c["shape"][0], c["shape"][1]};
        SCOPED_TRACE(to_string(shape) + " " + std::string(dtype_name(t)) + " " + std::string(dtype_name(index)));
        const Numbers values = read(c, "values");
        const Coo coo(array(values, {std::ssize(values)}, t), indices(c["rows"], index), indices(c["columns"], index),
                      shape);
        const Csr csr = to_csr(coo);
        equal(csr, c["csr"]);
        equal(transpose(csr), c["transposed"]);
        if (compiles_slowly()) continue;
        equal(to_csr(transpose(coo)), c["transposed"]);
        equal(to_csr(to_coo(csr)), c["csr"]);
        EXPECT_EQ(csr.columns.dtype(), index);
        EXPECT_EQ(csr.dtype(), t);
        EXPECT_EQ(numbers_of(diagonal(csr)), read(c, "diagonal"));
        EXPECT_EQ(numbers_of(to_dense(coo)), read(c, "dense"));
        EXPECT_EQ(numbers_of(to_dense(csr)), read(c, "dense"));
        EXPECT_EQ(numbers_of(to_dense(sparse::to_csr(to_dense(csr)))), read(c, "dense"));
        if (t != DType::f32 && t != DType::f64) continue;  // 16-bit results are rounded
        EXPECT_EQ(numbers_of(matmul(csr, array(read(c, "right"), {shape[1], 3}, t))), read(c, "product"));
        EXPECT_EQ(numbers_of(matmul(array(read(c, "left"), {2, shape[0]}, t), csr)), read(c, "left_product"));
      }
}

TEST_P(Sparse, DenseMatricesKeepNonzeroElements) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Csr a = sparse::to_csr(Array::from({0.f, 2.f, -0.f, nan, 0.f, 1.f}, Shape{3, 2}));
  EXPECT_EQ(a.columns.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 1, 1}));
  EXPECT_EQ(a.offsets.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(std::isnan(numbers_of(a.values)[1]));
  EXPECT_EQ(sparse::to_csr(Array::zeros({3, 0})).entries(), 0);
}

TEST_P(Sparse, OperatorsChangeValues) {
  const Csr a = matrix(6, 6, 4, DType::f32), b = matrix(6, 6, 4, DType::f32);
  const Numbers x = numbers_of(to_dense(a)), y = numbers_of(to_dense(b));
  const auto same = [&](const Csr& got, auto&& want) {
    const Numbers all = numbers_of(to_dense(got));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], want(x[i], y[i]), 1e-5) << i;
  };
  same(-a, [](double p, double) { return -p; });
  same(2 * a, [](double p, double) { return 2 * p; });
  same(a * Array::full({}, 3), [](double p, double) { return 3 * p; });
  same(a / 4, [](double p, double) { return p / 4; });
  same(a + b, [](double p, double q) { return p + q; });
  same(a - 0.5 * b, [](double p, double q) { return p - q / 2; });
  const Csr sum = a + b;
  check_indices(sum);
  expect_throw<ShapeError>([&] { a + matrix(6, 5, 1, DType::f32); }, {"sparse::operator+", "(6, 6)", "(6, 5)"});
  expect_throw<ShapeError>([&] { a* Array::ones({6}); }, {"sparse::operator*", "(6,)"});
}

TEST_P(Sparse, GradientsEqualThoseOfDenseMatrices) {
  if (compiles_slowly()) {  // one kernel that the other tests do not launch
    const Csr a = matrix(7, 5, 4, DType::f32);
    const auto f = [](const Csr& m) { return sum(matmul(m, Array::ones({5, 2}))); };
    EXPECT_EQ(numbers_of(grad(f)(a).values), Numbers(static_cast<std::size_t>(a.entries()), 2));
    return;
  }
  const DType t = device_info(GetParam()).can.f64 && !is_slow() ? DType::f64 : DType::f32;
  const double tolerance = t == DType::f64 ? 1e-10 : 2e-3;
  const auto near = [&](const Array& got, const Array& want, const char* what) {
    const Numbers a = numbers_of(got), b = numbers_of(want);
    ASSERT_EQ(a.size(), b.size()) << what;
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << what << " " << i;
  };
  const Csr a = matrix(7, 5, 4, t);
  for (const Shape& shape : {Shape{5}, Shape{5, 3}, Shape{2, 5, 2}}) {
    const Array x = randoms(shape, t);
    const auto cost = [](const Array& y) { return sum(y * y * y); };
    const auto with_sparse = [&](const Csr& m, const Array& v) { return cost(matmul(m, v)); };
    const auto with_dense = [&](const Csr& m, const Array& v) { return cost(matmul(to_dense(m), v)); };
    const auto [da, dx] = grad(with_sparse, wrt<0, 1>)(a, x);
    const auto [wa, wx] = grad(with_dense, wrt<0, 1>)(a, x);
    near(da.values, wa.values, "values");
    near(dx, wx, "x");
    // The gradient can be differentiated again.
    const auto second = [&](const auto& f) {
      return grad(
          [&](const Csr& m, const Array& v) {
            const auto [ga, gx] = grad(f, wrt<0, 1>)(m, v);
            return sum(ga.values * ga.values) + sum(gx * gx);
          },
          wrt<0, 1>)(a, x);
    };
    const auto [da2, dx2] = second(with_sparse);
    const auto [wa2, wx2] = second(with_dense);
    near(da2.values / 100, wa2.values / 100, "values, second derivative");
    near(dx2 / 100, wx2 / 100, "x, second derivative");
  }
  // Conversions, with entries at the same place.
  const Array values = randoms({4}, t), w = randoms({3, 3}, t);
  const auto through = [&](const Array& v) {
    const Coo coo(v, Array::from({2, 0, 2, 1}), Array::from({1, 0, 1, 2}), {3, 3});
    const Csr m = transpose(to_csr(coo));
    return sum(to_dense(m) * w) + sum(diagonal(m) * diagonal(m)) + sum(sparse::to_csr(to_dense(m) * 2).values);
  };
  const Numbers got = numbers_of(grad(through)(values)), v = numbers_of(values), each = numbers_of(w);
  const std::size_t at[] = {5, 0, 5, 7};  // of the transposed entries
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], each[at[i]] + (at[i] == 0 ? 2 * v[i] : 0) + 2, 1e-5) << i;
  // The gradient of 16-bit values is f32 if they are a copy of f32 values.
  const auto halves = [&](const Array& f32) {
    const Csr half{f32.astype(DType::f16), Array::from({0, 1}), Array::from({0, 2}), {1, 2}};
    return sum(matmul(half, Array::ones({2}, DType::f16)).astype(DType::f32));
  };
  EXPECT_EQ(numbers_of(grad(halves)(Array::from({1.f, 2.f}))), (Numbers{1, 1}));
}

TEST_P(Sparse, IndicesOutsideAreNotRead) {
  constexpr std::int32_t low = std::numeric_limits<std::int32_t>::min(),
                         high = std::numeric_limits<std::int32_t>::max();
  for (const DType index : {DType::i32, DType::i64}) {
    // Columns -1, 3 and the limits; rows that end before they begin, or outside of the entries.
    const Csr a{Array::ones({6}),
                Array::from({0, -1, 3, low, high, 2}).astype(index),
                Array::from({0, 3, 6}).astype(index),
                {2, 3}};
    EXPECT_EQ(numbers_of(matmul(a, Array::from({1.f, 2.f, 4.f}))), (Numbers{1, 4}));
    if (compiles_slowly()) continue;
    EXPECT_EQ(numbers_of(matmul(a, Array::ones({3, 2}))), (Numbers{1, 1, 1, 1}));
    EXPECT_EQ(numbers_of(to_dense(a)), (Numbers{1, 0, 0, 0, 0, 1}));
    EXPECT_EQ(numbers_of(to_dense(transpose(a))), (Numbers{1, 0, 0, 0, 0, 1}));
    EXPECT_EQ(numbers_of(grad([](const Csr& m) { return sum(matmul(m, Array::ones({3}))); })(a).values),
              (Numbers{1, 0, 0, 0, 0, 1}));
    const Csr b{
        Array::ones({3}), Array::from({0, 1, 2}).astype(index), Array::from({-5, high, 1, low}).astype(index), {3, 3}};
    EXPECT_EQ(numbers_of(matmul(b, Array::ones({3}))), (Numbers{3, 0, 0}));
    to_dense(b).eval();
    transpose(b).values.eval();
  }
  // Indices that differ from valid ones only in their upper half.
  const Csr wide{Array::ones({2}),
                 Array::from({std::int64_t{1} << 32, std::int64_t{1}}),
                 Array::from({std::int64_t{0}, std::int64_t{2}}),
                 {1, 2}};
  EXPECT_EQ(numbers_of(matmul(wide, Array::from({1.f, 10.f}))), (Numbers{10}));
  const Csr without_columns{Array::ones({1}), Array::from({0}), Array::from({0, 1}), {1, 0}};
  EXPECT_EQ(transpose(without_columns).shape, (Shape{0, 1}));
}

TEST_P(Sparse, MatricesAreStructuresOfArrays) {
  const Csr a = matrix(5, 4, 3, DType::f32);
  const Csr there = to(a, Device{Backend::interp, 0}), back = there | GetParam();
  EXPECT_EQ(there.device(), (Device{Backend::interp, 0}));
  EXPECT_EQ(there.shape, a.shape);
  EXPECT_EQ(numbers_of(to_dense(back)), numbers_of(to_dense(a)));
  const test::Folder folder;
  save_arrays(a, folder / "a.safetensors");
  Csr loaded{
      Array::zeros({a.entries()}), Array::zeros({a.entries()}, DType::i32), Array::zeros({6}, DType::i32), {5, 4}};
  load_arrays(loaded, folder / "a.safetensors");
  EXPECT_EQ(numbers_of(to_dense(loaded)), numbers_of(to_dense(a)));
  std::string paths;
  for_each_array(std::pair(a, to_coo(a)), [&](const Array&, const Path& path) { paths += path.text() + " "; });
  EXPECT_EQ(paths, "0.values 0.columns 0.offsets 1.values 1.rows 1.columns ");
}

TEST_P(Sparse, RejectsInvalidParts) {
  const Array two = Array::ones({2}), index = Array::from({0, 1});
  const Csr good{two, index, index.copy(), {1, 2}};
  EXPECT_EQ(good.entries(), 2);
  expect_throw<ShapeError>([&] { Csr(two, index, index, {2, 2}); }, {"sparse::Csr", "3 offsets", "(2, 2)"});
  expect_throw<ShapeError>([&] { Csr(Array::ones({3}), index, index, {1, 2}); }, {"sparse::Csr", "columns", "(3,)"});
  expect_throw<ShapeError>([&] { Csr(two, index, index, {1}); }, {"sparse::Csr", "rows and a number of columns"});
  expect_throw<ShapeError>([&] { Csr(two, index, index, {1, -2}); }, {"sparse::Csr", "-2"});
  expect_throw<ShapeError>([&] { Csr(two.unsqueeze(0), index, index, {1, 2}); }, {"sparse::Csr", "values", "(1, 2)"});
  expect_throw<DtypeError>([&] { Csr(index, index, index, {1, 2}); }, {"sparse::Csr", "floats", "i32", "astype"});
  expect_throw<DtypeError>([&] { Csr(two, two, index, {1, 2}); }, {"sparse::Csr", "columns = f32", "i64"});
  expect_throw<DtypeError>(
      [&] {
        Csr(two, index.astype(DType::i64), index, {1, 2});
      },
      {"columns = i64, offsets = i32"});
  if (GetParam().backend != Backend::interp)
    expect_throw<DeviceError>([&] { Csr(two.to(Device{Backend::interp, 0}), index, index, {1, 2}); }, {"interp:0"});
  expect_throw<ShapeError>([&] { Coo(two, index, Array::from({0}), {1, 2}); }, {"sparse::Coo", "2 columns"});
  expect_throw<ShapeError>([&] { matmul(Csr(), two); }, {"sparse::matmul", "shape"});

  EXPECT_EQ(matmul(good, two).shape(), Shape({1}));
  expect_throw<ShapeError>([&] { matmul(good, Array::ones({3})); }, {"sparse::matmul", "(1, 2)", "(3,)", "2 rows"});
  expect_throw<ShapeError>([&] { matmul(good, Array::ones({})); }, {"sparse::matmul"});
  expect_throw<ShapeError>([&] { matmul(Array::ones({4, 2}), good); }, {"sparse::matmul", "(4, 2)", "1 columns"});
  expect_throw<ShapeError>([&] { sparse::to_csr(two); }, {"sparse::to_csr", "(2,)"});

  const auto csr = [&](std::initializer_list<int> columns, std::initializer_list<int> offsets) {
    return Csr(Array::ones({std::ssize(std::vector(columns))}), Array::from(columns), Array::from(offsets), {3, 2});
  };
  check_indices(csr({0, 1, 1, 0}, {0, 2, 2, 4}));
  expect_throw<ArgumentError>(
      [&] {
        check_indices(csr({0, 1, 1, 0}, {0, 2, 1, 4}));
      },
      {"row = 1", "ascend", "offset = 1"});
  expect_throw<ArgumentError>([&] { check_indices(csr({0, 1, 1, 0}, {1, 2, 2, 4})); }, {"first offset", "offset = 1"});
  expect_throw<ArgumentError>([&] { check_indices(csr({0, 1, 1, 0}, {0, 2, 2, 3})); }, {"row = 2", "offset = 3", "4"});
  expect_throw<ArgumentError>(
      [&] {
        check_indices(csr({0, 1, 2, 0}, {0, 2, 2, 4}));
      },
      {"row = 2", "column = 2", "entry 2"});
  expect_throw<ArgumentError>([&] { check_indices(csr({0, -1, 1, 0}, {0, 2, 2, 4})); }, {"row = 0", "column = -1"});
  check_indices(Coo(two, index, index, {2, 2}));
  expect_throw<ArgumentError>([&] { check_indices(Coo(two, index, index, {2, 1})); }, {"entry 1", "column = 1"});
  expect_throw<ArgumentError>([&] { to_csr(Coo(two, index, index, {1, 2})); }, {"entry 1", "row = 1", "(1, 2)"});
}

INSTANTIATE_TEST_SUITE_P(Devices, Sparse, ::testing::ValuesIn(testing::all_devices()), [](const auto& info) {
  return std::string(backend_name(info.param.backend)) + std::to_string(info.param.index);
});

}  // namespace
}  // namespace tessera
