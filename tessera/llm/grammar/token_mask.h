// SPDX-License-Identifier: Apache-2.0
// A set of tokens, with one bit for each token of a vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera::grammar {

class TokenMask {
 public:
  TokenMask() = default;
  /// An empty set for a vocabulary with this number of tokens.
  explicit TokenMask(std::size_t tokens) : words_((tokens + 63) / 64) {}

  void insert(std::int32_t id) { words_[static_cast<std::size_t>(id) / 64] |= bit(id); }
  bool contains(std::int32_t id) const {
    const std::size_t word = static_cast<std::size_t>(id) / 64;
    return id >= 0 && word < words_.size() && (words_[word] & bit(id)) != 0;
  }
  /// Adds all tokens of `other`, a set for the same vocabulary.
  void insert_all(const TokenMask& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  bool empty() const {
    for (const std::uint64_t word : words_)
      if (word != 0) return false;
    return true;
  }
  std::size_t bytes() const { return words_.size() * sizeof(std::uint64_t); }  ///< size in memory

  /// Copies `logits` to `out`, with -infinity for tokens that are not in the set. NaN and infinity are copied, so that
  /// the sampler reports them.
  void apply(std::span<const float> logits, std::vector<float>& out) const {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    out.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i)
      out[i] = contains(static_cast<std::int32_t>(i)) || !(logits[i] < infinity) ? logits[i] : -infinity;
  }

 private:
  static std::uint64_t bit(std::int32_t id) { return std::uint64_t{1} << (static_cast<std::size_t>(id) % 64); }
  std::vector<std::uint64_t> words_;
};

}  // namespace tessera::grammar
