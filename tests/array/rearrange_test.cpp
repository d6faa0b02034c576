// SPDX-License-Identifier: Apache-2.0
// Functions that move and repeat axes, order statistics, searches and counts, compared with plain loops and with values
// of NumPy 2.4.6.
#include "tessera/array/rearrange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "tessera/array/functions.h"
#include "tessera/array/index.h"
#include "tessera/array/statistics.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;
constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Array numbered(Shape shape, DType dtype = DType::i32) {
  return Array::arange(element_count(shape), 0, 1, dtype).reshape(std::move(shape));
}
Ints ints(const Array& a) { return a.to_vector<std::int32_t>(); }

void expect_same(const Array& got, const Floats& wanted, const char* what) {
  const Floats values = got.to_vector<float>();
  ASSERT_EQ(values.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(std::isnan(values[i]), std::isnan(wanted[i])) << what << " " << i;
    if (!std::isnan(wanted[i])) {
      ASSERT_FLOAT_EQ(values[i], wanted[i]) << what << " " << i;
    }
  }
}

TEST_P(OnEveryDevice, AxesAreMovedAndExchanged) {
  const Array a = numbered({2, 3, 4});
  EXPECT_EQ(moveaxis(a, 0, -1).shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(moveaxis(a, 2, 0).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(ints(moveaxis(a, 2, 0).select(0, 1)), (Ints{1, 5, 9, 13, 17, 21}));
  EXPECT_EQ(swapaxes(a, 0, -1).shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(ints(swapaxes(a, 1, 2)), ints(a.permute({0, 2, 1})));
  expect_throw<Error>([&] { moveaxis(a, 3, 0); }, {"moveaxis", "axis"});
  expect_throw<Error>([&] { swapaxes(a, 0, -4); }, {"swapaxes", "axis"});
}

TEST_P(OnEveryDevice, IndicesOfSeveralKindsSelectAndWrite) {
  const Array a = numbered({3, 4, 5}), rows = Array::from<std::int64_t>({2, -1, 0}), two = Array::from({1, 3});
  EXPECT_EQ(ints(index(a, {1, -1, 2})), Ints{37});
  EXPECT_EQ(ints(index(a, {Slice{1}, 0, Slice{{}, {}, -2}})), (Ints{24, 22, 20, 44, 42, 40}));
  EXPECT_EQ(index(a, {NewAxis{}, Ellipsis{}, Slice{0, 2}}).shape(), (Shape{1, 3, 4, 2}));
  // Positions are broadcast. Their axes replace those of the arrays, or come first if a slice is between them.
  EXPECT_EQ(ints(index(a, {rows, two.reshape({2, 1}), 0})), (Ints{45, 45, 5, 55, 55, 15}));
  EXPECT_EQ(index(a, {Slice{}, two, rows.reshape({3, 1})}).shape(), (Shape{3, 3, 2}));
  EXPECT_EQ(index(a, {two, Slice{}, rows.reshape({3, 1})}).shape(), (Shape{3, 2, 4}));
  EXPECT_EQ(ints(index(a, {0, Slice{0, 2}, two})), (Ints{1, 6, 3, 8}));
  const Array mask = Array::from({true, false, true, true}), none = Array::full({3, 4}, 0, DType::boolean);
  EXPECT_EQ(ints(index(a, {0, mask, 1})), (Ints{1, 11, 16}));
  EXPECT_EQ(ints(index(a, {rows, mask, 4})), (Ints{44, 54, 19}));
  EXPECT_EQ(index(a, {none, Slice{0, 2}}).shape(), (Shape{0, 2}));
  EXPECT_EQ(ints(index(a, {Array::from({5, 0}), Array::from({0, -5}), 0})), (Ints{0, 0}));  // out of range

  Array x = numbered({3, 4});
  index_assign(x, {Slice{{}, {}, -2}, Slice{1, 3}}, Array::from({1, 2, 3, 4}, Shape{2, 2}));
  EXPECT_EQ(ints(x), (Ints{0, 3, 4, 3, 4, 5, 6, 7, 8, 1, 2, 11}));
  index_assign(x, {rows, Array::from({3, 3, 9})}, 50);
  EXPECT_EQ(ints(x), (Ints{0, 3, 4, 3, 4, 5, 6, 7, 8, 1, 2, 50}));
  index_assign(x, {x > 5}, -1);
  EXPECT_EQ(ints(x), (Ints{0, 3, 4, 3, 4, 5, -1, -1, -1, 1, 2, -1}));
  index_assign(x, {1, mask}, Array::from({7, 8, 9}));
  EXPECT_EQ(ints(x), (Ints{0, 3, 4, 3, 7, 5, 8, 9, -1, 1, 2, -1}));
  index_add(x, {Array::from({0, 0, 2}), Slice{2, 4}}, Array::from({10, 20}));
  EXPECT_EQ(ints(x), (Ints{0, 3, 24, 43, 7, 5, 8, 9, -1, 1, 12, 19}));
  Array wide = Array::zeros({100, 2}, DType::i32), aliased = numbered({40});
  index_assign(wide, {Array::from({7, 99, 7, -1, 100}), Slice{{}, {}, 1}}, numbered({5, 2}));
  EXPECT_EQ(ints(take(wide, Array::from({7, 99}))), (Ints{4, 5, 6, 7}));
  EXPECT_EQ(sum(wide).item<std::int64_t>(), 22);
  index_assign(aliased, {flip(aliased).copy()}, aliased);  // reads the memory that it writes
  EXPECT_EQ(ints(aliased), ints(flip(numbered({40}))));
  Array same = Array::wrap(aliased.view().storage, DType::i32, {40});
  index_assign(aliased, {aliased.copy()}, same);
  EXPECT_EQ(ints(aliased), ints(numbered({40})));
  index_assign(same, {flip(aliased).copy()}, aliased);
  index_add(aliased, {aliased}, same);
  EXPECT_EQ(ints(aliased), Ints(40, 39));
  index_add(x, {Ellipsis{}, 0}, 1);
  EXPECT_EQ(ints(x), (Ints{1, 3, 24, 43, 8, 5, 8, 9, 0, 1, 12, 19}));

  expect_throw<ShapeError>([&] { index(a, {3}); }, {"out of range"});
  expect_throw<ShapeError>([&] { index(a, {0, Array::from({true})}); }, {"mask", "4, 5", "(1,)"});
  expect_throw<ShapeError>([&] { index_assign(x, {Array::from({true})}, 0); }, {"mask"});
  expect_throw<ArgumentError>([&] { index(a, {0, 0, 0, 0}); }, {"more indices than axes"});
  expect_throw<ArgumentError>([&] { index(a, {Ellipsis{}, Ellipsis{}}); }, {"more than one ellipsis"});
  expect_throw<ArgumentError>([&] { index(a, {Slice{0, 1, 0}}); }, {"step"});
  expect_throw<DtypeError>([&] { index(a, {Array::from({0.5f})}); }, {"integer"});
  expect_throw<ShapeError>([&] { index(a, {rows, two}); }, {"broadcast"});
}

TEST_P(OnEveryDevice, DiagonalsAreThoseOfPlainLoops) {
  for (const Shape& shape :
       {Shape{3, 3}, Shape{2, 4}, Shape{5, 2}, Shape{2, 3, 4}, Shape{1, 1}, Shape{0, 3}, Shape{3, 0}})
    for (std::int64_t offset = -5; offset <= 5; ++offset) {
      const Array a = numbered(shape);
      const std::int64_t rows = a.shape(-2), columns = a.shape(-1);
      Ints wanted;
      std::int64_t total = 0;
      const std::int64_t batches = shape.size() == 3 ? shape[0] : 1;
      for (std::int64_t b = 0; b < batches; ++b)
        for (std::int64_t i = 0; i < rows; ++i)
          if (i + offset >= 0 && i + offset < columns)
            wanted.push_back(static_cast<std::int32_t>((b * rows + i) * columns + i + offset)), total += wanted.back();
      ASSERT_EQ(ints(diag(a, offset)), wanted) << to_string(shape) << " " << offset;
      ASSERT_EQ(sum(trace(a, offset)).item<std::int64_t>(), total);
      ASSERT_EQ(ints(diag(swapaxes(a, -1, -2), -offset)), wanted);
    }
  expect_throw<Error>([] { diag(Array::ones({3})); }, {"fewer than two dimensions"});
}

TEST_P(OnEveryDevice, RollRepeatAndTileMatchNumPy) {
  const Array a = numbered({2, 3});
  EXPECT_EQ(ints(roll(a, 1)), (Ints{5, 0, 1, 2, 3, 4}));
  EXPECT_EQ(ints(roll(a, 1, 1)), (Ints{2, 0, 1, 5, 3, 4}));
  EXPECT_EQ(ints(roll(a, -7, -1)), (Ints{1, 2, 0, 4, 5, 3}));
  EXPECT_EQ(ints(roll(a, 4, 0)), ints(a));
  EXPECT_EQ(roll(Array::ones({0, 2}), 3, 0).shape(), (Shape{0, 2}));
  EXPECT_EQ(ints(repeat(a, 2)), (Ints{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
  EXPECT_EQ(ints(repeat(a, 2, 0)), (Ints{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(ints(repeat(a.transpose(), 2, 1)), (Ints{0, 0, 3, 3, 1, 1, 4, 4, 2, 2, 5, 5}));
  EXPECT_EQ(repeat(a, 0, 1).shape(), (Shape{2, 0}));
  EXPECT_EQ(ints(tile(a, {2})), (Ints{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(ints(tile(a, {2, 1})), (Ints{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ints(tile(numbered({2}), {2, 2})), (Ints{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(tile(a, {3, 1, 2, 2}).shape(), (Shape{3, 1, 4, 6}));
  EXPECT_EQ(tile(a, {0, 2}).shape(), (Shape{0, 6}));
  expect_throw<Error>([&] { repeat(a, -1); }, {"the count is negative"});
  expect_throw<Error>([&] { tile(a, {1, -1}); }, {"the count is negative"});
}

TEST_P(OnEveryDevice, DiffAndMeshgridMatchNumPy) {
  const Array a = Array::from({1, 4, 9, 16, 25});
  EXPECT_EQ(ints(diff(a)), (Ints{3, 5, 7, 9}));
  EXPECT_EQ(ints(diff(a, 2)), (Ints{2, 2, 2}));
  EXPECT_EQ(diff(a, 9).shape(), (Shape{0}));
  EXPECT_EQ(ints(diff(numbered({2, 3}), 1, 0)), (Ints{3, 3, 3}));
  EXPECT_EQ(diff(a > 4).to_vector<bool>(), (std::vector<bool>{false, true, false, false}));
  expect_throw<Error>([&] { diff(a, -1); }, {"the count is negative"});
  expect_throw<Error>([] { diff(Array::ones({})); }, {"axis"});
  const auto xy = meshgrid({numbered({3}), numbered({2}) + 10});
  EXPECT_EQ(xy[0].shape(), (Shape{2, 3}));
  EXPECT_EQ(ints(xy[0]), (Ints{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(ints(xy[1]), (Ints{10, 10, 10, 11, 11, 11}));
  const auto ij = meshgrid({numbered({3}), numbered({2})}, Indexing::ij);
  EXPECT_EQ(ints(ij[0]), (Ints{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(ints(ij[1]), (Ints{0, 1, 0, 1, 0, 1}));
  expect_throw<Error>([] { meshgrid({Array::ones({2, 2})}); }, {"exactly one dimension"});
}

TEST_P(OnEveryDevice, QuantilesMatchNumPy) {
  const Array a = Array::from({7.f, 1.f, 3.f, 2.f, 8.f, 5.f}, Shape{2, 3});
  EXPECT_EQ(median(a).item<float>(), 4);
  expect_same(median(a, {1}), {3, 5}, "median");
  EXPECT_EQ(median(a, {1}, true).shape(), (Shape{2, 1}));
  expect_same(quantile(a, 0.25, {0}), {3.25f, 2.75f, 3.5f}, "quantile");
  expect_same(quantile(a, 0, {1}), {1, 2}, "least");
  expect_same(quantile(a, 1, {-1}), {7, 8}, "largest");
  expect_same(median(Array::from({inf, inf, 1.f, inf})), {inf}, "infinities");
  expect_same(median(Array::from({1.f, nan, 2.f})), {nan}, "NaN");
  expect_same(median(Array::ones({2, 0}), {1}), {nan, nan}, "empty");
  if (device_info(current_device()).can.f64) {
    EXPECT_EQ(median(Array::from({4, 1})).item<double>(), 2.5);
  }
  expect_throw<Error>([&] { median(a, {0, -2}); }, {"an axis occurs twice"});
  expect_throw<Error>([&] { quantile(a, 1.5); }, {"q must be from 0 to 1", "1.5"});
}

TEST_P(OnEveryDevice, ReductionsIgnoreNaN) {
  const Array a = Array::from({1.f, nan, 3.f, nan, nan, nan}, Shape{2, 3});
  expect_same(nansum(a, {1}), {4, 0}, "nansum");
  expect_same(nanmean(a, {1}), {2, nan}, "nanmean");
  expect_same(nanmax(a, {1}), {3, nan}, "nanmax");
  expect_same(nanmin(a, {1}), {1, nan}, "nanmin");
  EXPECT_EQ(nanmax(a).item<float>(), 3);
  EXPECT_EQ(nanmin(numbered({3})).item<std::int32_t>(), 0);
}

TEST_P(OnEveryDevice, SearchesMatchPlainLoops) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (const std::size_t count : {0u, 1u, 2u, 3u, 7u, 64u, 100u}) {
    Floats sorted(count), values(50);
    for (float& v : sorted) v = static_cast<float>(random() % 40);
    for (float& v : values) v = static_cast<float>(random() % 42) - 1;
    std::ranges::sort(sorted);
    if (count > 2) sorted.back() = nan;
    values[0] = nan, values[1] = inf;
    const auto less = [](float x, float y) { return x < y || (std::isnan(y) && !std::isnan(x)); };
    Longs left, right;
    std::vector<bool> within;
    for (const float v : values) {
      left.push_back(std::lower_bound(sorted.begin(), sorted.end(), v, less) - sorted.begin());
      right.push_back(std::upper_bound(sorted.begin(), sorted.end(), v, less) - sorted.begin());
      within.push_back(std::ranges::find(sorted, v) != sorted.end());
    }
    const Array line = Array::from(sorted), wanted = Array::from(values, Shape{5, 10});
    ASSERT_EQ(searchsorted(line, wanted).to_vector<std::int64_t>(), left) << count;
    ASSERT_EQ(searchsorted(line, wanted, SearchSide::right).to_vector<std::int64_t>(), right) << count;
    ASSERT_EQ(isin(wanted, line).to_vector<bool>(), within) << count;
  }
  expect_throw<Error>([] { searchsorted(Array::ones({2, 2}), Array::ones({1})); }, {"exactly one dimension"});
  expect_same(interpolate(Array::from({-1.f, 0.f, 0.5f, 1.5f, 2.f, 9.f, nan}), Array::from({0.f, 1.f, 2.f}),
                          Array::from({10.f, 20.f, 0.f})),
              {10, 10, 15, 10, 0, 0, nan}, "interp");
  expect_same(interpolate(Array::from({1.f, 1.5f, 0.5f}), Array::from({0.f, 1.f, 2.f}), Array::from({4.f, 4.f, inf})),
              {4, inf, 4}, "infinity");
  expect_same(interpolate(Array::from({-1.f, 3.f}), Array::from({0.f}), Array::from({5.f})), {5, 5}, "one position");
  expect_throw<Error>([] { interpolate(Array::ones({1}), Array::ones({2}), Array::ones({3})); }, {"the same number"});
}

TEST_P(OnEveryDevice, LargestElementsComeFirst) {
  const Array a = Array::from({3.f, 9.f, 1.f, 7.f, nan, 2.f}, Shape{2, 3});
  const TopK most = topk(a, 2);
  expect_same(most.values, {9, 3, nan, 7}, "largest");
  EXPECT_EQ(most.indices.to_vector<std::int64_t>(), (Longs{1, 0, 1, 0}));
  const TopK least = topk(a, 1, 0, false);
  expect_same(least.values, {3, 9, 1}, "smallest");
  EXPECT_EQ(least.indices.to_vector<std::int64_t>(), (Longs{0, 0, 0}));
  EXPECT_EQ(topk(Array::from({5, 7, 7, 5}), 3).indices.to_vector<std::int64_t>(), (Longs{1, 2, 0}));  // as argmax
  EXPECT_EQ(topk(a, 0).values.shape(), (Shape{2, 0}));
  expect_throw<Error>([&] { topk(a, 4); }, {"k must be from 0"});

  for (const unsigned distinct : {2u, 50u, 1u << 20}) {  // with few distinct values, most elements are candidates
    Floats values((1 << 14) + 5);
    for (float& v : values) v = random() % 500 == 0 ? nan : static_cast<float>(random() % distinct);
    Longs order(values.size());
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](std::int64_t i) {
      return std::isnan(values[static_cast<std::size_t>(i)]) ? inf : values[static_cast<std::size_t>(i)];
    };
    const Array line = Array::from(values);
    const auto first = [&] { return Longs(order.begin(), order.begin() + 90); };
    std::ranges::stable_sort(order, [&](auto i, auto j) { return value(i) < value(j); });
    EXPECT_EQ(topk(line, 90, 0, false).indices.to_vector<std::int64_t>(), first()) << distinct;
    std::ranges::sort(order);
    std::ranges::stable_sort(order, [&](auto i, auto j) { return value(i) > value(j); });
    EXPECT_EQ(topk(line, 90).indices.to_vector<std::int64_t>(), first()) << distinct;
  }
}

TEST_P(OnEveryDevice, CountsMatchNumPy) {
  EXPECT_EQ(bincount(Array::from({1, 3, 1, 0})).to_vector<std::int64_t>(), (Longs{1, 2, 0, 1}));
  EXPECT_EQ(bincount(Array::from({1}), 4).to_vector<std::int64_t>(), (Longs{0, 1, 0, 0}));
  EXPECT_EQ(bincount(Array::zeros({0}, DType::i32), 2).to_vector<std::int64_t>(), (Longs{0, 0}));
  expect_throw<Error>([] { bincount(Array::from({1, -2})); }, {"must be from 0", "-2"});
  expect_throw<Error>([] { bincount(Array::from({std::int64_t{1} << 40})); }, {"more than 2^30 counts"});
  expect_throw<Error>([] { bincount(Array::from({1}), -1); }, {"must not be negative"});
  expect_throw<Error>([] { bincount(Array::ones({2})); }, {"bincount"});
  const Array a = Array::from({2.f, nan, 1.f, 2.f, nan, 0.f, -0.f, 2.f}, Shape{2, 4});
  const Counted counted = unique_counts(a);
  expect_same(counted.values, {0, 1, 2, nan}, "values");
  EXPECT_EQ(counted.counts.to_vector<std::int64_t>(), (Longs{2, 1, 3, 2}));
  EXPECT_EQ(unique_counts(Array::zeros({0})).counts.size(), 0);
  for (const std::int64_t range : {40, 1 << 20}) {  // integers are counted if their range is small, and else sorted
    std::map<std::int64_t, std::int64_t> wanted;
    Longs numbers(2000);
    std::uniform_int_distribution<std::int64_t> among(-7, range);
    for (std::int64_t& v : numbers) ++wanted[v = among(random)];
    const Counted got = unique_counts(Array::from(numbers));
    Longs values, counts;
    for (const auto& [value, count] : wanted) values.push_back(value), counts.push_back(count);
    EXPECT_EQ(got.values.to_vector<std::int64_t>(), values);
    EXPECT_EQ(got.counts.to_vector<std::int64_t>(), counts);
    EXPECT_EQ(unique(Array::from(numbers).astype(DType::i32)).astype(DType::i64).to_vector<std::int64_t>(), values);
  }
  const Inverse inverse = unique_inverse(a);
  EXPECT_EQ(inverse.indices.to_vector<std::int64_t>(), (Longs{2, 3, 1, 2, 3, 0, 0, 2}));
  EXPECT_EQ(inverse.indices.shape(), a.shape());
  const Histogram bins = histogram(Array::from({0.f, 0.5f, 1.f, 2.f, 3.f, 4.f, 4.5f, -1.f, nan}), 4, 0, 4);
  EXPECT_EQ(bins.counts.to_vector<std::int64_t>(), (Longs{2, 1, 1, 2}));
  expect_same(bins.edges, {0, 1, 2, 3, 4}, "edges");
  expect_throw<Error>([] { histogram(Array::ones({2}), 0, 0, 1); }, {"at least one interval"});
  expect_throw<Error>([] { histogram(Array::ones({2}), 4, 1, 1); }, {"low must be less than high"});
}

TEST_P(OnEveryDevice, ProductsAndExtremesAccumulateLikePlainLoops) {
  for (const Shape& shape :
       {Shape{0}, Shape{1}, Shape{7}, Shape{3, 5}, Shape{2, 0, 3}, Shape{4, 3, 33}, Shape{2, 9001}})
    for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
      SCOPED_TRACE(to_string(shape) + " axis " + std::to_string(axis));
      std::uniform_int_distribution<int> small(1, 3);
      Longs values(static_cast<std::size_t>(element_count(shape)));
      for (auto& v : values) v = small(random) - 2 * (small(random) == 1);
      const Array a = Array::from(values, shape);
      std::int64_t inner = 1, extent = shape[static_cast<std::size_t>(axis)];
      for (std::size_t d = static_cast<std::size_t>(axis) + 1; d < shape.size(); ++d) inner *= shape[d];
      Longs product = values, largest = values, least = values, line;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (static_cast<std::int64_t>(i) / inner % extent == 0) continue;
        const std::size_t before = i - static_cast<std::size_t>(inner);
        product[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(product[before]) *
                                               static_cast<std::uint64_t>(values[i]));
        largest[i] = std::max(largest[before], values[i]);
        least[i] = std::min(least[before], values[i]);
      }
      EXPECT_EQ(cumprod(a, axis).to_vector<std::int64_t>(), product);
      EXPECT_EQ(cummax(a, axis).to_vector<std::int64_t>(), largest);
      EXPECT_EQ(cummin(a, axis).to_vector<std::int64_t>(), least);
      for (std::size_t i = 0; i < product.size(); ++i)
        if (static_cast<std::int64_t>(i) / inner % extent == extent - 1) line.push_back(product[i]);
      if (extent > 0) {
        EXPECT_EQ(prod(a, {axis}).to_vector<std::int64_t>(), line);
      }
    }
  const Array x = Array::from({2.f, nan, 3.f, -inf});
  expect_same(cummax(x), {2, nan, nan, nan}, "cummax");
  expect_same(cummin(x), {2, nan, nan, nan}, "cummin");
  expect_same(cummin(Array::from({2.f, 3.f, -inf, 0.f})), {2, 2, -inf, -inf}, "cummin");
  EXPECT_TRUE(std::signbit(cummin(Array::from({0.f, -0.f})).to_vector<float>()[1]));
  expect_same(cumprod(Array::from({2.f, 0.f, inf})), {2, 0, nan}, "cumprod");
  expect_same(nanprod(Array::from({2.f, nan, 4.f, nan}, Shape{2, 2}), {0}), {8, 1}, "nanprod");
  EXPECT_EQ(prod(Array::zeros({0, 2}), {0}).to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(prod(numbered({2, 3}) + 1, {}, true).shape(), (Shape{1, 1}));
  EXPECT_EQ(prod(numbered({2, 3}) + 1).item<std::int64_t>(), 720);
  EXPECT_EQ(cumprod(Array::full({20}, 2, DType::u8)).dtype(), DType::u64);
  const Array half = cumprod(Array::full({4}, 2, DType::f16));
  EXPECT_EQ(half.dtype(), DType::f16);
  EXPECT_EQ(half.astype(DType::f32).to_vector<float>(), (Floats{2, 4, 8, 16}));
  EXPECT_EQ(cummax(Array::from({true, false})).dtype(), DType::boolean);
  EXPECT_EQ(cumprod(Array::full({}, 3)).shape(), Shape{1});
  expect_throw<Error>([&] { cummax(x, 1); }, {"cummax", "axis"});
}

}  // namespace
}  // namespace tessera
