// SPDX-License-Identifier: Apache-2.0
// Internal. Feed-forward layers that consist of many experts, of which each token uses a few (Shazeer et al. 2017).
#pragma once

#include "tessera/ops/linear_input.h"

namespace tessera::ops {

/// The weights of a token's experts, of the logits of all experts.
enum class ExpertWeights : std::uint8_t {
  softmax_of_chosen,  ///< softmax of the logits of the chosen experts
  softmax_of_all,     ///< their part of the softmax of all logits, so that they do not add up to 1
  sigmoid             ///< sigmoid of the logits, divided by their sum + 1e-6; a bias is added to choose experts
};

/// The weights of a layer. The rows of an expert are consecutive.
struct Experts {
  std::int64_t count = 0, used = 0;  ///< the number of experts, and of those that a token uses
  Weight router;                     ///< (experts, width)
  /// (experts * hidden, width). Without `up`, the rows of each expert's gate are followed by their partners.
  Weight gate, up;
  Weight down;  ///< (experts * width, hidden)
  ExpertWeights weights = ExpertWeights::softmax_of_chosen;
  std::optional<Array> choice_bias = {};   ///< f32 (experts,); see choose_experts
  std::optional<Array> router_bias = {};   ///< f32 (experts,)
  std::optional<Array> gate_up_bias = {};  ///< f32 (experts, 2 hidden): of the gate, then of `up`
  std::optional<Array> down_bias = {};     ///< f32 (experts, width)
  std::optional<Array> scales = {};        ///< f32 (experts,): multiply the outputs of experts
};

/// The experts of each token.
struct Routing {
  Array ids;      ///< i32 (tokens, used): the experts with the largest logits, in descending order
  Array weights;  ///< f32 (tokens, used)
};
/// Chooses experts by their logits, f32 (tokens, experts). Of equal logits, the one of the lower id comes first. If all
/// logits of a token are NaN, so are its weights. With ExpertWeights::sigmoid, `bias`, f32 (experts,), is added to the
/// sigmoids to choose experts; it does not change their weights.
Routing choose_experts(const Array& logits, std::int64_t used, ExpertWeights weights = ExpertWeights::softmax_of_chosen,
                       const std::optional<Array>& bias = {});

/// Returns the outputs of a layer, f32 (tokens, width): for each token, the sum of the outputs of its experts, times
/// their weights. Requires rows of `x`. The router reads `routed_by`, or `x` if it is null. If there are many tokens,
/// it waits until their experts are known on the host, and reads each expert once for all of its tokens.
Array experts_layer(LinearInput& x, const Experts& experts, Gate kind, LinearInput* routed_by = nullptr);

struct ChooseExpertsSpec {
  ExpertWeights weights = ExpertWeights::softmax_of_chosen;
  bool biased = false;
  friend bool operator==(const ChooseExpertsSpec&, const ChooseExpertsSpec&) = default;
  std::size_t hash() const { return static_cast<std::size_t>(weights) * 2 + biased; }
};
ir::Function trace_choose_experts(const ChooseExpertsSpec& spec);
/// The sum of the rows of each token. If `placed`, the numbers of these rows are in a buffer; otherwise they are
/// consecutive.
struct CombineExpertsSpec {
  bool placed = false;
  friend bool operator==(const CombineExpertsSpec&, const CombineExpertsSpec&) = default;
  std::size_t hash() const { return placed; }
};
ir::Function trace_combine_experts(const CombineExpertsSpec& spec);

}  // namespace tessera::ops
