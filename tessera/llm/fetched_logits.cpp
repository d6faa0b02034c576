// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/fetched_logits.h"

#include <cstring>
#include <utility>

#include "tessera/device/memory/staging.h"
#include "tessera/ops/top_k.h"

namespace tessera {

namespace {

/// True if the device selects the `needed` largest logits. In a small vocabulary in host memory, the host is faster.
bool selects(const Array& logits, std::int64_t needed) {
  const std::int64_t vocabulary = logits.size();
  if (is_built_in(logits.device().backend) && vocabulary < 4096) return false;
  return needed != 0 && needed <= ops::most_top_k(logits.device()) && needed < vocabulary;
}

}  // namespace

FetchedLogits::FetchedLogits() : download_(new StagedDownload) {}
FetchedLogits::~FetchedLogits() = default;

void FetchedLogits::fetch(const Array& logits, const Sampler& sampler, bool all) {
  static_assert(sizeof(TokenLogit) == 8);  // the layout of ops::top_k
  pending_ = false;
  vocabulary_ = static_cast<std::size_t>(logits.size());
  const std::int64_t needed = sampler.needed_logits();
  if (all || !selects(logits, needed)) {
    part_ = everything;
    all_.resize(vocabulary_);
    logits.download(all_.data());
  } else if (needed > 1) {
    part_ = largest;
    largest_.resize(static_cast<std::size_t>(needed));
    ops::top_k(logits, needed).download(largest_.data());
  } else {
    part_ = token;
    chosen_ = ops::finite_argmax(logits);
    const Array first = chosen_.slice(0, 0, 1);
    pending_ = start_download(*download_, current_queue(first.device()), first.view());
    if (!pending_) first.download(&token_);
  }
}

void FetchedLogits::wait() {
  if (!std::exchange(pending_, false)) return;
  std::memcpy(&token_, download_->wait(), sizeof token_);
}

std::optional<Array> FetchedLogits::token_on_device() const {
  return pending_ ? std::optional(chosen_.slice(0, 2, 3)) : std::nullopt;
}

std::int32_t FetchedLogits::sample(Sampler& sampler, std::span<const std::int32_t> before) {
  wait();
  if (part_ == everything) return sampler.sample(all_, before);
  if (part_ == largest) return sampler.sample(largest_, vocabulary_, before);
  if (token_ >= 0) return token_;
  TokenLogit bad;  // the sampler reports it
  chosen_.slice(0, 1, 3).download(&bad);
  return sampler.sample(std::span(&bad, 1), vocabulary_, before);
}

}  // namespace tessera
