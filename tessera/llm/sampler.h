// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from a model's logits: greedy, or drawn at a temperature from the likeliest tokens.
// The same seed and logits give the same tokens on every system.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

struct SamplerOptions {
  double temperature = 0.8;  ///< logits are divided by it; 0 or less: always the likeliest token
  std::int64_t top_k = 40;   ///< only the k likeliest tokens; 0: all
  double top_p = 0.95;       ///< only the likeliest tokens that together have this probability, in (0, 1]; 1: all
  std::uint64_t seed = 0;
};

/// Draws tokens: temperature, then top-k, then top-p among what is left, then one draw of Philox4x32-10 (philox.h), the
/// n-th draw from place n of the seed's stream. Ties are broken towards lower ids. Not for several threads at once.
class Sampler {
 public:
  /// ArgumentError: an option out of its range, or NaN.
  explicit Sampler(SamplerOptions options = {});

  /// The index of the chosen logit. Logits of -infinity are never chosen. ArgumentError: no logits, NaN or +infinity
  /// among them (with the index), or nothing but -infinity; the draw is not spent then.
  std::int32_t sample(std::span<const float> logits);

  const SamplerOptions& options() const { return options_; }
  /// Draws so far; greedy choices spend none.
  std::uint64_t draws() const { return draws_; }

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
    double weight;  // unnormalised probability
  };
  std::int32_t draw(double largest);

  SamplerOptions options_;
  std::uint64_t draws_ = 0;
  std::vector<Candidate> candidates_;  // kept between calls, to allocate once
};

/// e to the x with additions and multiplications only: equal on every system with IEEE doubles, which std::exp is not.
/// Within 2 units in the last place for x from -700 to 0; 0 below -700; `x` at most 0.
double portable_exp(double x);

}  // namespace tessera
