// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/philox.h"

namespace tessera {
namespace {

void check(bool good, std::string_view name, const std::string& value, std::string wrong) {
  if (!good) fail<ArgumentError>({.asked = "sampler", .with = {{name, value}}, .wrong = std::move(wrong)});
}

}  // namespace

double portable_exp(double x) {
  if (!(x >= -700.0)) return 0.0;
  // x = k ln 2 + r with |r| <= ln 2 / 2. ln 2 is in two parts, the first ends in zeros: k times it is exact.
  const double k = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;
  // Taylor's series to r^13: the rest is below 2^-57 of the result.
  constexpr double inverse_factorial[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
      1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
  double sum = 0.0;
  for (const double coefficient : inverse_factorial) sum = sum * r + coefficient;
  return std::ldexp(sum, static_cast<int>(k));
}

Sampler::Sampler(SamplerOptions options) : options_(options) {
  check(std::isfinite(options.temperature), "temperature", std::to_string(options.temperature),
        "the temperature must be a finite number");
  check(options.top_k >= 0, "top_k", std::to_string(options.top_k), "top_k must be 0 (all) or more");
  check(options.top_p > 0 && options.top_p <= 1, "top_p", std::to_string(options.top_p),
        "top_p must be above 0 and at most 1 (all)");
}

std::int32_t Sampler::sample(std::span<const float> logits) {
  check(!logits.empty() && logits.size() <= std::numeric_limits<std::int32_t>::max(), "logits",
        std::to_string(logits.size()), "there must be at least one logit, and their indices must fit 32 bits");
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity())
      fail<ArgumentError>({.asked = "sample",
                           .with = {{"index", std::to_string(i)}, {"logit", std::to_string(logits[i])}},
                           .wrong = "a logit is no number",
                           .todo = "The model's weights or a kernel are wrong"});
    if (logits[i] > logits[best]) best = i;
  }
  check(logits[best] != -std::numeric_limits<float>::infinity(), "logits", std::to_string(logits.size()),
        "every logit is -infinity");
  if (options_.temperature <= 0) return static_cast<std::int32_t>(best);

  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] != -std::numeric_limits<float>::infinity())
      candidates_.push_back({logits[i], static_cast<std::int32_t>(i), 0.0});
  return draw(logits[best]);
}

std::int32_t Sampler::draw(double largest) {
  // A total order, so that no library's sort can choose differently.
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto k = static_cast<std::uint64_t>(options_.top_k);
  const bool cut_k = k != 0 && k < candidates_.size();
  if (cut_k) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k) - 1, candidates_.end(),
                     likelier);
    candidates_.resize(k);
    // The sums below depend on the order, and nth_element's is the library's.
    std::sort(candidates_.begin(), candidates_.end(), likelier);
  }
  double total = 0;
  for (Candidate& c : candidates_) {
    c.weight = portable_exp((static_cast<double>(c.logit) - largest) / options_.temperature);
    total += c.weight;
  }

  if (options_.top_p < 1) {
    // Takes candidates off a heap until they have the mass: mostly few of many.
    const auto less_likely = [&](const Candidate& a, const Candidate& b) { return likelier(b, a); };
    std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
    auto heap_end = candidates_.end();
    double mass = 0;
    while (heap_end != candidates_.begin() && (heap_end == candidates_.end() || mass < options_.top_p * total)) {
      std::pop_heap(candidates_.begin(), heap_end, less_likely);
      mass += (--heap_end)->weight;
    }
    candidates_.erase(candidates_.begin(), heap_end);
    std::reverse(candidates_.begin(), candidates_.end());
    total = 0;
    for (const Candidate& c : candidates_) total += c.weight;
  }

  const PhiloxCounter bits = philox4x32(options_.seed, draws_++);
  double left = philox_uniform(bits[0], bits[1]) * total;
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  // Rounding may leave a rest after the last: the last that can be drawn at all.
  for (std::size_t i = candidates_.size(); i-- > 0;)
    if (candidates_[i].weight > 0) return candidates_[i].id;
  return candidates_.front().id;
}

}  // namespace tessera
