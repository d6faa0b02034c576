// SPDX-License-Identifier: Apache-2.0
// Chooses the next token from a model's logits: greedily, or randomly among the likeliest tokens, with biases and
// penalties for previous tokens. The same seed and logits give the same tokens on every system.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

/// Options of Sampler.
struct SamplerOptions {
  double temperature = 0.8;  ///< logits are divided by it; 0 or less: always choose the likeliest token
  std::int64_t top_k = 40;   ///< only the k likeliest tokens; 0: all
  double top_p = 0.95;       ///< only the likeliest tokens whose probabilities sum to this, in (0, 1]; 1: all
  std::uint64_t seed = 0;    ///< The random seed.
  /// Only tokens with at least this fraction of the likeliest token's probability, in [0, 1] (Nguyen et al. 2024); 0:
  /// all.
  double min_p = 0;
  /// Logits of previous tokens are divided by it if positive, else multiplied (Keskar et al. 2019, with the usual
  /// correction for negative logits); greater than 0; 1: no penalty.
  double repeat_penalty = 1;
  double frequency_penalty = 0;    ///< subtracted from a token's logit for each previous occurrence (OpenAI's API)
  double presence_penalty = 0;     ///< subtracted once if the token occurred before
  std::int64_t penalty_last = 64;  ///< number of previous tokens (of prompt and answer) that are penalised; -1: all
  /// Added to the logits of these tokens; -infinity excludes a token.
  std::vector<std::pair<std::int32_t, double>> logit_bias = {};
};

/// Draws tokens. Applies biases and penalties (in llama.cpp's order and arithmetic), then, in the order of
/// transformers, temperature, top-k, top-p and min-p; each filters what the previous one left. Each draw uses one
/// Philox4x32-10 number (philox.h), the n-th draw position n of the seed's stream. (llama.cpp applies the temperature
/// last, so its top-p and min-p use other probabilities.) Ties are broken in favour of lower ids. Not thread-safe.
class Sampler {
 public:
  /// Throws ArgumentError if an option is out of range or NaN.
  explicit Sampler(SamplerOptions options = {});

  /// Returns the index of the chosen logit. Logits of -infinity are never chosen. `before` are the tokens of prompt and
  /// answer so far, for penalties. Throws ArgumentError if there are no logits, one is NaN or +infinity (with its
  /// index), all are -infinity, or a bias is for a token that does not exist; the random stream does not advance then.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> before = {});

  /// Returns the logits with biases and penalties, from which `sample` chooses; valid until the next call. Only checks
  /// the tokens of biases.
  std::span<const float> adjusted(std::span<const float> logits, std::span<const std::int32_t> before);

  /// The sampler's options.
  const SamplerOptions& options() const { return options_; }
  /// Number of draws; greedy choices do not count.
  std::uint64_t draws() const { return draws_; }

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
    double weight;  // unnormalised probability
  };
  std::int32_t choose(std::span<const float> logits);
  std::int32_t draw(double largest);

  SamplerOptions options_;
  std::uint64_t draws_ = 0;
  std::vector<Candidate> candidates_;  // kept between calls to avoid allocations
  std::vector<float> adjusted_;
  std::vector<std::int32_t> counted_;
};

/// A token and its probability.
struct TokenProbability {
  std::int32_t id;         ///< The token.
  double log_probability;  ///< natural logarithm
};
/// Returns the model's log probabilities, without temperature, biases and penalties: of the chosen token, then of the
/// `most` likeliest, in descending order, ties in favour of lower ids. Throws ArgumentError as Sampler::sample, or if
/// `chosen` is not an index.
std::vector<TokenProbability> log_probabilities(std::span<const float> logits, std::int32_t chosen, std::int64_t most);

/// Computes e^x with additions and multiplications only, so that the result is equal on every system with IEEE doubles,
/// unlike std::exp. `x` must be at most 0. The error is within 2 ulp for x from -700 to 0; the result is 0 below -700.
double portable_exp(double x);

}  // namespace tessera
