// SPDX-License-Identifier: Apache-2.0
// Random distributions on every device: moments, Kolmogorov-Smirnov and chi-squared statistics, and numbers that do not
// depend on the device or on how an array is split. The seeds of the draws are derived from the seed of the test run;
// the bounds are passed with a probability of more than 1 - 1e-6.
#include "tessera/ops/distributions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Longs = std::vector<std::int64_t>;
constexpr std::int64_t count = 20000;
constexpr double tail = 5;  // standard deviations, two-sided probability 6e-7

std::vector<double> numbers_of(const Array& a) {
  const std::vector<float> values = a.astype(DType::f32).to_vector<float>();
  return {values.begin(), values.end()};
}

/// Compares mean and variance with the distribution's. `kurtosis` is its fourth central moment divided by variance^2.
void expect_moments(const std::vector<double>& x, double mean, double variance, double kurtosis) {
  const auto n = static_cast<double>(x.size());
  const double average = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double squares = 0;
  for (const double v : x) squares += (v - average) * (v - average);
  EXPECT_NEAR(average, mean, tail * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n, variance, tail * variance * std::sqrt((kurtosis - 1) / n));
}

/// Compares the empirical distribution with a continuous one (Kolmogorov-Smirnov). The statistic times sqrt(n) exceeds
/// 2.7 with a probability of 2 exp(-2 2.7^2) = 1e-6.
void expect_distribution(std::vector<double> x, const std::function<double(double)>& cumulative) {
  std::ranges::sort(x);
  const auto n = static_cast<double>(x.size());
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double p = cumulative(x[i]);
    largest = std::max({largest, p - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - p});
  }
  EXPECT_LT(largest * std::sqrt(n), 2.7);
}

/// Compares the frequencies of integers with their probabilities. Integers with few expected occurrences are combined.
/// The chi-squared statistic of k classes has the mean k - 1 and the variance 2 (k - 1).
void expect_frequencies(const Longs& x, const std::function<double(std::int64_t)>& probability) {
  std::map<std::int64_t, double> seen;
  for (const std::int64_t v : x) ++seen[v];
  const auto n = static_cast<double>(x.size());
  double statistic = 0, classes = 0, rest = n, expected_rest = n;
  for (std::int64_t v = seen.begin()->first; v <= seen.rbegin()->first; ++v) {
    const double expected = n * probability(v), found = seen.contains(v) ? seen[v] : 0;
    if (expected < 20) continue;
    statistic += (found - expected) * (found - expected) / expected, ++classes;
    rest -= found, expected_rest -= expected;
  }
  if (expected_rest > 20) statistic += (rest - expected_rest) * (rest - expected_rest) / expected_rest, ++classes;
  ASSERT_GE(classes, 2);
  EXPECT_LT(statistic, classes - 1 + 6 * std::sqrt(2 * (classes - 1)) + 20) << classes << " classes";
}

TEST_P(OnEveryDevice, IntegersHaveEqualFrequencies) {
  const std::uint64_t seed = random();
  SCOPED_TRACE("seed " + std::to_string(seed));
  expect_frequencies(random_integers({count}, seed, -3, 9).to_vector<std::int64_t>(),
                     [](std::int64_t) { return 1.0 / 12; });
  const Array bytes = random_integers({4, 5}, seed, 0, 256, DType::u8);
  EXPECT_EQ(bytes.dtype(), DType::u8);
  EXPECT_EQ(bytes.shape(), (Shape{4, 5}));
  const std::int64_t low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
  const Longs wide = random_integers({1000}, seed, low, high).to_vector<std::int64_t>();
  EXPECT_NEAR(static_cast<double>(std::ranges::count_if(wide, [](std::int64_t v) { return v < 0; })), 500, 80);
  EXPECT_EQ(random_integers({3}, seed, 5, 6).to_vector<std::int64_t>(), (Longs{5, 5, 5}));
  EXPECT_EQ(random_integers({0, 3}, seed, 0, 2).shape(), (Shape{0, 3}));
}

