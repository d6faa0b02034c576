// SPDX-License-Identifier: Apache-2.0
// N-gram models as baselines of a language model.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tessera::app {

/// Interpolated modified Kneser-Ney smoothing (Chen and Goodman, "An empirical study of smoothing techniques for
/// language modeling", 1999): a token is predicted from the previous order - 1 tokens; lower orders count the number of
/// contexts in which a token occurs. Discounts are computed from counts of counts, or 0.75 if there are too few.
class NgramModel {
 public:
  /// `order` is 1 to 3; tokens are 0 to vocabulary - 1, with a vocabulary of at most 2^20.
  NgramModel(std::span<const std::int32_t> tokens, int order, std::int64_t vocabulary);
  /// The sum of -ln P over all tokens except the first.
  double loss(std::span<const std::int32_t> tokens) const;

 private:
  using Gram = std::uint64_t;  ///< 21 bits per token, the last one lowest
  struct Context {
    std::uint64_t total = 0;
    double removed = 0;  ///< probability mass removed from its n-grams by discounts
  };
  struct Level {
    std::unordered_map<Gram, std::uint32_t> grams;
    std::unordered_map<Gram, Context> contexts;
    double discount[4] = {0, 0.75, 0.75, 0.75};
    void finish();
    double probability(Gram gram, double lower) const;
  };
  std::vector<Level> levels_;  ///< of one token, of two, ...
  double uniform_;
};

}  // namespace tessera::app
