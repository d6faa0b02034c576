// SPDX-License-Identifier: Apache-2.0
// The model classes of transformers that can be read from a folder. Internal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/llm/hub/json_file.h"

namespace tessera::hub {

/// A model class: the architecture of GGUF that it corresponds to, and the values that its configuration has if
/// config.json omits them (transformers 5.24, configuration_*.py).
struct Family {
  std::string_view name;             ///< the class in `architectures`
  std::string_view architecture;     ///< `general.architecture`
  std::string_view text_model = {};  ///< the required `model_type` of `text_config`, if the class has several
  std::int64_t context = 2048;       ///< max_position_embeddings
  std::int64_t heads = 0;            ///< num_attention_heads; 0: the key is required
  std::int64_t key_heads = 0;        ///< 0: as many as heads
  std::int64_t head_size = 0;        ///< 0: the width divided by the heads
  double norm_epsilon = 1e-6;        ///< rms_norm_eps
  double rope_base = 1e4;            ///< rope_theta
  bool tied = false;                 ///< tie_word_embeddings
  bool gelu = false;                 ///< the activation is GELU (tanh) instead of SiLU
  bool norms_plus_one = false;       ///< norms multiply by 1 + weight
  double rotary_part = 1;            ///< partial_rotary_factor
  std::int64_t window = 0;           ///< sliding_window
  bool normalised = true;            ///< norm_topk_prob: the weights of a token's experts sum to 1
  bool expert_hidden = false;        ///< experts have a width of their own, moe_intermediate_size
  std::int64_t shared_hidden = 0;    ///< the width of the shared expert
  bool sees = false;  ///< the model is the part `text_config` of a model of images, whose other tensors are ignored
  /// Rows of queries and keys are in the order of GGUF files: elements that are rotated together are adjacent.
  bool adjacent = false;
  bool skips_positions = false;                   ///< encoders: the first learned positions are not used
  std::string_view norm_key = "rms_norm_eps";     ///< the key of the epsilon of norms
  std::string_view after_attention = "ffn_norm";  ///< post_attention_layernorm in GGUF files
};

/// Returns the class of a model. Some classes have a row for models with experts and one for models without, or a row
/// for each text model. Throws FormatError if `config` names no class or an unsupported one.
const Family& family_of(const JsonObject& config);

}  // namespace tessera::hub
