// SPDX-License-Identifier: Apache-2.0
// Writes a copy of a model whose matrices have other types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/llm/gguf.h"

namespace tessera {

/// The types that a matrix can be converted to, from the largest to the smallest one: f32, f16, bf16, q8_0, q6_K, ...
std::vector<GgmlType> quantizable_types();

/// True for matrices of weights, except for small ones such as the routers of experts (ffn_gate_inp.weight). Other
/// tensors keep their type.
bool is_quantizable(const GgufTensor& tensor);

/// Returns `type` if rows of `row` elements are whole blocks of this type. Otherwise, returns a type with smaller
/// blocks, as llama-quantize does: q5_0 for q4_K, q5_1 for q5_K, q8_0 for q6_K, q4_0 for q2_K and q3_K; or f16.
GgmlType type_for_rows(GgmlType type, std::uint64_t row);

/// The names of mixes: "f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_1", "q5_0", "q4_k_m", "q4_k_s",
/// "q4_1", "q4_0", "q3_k_l", "q3_k_m", "q3_k_s", "q2_k". They are those of llama-quantize.
std::vector<std::string> quantization_mixes();

/// Returns the number of elements in a block of a mix: 1, 32, or 256 for K types. Throws ArgumentError if the mix is
/// unknown.
std::uint32_t quantization_block(std::string_view mix);

/// Returns the types that the tensors of a model get from quantize_model(), in their order. In the mixes of K types,
/// the matrix of the output and some others get more bits, by the rules of llama-quantize. In the other mixes, all
/// matrices get the same type, like with --pure of llama-quantize. A matrix whose rows are no whole blocks gets
/// type_for_rows(), but a bf16 matrix remains bf16 instead of becoming f16. Throws ArgumentError if the mix is unknown.
std::vector<GgmlType> quantized_types(const GgufFile& file, std::string_view mix);

/// Called before each tensor is written, with its index. May throw, which ends the conversion.
using QuantizeProgress = Callback<void(std::size_t index, const GgufTensor& tensor, GgmlType type)>;

/// Writes a copy of the model to `path`, atomically, with the types of quantized_types(). All metadata is copied,
/// except for general.file_type and general.quantization_version, which are set, and the keys of split files: the copy
/// is one file. One tensor at a time is in memory. Uses several threads.
///
/// Throws ArgumentError if `mix` is not one of quantization_mixes() or the path cannot be written, and FormatError if a
/// tensor has a type that cannot be decoded, or if a matrix to be quantised, or to be converted to f16, contains
/// NaN or numbers outside of the range of f16.
void quantize_model(const GgufFile& file, const std::string& path, std::string_view mix,
                    const QuantizeProgress& progress = {});

}  // namespace tessera
