// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/philox.h"

namespace tessera {
namespace {

constexpr double most_change = 1e6;  // limit for biases and penalties; larger values would hide the model's logits

void check(bool good, std::string_view name, const std::string& value, std::string wrong) {
  if (!good) fail<ArgumentError>({.operation = "sampler", .with = {{name, value}}, .wrong = std::move(wrong)});
}

void require_vocabulary(std::size_t logits) {
  check(logits != 0 && logits <= std::numeric_limits<std::int32_t>::max(), "logits", std::to_string(logits),
        "there must be at least one logit, and their indices must fit 32 bits");
}

void require_logit(std::size_t index, float logit) {
  if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity())
    fail<ArgumentError>({.operation = "sample",
                         .with = {{"index", std::to_string(index)}, {"logit", std::to_string(logit)}},
                         .wrong = "a logit is NaN or infinite",
                         .remedy = "The model's weights or a kernel may be faulty"});
}

void require_logits(std::span<const float> logits) {
  require_vocabulary(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) require_logit(i, logits[i]);
}

void require_choice(float largest, std::size_t vocabulary) {
  check(largest != -std::numeric_limits<float>::infinity(), "logits", std::to_string(vocabulary),
        "every logit is -infinity");
}

}  // namespace

double portable_exp(double x) {
  if (!(x >= -700.0)) return 0.0;
  // x = k ln 2 + r with |r| <= ln 2 / 2. ln 2 is split into two parts, and the mantissa of the first part ends in
  // zeros, so that its product with k is exact.
  const double k = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;
  // Taylor series up to r^13. The relative error is below 2^-57.
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
  check(options.min_p >= 0 && options.min_p <= 1, "min_p", std::to_string(options.min_p),
        "min_p must be between 0 (all) and 1");
  check(options.repeat_penalty > 0 && options.repeat_penalty <= most_change, "repeat_penalty",
        std::to_string(options.repeat_penalty), "the penalty must be above 0 and at most 1000000 (1: none)");
  for (const auto& [name, penalty] :
       {std::pair("frequency_penalty", options.frequency_penalty), {"presence_penalty", options.presence_penalty}})
    check(std::fabs(penalty) <= most_change, name, std::to_string(penalty),
          "the penalty must be between -1000000 and 1000000 (0: none)");
  check(options.penalty_last >= -1, "penalty_last", std::to_string(options.penalty_last),
        "penalty_last must be 0 or more, or -1 (all)");
  for (const auto& [id, bias] : options.logit_bias)
    check(id >= 0 && (std::fabs(bias) <= most_change || bias == -std::numeric_limits<double>::infinity()), "logit_bias",
          std::to_string(id) + ": " + std::to_string(bias),
          "the token must not be negative, and the bias must be -infinity or between -1000000 and 1000000");
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> before) {
  require_logits(logits);
  return choose(adjusted(logits, before));
}

std::int64_t Sampler::needed_logits() const {
  const SamplerOptions& o = options_;
  constexpr std::int64_t many = 1 << 20;
  if ((o.temperature > 0 && o.top_k == 0) || o.top_k > many || o.penalty_last > many) return 0;
  // Biases and penalties that do not increase logits push at most as many tokens out of the largest logits as there are
  // adjusted tokens.
  const auto increases = [](const auto& bias) { return bias.second > 0; };
  if (std::ranges::any_of(o.logit_bias, increases)) return 0;
  auto adjusted = static_cast<std::int64_t>(o.logit_bias.size());
  if (has_penalties()) {
    if (o.repeat_penalty < 1 || o.frequency_penalty < 0 || o.presence_penalty < 0 || o.penalty_last < 0) return 0;
    adjusted += o.penalty_last;
  }
  // One more than k shows that there are more than k, which determines the order of the sums in draw().
  return adjusted + (o.temperature <= 0 ? 1 : o.top_k + 1);
}

std::int32_t Sampler::sample(std::span<const TokenLogit> largest, std::size_t vocabulary,
                             std::span<const std::int32_t> before) {
  require_vocabulary(vocabulary);
  candidates_.clear();
  for (const TokenLogit& t : largest) {
    require_logit(static_cast<std::size_t>(t.id), t.logit);
    candidates_.push_back({t.logit, t.id, 0.0});
  }
  const auto find = [&](std::int32_t id) -> float* {
    const auto at = std::ranges::lower_bound(candidates_, id, {}, &Candidate::id);
    return at != candidates_.end() && at->id == id ? &at->logit : nullptr;
  };
  adjust(find, vocabulary, before);
  const Candidate best = *std::ranges::max_element(candidates_, {}, &Candidate::logit);  // the first of equal logits
  require_choice(best.logit, vocabulary);
  if (options_.temperature <= 0) return best.id;
  std::erase_if(candidates_, [](const Candidate& c) { return c.logit == -std::numeric_limits<float>::infinity(); });
  return draw(best.logit);
}

bool Sampler::has_penalties() const {
  const SamplerOptions& o = options_;
  return (o.repeat_penalty != 1 || o.frequency_penalty != 0 || o.presence_penalty != 0) && o.penalty_last != 0;
}

