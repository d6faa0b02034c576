// SPDX-License-Identifier: Apache-2.0
// The logits that a sampler needs, on the host. If it needs only the largest logits, the device selects them, so that
// a few bytes are downloaded instead of 4 bytes for each token of the vocabulary.
#pragma once

#include <span>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/llm/sampler.h"

namespace tessera {

/// Logits of one token. Memory is reused between calls.
class FetchedLogits {
 public:
  /// Waits for `logits`, f32 (1, vocabulary), and downloads those that `sampler` needs, or all of them.
  void fetch(const Array& logits, const Sampler& sampler, bool all);

  /// Returns the token that Sampler::sample chooses for the logits, and throws its errors. The sampler must have the
  /// same options as the one that was passed to fetch().
  std::int32_t sample(Sampler& sampler, std::span<const std::int32_t> before);

  /// All logits. Requires that fetch() was called with `all`.
  std::span<const float> all() const { return all_; }

 private:
  enum Part : std::uint8_t { everything, largest, token };
  Part part_ = everything;
  std::vector<float> all_;           ///< everything
  std::vector<TokenLogit> largest_;  ///< largest
  std::int32_t token_ = 0;           ///< token
  std::size_t vocabulary_ = 0;
};

}  // namespace tessera
