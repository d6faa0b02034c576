// SPDX-License-Identifier: Apache-2.0
#include "train/lm_ngrams.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera::app {
namespace {

constexpr int bits = 21;
/// Returns the n-gram of `count` tokens whose last token is at `at`.
std::uint64_t gram_at(std::span<const std::int32_t> tokens, std::size_t at, int count) {
  std::uint64_t gram = 0;
  // Store token + 1, so that an n-gram that begins with token 0 differs from the shorter n-gram without it.
  for (int i = count - 1; i >= 0; --i)
    gram = gram << bits | (static_cast<std::uint64_t>(tokens[at - static_cast<std::size_t>(i)]) + 1);
  return gram;
}

}  // namespace

NgramModel::NgramModel(std::span<const std::int32_t> tokens, int order, std::int64_t vocabulary)
    : levels_(static_cast<std::size_t>(order)), uniform_(1.0 / static_cast<double>(vocabulary)) {
  const auto top = static_cast<std::size_t>(order) - 1;
  for (std::size_t at = top; at < tokens.size(); ++at) ++levels_[top].grams[gram_at(tokens, at, order)];
  for (std::size_t n = top; n-- > 0;) {
    const std::uint64_t mask = (std::uint64_t{1} << (bits * (n + 1))) - 1;
    for (const auto& [gram, count] : levels_[n + 1].grams) ++levels_[n].grams[gram & mask];
  }
  for (Level& level : levels_) level.finish();
}

void NgramModel::Level::finish() {
  std::array<double, 5> of{};  // number of n-grams that occur once, twice, ...
  for (const auto& [gram, count] : grams)
    if (count < of.size()) ++of[count];
  if (std::all_of(of.begin() + 1, of.end(), [](double n) { return n >= 10; })) {
    const double y = of[1] / (of[1] + 2 * of[2]);
    for (std::size_t k = 1; k <= 3; ++k) {
      const auto count = static_cast<double>(k);
      discount[k] = std::clamp(count - (count + 1) * y * of[k + 1] / of[k], 0.1, count);
    }
  }
  for (const auto& [gram, count] : grams) {
    Context& context = contexts[gram >> bits];
    context.total += count;
    context.removed += discount[std::min<std::uint32_t>(count, 3)];
  }
}

double NgramModel::Level::probability(Gram gram, double lower) const {
  const auto context = contexts.find(gram >> bits);
  if (context == contexts.end()) return lower;
  const auto found = grams.find(gram);
  const std::uint32_t count = found == grams.end() ? 0 : found->second;
  const double kept = count == 0 ? 0 : count - discount[std::min<std::uint32_t>(count, 3)];
  return (kept + context->second.removed * lower) / static_cast<double>(context->second.total);
}

double NgramModel::loss(std::span<const std::int32_t> tokens) const {
  double nats = 0;
  for (std::size_t at = 1; at < tokens.size(); ++at) {
    double p = uniform_;
    for (std::size_t n = 0; n < levels_.size() && n <= at; ++n)
      p = levels_[n].probability(gram_at(tokens, at, static_cast<int>(n) + 1), p);
    nats -= std::log(p);
  }
  return nats;
}

}  // namespace tessera::app