TEST_P(OnEveryDevice, PermutationsAndChoicesAreFair) {
  const std::uint64_t seed = random();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Longs order = random_permutation(1000, seed).to_vector<std::int64_t>(), sorted = order;
  std::ranges::sort(sorted);
  for (std::int64_t i = 0; i < 1000; ++i) ASSERT_EQ(sorted[static_cast<std::size_t>(i)], i);
  EXPECT_NE(order, sorted);
  // The six permutations of three elements.
  Longs first;
  for (std::uint64_t s = 0; s < 600; ++s) {
    const Longs p = random_permutation(3, seed + s).to_vector<std::int64_t>();
    first.push_back(p[0] * 3 + p[1]);
  }
  expect_frequencies(first, [](std::int64_t v) { return v / 3 != v % 3 ? 1.0 / 6 : 0; });

  const std::vector<double> weights = {1, 0, 3, 6};
  const Longs drawn = random_choice(4, {count}, seed, true, weights).to_vector<std::int64_t>();
  EXPECT_EQ(std::ranges::count(drawn, 1), 0);
  expect_frequencies(drawn, [&](std::int64_t v) { return weights[static_cast<std::size_t>(v)] / 10; });
  Longs distinct = random_choice(50, {50}, seed, false).to_vector<std::int64_t>();
  std::ranges::sort(distinct);
  EXPECT_EQ(std::ranges::unique(distinct).begin(), distinct.end());
  Longs one;
  for (std::uint64_t s = 0; s < 600; ++s) {
    const Longs two = random_choice(4, {2}, seed + s, false, weights).to_vector<std::int64_t>();
    EXPECT_NE(two[0], two[1]);
    EXPECT_NE(two[1], 1);
    one.push_back(two[0]);
  }
  expect_frequencies(one, [&](std::int64_t v) { return weights[static_cast<std::size_t>(v)] / 10; });
  const Longs all = random_choice(4, {3}, seed, false, weights).to_vector<std::int64_t>();
  EXPECT_EQ(std::accumulate(all.begin(), all.end(), 0), 5) << "0, 2 and 3 in some order";
}

TEST_P(OnEveryDevice, ContinuousDistributionsMatchTheirFormulas) {
  const std::uint64_t seed = random();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto exponential = numbers_of(random_exponential({count}, seed, 2));
  expect_moments(exponential, 2, 4, 9);
  expect_distribution(exponential, [](double x) { return 1 - std::exp(-x / 2); });
  // For integer alpha, the cumulative distribution is a sum of exponentials.
  const auto erlang = [](int alpha) {
    return [alpha](double x) {
      double term = 1, sum = 0;
      for (int k = 0; k < alpha; ++k) sum += term, term *= x / (k + 1);
      return 1 - std::exp(-x) * sum;
    };
  };
  expect_distribution(numbers_of(random_gamma({count}, seed, 1)), erlang(1));
  expect_distribution(numbers_of(random_gamma({count}, seed, 4, 1)), erlang(4));
  // The square of a normal number, halved, has the gamma distribution for 1/2.
  expect_distribution(numbers_of(random_gamma({count}, seed, 0.5)), [](double x) { return std::erf(std::sqrt(x)); });
  for (const double alpha : {0.1, 0.7, 2.5, 1000.0})
    expect_moments(numbers_of(random_gamma({count}, seed, alpha, 3)), 3 * alpha, 9 * alpha, 3 + 6 / alpha);
  expect_distribution(numbers_of(random_beta({count}, seed, 1, 1)), [](double x) { return x; });
  expect_distribution(numbers_of(random_beta({count}, seed, 3, 1)), [](double x) { return x * x * x; });
  expect_distribution(numbers_of(random_beta({count}, seed, 0.5, 0.5)),
                      [](double x) { return 2 / 3.14159265358979 * std::asin(std::sqrt(x)); });
  for (const double x : numbers_of(random_beta({1000}, seed, 0.01, 0.01))) EXPECT_TRUE(x >= 0 && x <= 1) << x;
}

