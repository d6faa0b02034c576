// SPDX-License-Identifier: Apache-2.0
// The yardstick of a language model: counts of n tokens in a row.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tessera::app {

/// Interpolated modified Kneser-Ney (Chen and Goodman, "An empirical study of smoothing techniques for language
/// modeling", 1999): a token is predicted from the order - 1 before it; lower orders count in how many contexts a token
/// occurs. Discounts are of counts of counts, 0.75 where there are too few.
class NgramModel {
 public:
  /// `order` 1 to 3; tokens from 0 to vocabulary - 1, a vocabulary of at most 2^20.
  NgramModel(std::span<const std::int32_t> tokens, int order, std::int64_t vocabulary);
  /// The sum of -ln P over all tokens but the first.
  double loss(std::span<const std::int32_t> tokens) const;

 private:
  using Gram = std::uint64_t;  ///< 21 bits a token, the last lowest
  struct Context {
    std::uint64_t total = 0;
    double removed = 0;  ///< of its grams, by discounts
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
