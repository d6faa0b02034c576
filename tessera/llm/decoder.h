// SPDX-License-Identifier: Apache-2.0
// Generates token by token. The work of a step is recorded and verified at the second and third token, then replayed
// (device/queue/checked_sequence.h): one driver call per token if the driver has graphs, and no checks or lookups
// otherwise.
#pragma once

#include "tessera/base/callback.h"
#include "tessera/device/queue/checked_sequence.h"
#include "tessera/llm/llama.h"

namespace tessera {

/// Reads tokens one at a time by replaying recorded work.
class Decoder {
 public:
  /// `model` and `cache` must outlive the decoder and not be moved. Others may read into, truncate or assign the cache
  /// between steps. If `recorded` is false, TESSERA_SEQUENCES is 0, or the layers are on several devices (sequences
  /// cannot copy between devices), each step calls Llama::forward.
  Decoder(const Llama& model, KeyValueCache& cache, bool recorded = true);

  /// Appends the token to the cache and returns its logits (1, vocabulary), bitwise equal to Llama::forward. They are
  /// valid until the next step, which overwrites them. Throws the errors of Llama::forward; nothing is appended then.
  const Array& step(std::int32_t token);

  /// The sequence that is replayed; invalid before the second token, or if nothing is recorded.
  const Sequence& sequence() const { return sequence_.sequence(); }

 private:
  void run_recorded(Queue& queue, const Callback<void()>& work);

  const Llama& model_;
  KeyValueCache& cache_;
  bool recorded_;
  bool warm_ = false;            ///< one step was run, so that lazily created objects exist
  std::optional<Array> inputs_;  ///< i32: the token and its position
  Array logits_;
  const Storage* recorded_on_ = nullptr;    ///< memory of the cache that the sequence writes
  const QueueCore* recorded_in_ = nullptr;  ///< the queue that the sequence was recorded in
  CheckedSequence sequence_{CheckedSequence::most_unchecked};
};

}  // namespace tessera
