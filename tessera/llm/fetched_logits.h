// SPDX-License-Identifier: Apache-2.0
// The logits that a sampler needs, on the host. If it needs only the largest logits, the device selects them, so that
// a few bytes are downloaded instead of 4 bytes for each token of the vocabulary.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/owner.h"
#include "tessera/llm/sampler.h"

namespace tessera {

class StagedDownload;

/// Logits of one token. Memory is reused between calls.
class FetchedLogits {
 public:
  /// Creates an object without logits. Call fetch() first.
  FetchedLogits();
  ~FetchedLogits();
  /// Downloads the logits that `sampler` needs, or all of them, from `logits`, f32 (1, vocabulary). If the likeliest
  /// token is chosen, this only starts the download on devices that support it (start_download in staging.h).
  void fetch(const Array& logits, const Sampler& sampler, bool all);

  /// Waits until the logits are on the host.
  void wait();

  /// If the host has not waited for a token that the device has chosen, returns the token, i32 (1,). If a logit is NaN
  /// or infinite, this is the first such token, for which sample() throws.
  std::optional<Array> token_on_device() const;

  /// Waits, and returns the token that Sampler::sample chooses for the logits. Throws its errors. The sampler must have
  /// the same options as the one that was passed to fetch().
  std::int32_t sample(Sampler& sampler, std::span<const std::int32_t> before);

  /// All logits. Requires that fetch() was called with `all`.
  std::span<const float> all() const { return all_; }

 private:
  enum Part : std::uint8_t { everything, largest, token };
  Part part_ = everything;
  std::vector<float> all_;           ///< everything
  std::vector<TokenLogit> largest_;  ///< largest
  Array chosen_;                     ///< token: the result of ops::finite_argmax
  std::int32_t token_ = 0;           ///< token: negative if its logit is not finite
  bool pending_ = false;             ///< token: `download_` was not waited for
  detail::Owner<StagedDownload> download_;
  std::size_t vocabulary_ = 0;
};

}  // namespace tessera
