// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings of config.json as GGUF metadata and tensors. Internal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/llm/hub/config.h"

namespace tessera::hub {

/// Tensors that are computed from config.json: a name and the values.
using ComputedTensors = std::vector<std::pair<std::string, std::vector<float>>>;

/// Adds the metadata of `rope_parameters`, or of `rope_theta` and `rope_scaling` in older files. Returns the factors of
/// Llama 3 and LongRoPE. Throws FormatError with the key if the kind of scaling is not supported.
ComputedTensors add_rope(const JsonObject& config, const Family& family, const ModelShape& shape, Metadata& to);

}  // namespace tessera::hub
