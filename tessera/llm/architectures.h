// SPDX-License-Identifier: Apache-2.0
// The architectures of language models, a row each: what a decoder of this kind has besides the parts of Llama (norms
// before attention and feed-forward, gated feed-forward, rotary positions), which llama.cpp composes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/ops/transformer.h"

namespace tessera {

/// The function of the gate in a feed-forward part.
enum class Gate : std::uint8_t {
  silu,  ///< x * sigmoid(x)
  gelu   ///< in its tanh form
};

/// One architecture: how its decoder differs from Llama's.
struct Architecture {
  std::string_view name;                    ///< as `general.architecture` has it
  std::string_view models;                  ///< for people: which these are
  RotaryPairs pairs = RotaryPairs::halves;  ///< Which elements of a head rotate together.
  Gate gate = Gate::silu;                   ///< The function of the gate.
  bool head_norms = false;                  ///< queries and keys of each head are normed before they rotate
  bool post_norms = false;                  ///< what attention and feed-forward give is normed, too
  bool scaled_embedding = false;            ///< by the root of the width
  bool caps = false;                        ///< scores and logits may be capped (the metadata say at what)
  /// Of so many layers one after the other the last sees all and the others a window; 1: all layers have the window; 0:
  /// none has one.
  std::int64_t window_period = 0;
  std::int64_t window = 0;                ///< where the metadata give none
  float local_base = 0;                   ///< rotary base of layers with a window; 0: as the others
  std::int64_t fixed_period = 0;          ///< every so-manieth layer does not rotate
  std::int64_t layers_of_wide_scale = 0;  ///< the size whose scores are scaled by width / heads, not by the head
  /// Positions may be of time, height and width (the metadata say which pairs turn by which). In a text the three are
  /// one, so that nothing changes.
  bool sections = false;
  bool temperature = false;  ///< queries may be scaled by their position (the metadata say how)
};

std::span<const Architecture> known_architectures();  ///< All architectures that can be run.
/// The architecture of this name; null if it is not known.
const Architecture* find_architecture(std::string_view name);
/// "llama, qwen2, ..." for messages.
std::string architecture_names();
/// Of an architecture that is not among them: what of it is missing, such as "models of experts are not supported";
/// empty if nothing is known of it.
std::string_view missing_in_architecture(std::string_view name);

}  // namespace tessera
