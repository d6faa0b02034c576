// SPDX-License-Identifier: Apache-2.0
// The supported architectures of language models, as a table of differences from Llama (norms before attention and
// feed-forward, gated feed-forward, rotary positions).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/ops/transformer.h"

namespace tessera {

/// The activation of the gate in a feed-forward layer.
enum class Gate : std::uint8_t {
  silu,  ///< x * sigmoid(x)
  gelu   ///< with the tanh approximation
};

/// One architecture: how its decoder differs from Llama.
struct Architecture {
  std::string_view name;                    ///< the value of `general.architecture`
  std::string_view models;                  ///< the models that use it, for messages
  RotaryPairs pairs = RotaryPairs::halves;  ///< Which elements of a head are rotated together.
  Gate gate = Gate::silu;                   ///< The activation of the gate.
  bool head_norms = false;                  ///< queries and keys of each head are normalised before rotation
  bool post_norms = false;                  ///< the outputs of attention and feed-forward are normalised, too
  bool scaled_embedding = false;            ///< the embedding is multiplied by sqrt(width)
  bool caps = false;                        ///< scores and logits may be capped (the metadata contain the caps)
  /// Period of layers with full attention: of so many consecutive layers, the last attends to all tokens and the others
  /// to a window. 1: all layers have a window; 0: no layer has one.
  std::int64_t window_period = 0;
  std::int64_t window = 0;        ///< the default if the metadata have none
  float local_base = 0;           ///< rotary base of layers with a window; 0: the same as other layers
  std::int64_t fixed_period = 0;  ///< every n-th layer does not rotate; 0: all rotate
  /// Models with this number of layers scale scores by width / heads instead of the head size.
  std::int64_t layers_of_wide_scale = 0;
  /// Positions may consist of time, height and width (the metadata assign pairs to them). In text all three are equal,
  /// so this changes nothing.
  bool sections = false;
  bool temperature = false;  ///< queries may be scaled depending on their position (see the metadata)
};

std::span<const Architecture> known_architectures();  ///< All supported architectures.
/// Returns the architecture of this name, or null.
const Architecture* find_architecture(std::string_view name);
/// Returns "llama, qwen2, ..." for messages.
std::string architecture_names();
/// Returns why an unsupported architecture cannot run, such as "mixture-of-experts models are not supported"; empty if
/// the name is unknown.
std::string_view missing_in_architecture(std::string_view name);

}  // namespace tessera
