// SPDX-License-Identifier: Apache-2.0
// Data of ggml's tensor types as floats and back, by ops/weight_blocks.h.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tessera/llm/gguf_types.h"
#include "tessera/ops/weight_blocks.h"

namespace tessera {

/// What Tessera computes with matrices of this type as, if it does.
std::optional<WeightFormat> weight_format(GgmlType type);
/// The values of `data`, whole blocks of `type`, one that `weight_format` knows. `data` needs no alignment.
/// FormatError: another type. ArgumentError: no whole number of blocks.
std::vector<float> ggml_to_float(GgmlType type, std::span<const std::byte> data);
/// The reverse, rounding as ggml does, to f32, f16, bf16, q8_0 or q4_0; `values` in whole blocks. Same errors.
std::vector<std::byte> ggml_from_float(GgmlType type, std::span<const float> values);

}  // namespace tessera
