// SPDX-License-Identifier: Apache-2.0
// Steps of several sequences, one token each, that are recorded and replayed as those of a Decoder. Internal.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "tessera/llm/paged_cache.h"
#include "tessera/llm/recorded_step.h"

namespace tessera {

/// Records a step for each of 1, 2, 4, 8 and 16 rows.
class BatchDecoder {
 public:
  static constexpr std::size_t most_rows = 16;
  /// `model` and `cache` must outlive the decoder and must not be moved. A cache has one decoder.
  BatchDecoder(const Llama& model, PagedCache& cache);
  BatchDecoder(const BatchDecoder&) = delete;
  ~BatchDecoder();
  /// True if step() can be called: each piece is one token whose logits are wanted, and a step of this number of tokens
  /// is recorded. On CPUs, these are only the powers of two. Other devices compute up to 7 more rows, which write to
  /// the spare page, because launching the kernels of a step takes longer than computing these rows.
  bool takes(std::span<const SequencePiece> pieces) const;
  /// The same as Llama::forward. The logits (pieces, vocabulary) are valid until the next step.
  Array step(std::span<const SequencePiece> pieces);
  /// Number of recorded steps, each of other rows and of one part of the layers.
  std::size_t recordings() const;

 private:
  /// Consecutive layers on one device, for a number of rows.
  struct Part {
    std::optional<Array> inputs;  ///< i32: ids, positions, sequences, ranges of recurrent layers, and tables of pages
    std::optional<Array> x;       ///< the result of the part before, if there is one
    Array result;
    RecordedStep recorded;
  };

  const Llama& model_;
  PagedCache& cache_;
  std::int64_t width_;  ///< pages of a row of the tables
  bool recorded_, pads_;
  std::map<std::int64_t, std::vector<Part>> parts_;  ///< by rows
};

}  // namespace tessera
