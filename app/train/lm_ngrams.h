// SPDX-License-Identifier: Apache-2.0
// N-gram models, which are the baselines of `tessera train lm`.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tessera::app {

/// An n-gram model with interpolated modified Kneser-Ney smoothing (Chen and Goodman, "An empirical study of smoothing
/// techniques for language modeling", 1999). It predicts a token from the previous order - 1 tokens. Lower orders count
/// the number of different contexts in which a token occurs. The discounts are computed from counts of counts, or are
/// 0.75 if there is too little data.
class NgramModel {
 public:
  /// `order` must be 1 to 3, `vocabulary` at most 2^20, and tokens must be less than `vocabulary`.
  NgramModel(std::span<const std::int32_t> tokens, int order, std::int64_t vocabulary);
  /// Returns the sum of -ln P over all tokens except the first.
  double loss(std::span<const std::int32_t> tokens) const;

 private:
  using Gram = std::uint64_t;  ///< 21 bits per token; the last token is in the lowest bits
  struct Context {
    std::uint64_t total = 0;
    double removed = 0;  ///< probability mass that the discounts remove from n-grams with this context
  };
  struct Level {
    std::unordered_map<Gram, std::uint32_t> grams;
    std::unordered_map<Gram, Context> contexts;
    double discount[4] = {0, 0.75, 0.75, 0.75};
    void finish();
    double probability(Gram gram, double lower) const;
  };
  std::vector<Level> levels_;  ///< unigrams, bigrams, ...
  double uniform_;
};

}  // namespace tessera::app