TEST_P(OnEveryDevice, DiscreteDistributionsMatchTheirFormulas) {
  const std::uint64_t seed = random();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const double mean : {0.3, 4.0, 90.5}) {
    const auto drawn = random_poisson({count}, seed, mean).to_vector<std::int64_t>();
    expect_frequencies(drawn, [mean](std::int64_t k) {
      const auto v = static_cast<double>(k);
      return k < 0 ? 0 : std::exp(v * std::log(mean) - mean - std::lgamma(v + 1));
    });
  }
  expect_moments(numbers_of(random_poisson({count}, seed, 1e6) - 1000000), 0, 1e6, 3);
  EXPECT_EQ(random_poisson({2}, seed, 0).to_vector<std::int64_t>(), (Longs{0, 0}));
  for (const auto& [trials, p] : {std::pair<std::int64_t, double>{1, 0.3}, {10, 0.5}, {500, 0.99}}) {
    const auto drawn = random_binomial({count}, seed, trials, p).to_vector<std::int64_t>();
    EXPECT_LE(*std::ranges::max_element(drawn), trials);
    expect_frequencies(drawn, [trials = trials, p = p](std::int64_t k) {
      const auto n = static_cast<double>(trials), v = static_cast<double>(k);
      return std::exp(std::lgamma(n + 1) - std::lgamma(v + 1) - std::lgamma(n - v + 1) + v * std::log(p) +
                      (n - v) * std::log1p(-p));
    });
  }
  EXPECT_EQ(random_binomial({2}, seed, 7, 1).to_vector<std::int64_t>(), (Longs{7, 7}));
  EXPECT_EQ(random_binomial({2}, seed, 7, 0).to_vector<std::int64_t>(), (Longs{0, 0}));
}

TEST_P(OnEveryDevice, NormalVectorsHaveTheirCovariance) {
  const std::uint64_t seed = random();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Array mean = Array::from({1.f, -2.f}), covariance = Array::from({4.f, 1.f, 1.f, 2.f}, Shape{2, 2});
  const Array x = random_multivariate_normal(mean, covariance, {100, count / 100}, seed);
  ASSERT_EQ(x.shape(), (Shape{100, count / 100, 2}));
  expect_moments(numbers_of(x.select(-1, 0)), 1, 4, 3);
  expect_moments(numbers_of(x.select(-1, 1)), -2, 2, 3);
  // The sum of both has the variance 4 + 2 + 2 * 1.
  expect_moments(numbers_of(x.select(-1, 0) + x.select(-1, 1)), -1, 8, 3);
}

