// SPDX-License-Identifier: Apache-2.0
// Chooses the next token from a model's logits, either greedily or randomly among the likeliest tokens. Supports biases
// and penalties for previous tokens. The same seed and logits result in the same tokens on every system.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

/// Options of Sampler.
struct SamplerOptions {
  double temperature = 0.8;  ///< divisor of the logits; 0 or less: always choose the likeliest token
  std::int64_t top_k = 40;   ///< keep the k likeliest tokens; 0: keep all
  /// Keep the smallest set of likeliest tokens whose probabilities sum to at least this value, in (0, 1]. 1: keep all.
  double top_p = 0.95;
  std::uint64_t seed = 0;  ///< The random seed.
  /// Keep tokens whose probability is at least this fraction of the likeliest token's probability, in [0, 1] (Nguyen et
  /// al. 2024). 0: keep all.
  double min_p = 0;
  /// Positive logits of previous tokens are divided by this value, negative logits are multiplied by it (Keskar et al.
  /// 2019, with the usual correction for negative logits). Must be greater than 0. 1: no penalty.
  double repeat_penalty = 1;
  double frequency_penalty = 0;    ///< subtracted from a token's logit for each previous occurrence (OpenAI's API)
  double presence_penalty = 0;     ///< subtracted once from the logit of a token that occurred before
  std::int64_t penalty_last = 64;  ///< number of most recent tokens, of prompt and answer, that are penalised; -1: all
  /// Pairs of a token and a bias, which is added to the token's logit. -infinity excludes a token.
  std::vector<std::pair<std::int32_t, double>> logit_bias = {};
};

/// A token and its logit.
struct TokenLogit {
  float logit;      ///< The logit.
  std::int32_t id;  ///< The token.
};

/// Draws tokens. First applies biases and penalties in the same way as llama.cpp, then temperature, top-k, top-p and
/// min-p in the same order as transformers. (llama.cpp applies the temperature last, so that its top-p and min-p use
/// different probabilities.) Ties are broken in favour of lower ids.
///
/// Draw n uses one Philox4x32-10 number (philox.h), at position n of the seed's stream. Not thread-safe.
class Sampler {
 public:
  /// Throws ArgumentError if an option is out of range or NaN.
  explicit Sampler(SamplerOptions options = {});

  /// Returns the index of the chosen logit. Logits of -infinity are never chosen. `before` contains the tokens of
  /// prompt and answer so far, which the penalties apply to. Throws ArgumentError if there are no logits, if a logit is
  /// NaN or +infinity, if all logits are -infinity, or if a bias is for a token that does not exist. The random stream
  /// does not advance if an error is thrown.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> before = {});

  /// Returns a number n: the n largest logits determine the next token, so that the others need not be downloaded. Of
  /// equal logits, those with smaller ids come first. 1 means that the likeliest token is chosen. 0 means that all
  /// logits are needed.
  std::int64_t needed_logits() const;

  /// Like the function above, but takes only the needed_logits() largest of `vocabulary` logits, or more, in ascending
  /// order of ids. NaN and +infinity are larger than all other logits. Returns the same token.
  std::int32_t sample(std::span<const TokenLogit> largest, std::size_t vocabulary,
                      std::span<const std::int32_t> before = {});

  /// Returns the logits after biases and penalties are applied. The result is valid until the next call. Throws
  /// ArgumentError if a bias is for a token that does not exist.
  std::span<const float> adjusted(std::span<const float> logits, std::span<const std::int32_t> before);

  /// The sampler's options.
  const SamplerOptions& options() const { return options_; }
  /// Number of random draws so far, not counting greedy choices.
  std::uint64_t draws() const { return draws_; }

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
    double weight;  // unnormalised probability
  };
  bool has_penalties() const;
  template <class Find>
  void adjust(const Find& find, std::size_t vocabulary, std::span<const std::int32_t> before);
  std::int32_t choose(std::span<const float> logits);
  std::int32_t draw(double largest);

  SamplerOptions options_;
  std::uint64_t draws_ = 0;
  std::vector<Candidate> candidates_;  // a member, so that the memory is reused between calls
  std::vector<float> adjusted_;
  std::vector<std::int32_t> counted_;
};

/// A token and its probability.
struct TokenProbability {
  std::int32_t id;         ///< The token.
  double log_probability;  ///< natural logarithm
};
/// Returns the log probabilities of the chosen token and of the `most` likeliest tokens. The chosen token comes first,
/// and the others are sorted in descending order. Ties are broken in favour of lower ids. Temperature, biases and
/// penalties are not applied. Throws ArgumentError if Sampler::sample would reject the logits, or if `chosen` is not a
/// valid index.
std::vector<TokenProbability> log_probabilities(std::span<const float> logits, std::int32_t chosen, std::int64_t most);

/// Computes e^x. Uses only additions and multiplications, so that the result is the same on every system with IEEE
/// doubles; std::exp does not guarantee this. `x` must be at most 0. The error is at most 2 ulp for x in [-700, 0].
/// Returns 0 for x below -700.
double portable_exp(double x);

}  // namespace tessera
