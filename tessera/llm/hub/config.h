// SPDX-License-Identifier: Apache-2.0
// config.json and generation_config.json as GGUF metadata. Internal.
#pragma once

#include <cstdint>

#include "tessera/llm/hub/family.h"
#include "tessera/llm/hub/json_file.h"
#include "tessera/llm/hub/metadata.h"

namespace tessera::hub {

/// The numbers that are needed to find and convert tensors.
struct ModelShape {
  std::int64_t layers = 0, heads = 0, key_heads = 0, head_size = 0, experts = 0;  ///< sizes of layers without a window
  bool tied = false;
  std::int64_t skipped_positions = 0;  ///< encoders: learned positions before the first token's
  /// Layers with the gated delta rule; see LlamaConfig::DeltaRule.
  std::int64_t delta_key_heads = 0, delta_heads = 0, delta_key_size = 0, delta_value_size = 0;
};

/// Adds the metadata of config.json. Throws FormatError with the key if a value is invalid or requires a feature that
/// is not supported.
ModelShape add_config(const JsonObject& config, const Family& family, Metadata& to);

/// Adds the metadata of an encoder's config.json. Throws the same errors.
ModelShape add_encoder_config(const JsonObject& config, const Family& family, Metadata& to);

/// Adds the sampling options of generation_config.json as `general.sampling.*`.
void add_sampling(const JsonObject& generation, Metadata& to);

}  // namespace tessera::hub
