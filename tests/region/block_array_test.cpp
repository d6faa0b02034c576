// SPDX-License-Identifier: Apache-2.0
// Compares block arrays with ordinary arrays. Results must not depend on the tiling or the devices.
#include "tessera/task/block_array.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tessera/array/functions.h"
#include "tessera/array/npy.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/product.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;

/// Returns two scopes: the device under test, and this device together with the CPU and an interpreter.
std::vector<Scope> scopes() {
  const Scope alone{current_device()};
  return {alone, alone | cpu(), alone | cpu() | interp({0, 1})};
}
const std::vector<Shape> tilings = {{7, 9}, {4, 4}, {3, 5}, {1, 9}, {20, 20}};

Floats values_of(const BlockArray& a) { return a.gather(Device{}).to_vector<float>(); }
Floats values_of(const Array& a) { return a.to_vector<float>(); }

TEST_P(OnEveryDevice, FactoriesDoNotDependOnTilingOrScope) {
  const DeviceScope there(Device{});
  const Floats uniform = values_of(random_uniform({7, 9}, 5)), normal = values_of(random_normal({7, 9}, 5));
  for (const Scope& scope : scopes())
    for (const Shape& tile : tilings) {
      EXPECT_EQ(values_of(BlockArray::random_uniform({7, 9}, tile, 5, scope)), uniform) << to_string(tile);
      const Floats n = values_of(BlockArray::random_normal({7, 9}, tile, 5, scope));
      for (std::size_t i = 0; i < n.size(); ++i) EXPECT_NEAR(n[i], normal[i], 1e-5);
      EXPECT_EQ(values_of(BlockArray::full({7, 9}, tile, 3, DType::f32, scope)), Floats(63, 3));
      const BlockArray eye = BlockArray::identity(9, {tile[0], tile[1]}, DType::f32, scope);
      for (std::size_t i = 0; i < 81; ++i) EXPECT_EQ(values_of(eye)[i], i % 10 == 0 ? 1 : 0);
    }
}

