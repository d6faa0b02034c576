// SPDX-License-Identifier: Apache-2.0
// Generates text token by token. The second step is recorded, the third step verifies the recording, and later steps
// replay it (device/queue/checked_sequence.h). If the driver supports graphs, a replayed step is one driver call.
#pragma once

#include "tessera/base/callback.h"
#include "tessera/device/queue/checked_sequence.h"
#include "tessera/llm/llama.h"

namespace tessera {

/// Runs a model on one token at a time by replaying recorded work.
class Decoder {
 public:
  /// `model` and `cache` must outlive the decoder and must not be moved. Other code may append to, truncate or assign
  /// the cache between steps. Steps are not recorded if `recorded` is false, if TESSERA_SEQUENCES is 0, or if the
  /// layers are on several devices, because a sequence cannot copy between devices.
  Decoder(const Llama& model, KeyValueCache& cache, bool recorded = true);

  /// Appends the token to the cache and returns its logits (1, vocabulary). They are bit-identical to the result of
  /// Llama::forward and are valid until the next step. Throws the errors of Llama::forward; the cache is not changed if
  /// an error is thrown.
  const Array& step(std::int32_t token);

  /// The recorded sequence. It is invalid before the second step, and if steps are not recorded.
  const Sequence& sequence() const { return sequence_.sequence(); }

 private:
  void run_recorded(Queue& queue, const Callback<void()>& work);

  const Llama& model_;
  KeyValueCache& cache_;
  bool recorded_;
  bool warm_ = false;            ///< the first step is done, and with it all lazy initialisation
  std::optional<Array> inputs_;  ///< i32 (2,): the token and its position
  Array logits_;
  const Storage* recorded_on_ = nullptr;    ///< the cache memory that the sequence writes to
  const QueueCore* recorded_in_ = nullptr;  ///< the queue on which the sequence was recorded
  CheckedSequence sequence_{CheckedSequence::most_unchecked};
};

}  // namespace tessera
