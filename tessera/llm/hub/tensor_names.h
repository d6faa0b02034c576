// SPDX-License-Identifier: Apache-2.0
// Names of tensors in transformers and in GGUF files. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/hub/family.h"

namespace tessera::hub {

/// Which rows of a stored matrix belong to a GGUF tensor.
enum class RowPart {
  all,
  first_half,
  second_half,
  even,
  odd,
  /// Each key head has its query, its key, the values of its heads, and their gates: all but the gates, or these.
  queries_keys_values,
  gates
};

/// A tensor of a GGUF file that consists of one or more tensors of the folder, or of some rows of one.
struct TensorName {
  std::string name;                     ///< in GGUF files, such as "blk.0.attn_q.weight"
  std::optional<std::uint64_t> expert;  ///< which expert, if each expert is a tensor of its own
  RowPart rows = RowPart::all;
  bool transposed = false;  ///< columns are stored one after the other
};

/// Returns the GGUF tensors that contain the data of a tensor of transformers, or nothing if its name is unknown.
/// `experts` is true for models with experts.
std::vector<TensorName> gguf_names(std::string_view name, const Family& family, bool experts);

/// True for tensors that are not used: those that are computed from the configuration and stored in old files, those of
/// layers that predict further tokens, those for images and sound, and the heads of encoders.
bool is_redundant(std::string_view name, const Family& family);

/// The endings of the two tensors of a matrix in MXFP4: 16 bytes and a factor for each block of 32 elements.
inline constexpr std::string_view blocks_ending = "_blocks", factors_ending = "_scales";

}  // namespace tessera::hub
