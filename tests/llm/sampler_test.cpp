// SPDX-License-Identifier: Apache-2.0
// Compares the sampler with hand-computed sets and probabilities, its penalties with llama.cpp, and Philox with the
// test vectors of Random123.
#include "tessera/llm/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/philox.h"
#include "tessera/testing/testing.h"

namespace tessera {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

void expect_refused(const std::function<void()>& body, const std::string& part) {
  try {
    body();
    ADD_FAILURE() << "nothing thrown, expected: " << part;
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Philox, MatchesRandom123TestVectors) {
  // kat_vectors of Random123, "philox4x32 10".
  const auto ones = 0xffffffffu;
  EXPECT_EQ(philox4x32(PhiloxCounter{0, 0, 0, 0}, PhiloxKey{0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(PhiloxCounter{ones, ones, ones, ones}, PhiloxKey{ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32(PhiloxCounter{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, PhiloxKey{0xa4093822, 0x299f31d0}),
      (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  static_assert(philox4x32(0, 0)[0] == 0x6627e8d5, "usable at compile time");
}

TEST(Philox, UniformIsBelowOneWithMeanOneHalf) {
  EXPECT_EQ(philox_uniform(0, 0), 0.0);
  EXPECT_EQ(philox_uniform(0x80000000u, 0), 0.5);
  EXPECT_EQ(philox_uniform(~0u, ~0u), 1.0 - 0x1p-53);
  double sum = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const PhiloxCounter bits = philox4x32(99, i);
    sum += philox_uniform(bits[0], bits[1]) + philox_uniform(bits[2], bits[3]);
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);
}

TEST(PortableExp, IsWithinTwoUlpOfStdExp) {
  EXPECT_EQ(portable_exp(0.0), 1.0);
  EXPECT_EQ(portable_exp(-701), 0.0);
  EXPECT_EQ(portable_exp(-std::numeric_limits<double>::infinity()), 0.0);
  for (double x = 0; x > -700; x -= 0.0137) {
    const double exact = std::exp(x);
    EXPECT_LE(std::fabs(portable_exp(x) - exact), 2 * (std::nextafter(exact, 2.0) - exact)) << x;
  }
}

TEST(Sampler, GreedyChoosesTheLargestLogit) {
  for (const double temperature : {0.0, -1.0}) {
    Sampler s({.temperature = temperature});
    EXPECT_EQ(s.sample(std::vector<float>{1, 5, 3}), 1);
    EXPECT_EQ(s.sample(std::vector<float>{2, 7, 7}), 1);  // the first of equal logits
    EXPECT_EQ(s.sample(std::vector<float>{-infinity, -3, -infinity}), 1);
    EXPECT_EQ(s.sample(std::vector<float>{4}), 0);
    EXPECT_EQ(s.draws(), 0u);
  }
}

// Returns the relative frequency of each token.
std::map<int, double> frequencies(SamplerOptions options, const std::vector<float>& logits, int draws = 20000) {
  Sampler s(options);
  std::map<int, double> out;
  for (int i = 0; i < draws; ++i) out[s.sample(logits)] += 1.0 / draws;
  EXPECT_EQ(s.draws(), static_cast<std::uint64_t>(draws));
  return out;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

TEST(Sampler, DrawsInProportionToProbabilities) {
  const std::vector<double> p = {0.1, 0.4, 0.05, 0.25, 0.2};
  const auto all = frequencies({.temperature = 1, .top_k = 0, .top_p = 1, .seed = 1}, logs(p));
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(all.at(i), p[static_cast<std::size_t>(i)], 0.015) << i;

  // With temperature 1/2, probabilities are squared and normalised.
  const auto cold = frequencies({.temperature = 0.5, .top_k = 0, .top_p = 1, .seed = 2}, logs(p));
  double squares = 0;
  for (const double q : p) squares += q * q;
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(cold.at(i), p[static_cast<std::size_t>(i)] * p[static_cast<std::size_t>(i)] / squares, 0.015) << i;

  const auto top3 = frequencies({.temperature = 1, .top_k = 3, .top_p = 1, .seed = 3}, logs(p));
  EXPECT_EQ(top3.size(), 3u);
  EXPECT_NEAR(top3.at(1), 0.4 / 0.85, 0.015);
  EXPECT_NEAR(top3.at(3), 0.25 / 0.85, 0.015);
  EXPECT_NEAR(top3.at(4), 0.2 / 0.85, 0.015);
}

std::set<int> drawn(SamplerOptions options, const std::vector<float>& logits) {
  std::set<int> out;
  for (const auto& [id, frequency] : frequencies(options, logits, 3000)) out.insert(id);
  return out;
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesTheProbability) {
  const auto logits = logs({0.1, 0.4, 0.05, 0.25, 0.2});
  const auto kept = [&](std::int64_t k, double p) { return drawn({.temperature = 1, .top_k = k, .top_p = p}, logits); };
  EXPECT_EQ(kept(0, 0.01), (std::set<int>{1}));
  EXPECT_EQ(kept(0, 0.39), (std::set<int>{1}));
  EXPECT_EQ(kept(0, 0.41), (std::set<int>{1, 3}));
  EXPECT_EQ(kept(0, 0.84), (std::set<int>{1, 3, 4}));
  EXPECT_EQ(kept(0, 0.94), (std::set<int>{0, 1, 3, 4}));
  EXPECT_EQ(kept(0, 1.0), (std::set<int>{0, 1, 2, 3, 4}));
  // top-p applies to the tokens that top-k keeps. They have a total probability of 0.65, and 0.4 / 0.65 is more than
  // 0.6.
  EXPECT_EQ(kept(2, 0.6), (std::set<int>{1}));
  EXPECT_EQ(kept(2, 0.7), (std::set<int>{1, 3}));
  EXPECT_EQ(kept(1, 1.0), (std::set<int>{1}));
  EXPECT_EQ(kept(100, 1.0), (std::set<int>{0, 1, 2, 3, 4}));
  // The temperature is applied first. With 1/2, the two likeliest tokens have 0.2225 / 0.275 of the probability.
  EXPECT_EQ(drawn({.temperature = 0.5, .top_k = 0, .top_p = 0.8}, logits), (std::set<int>{1, 3}));
}

TEST(Sampler, BreaksTiesInFavourOfLowerIds) {
  const std::vector<float> equal(10, 1.0f);
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 3, .top_p = 1}, equal), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 0, .top_p = 0.35}, equal), (std::set<int>{0, 1, 2, 3}));
}

TEST(Sampler, SameSeedProducesSameTokens) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> logits(1000);
  for (float& v : logits) v = normal(rng);
  const auto run = [&](std::uint64_t seed) {
    Sampler s({.temperature = 1, .top_k = 50, .top_p = 0.9, .seed = seed});
    std::vector<int> out;
    for (int i = 0; i < 50; ++i) out.push_back(s.sample(logits));
    return out;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
  EXPECT_NE(run(7), run(7 + (std::uint64_t{1} << 32)));  // all 64 bits of the seed are used
}

TEST(Sampler, ProducesSameTokensOnEverySystem) {
  // The expected tokens were computed on one system. A difference means that results depend on the system.
  std::vector<float> logits;
  for (int i = 0; i < 512; ++i) logits.push_back(static_cast<float>((i * 7919) % 1009) / 128.0f);
  const auto run = [&](SamplerOptions options) {
    Sampler s(options);
    std::vector<int> out;
    for (int i = 0; i < 8; ++i) out.push_back(s.sample(logits));
    return out;
  };
  EXPECT_EQ(run({.seed = 42}), (std::vector<int>{330, 106, 495, 152, 165, 165, 376, 442}));
  EXPECT_EQ(run({.temperature = 1.5, .top_k = 0, .top_p = 0.99, .seed = 42}),
            (std::vector<int>{476, 143, 411, 239, 106, 350, 152, 449}));
  EXPECT_EQ(run({.temperature = 3, .top_k = 0, .top_p = 1, .seed = 1}),
            (std::vector<int>{456, 343, 126, 385, 126, 80, 227, 246}));
}

TEST(Sampler, HandlesExtremeLogitsAndTemperatures) {
  Sampler s({.temperature = 1e-300, .top_k = 0, .top_p = 1});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(s.sample(std::vector<float>{-3e38f, 1, 3e38f, 0}), 2);
  Sampler hot({.temperature = 1e300, .top_k = 0, .top_p = 1});
  for (int i = 0; i < 100; ++i) EXPECT_NE(hot.sample(std::vector<float>{1, -infinity, 2}), 1);
}

// Returns the sum of (drawn - expected)^2 / expected, and checks that tokens with p = 0 are not drawn. `p` need not be
// normalised.
double chi_squared(const SamplerOptions& options, const std::vector<float>& logits, std::vector<double> p,
                   const std::vector<std::int32_t>& before = {}, int draws = 20000) {
  Sampler s(options);
  std::vector<double> seen(p.size());
  for (int i = 0; i < draws; ++i) seen.at(static_cast<std::size_t>(s.sample(logits, before))) += 1;
  double total = 0, sum = 0;
  for (const double q : p) total += q;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(seen[i], 0) << i;
      continue;
    }
    const double expected = p[i] / total * draws;
    sum += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  return sum;
}

// For up to 7 degrees of freedom, chi-squared exceeds this value with a probability of less than one in a million.
constexpr double never = 42;

TEST(Sampler, DrawsHaveTheExpectedDistribution) {
  const std::vector<double> p = {0.30, 0.25, 0.18, 0.12, 0.08, 0.04, 0.02, 0.01};
  const auto logits = logs(p);
  const auto power = [&](double t, std::vector<int> out = {}) {
    std::vector<double> q;
    for (const double x : p) q.push_back(std::pow(x, 1 / t));
    for (const int i : out) q[static_cast<std::size_t>(i)] = 0;
    return q;
  };
  const SamplerOptions all = {.temperature = 1, .top_k = 0, .top_p = 1, .seed = 5};
  const auto with = [&](const std::function<void(SamplerOptions&)>& change) {
    SamplerOptions o = all;
    change(o);
    return o;
  };
  EXPECT_LT(chi_squared(all, logits, p), never);
  EXPECT_LT(chi_squared(with([](auto& o) { o.temperature = 1.7; }), logits, power(1.7)), never);
  EXPECT_LT(chi_squared(with([](auto& o) { o.top_k = 5; }), logits, power(1, {5, 6, 7})), never);
  EXPECT_LT(chi_squared(with([](auto& o) { o.top_p = 0.8; }), logits, power(1, {4, 5, 6, 7})), never);
  // min_p 0.1 keeps tokens with at least a tenth of the highest probability, which is 0.30.
  EXPECT_LT(chi_squared(with([](auto& o) { o.min_p = 0.1; }), logits, power(1, {6, 7})), never);
  EXPECT_LT(chi_squared(with([](auto& o) { o.min_p = 1; }), logits, power(1, {1, 2, 3, 4, 5, 6, 7})), never);
  // min_p applies after the temperature. With temperature 2, the last token has 0.18 of the highest probability, so all
  // are kept. With 1/2, the fifth token has only 0.07.
  EXPECT_LT(chi_squared(with([](auto& o) { o.temperature = 2, o.min_p = 0.1; }), logits, power(2)), never);
  EXPECT_LT(chi_squared(with([](auto& o) { o.temperature = 0.5, o.min_p = 0.1; }), logits, power(0.5, {4, 5, 6, 7})),
            never);
  // A bias of ln 2 doubles the probability; -infinity excludes the token.
  auto biased = p;
  biased[3] *= 2, biased[0] = 0;
  EXPECT_LT(chi_squared(with([](auto& o) {
                          o.logit_bias = {{3, std::log(2)}, {0, -INFINITY}};
                        }),
                        logits, biased),
            never);
  // The chi-squared test detects a wrong distribution.
  EXPECT_GT(chi_squared(all, logits, power(1.1)), never);
}

// Written by tools/make_penalty_cases.py: random logits, histories and options.
TEST(Sampler, BiasesAndPenaltiesMatchLlamaCpp) {
  const nlohmann::json data = nlohmann::json::parse(std::ifstream("tests/data/penalty_cases.json"));
  ASSERT_GE(data["cases"].size(), 40u) << data["from"];
  int changed = 0;
  for (const auto& c : data["cases"]) {
    const auto& o = c["options"];
    SCOPED_TRACE(o.dump());
    SamplerOptions options{.temperature = 0,
                           .repeat_penalty = o["repeat_penalty"],
                           .frequency_penalty = o["frequency_penalty"],
                           .presence_penalty = o["presence_penalty"],
                           .penalty_last = o["penalty_last"]};
    for (const auto& bias : o["logit_bias"]) options.logit_bias.emplace_back(bias[0], bias[1]);
    const std::vector<float> logits = c["logits"];
    const std::vector<std::int32_t> before = c["before"];
    std::vector<float> expected = logits;
    for (const auto& one : c["changed"]) expected[one[0].get<std::size_t>()] = one[1], ++changed;
    Sampler sampler(options);
    const std::span<const float> after = sampler.adjusted(logits, before);
    ASSERT_EQ(after.size(), expected.size());
    // llama.cpp may use fused multiply-add, which causes a difference of at most half an ulp of 60.
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], expected[i], 4e-6) << "token " << i;
    EXPECT_EQ(sampler.sample(logits, before), std::ranges::max_element(expected) - expected.begin());
  }
  EXPECT_GT(changed, 300);
}

TEST(Sampler, PenaltiesApplyToPreviousTokens) {
  const std::vector<float> logits = {1.0f, -1.0f, 0.5f, 0.0f};
  const auto after = [](const std::vector<double>& changed) {
    std::vector<double> p;
    for (const double l : changed) p.push_back(std::exp(l));
    return p;
  };
  SamplerOptions o = {.temperature = 1, .top_k = 0, .top_p = 1, .seed = 11};
  const std::vector<std::int32_t> before = {3, 0, 0, 1, 0};
  o.repeat_penalty = 2;  // divides positive logits and multiplies the others
  EXPECT_LT(chi_squared(o, logits, after({0.5, -2, 0.5, 0}), before), never);
  o.frequency_penalty = 0.3, o.presence_penalty = 0.2;
  EXPECT_LT(chi_squared(o, logits, after({0.5 - 3 * 0.3 - 0.2, -2 - 0.3 - 0.2, 0.5, -0.3 - 0.2}), before), never);
  o.penalty_last = 2;
  EXPECT_LT(chi_squared(o, logits, after({0.5 - 0.3 - 0.2, -2 - 0.3 - 0.2, 0.5, 0}), before), never);
  o.penalty_last = -1, o.repeat_penalty = 1, o.frequency_penalty = 0;
  EXPECT_LT(chi_squared(o, logits, after({0.8, -1.2, 0.5, -0.2}), before), never);
  o.penalty_last = 0;
  EXPECT_LT(chi_squared(o, logits, after({1, -1, 0.5, 0}), before), never);
  // Biases are applied before penalties: a logit that a bias has made positive is divided.
  SamplerOptions first = {.temperature = 0, .repeat_penalty = 4, .logit_bias = {{1, 3.0}}};
  EXPECT_EQ(Sampler(first).sample(logits, std::vector<std::int32_t>{1}), 0);  // (-1 + 3) / 4 < 1
  EXPECT_EQ(Sampler(first).sample(logits), 1);
  // Greedy choices use the adjusted logits, too. Previous tokens outside of the vocabulary are ignored.
  EXPECT_EQ(Sampler({.temperature = 0, .presence_penalty = 9}).sample(logits, std::vector<std::int32_t>{0, 70}), 2);
}

// The `n` largest logits in ascending order of ids; NaN and infinity are the largest.
std::vector<TokenLogit> largest(const std::vector<float>& logits, std::int64_t n) {
  std::vector<TokenLogit> out;
  for (const float logit : logits) out.push_back({logit, static_cast<std::int32_t>(out.size())});
  std::ranges::stable_sort(out, std::ranges::greater{},
                           [](const TokenLogit& t) { return std::isnan(t.logit) ? infinity : t.logit; });
  out.resize(std::min(out.size(), static_cast<std::size_t>(n)));
  std::ranges::sort(out, {}, &TokenLogit::id);
  return out;
}

TEST(Sampler, NeededLogitsDetermineTheToken) {
  const std::uint64_t seed = testing::seed();
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  int parts = 0;
  for (int number = 0; number < 300; ++number) {
    SamplerOptions o{.temperature = number % 5 == 0 ? 0.0 : 0.7, .top_k = below(50), .seed = random()};
    o.top_p = number % 2 == 0 ? 1 : 0.8, o.min_p = number % 3 == 0 ? 0.1 : 0;
    if (number % 4 == 1) o.repeat_penalty = 1.5, o.penalty_last = below(30);
    if (number % 4 == 2) o.frequency_penalty = 0.4, o.presence_penalty = 0.3, o.penalty_last = below(30);
    if (number % 7 == 3) o.logit_bias = {{5, -infinity}, {9, -1.5}, {5, -1.0}};
    if (number % 20 == 19) o.repeat_penalty = 0.5;  // all logits are needed
    Sampler all(o), part(o);
    const std::int64_t needed = part.needed_logits();
    if (needed == 0) {
      EXPECT_TRUE(o.top_k == 0 || o.repeat_penalty < 1) << number;
      continue;
    }
    ++parts;
    std::vector<float> logits(number % 6 == 0 ? 40 : 400);
    std::vector<std::int32_t> before;
    for (int step = 0; step < 25; ++step) {
      // Many logits are equal, and some are -infinity.
      for (float& l : logits) {
        const std::int64_t v = below(number % 3 == 0 ? 8 : 4000);
        l = v == 0 || (number % 9 == 0 && below(10) != 0) ? -infinity : static_cast<float>(v) * 0.01f - 2;
      }
      logits[10] = 0.5f;
      const std::int32_t want = all.sample(logits, before);
      ASSERT_EQ(part.sample(largest(logits, needed), logits.size(), before), want)
          << "case " << number << ", step " << step << ", TESSERA_TEST_SEED=" << seed;
      before.push_back(step % 3 == 0 ? static_cast<std::int32_t>(below(400)) : want);
    }
    EXPECT_EQ(all.draws(), part.draws());
  }
  EXPECT_GT(parts, 200);
  EXPECT_EQ(Sampler({.temperature = 0}).needed_logits(), 1);
  EXPECT_EQ(Sampler({.temperature = 1, .top_k = 0}).needed_logits(), 0);
  EXPECT_EQ(Sampler({.temperature = 0, .logit_bias = {{1, 0.5}}}).needed_logits(), 0);
  EXPECT_EQ(Sampler({.temperature = 0, .presence_penalty = -1}).needed_logits(), 0);
  EXPECT_EQ(Sampler({.temperature = 0, .presence_penalty = 1, .penalty_last = -1}).needed_logits(), 0);
}

TEST(Sampler, ErrorsAreTheSameForTheLargestLogits) {
  const auto error = [](auto&& sample) {
    try {
      sample();
    } catch (const ArgumentError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const std::vector<float> bad[] = {
      {1, 2, infinity, 3, NAN}, {1, NAN, 2, infinity}, {-infinity, -infinity}, {}, {1, 2}};
  for (const double temperature : {0.0, 1.0})
    for (const std::vector<float>& logits : bad) {
      SamplerOptions o{.temperature = temperature, .top_k = 1};
      if (logits.size() == 2 && logits[0] == 1) o.logit_bias = {{2, -1.0}};
      Sampler s(o);
      const std::string want = error([&] { s.sample(logits); });
      EXPECT_NE(want, "no error");
      EXPECT_EQ(error([&] { s.sample(largest(logits, s.needed_logits()), logits.size()); }), want);
      EXPECT_EQ(s.draws(), 0u);
    }
}

TEST(Sampler, LogProbabilitiesIgnoreTemperatureAndPenalties) {
  const auto logits = logs({0.1, 0.4, 0.05, 0.25, 0.2});
  auto shifted = logits;
  for (float& l : shifted) l += 100;
  for (const auto& l : {logits, shifted}) {
    const auto all = log_probabilities(l, 2, 3);
    ASSERT_EQ(all.size(), 4u);
    const std::vector<std::pair<int, double>> expected = {{2, 0.05}, {1, 0.4}, {3, 0.25}, {4, 0.2}};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(all[i].id, expected[i].first);
      EXPECT_NEAR(all[i].log_probability, std::log(expected[i].second), 2e-5);
    }
  }
  EXPECT_EQ(log_probabilities(logits, 0, 0).size(), 1u);
  EXPECT_EQ(log_probabilities(logits, 0, 99).size(), 6u);
  const auto never_drawn = log_probabilities(std::vector<float>{0, -infinity}, 1, 2);
  EXPECT_EQ(never_drawn[0].log_probability, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(never_drawn[1].log_probability, 0);
  expect_refused([&] { log_probabilities(logits, 5, 0); }, "chosen = 5");
  expect_refused([&] { log_probabilities(logits, 0, -1); }, "most = -1");
  expect_refused([] { log_probabilities({}, 0, 0); }, "at least one logit");
}

TEST(Sampler, RejectsInvalidOptions) {
  expect_refused([] { Sampler({.min_p = -0.1}); }, "min_p");
  expect_refused([] { Sampler({.min_p = 1.1}); }, "min_p");
  expect_refused([] { Sampler({.min_p = NAN}); }, "min_p");
  expect_refused([] { Sampler({.repeat_penalty = 0}); }, "repeat_penalty");
  expect_refused([] { Sampler({.repeat_penalty = NAN}); }, "repeat_penalty");
  expect_refused([] { Sampler({.frequency_penalty = INFINITY}); }, "frequency_penalty");
  expect_refused([] { Sampler({.presence_penalty = NAN}); }, "presence_penalty");
  expect_refused([] { Sampler({.penalty_last = -2}); }, "penalty_last = -2");
  expect_refused([] { Sampler({.logit_bias = {{-1, 1.0}}}); }, "logit_bias");
  expect_refused([] { Sampler({.logit_bias = {{1, NAN}}}); }, "logit_bias");
  expect_refused([] { Sampler({.logit_bias = {{1, INFINITY}}}); }, "logit_bias");
  Sampler s({.logit_bias = {{4, 1.0}}});
  expect_refused([&] { s.sample(std::vector<float>{1, 2, 3, 4}); }, "the model has 4 tokens");
  EXPECT_EQ(s.draws(), 0u);
  Sampler none({.logit_bias = {{0, -INFINITY}}});
  expect_refused([&] { none.sample(std::vector<float>{1}); }, "every logit is -infinity");
  // Penalties do not cause an overflow of large logits.
  Sampler large({.temperature = 1, .repeat_penalty = 1e-6, .penalty_last = -1});
  EXPECT_EQ(large.sample(std::vector<float>{3e38f, 1}, std::vector<std::int32_t>{0, 1}), 0);
}

TEST(Sampler, RejectsInvalidLogits) {
  for (const double temperature : {0.0, 1.0}) {
    Sampler s({.temperature = temperature});
    expect_refused([&] { s.sample({}); }, "at least one logit");
    expect_refused([&] { s.sample(std::vector<float>{0, NAN, 1}); }, "index = 1");
    expect_refused([&] { s.sample(std::vector<float>{0, 1, infinity}); }, "index = 2");
    expect_refused([&] { s.sample(std::vector<float>{-infinity, -infinity}); }, "every logit is -infinity");
    EXPECT_EQ(s.draws(), 0u);
    EXPECT_EQ(s.sample(std::vector<float>{-infinity, 0}), 1);  // the sampler remains usable
  }
  expect_refused([] { Sampler({.temperature = std::nan("")}); }, "temperature");
  expect_refused([] { Sampler({.temperature = std::numeric_limits<double>::infinity()}); }, "temperature");
  expect_refused([] { Sampler({.top_k = -1}); }, "top_k = -1");
  expect_refused([] { Sampler({.top_p = 0}); }, "top_p");
  expect_refused([] { Sampler({.top_p = 1.01}); }, "top_p");
  expect_refused([] { Sampler({.top_p = std::nan("")}); }, "top_p");
}

}  // namespace
}  // namespace tessera
