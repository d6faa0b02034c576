// SPDX-License-Identifier: Apache-2.0
// Converts tensors in ggml's formats to floats and back. The block formats are defined in ops/weight_blocks.h.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tessera/llm/gguf_types.h"
#include "tessera/ops/weight_blocks.h"

namespace tessera {

/// Returns the weight format for matrices of this type, or std::nullopt if the type is not supported.
std::optional<WeightFormat> weight_format(GgmlType type);
/// Converts `data` to floats. `data` need not be aligned. Throws FormatError if `weight_format` does not support the
/// type, and ArgumentError if the size of `data` is not a multiple of the block size.
std::vector<float> ggml_to_float(GgmlType type, std::span<const std::byte> data);
/// Converts floats to a type that `quantize` of ops/weight_blocks.h can write. Throws FormatError for any other type, and
/// ArgumentError if the number of values is not a multiple of the block size.
std::vector<std::byte> ggml_from_float(GgmlType type, std::span<const float> values);

}  // namespace tessera
