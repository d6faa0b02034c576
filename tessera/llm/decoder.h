// SPDX-License-Identifier: Apache-2.0
// Generates text token by token. Steps are recorded and replayed (recorded_step.h). If the driver supports graphs, a
// replayed step is one driver call. Layers on several devices are one recording for each part of consecutive layers.
#pragma once

#include "tessera/llm/llama.h"
#include "tessera/llm/recorded_step.h"

namespace tessera {

/// Runs a model on one token at a time by replaying recorded work.
class Decoder {
 public:
  /// `model` and `cache` must outlive the decoder and must not be moved. Other code may append to, truncate or assign
  /// the cache between steps. Steps are not recorded if `recorded` is false or TESSERA_SEQUENCES is 0.
  Decoder(const Llama& model, KeyValueCache& cache, bool recorded = true);

  /// Appends the token to the cache and returns its logits (1, vocabulary). They are bit-identical to the result of
  /// Llama::forward and are valid until the next step. Throws the errors of Llama::forward; the cache is not changed if
  /// an error is thrown.
  const Array& step(std::int32_t token);

  /// The same for a token in memory of the model's device, i32 (1,), which the host does not have to know. The caller
  /// must ensure that it is in the vocabulary. Requires takes_arrays().
  const Array& step(const Array& token);
  /// True if steps are recorded and all layers are on one device. The token is then read from device memory.
  bool takes_arrays() const { return recorded_ && parts_.size() == 1; }

  /// The recorded sequence of consecutive layers on one device; by default of the first ones. It is invalid before the
  /// second step, and if steps are not recorded.
  const Sequence& sequence(std::size_t part = 0) const { return parts_.at(part).recorded.sequence(); }

 private:
  /// The state of consecutive layers on one device.
  struct Part {
    std::optional<Array> inputs;  ///< i32 (6,): the token, its position, and the ranges of recurrent layers
    std::optional<Array> x;       ///< the result of the part before, if there is one
    Array result;
    RecordedStep recorded;
  };
  /// Runs all layers for a token, which is either a number or in memory.
  const Array& run_parts(std::int32_t token, const Array* in_memory);

  const Llama& model_;
  KeyValueCache& cache_;
  bool recorded_;
  std::vector<Part> parts_;
};

}  // namespace tessera