TEST_P(OnEveryDevice, FilesDoNotDependOnTilingOrScope) {
  const DeviceScope there(Device{});
  const test::Folder folder;
  const std::string path = folder / "a.npy", again = folder / "b.npy";
  const auto text_of = [](const std::string& of) {
    std::ifstream in(of, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  for (const Shape& shape : {Shape{7, 9}, {0, 3}, {5}, {}}) {
    const Array a = Array::arange(element_count(shape)).reshape(shape);
    save_npy(a, path);
    for (const Scope& scope : scopes())
      for (const std::int64_t tile : {2, 4, 20}) {
        const BlockArray b = BlockArray::load_npy(path, Shape(shape.size(), tile), scope);
        EXPECT_EQ(values_of(b), a.to_vector<float>()) << to_string(shape);
        b.save_npy(again);
        EXPECT_EQ(text_of(again), text_of(path)) << to_string(shape);
      }
  }
  expect_throw<ShapeError>([&] { BlockArray::load_npy(path, {2}); }, {"tile"});
  expect_throw<ArgumentError>([&] { BlockArray::load_npy(folder / "c.npy", {2}); }, {"c.npy", "does not exist"});
  EXPECT_THROW(BlockArray::ones({3}, {2}).save_npy("/dev/full"), ArgumentError);
}

TEST_P(OnEveryDevice, GatherRetileSliceAndAssignMatchArrays) {
  const DeviceScope there(Device{});
  const Array whole = random_uniform({7, 9}, 3);
  const Floats all = values_of(whole);
  for (const Scope& scope : scopes()) {
    const BlockArray a = BlockArray::from(whole, {3, 4}, scope);
    EXPECT_EQ(a.grid(), (Shape{3, 3}));
    EXPECT_EQ(a.tile(2, 2).shape(), (Shape{1, 1}));
    EXPECT_TRUE(a.scope().inside(scope));
    EXPECT_EQ(values_of(a), all);
    for (const Shape& tile : tilings) {
      const BlockArray b = a.retile(tile);
      EXPECT_EQ(b.tile_shape(), tile);
      EXPECT_EQ(values_of(b), all);
    }
    EXPECT_EQ(values_of(a.to(cpu())), all);
    EXPECT_EQ(a.to(cpu()).scope(), cpu());
    EXPECT_EQ(values_of(a.slice({1, 2}, {6, 9})), values_of(whole.slice(0, 1, 6).slice(1, 2, 9).copy()));
    BlockArray copy = a.copy();
    copy.assign({2, 3}, BlockArray::full({4, 5}, {2, 2}, 9, DType::f32, scope));
    Array expected = whole.copy();
    Array part = expected.slice(0, 2, 6).slice(1, 3, 8);
    part.fill(9);
    EXPECT_EQ(values_of(copy), values_of(expected));
    EXPECT_EQ(values_of(a), all) << "the original is unchanged";
    EXPECT_EQ(values_of(transpose(a)), values_of(whole.transpose().copy()));
    EXPECT_NE(a.where().find("(2, 2)"), std::string::npos);
  }
  const BlockArray cyclic =
      BlockArray::zeros({4, 4}, {1, 1}, DType::f32, cpu() | interp({0, 1}) | Scope(current_device()));
  EXPECT_NE(cyclic.device_of(0, 0), cyclic.device_of(0, 1));
  EXPECT_EQ(values_of(BlockArray::from(Array::zeros({0, 3}), {2, 2})), Floats{});
  EXPECT_EQ(values_of(BlockArray::from(Array::full({1}, 4), {5})), Floats{4});
  expect_throw<ShapeError>([&] { cyclic.tile(4, 0); }, {"(4, 0)", "(4, 4)", "outside the grid"});
  expect_throw<ShapeError>([&] { BlockArray::zeros({4, 4}, {2}); }, {"(4, 4)", "(2,)"});
  expect_throw<ShapeError>([&] { BlockArray::zeros({4, 4}, {2, 0}); }, {"at least 1"});
}

TEST_P(OnEveryDevice, ElementwiseOperationsAndReductionsMatchArrays) {
  const DeviceScope there(Device{});
  const Array x = random_uniform({7, 9}, 1), y = random_uniform({7, 9}, 2, 1, 2);
  for (const Scope& scope : scopes()) {
    const BlockArray a = BlockArray::from(x, {3, 4}, scope), b = BlockArray::from(y, {5, 2}, scope);
    const Floats got = values_of(2 * a + b * a - a / b), expected = values_of(2 * x + y * x - x / y);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5);
    EXPECT_NEAR(sum(a).item<float>(), sum(x).item<float>(), 1e-4);
    EXPECT_EQ(max(a).item<float>(), max(x).item<float>());
    EXPECT_EQ(min(a).item<float>(), min(x).item<float>());
    EXPECT_NEAR(mean(b).item<float>(), mean(y).item<float>(), 1e-5);
    for (const int axis : {0, 1, -1}) {
      const Floats rows = values_of(sum(a, axis)), by = values_of(sum(x, {axis}, true));
      ASSERT_EQ(rows.size(), by.size());
      for (std::size_t i = 0; i < by.size(); ++i) EXPECT_NEAR(rows[i], by[i], 1e-5);
      EXPECT_EQ(values_of(max(a, axis)), values_of(max(x, {axis}, true)));
    }
    BlockArray c = a.copy();
    c.for_each_tile([](Array& t) { t *= 3; });
    EXPECT_EQ(values_of(c), values_of(x * 3));
    c.fill(1);
    EXPECT_EQ(values_of(c), Floats(63, 1));
  }
  expect_throw<ShapeError>(
      [&] {
        BlockArray::from(x, {3, 4}) + BlockArray::from(transpose(x).copy(), {3, 4});
      },
      {"(7, 9)", "(9, 7)"});
}

/// Checks that dtype and elements are identical.
void expect_same(const BlockArray& got, const Array& expected, const std::string& what) {
  const Array whole = got.gather(Device{});
  ASSERT_EQ(whole.dtype(), expected.dtype()) << what;
  ASSERT_EQ(got.dtype(), expected.dtype()) << what;
  ASSERT_EQ(whole.shape(), expected.shape()) << what;
  EXPECT_TRUE(all((whole == expected) | ((whole != whole) & (expected != expected))).item<bool>())
      << what << "\n"
      << to_string(whole) << "\n"
      << to_string(expected);
}

TEST_P(OnEveryDevice, BlockScalarsPromoteLikeArrayScalars) {
  const DeviceScope there(Device{});
  const std::int64_t large = (std::int64_t{1} << 53) + 1;  // double cannot represent it exactly
  const bool f64 = device_info(GetParam()).can.f64;
  for (const DType t : {DType::i64, DType::i32, DType::u8, DType::boolean, DType::f16}) {
    const Array x = (Array::arange(12, 1, 1, DType::i32).reshape({3, 4}) % 100).astype(t).eval();
    for (const Scope& scope : scopes()) {
      const BlockArray a = BlockArray::from(x, {2, 3}, scope), none = BlockArray::zeros({0, 4}, {2, 3}, t, scope);
      const std::string what = std::string(dtype_name(t)) + " on " + to_string(scope);
      if (t != DType::boolean) {
        expect_same(a + 1, x + 1, what + " + 1"), expect_same(1 - a, 1 - x, "1 - " + what);
        expect_same(a * 2, x * 2, what + " * 2"), expect_same(a / 2, x / 2, what + " / 2");
        expect_same(a % 5, x % 5, what + " % 5"), expect_same(maximum(a, 3), maximum(x, 3), what + " maximum 3");
        expect_same(clip(a, 2, 5), clip(x, 2, 5), what + " clip");
      }
      expect_same(a + 0.5, x + 0.5, what + " + 0.5"), expect_same(a + 1u, x + 1u, what + " + 1u");
      expect_same(none + 1, x.slice(0, 0, 0) + 1, what + " without rows");
      expect_same(sum(a, 1), sum(x, {1}, true), what + " sum");
      EXPECT_EQ(sum(a).dtype(), sum(x).dtype());
      if (f64 || is_float(t)) {
        expect_same(mean(a, 0), mean(x, {0}, true), what + " mean");
        EXPECT_EQ(mean(a).astype(DType::f32).item<float>(), mean(x).astype(DType::f32).item<float>()) << what;
        EXPECT_EQ(mean(a).dtype(), mean(x).dtype()) << what;
      }
    }
  }
  for (const Scope& scope : scopes()) {
    const auto first = [](const BlockArray& a) { return a.gather(Device{}).to_vector<std::int64_t>()[0]; };
    BlockArray a = BlockArray::full({3, 4}, {2, 3}, large, DType::i64, scope);
    EXPECT_EQ(first(a), large);
    EXPECT_EQ(first(a + 1), large + 1);
    EXPECT_EQ(first(a * 2), 2 * large);
    a.fill(large - 2);
    EXPECT_EQ(first(a), large - 2);
    EXPECT_EQ(first(BlockArray::full({2}, {1}, 2.75, DType::i64, scope)), 2) << "truncated, as by Array::full";
    const BlockArray halves = BlockArray::full({300, 300}, {64, 64}, 1, DType::f16, scope);
    EXPECT_EQ(mean(halves).astype(DType::f32).item<float>(), 1) << "although the sum overflows f16";
    expect_throw<DtypeError>([&] { BlockArray::ones({2}, {1}, DType::u8, scope) + 300; }, {"300", "u8"});
  }
  expect_throw<ArgumentError>([&] { BlockArray::full({2}, {1}, Array::ones({2})); }, {"full", "array"});
}

// Some operands have tiles with different boundaries.
TEST_P(OnEveryDevice, BlockArraysBroadcastLikeArrays) {
  const DeviceScope there(Device{});
  const Array x = random_uniform({7, 9}, 1), row = random_uniform({9}, 2), column = random_uniform({7, 1}, 3),
              one = random_uniform({1, 1}, 4), cube = random_uniform({2, 7, 1}, 5);
  for (const Scope& scope : scopes())
    for (const Shape& tile : tilings) {
      const std::string what = "tiles of " + to_string(tile) + " on " + to_string(scope);
      const auto blocks = [&](const Array& a, const Shape& t) { return BlockArray::from(a, t, scope); };
      const BlockArray a = blocks(x, tile), r = blocks(row, {tile[1]}), uneven = blocks(row, {2}),
                       c = blocks(column, {tile[0], 1}), s = blocks(one, {3, 3}), d = blocks(cube, {1, 3, 2});
      expect_same(a + r, x + row, what + ", row on the right"),
          expect_same(uneven - a, row - x, what + ", row on the left");
      expect_same(a * c, x * column, what + ", column on the right"),
          expect_same(c - a, column - x, what + ", column on the left");
      expect_same(a - s, x - one, what + ", one element");
      expect_same(c + uneven, column + row, what + ", column and row");
      expect_same(a * d, x * cube, what + ", higher rank on the right"),
          expect_same(d - a, cube - x, what + ", higher rank on the left");
      expect_same(a < mean(a, {1}, true), x < mean(a, {1}, true).gather(), what + ", mean");
      expect_same(a - sum(a, {0}, false), x - sum(a, 0).gather().reshape({9}), what + ", sum with its axis removed");
      EXPECT_EQ(sum(a, {}, false).shape(), Shape{});
      // Ordinary arrays with zero, one and two dimensions can also be operands.
      expect_same(a / max(a), x / max(x), what + ", its own maximum");
      expect_same(row - a, row - x, what + ", array row"),
          expect_same(a + x, x + x, what + ", array of the same shape");
      EXPECT_EQ((a + x).tile_shape(), tile);
      EXPECT_EQ((x + a).tile_shape(), tile);
      EXPECT_EQ((c + a).scope(), a.scope());
      expect_same(map([](const Array& t, const Array& u) { return t * u; }, a, c), x * column, what + ", map");
    }
  const BlockArray a = BlockArray::from(x, {3, 4});
  expect_same(BlockArray::zeros({0, 4}, {2, 2}) + BlockArray::ones({1, 4}, {1, 3}), Array::zeros({0, 4}), "no rows");
  expect_throw<ShapeError>([&] { a + BlockArray::ones({7}, {3}); }, {"(7, 9)", "(7,)"});
}

TEST_P(OnEveryDevice, BlockArraysHaveAllElementwiseFunctions) {
  const DeviceScope there(Device{});
  const Array x = random_uniform({7, 9}, 1, 0.1, 0.9), y = random_uniform({7, 9}, 2, 0.1, 0.9),
              n = Array::arange(63, 0, 1, DType::i32).reshape({7, 9}).eval();
  using Blocks = BlockArray (*)(const BlockArray&);
  using Arrays = Array (*)(Array);
  // These functions are only found by argument-dependent lookup.
  using Named = std::tuple<const char*, Blocks, Arrays>;
#define FUNCTION(name) \
  Named(               \
      #name, [](const BlockArray& a) { return name(a); }, name)
  const std::vector<Named> functions = {{"-", [](const BlockArray& a) { return -a; }, operator- },
                                         FUNCTION(abs),
                                         FUNCTION(sqrt),
                                         FUNCTION(rsqrt),
                                         FUNCTION(exp),
                                         FUNCTION(exp2),
                                         FUNCTION(expm1),
                                         FUNCTION(log),
                                         FUNCTION(log2),
                                         FUNCTION(log1p),
                                         FUNCTION(log10),
                                         FUNCTION(sin),
                                         FUNCTION(cos),
                                         FUNCTION(tan),
                                         FUNCTION(asin),
                                         FUNCTION(acos),
                                         FUNCTION(atan),
                                         FUNCTION(sinh),
                                         FUNCTION(cosh),
                                         FUNCTION(tanh),
                                         FUNCTION(erf),
                                         FUNCTION(floor),
                                         FUNCTION(ceil),
                                         FUNCTION(trunc),
                                         FUNCTION(rint),
                                         FUNCTION(round),
                                         FUNCTION(sigmoid),
                                         FUNCTION(silu),
                                         FUNCTION(relu),
                                         FUNCTION(gelu),
                                         FUNCTION(sign),
                                         FUNCTION(isnan),
                                         FUNCTION(isinf),
                                         FUNCTION(isfinite)};
#undef FUNCTION
  const auto near = [](const BlockArray& got, const Array& expected, const std::string& what) {
    ASSERT_EQ(got.dtype(), expected.dtype()) << what;
    const Floats g = values_of(got.astype(DType::f32)), e = values_of(expected.astype(DType::f32));
    ASSERT_EQ(g.size(), e.size()) << what;
    for (std::size_t i = 0; i < e.size(); ++i) ASSERT_NEAR(g[i], e[i], 1e-5f * (1 + std::abs(e[i]))) << what;
  };
  for (const Scope& scope : scopes()) {
    const BlockArray a = BlockArray::from(x, {3, 4}, scope), b = BlockArray::from(y, {5, 2}, scope),
                     m = BlockArray::from(n, {3, 4}, scope);
    for (const auto& [name, blocks, arrays] : functions) near(blocks(a), arrays(x), name);
    near(pow(a, b), pow(x, y), "pow"), near(atan2(a, b), atan2(x, y), "atan2"), near(hypot(a, b), hypot(x, y), "hypot");
    near(copysign(a, -b), copysign(x, -y), "copysign");
    expect_same(a == b, x == y, "=="), expect_same(a != b, x != y, "!="), expect_same(a < b, x < y, "<");
    expect_same(a <= 0.5, x <= 0.5, "<="), expect_same(0.5 > a, 0.5 > x, ">"), expect_same(a >= b, x >= y, ">=");
    expect_same(minimum(a, b), minimum(x, y), "minimum"), expect_same(!(a < b), !(x < y), "!");
    expect_same(m & 6, n & 6, "&"), expect_same(m | m % 3, n | n % 3, "|"), expect_same(m ^ 5, n ^ 5, "^");
    expect_same(where(a < b, a, 7), where(x < y, x, 7), "where");
    expect_same(where(x < y, a, b), where(x < y, x, y), "where with an array condition");
    const std::uint64_t launches = fused_launches();
    const BlockArray fused = where(a > 0.5, exp(a) * 2, a / (a + 1));
    EXPECT_EQ(fused_launches(), launches) << "deferred";
    fused.eval();
    EXPECT_EQ(fused_launches(), launches + a.tiles().size()) << "one kernel per tile";
    EXPECT_EQ(any(a > 2).item<bool>(), false);
    EXPECT_EQ(all(a > 0).item<bool>(), true);
    expect_same(any(a > 0.5, 0), any(x > 0.5, {0}, true), "any");
    // In-place operations keep the memory of tiles. Expressions that were deferred before the update use the old
    // values.
    BlockArray to = m.copy(), floats = a.copy();
    const Storage* const memory = to.tile(0, 0).array().view().storage.get();
    const BlockArray before = to + 1;
    to += 2, to -= m, to *= BlockArray::from(n.slice(0, 0, 1).copy(), {1, 2}, scope), to /= 2;
    expect_same(to, (n + 2 - n) * n.slice(0, 0, 1) / 2, "in place");
    expect_same(before, n + 1, "deferred before the update");
    EXPECT_EQ(to.tile(0, 0).array().view().storage.get(), memory);
    floats -= mean(a, 1);
    near(floats, x - mean(x, {1}, true), "-= column");
    BlockArray itself = a.copy();
    itself += itself.tile(0, 0).array().slice(0, 0, 1).slice(1, 0, 1);  // a part of the first tile
    near(itself, x + x.slice(0, 0, 1).slice(1, 0, 1), "+= one of its own elements");
    expect_throw<DtypeError>([&] { to += 0.5; }, {"+=", "i32"});
    expect_throw<ShapeError>(
        [&] {
          to += BlockArray::ones({2, 7, 9}, {1, 3, 4}, DType::i32);
        },
        {"(7, 9)", "cannot be broadcast"});
    expect_throw<DtypeError>([&] { !a; }, {"bool"});
    expect_throw<ArgumentError>([&] { where(true, a, b); }, {"where", "condition"});
  }
}

TEST_P(OnEveryDevice, TransposeHasTheSameSyntaxForArraysAndBlockArrays) {
  const DeviceScope there(Device{});
  const Array x = random_uniform({7, 9}, 1), v = random_uniform({7}, 2), cube = random_uniform({3, 4, 5}, 3);
  for (const Scope& scope : scopes())
    for (const auto& [a, tile] : std::vector<std::pair<Array, Shape>>{{x, {3, 4}}, {v, {3}}, {cube, {2, 3, 4}}}) {
      const BlockArray blocks = BlockArray::from(a, tile, scope);
      expect_same(transpose(blocks), transpose(a), "function");
      expect_same(blocks.transpose(), a.transpose(), "member");
    }
}

TEST_P(OnEveryDevice, MatmulCholeskyAndTriangularSolveMatchArrays) {
  const DeviceScope there(Device{});
  const Array x = random_uniform({11, 7}, 1), y = random_uniform({7, 5}, 2), right = random_uniform({11, 3}, 4);
  const Array spd = matmul(x, x.transpose()) + 11 * BlockArray::identity(11, {11, 11}).gather();
  const Array l = tril(cholesky(spd));
  const auto near = [](const Floats& a, const Floats& b, float by) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], by) << i;
  };
  for (const Scope& scope : scopes()) {
    for (const Shape& tile : {Shape{3, 4}, Shape{11, 7}, Shape{5, 1}}) {
      near(values_of(matmul(BlockArray::from(x, tile, scope), BlockArray::from(y, {2, 3}, scope))),
           values_of(matmul(x, y)), 1e-4f);
      BlockArray c = BlockArray::ones({11, 5}, {4, 2}, DType::f32, scope);
      matmul_into(c, BlockArray::from(x, tile, scope), BlockArray::from(y, {2, 3}, scope), 2, -1);
      near(values_of(c), values_of(2 * matmul(x, y) - 1), 1e-4f);
    }
    for (const std::int64_t side : {1, 4, 5, 11, 20}) {
      const BlockArray a = BlockArray::from(spd, {side, side}, scope);
      const BlockArray factor = cholesky(a);
      near(values_of(factor), values_of(l), 1e-4f);
      EXPECT_EQ(values_of(a), values_of(spd)) << "the input is unchanged";
      const BlockArray b = BlockArray::from(right, {side, 2}, scope);
      const Array forward = matmul(l, solve_triangular(factor, b).gather());
      near(values_of(forward), values_of(right), 1e-4f);
      const Array backward = matmul(l.transpose(), solve_triangular(factor, b, true).gather());
      near(values_of(backward), values_of(right), 1e-4f);
    }
    Array bad = spd.copy();
    bad.slice(0, 8, 9).slice(1, 8, 9).fill(-1);
    expect_throw<ArgumentError>([&] { cholesky(BlockArray::from(bad, {3, 3}, scope)); }, {"9", "positive definite"});
  }
  expect_throw<ShapeError>(
      [&] {
        matmul(BlockArray::from(x, {3, 4}), BlockArray::from(x, {3, 4}));
      },
      {"matmul", "(11, 7)"});
  expect_throw<ShapeError>([&] { cholesky(BlockArray::from(x, {3, 3})); }, {"not square"});
  expect_throw<ShapeError>([&] { cholesky(BlockArray::from(spd, {3, 4})); }, {"tiles are not square", "retile"});
}

