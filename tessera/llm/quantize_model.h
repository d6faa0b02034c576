// SPDX-License-Identifier: Apache-2.0
// Writes a copy of a model whose matrices have another type.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/llm/gguf.h"

namespace tessera {

/// The types that quantize_model() can write: f32, f16, bf16, q8_0, q4_0.
std::vector<GgmlType> quantizable_types();

/// True for matrices of weights, except for the routers of experts (ffn_gate_inp.weight). Other tensors keep their
/// type.
bool is_quantizable(const GgufTensor& tensor);

/// Returns the type of a tensor after its model was quantised to `type`. Every matrix gets this type, like with --pure
/// of llama-quantize. If the row length is not a multiple of the block size of `type`, the matrix gets f16, or keeps
/// bf16.
GgmlType quantized_type(const GgufTensor& tensor, GgmlType type);

/// Called before each tensor is written, with its index. May throw, which ends the conversion.
using QuantizeProgress = Callback<void(std::size_t index, const GgufTensor& tensor, GgmlType type)>;

/// Writes a copy of the model to `path`, atomically, with the types of quantized_type(). All metadata is copied, except
/// for general.file_type and general.quantization_version, which are set, and the keys of split files: the copy is one
/// file. One tensor at a time is in memory.
///
/// Throws ArgumentError if `type` is not one of quantizable_types() or the path cannot be written, and FormatError if a
/// tensor has a type that cannot be decoded.
void quantize_model(const GgufFile& file, const std::string& path, GgmlType type,
                    const QuantizeProgress& progress = {});

}  // namespace tessera