/// `find` returns a pointer to the logit of a token, or null if this logit is not needed.
template <class Find>
void Sampler::adjust(const Find& find, std::size_t vocabulary, std::span<const std::int32_t> before) {
  const SamplerOptions& o = options_;
  for (const auto& [id, bias] : o.logit_bias) {
    check(static_cast<std::size_t>(id) < vocabulary, "logit_bias", std::to_string(id),
          "the model has " + std::to_string(vocabulary) + " tokens");
    if (float* const logit = find(id)) *logit += static_cast<float>(bias);
  }
  if (!has_penalties()) return;
  if (o.penalty_last > 0 && before.size() > static_cast<std::size_t>(o.penalty_last))
    before = before.last(static_cast<std::size_t>(o.penalty_last));
  counted_.assign(before.begin(), before.end());
  std::sort(counted_.begin(), counted_.end());
  for (auto at = counted_.begin(); at != counted_.end();) {
    const auto next = std::upper_bound(at, counted_.end(), *at);
    const bool exists = *at >= 0 && static_cast<std::size_t>(*at) < vocabulary;
    if (float* const found = exists ? find(*at) : nullptr) {
      float& logit = *found;
      const auto repeat = static_cast<float>(o.repeat_penalty);
      logit = logit <= 0 ? logit * repeat : logit / repeat;
      logit -= static_cast<float>(next - at) * static_cast<float>(o.frequency_penalty) +
               static_cast<float>(o.presence_penalty);
      logit = std::min(logit, std::numeric_limits<float>::max());
    }
    at = next;
  }
}

std::span<const float> Sampler::adjusted(std::span<const float> logits, std::span<const std::int32_t> before) {
  if (options_.logit_bias.empty() && !(has_penalties() && !before.empty())) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  adjust([&](std::int32_t id) { return &adjusted_[static_cast<std::size_t>(id)]; }, adjusted_.size(), before);
  return adjusted_;
}

std::int32_t Sampler::choose(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  require_choice(logits[best], logits.size());
  if (options_.temperature <= 0) return static_cast<std::int32_t>(best);

  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] != -std::numeric_limits<float>::infinity())
      candidates_.push_back({logits[i], static_cast<std::int32_t>(i), 0.0});
  return draw(logits[best]);
}

std::int32_t Sampler::draw(double largest) {
  // A total order, so that the result does not depend on the sort implementation.
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto k = static_cast<std::uint64_t>(options_.top_k);
  const bool cut_k = k != 0 && k < candidates_.size();
  if (cut_k) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k) - 1, candidates_.end(),
                     likelier);
    candidates_.resize(k);
    // The rounding of the sums below depends on the order, and nth_element leaves the order unspecified.
    std::sort(candidates_.begin(), candidates_.end(), likelier);
  }
  double total = 0;
  for (Candidate& c : candidates_) {
    c.weight = portable_exp((static_cast<double>(c.logit) - largest) / options_.temperature);
    total += c.weight;
  }

  if (options_.top_p < 1) {
    // A heap is faster than sorting, because usually only a few candidates are needed to reach the mass.
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

  // The weight of the likeliest token is 1, because its logit is `largest`.
  if (options_.min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
    total = 0;
    for (const Candidate& c : candidates_) total += c.weight;
  }

  const PhiloxCounter bits = philox4x32(options_.seed, draws_++);
  double left = philox_uniform(bits[0], bits[1]) * total;
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  // Rounding may leave a small remainder. Return the last token with a nonzero probability.
  for (std::size_t i = candidates_.size(); i-- > 0;)
    if (candidates_[i].weight > 0) return candidates_[i].id;
  return candidates_.front().id;
}

std::vector<TokenProbability> log_probabilities(std::span<const float> logits, std::int32_t chosen, std::int64_t most) {
  require_logits(logits);
  check(chosen >= 0 && static_cast<std::size_t>(chosen) < logits.size(), "chosen", std::to_string(chosen),
        "there are " + std::to_string(logits.size()) + " logits");
  check(most >= 0, "most", std::to_string(most), "most must be 0 or more");
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto at = [&](std::int32_t id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
  const auto count = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(static_cast<std::uint64_t>(most), ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(),
                    [&](std::int32_t a, std::int32_t b) { return at(a) != at(b) ? at(a) > at(b) : a < b; });
  const double largest = *std::max_element(logits.begin(), logits.end());
  check(largest != -std::numeric_limits<double>::infinity(), "logits", std::to_string(logits.size()),
        "every logit is -infinity");
  double total = 0;
  for (const float logit : logits) total += portable_exp(static_cast<double>(logit) - largest);
  const double all = largest + std::log(total);
  std::vector<TokenProbability> out{{chosen, at(chosen) - all}};
  for (std::ptrdiff_t i = 0; i < count; ++i) out.push_back({ids[static_cast<std::size_t>(i)], 0});
  for (TokenProbability& p : out) p.log_probability = at(p.id) - all;
  return out;
}

}  // namespace tessera