TEST_P(OnEveryDevice, NumbersDependOnNeitherDeviceNorParts) {
  const std::uint64_t seed = random();
  SCOPED_TRACE("seed " + std::to_string(seed));
  struct Draw {
    const char* name;
    std::function<Array(Shape, const RandomOptions&)> of;
    bool exact;  ///< integers
  };
  const std::vector<Draw> draws = {
      {"integers", [=](Shape s, const RandomOptions& o) { return random_integers(s, seed, 0, 1000, DType::i64, o); },
       true},
      {"choice",
       [=](Shape s, const RandomOptions& o) {
         return random_choice(3, s, seed, true, {1, 2, 3}, o);
       },
       true},
      {"poisson", [=](Shape s, const RandomOptions& o) { return random_poisson(s, seed, 30, o); }, true},
      {"binomial", [=](Shape s, const RandomOptions& o) { return random_binomial(s, seed, 30, 0.3, o); }, true},
      {"exponential", [=](Shape s, const RandomOptions& o) { return random_exponential(s, seed, 2, o); }, false},
      {"gamma", [=](Shape s, const RandomOptions& o) { return random_gamma(s, seed, 0.8, 2, o); }, false},
      {"beta", [=](Shape s, const RandomOptions& o) { return random_beta(s, seed, 0.8, 2, o); }, false},
      {"multivariate normal",
       [=](Shape s, const RandomOptions& o) {
         const Array one = Array::eye(3, {}, 0, DType::f32, o.device);
         return random_multivariate_normal(one.select(0, 0), one + 1, s, seed, o);
       },
       false},
  };
  for (const Draw& d : draws) {
    SCOPED_TRACE(d.name);
    const Array whole = d.of({7, 6, 5}, {});
    const std::vector<double> own = numbers_of(whole),
                              reference = numbers_of(d.of({7, 6, 5}, {.device = Device{Backend::interp, 0}}));
    for (std::size_t i = 0; i < own.size(); ++i)
      ASSERT_NEAR(own[i], reference[i], d.exact ? 0 : 1e-4 * (1 + std::abs(reference[i]))) << i;
    const Array part = d.of({2, 6, 3}, {.whole = Shape{7, 6, 5}, .starts = {4, 0, 1}});
    const Array cut = whole.slice(0, 4, 6).slice(2, 1, 4);
    EXPECT_EQ(numbers_of(part), numbers_of(cut));
  }
  EXPECT_EQ(random_permutation(100, seed).to_vector<std::int64_t>(),
            random_permutation(100, seed, Device{Backend::interp, 0}).to_vector<std::int64_t>());
}

TEST_P(OnEveryDevice, InvalidParametersAreRejected) {
  expect_throw<ArgumentError>([] { random_integers({2}, 1, 3, 3); }, {"random_integers", "low = 3"});
  expect_throw<ArgumentError>([] { random_integers({2}, 1, 0, 257, DType::u8); }, {"high = 257", "u8"});
  expect_throw<DtypeError>([] { random_integers({2}, 1, 0, 2, DType::f32); }, {"f32"});
  expect_throw<ArgumentError>([] { random_permutation(-1, 1); }, {"negative"});
  expect_throw<ArgumentError>([] { random_choice(3, {4}, 1, false); }, {"wanted = 4", "available = 3"});
  expect_throw<ArgumentError>([] { random_choice(2, {1}, 1, true, {0, 0}); }, {"all weights are zero"});
  expect_throw<ArgumentError>([] { random_choice(2, {1}, 1, true, {1, -1}); }, {"weight = -1"});
  expect_throw<ArgumentError>([] { random_choice(2, {1}, 1, true, {1}); }, {"weights = 1"});
  expect_throw<ArgumentError>([] { random_choice(2, {1}, 1, false, {}, {.whole = Shape{2}, .starts = {0}}); },
                              {"no parts"});
  expect_throw<ArgumentError>([] { random_gamma({1}, 1, 0); }, {"random_gamma", "alpha"});
  expect_throw<ArgumentError>([] { random_beta({1}, 1, 1, NAN); }, {"random_beta"});
  expect_throw<ArgumentError>([] { random_exponential({1}, 1, -1); }, {"scale = -1"});
  expect_throw<ArgumentError>([] { random_poisson({1}, 1, 1e11); }, {"mean"});
  expect_throw<ArgumentError>([] { random_binomial({1}, 1, 3, 1.5); }, {"probability = 1.5"});
  expect_throw<ArgumentError>([] { random_binomial({1}, 1, -3, 0.5); }, {"negative"});
  expect_throw<ShapeError>([] { random_gamma({3}, 1, 1, 1, {.whole = Shape{4}, .starts = {2}}); }, {"inside"});
  expect_throw<ShapeError>([] { random_poisson({3}, 1, 1, {.whole = Shape{4}, .starts = {2}}); }, {"inside"});
  expect_throw<ShapeError>([] { random_multivariate_normal(Array::ones({2}), Array::eye(3), {1}, 1); }, {"(3, 3)"});
  expect_throw<ArgumentError>([] { random_multivariate_normal(Array::ones({2}), -Array::eye(2), {1}, 1); },
                              {"positive definite"});
}

}  // namespace
}  // namespace tessera