TEST_P(OnEveryDevice, StencilsMatchPlainLoops) {
  const DeviceScope there(Device{});
  constexpr std::int64_t rows = 7, columns = 9;
  const Array x = random_uniform({rows, columns}, 1);
  const Floats v = values_of(x);
  const auto five = [](const Neighbours& n) {
    return n(-1, 0) + n(1, 0) + n(0, -1) + 2 * n(0, 2) - 4 * n(0, 0) + n(-2, 2);
  };
  for (const Edge edge : {Edge::wrap, Edge::clamp, Edge::pad}) {
    const auto at = [&](std::int64_t i, std::int64_t j) -> float {
      if (edge == Edge::pad && (i < 0 || i >= rows || j < 0 || j >= columns)) return 0.5f;
      i = edge == Edge::wrap ? (i + rows) % rows : std::clamp<std::int64_t>(i, 0, rows - 1);
      j = edge == Edge::wrap ? (j + columns) % columns : std::clamp<std::int64_t>(j, 0, columns - 1);
      return v[static_cast<std::size_t>(i * columns + j)];
    };
    for (const Scope& scope : scopes())
      for (const Shape& tile : {Shape{7, 9}, Shape{5, 4}, Shape{2, 3}}) {
        if (rows % tile[0] == 1 || columns % tile[1] == 1) continue;  // smaller than the halo
        const Floats got =
            values_of(stencil(BlockArray::from(x, tile, scope), {.distance = 2, .edge = edge, .value = 0.5}, five));
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < columns; ++j)
            EXPECT_NEAR(got[static_cast<std::size_t>(i * columns + j)],
                        at(i - 1, j) + at(i + 1, j) + at(i, j - 1) + 2 * at(i, j + 2) - 4 * at(i, j) + at(i - 2, j + 2),
                        1e-5)
                << i << ", " << j << " of tiles " << to_string(tile);
      }
  }
  expect_throw<ShapeError>([&] { stencil(BlockArray::from(x, {7, 4}), {.distance = 2}, five); }, {"smallest tile"});
  expect_throw<TaskError>([&] { stencil(BlockArray::from(x, {7, 9}), {.distance = 1}, five); }, {"outside the halo"});
}

