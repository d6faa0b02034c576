// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/fetched_logits.h"

#include "tessera/ops/top_k.h"

namespace tessera {

void FetchedLogits::fetch(const Array& logits, const Sampler& sampler, bool all) {
  static_assert(sizeof(TokenLogit) == 8);  // the layout of ops::top_k
  vocabulary_ = static_cast<std::size_t>(logits.size());
  const std::int64_t needed = sampler.needed_logits();
  if (all || needed == 0 || needed > ops::most_top_k(logits.device()) || needed >= logits.size()) {
    part_ = everything;
    all_.resize(vocabulary_);
    logits.download(all_.data());
  } else if (needed > 1) {
    part_ = largest;
    largest_.resize(static_cast<std::size_t>(needed));
    ops::top_k(logits, needed).download(largest_.data());
  } else {
    part_ = token;
    ops::finite_argmax(logits).download(&token_);
    // With all logits, the sampler reports the one that is not finite.
    if (token_ < 0) fetch(logits, sampler, true);
  }
}

std::int32_t FetchedLogits::sample(Sampler& sampler, std::span<const std::int32_t> before) {
  switch (part_) {
    case everything: return sampler.sample(all_, before);
    case largest: return sampler.sample(largest_, vocabulary_, before);
    default: return token_;
  }
}

}  // namespace tessera
