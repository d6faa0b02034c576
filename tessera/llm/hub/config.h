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
  std::int64_t layers = 0, heads = 0, key_heads = 0, head_size = 0, experts = 0;
  bool tied = false;
};

/// Adds the metadata of config.json. Throws FormatError with the key if a value is invalid or requires a feature that
/// is not supported.
ModelShape add_config(const JsonObject& config, const Family& family, Metadata& to);

/// Adds the sampling options of generation_config.json as `general.sampling.*`.
void add_sampling(const JsonObject& generation, Metadata& to);

}  // namespace tessera::hub