// The interior is computed directly on the tiles, unless `f` uses more than elementwise operations on the neighbours.
TEST_P(OnEveryDevice, StencilsOfLargeTilesMatchTheWholeArray) {
  const DeviceScope there(Device{});
  constexpr std::int64_t rows = 61, columns = 75;
  const Array x = random_uniform({rows, columns}, 1);
  const Floats v = values_of(x);
  using Get = std::function<Array(std::int64_t, std::int64_t)>;
  const std::vector<std::function<Array(const Get&)>> functions = {
      [](const Get& n) { return n(0, 0); },
      [](const Get& n) { return n(-1, 0) * 0.25f + n(0, 1) * n(1, -1); },
      [](const Get& n) { return where(n(1, 0) > 0.5f, exp(n(0, 1)), n(-1, -1) * 1.5f); },
      [](const Get& n) { return n(1, 0).eval() + n(0, 1); },
      [](const Get& n) { return n(0, -1) + 0 * sum(n(1, 1)); },
  };
  for (const Edge edge : {Edge::wrap, Edge::clamp, Edge::pad})
    for (const std::int64_t d : {0, 1, 2, 3}) {
      const auto padded = [&] {
        Floats all;
        for (std::int64_t i = -d; i < rows + d; ++i)
          for (std::int64_t j = -d; j < columns + d; ++j) {
            const bool out = i < 0 || i >= rows || j < 0 || j >= columns;
            const std::int64_t p = edge == Edge::wrap ? (i + rows) % rows : std::clamp<std::int64_t>(i, 0, rows - 1);
            const std::int64_t q =
                edge == Edge::wrap ? (j + columns) % columns : std::clamp<std::int64_t>(j, 0, columns - 1);
            all.push_back(out && edge == Edge::pad ? 0.5f : v[static_cast<std::size_t>(p * columns + q)]);
          }
        return Array::from(all, Shape{rows + 2 * d, columns + 2 * d});
      };
      const auto whole = [&](const Array& of) -> Get {
        return [of, d](std::int64_t r, std::int64_t c) {
          return of.slice(0, d + r, d + r + rows).slice(1, d + c, d + c + columns);
        };
      };
      for (std::size_t which = 0; which < functions.size(); ++which) {
        if (d == 0 && which != 0) continue;
        const auto& f = functions[which];
        const Floats wanted = values_of(f(whole(padded())));
        for (const Scope& scope : scopes())
          for (const Shape& tile : {Shape{rows, columns}, Shape{33, 40}}) {
            const BlockArray got = stencil(
                BlockArray::from(x, tile, scope), {.distance = d, .edge = edge, .value = 0.5},
                [&](const Neighbours& n) { return f([&](std::int64_t r, std::int64_t c) { return n(r, c); }); });
            SCOPED_TRACE(::testing::Message() << "function " << which << ", distance " << d << ", edge " << int(edge)
                                              << ", tiles " << to_string(tile));
            const Floats given = values_of(got);
            ASSERT_EQ(given.size(), wanted.size());
            for (std::size_t i = 0; i < given.size(); ++i) ASSERT_NEAR(given[i], wanted[i], 1e-6f) << i;
          }
      }
      if (d == 0) continue;
      // Neighbours that `f` stores stay valid, and writes to one neighbour are visible in all neighbours.
      std::optional<Array> kept, later;
      const BlockArray one = BlockArray::from(x, Shape{rows, columns});
      stencil(one, {.distance = d, .edge = edge, .value = 0.5}, [&](const Neighbours& n) {
        kept = n(1, 0);
        later = n(0, 1) * 2;
        return n(0, 0) + 1;
      }).gather();
      EXPECT_TRUE(values_of(*kept) == values_of(whole(padded())(1, 0)));
      EXPECT_TRUE(values_of(*later) == values_of(whole(padded())(0, 1) * 2));
      const auto writing = [](const Get& n) {
        const Array before = n(0, 1) * 3;
        Array middle = n(0, 0);
        middle.slice(0, 10, 20).fill(7);
        return before + n(1, 0);
      };
      const Floats written =
          values_of(stencil(one, {.distance = d, .edge = edge, .value = 0.5}, [&](const Neighbours& n) {
            return writing([&](std::int64_t r, std::int64_t c) { return n(r, c); });
          }));
      EXPECT_TRUE(written == values_of(writing(whole(padded()))));
      EXPECT_EQ(values_of(one), v);
    }
  // These tiles are computed in bands of a few rows.
  const Array tall = random_uniform({700, 600}, 3);
  const auto nine = [](const Get& n) -> Array { return n(-1, -1) + n(-1, 0) * n(0, -1) - n(1, 0) * n(0, 1) + n(1, 1); };
  const Get around = [&](std::int64_t r, std::int64_t c) {
    const auto turned = [](const Array& t, int axis, std::int64_t by) {
      const std::int64_t from = (by + t.shape(axis)) % t.shape(axis);
      return from == 0 ? t : concatenate({t.slice(axis, from, t.shape(axis)), t.slice(axis, 0, from)}, axis);
    };
    return turned(turned(tall, 0, r), 1, c);
  };
  EXPECT_TRUE(values_of(stencil(BlockArray::from(tall, {650, 600}), {.edge = Edge::wrap}, [&](const Neighbours& n) {
                return nine([&](std::int64_t r, std::int64_t c) { return n(r, c); });
              })) == values_of(nine(around)));
  const BlockArray a = BlockArray::from(x, {33, 40});
  expect_throw<TaskError>(
      [&] {
        stencil(a, {}, [](const Neighbours& n) -> Array {
          const Array unused = n(1, 0) + 1;
          throw std::runtime_error("not today");
        }).gather();
      },
      {"stencil", "not today"});
  EXPECT_THROW(stencil(a, {}, [](const Neighbours& n) { return n(0, 0).slice(0, 0, 2); }).gather(), Error);
  EXPECT_EQ(values_of(a), v);
}

}  // namespace
}  // namespace tessera
