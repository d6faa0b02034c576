// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from a model's logits: greedy, or drawn at a temperature from the likeliest tokens, with
// biases and penalties for what was written before. The same seed and logits give the same tokens on every system.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

/// Options of Sampler.
struct SamplerOptions {
  double temperature = 0.8;  ///< logits are divided by it; 0 or less: always the likeliest token
  std::int64_t top_k = 40;   ///< only the k likeliest tokens; 0: all
  double top_p = 0.95;       ///< only the likeliest tokens that together have this probability, in (0, 1]; 1: all
  std::uint64_t seed = 0;    ///< The seed of the draws.
  /// Only tokens at least this part as likely as the likeliest, in [0, 1] (Nguyen et al. 2024); 0: all.
  double min_p = 0;
  /// Logits of tokens that were there before are divided by it if positive, else multiplied (Keskar et al. 2019, with
  /// the usual correction for negative ones); above 0; 1: nothing.
  double repeat_penalty = 1;
  double frequency_penalty = 0;    ///< subtracted from a token's logit for each time it was there (OpenAI's API)
  double presence_penalty = 0;     ///< subtracted once if it was there at all
  std::int64_t penalty_last = 64;  ///< how many tokens before count for penalties, of prompt and answer; -1: all
  /// Added to the logits of these tokens; -infinity: never this one.
  std::vector<std::pair<std::int32_t, double>> logit_bias = {};
};

/// Draws tokens: biases, then penalties (both in llama.cpp's order and arithmetic), then, in the order of transformers,
/// temperature, top-k, top-p among what is left, min-p among what is left; then one draw of Philox4x32-10 (philox.h),
/// the n-th draw from place n of the seed's stream. (llama.cpp has the temperature last, so that its top-p and min-p
/// see other probabilities.) Ties are broken towards lower ids. Not for several threads at once.
class Sampler {
 public:
  /// ArgumentError: an option out of its range, or NaN.
  explicit Sampler(SamplerOptions options = {});

  /// The index of the chosen logit. Logits of -infinity are never chosen. `before`: prompt and answer so far, for
  /// penalties. ArgumentError: no logits, NaN or +infinity among them (with the index), nothing but -infinity, or a
  /// bias for a token that is none; the draw is not spent then.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> before = {});

  /// The logits with biases and penalties, of which `sample` chooses: valid until the next call. Checks nothing but the
  /// biases' tokens.
  std::span<const float> adjusted(std::span<const float> logits, std::span<const std::int32_t> before);

  /// The options it was made with.
  const SamplerOptions& options() const { return options_; }
  /// Draws so far; greedy choices spend none.
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
  std::vector<Candidate> candidates_;  // kept between calls, to allocate once
  std::vector<float> adjusted_;
  std::vector<std::int32_t> counted_;
};

/// A token and how probable it was.
struct TokenProbability {
  std::int32_t id;         ///< The token.
  double log_probability;  ///< natural logarithm
};
/// What the model itself gives, without temperature, biases and penalties: the chosen token's, then the `most`
/// likeliest, likeliest first, ties to lower ids. ArgumentError as of Sampler::sample, or if `chosen` is no index.
std::vector<TokenProbability> log_probabilities(std::span<const float> logits, std::int32_t chosen, std::int64_t most);

/// e to the x with additions and multiplications only: equal on every system with IEEE doubles, which std::exp is not.
/// Within 2 units in the last place for x from -700 to 0; 0 below -700; `x` at most 0.
double portable_exp(double x);

}  // namespace tessera
