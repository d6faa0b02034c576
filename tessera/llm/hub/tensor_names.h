// SPDX-License-Identifier: Apache-2.0
// Names of tensors in transformers and in GGUF files. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::hub {

/// A tensor of a GGUF file that consists of one or more tensors of the folder.
struct TensorName {
  std::string name;                     ///< in GGUF files, such as "blk.0.attn_q.weight"
  std::optional<std::uint64_t> expert;  ///< which expert, if the tensor contains the matrices of all experts
};

/// Returns the GGUF name for a name in transformers, or std::nullopt if it is unknown. `post_norms` is true for
/// architectures that normalise the outputs of attention and feed-forward layers.
std::optional<TensorName> gguf_name(std::string_view name, bool post_norms);

/// True for tensors that are computed from the configuration and stored in old files.
bool is_redundant(std::string_view name);

}  // namespace tessera::hub
