// SPDX-License-Identifier: Apache-2.0
// Reads one token after the other, as text is generated: the work is recorded and compared at the second and third
// token and then replayed (device/queue/checked_sequence.h), so that a token costs the host one call where the driver
// has graphs, and no checks and looks-up anywhere.
#pragma once

#include <functional>

#include "tessera/device/queue/checked_sequence.h"
#include "tessera/llm/llama.h"

namespace tessera {

/// Reads tokens one at a time by replaying recorded work.
class Decoder {
 public:
  /// Both live as long as the decoder, at the same place. The cache may be read into, truncated and assigned again by
  /// others between steps. `recorded` false, or TESSERA_SEQUENCES=0: each token is Llama::forward of it. That is also
  /// what happens for a model whose layers are on several devices, between which no sequence can copy.
  Decoder(const Llama& model, KeyValueCache& cache, bool recorded = true);

  /// Appends the token to the cache and gives its logits (1, vocabulary): the very bits of Llama::forward. They are
  /// valid until the next step, which writes the same memory. Errors of Llama::forward; then nothing was appended.
  const Array& step(std::int32_t token);

  /// The step that is replayed; not valid before the second token, nor where nothing is recorded.
  const Sequence& sequence() const { return sequence_.sequence(); }

 private:
  void run_recorded(Queue& queue, const std::function<void()>& work);

  const Llama& model_;
  KeyValueCache& cache_;
  bool recorded_;
  bool warm_ = false;            ///< one step has been done: what is made on first need is there
  std::optional<Array> inputs_;  ///< i32: the token, and where it stands
  Array logits_;
  const Storage* recorded_on_ = nullptr;    ///< memory of the cache that the sequence writes
  const QueueCore* recorded_in_ = nullptr;  ///< the queue, which the sequence keeps
  CheckedSequence sequence_{CheckedSequence::most_unchecked};
};

}  // namespace tessera
