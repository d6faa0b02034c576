// SPDX-License-Identifier: Apache-2.0
// Converts data of ggml's tensor types to floats and back, with ops/weight_blocks.h.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tessera/llm/gguf_types.h"
#include "tessera/ops/weight_blocks.h"

namespace tessera {

/// Returns the weight format for matrices of this type, if it is supported.
std::optional<WeightFormat> weight_format(GgmlType type);
/// Converts `data` to floats. `type` must be supported by `weight_format`; `data` need not be aligned. Throws
/// FormatError for another type, ArgumentError unless `data` is a whole number of blocks.
std::vector<float> ggml_to_float(GgmlType type, std::span<const std::byte> data);
/// Converts floats to f32, f16, bf16, q8_0 or q4_0, with ggml's rounding. Throws the same errors.
std::vector<std::byte> ggml_from_float(GgmlType type, std::span<const float> values);

}  // namespace tessera
