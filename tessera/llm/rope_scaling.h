// SPDX-License-Identifier: Apache-2.0
// Scaling of rotary position embeddings, for texts that are longer than those a model was trained with.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/llm/gguf.h"

namespace tessera {

/// How rotary position embeddings are scaled.
struct RopeScaling {
  /// - none: not at all, even if the file says so.
  /// - linear: positions are divided by the factor (Chen et al. 2023).
  /// - yarn: low frequencies are divided by the factor, and high frequencies are not (Peng et al. 2023).
  enum class Type : std::uint8_t { none, linear, yarn };
  Type type = Type::linear;           ///< The kind of scaling.
  double factor = 1;                  ///< The context becomes this many times as long.
  std::int64_t original_context = 0;  ///< The context length of the training; 0: that of the file.
};
/// Returns "none", "linear" or "yarn".
std::string_view rope_scaling_name(RopeScaling::Type type);

/// Replaces the scaling in the metadata of `file`, so that models and estimates that are made from it use `scaling`.
/// The context length becomes the original context length times the factor. Throws ArgumentError if the factor is not
/// between 1 and 1e6, the original context is negative, or the context becomes longer than 2^30 tokens. Throws
/// ArgumentError if the model has factors of its own for each pair (LongRoPE, or with yarn Llama 3.1).
void set_rope_scaling(GgufFile& file, const RopeScaling& scaling);

}  // namespace tessera
