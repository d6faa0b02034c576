// SPDX-License-Identifier: Apache-2.0
// A property and a box, translated to goals and regions that bounds can decide. Internal.
#pragma once

#include "tessera/nn/verify/attack.h"

namespace tessera::verification {

struct Query {
  std::vector<Goal> goals;
  Region root;
  std::optional<Ball> ball;                   ///< for robust
  std::int64_t outputs = 0, kept_class = -1;  ///< -1: not robust, or an output there is NaN
  /// The ball for the bounds, besides the region.
  const Ball* analysis_ball() const { return ball && ball->norm != Norm::infinity ? &*ball : nullptr; }
};
/// Runs the model on the centre of the box. Throws ArgumentError for an inequality with the wrong number of
/// coefficients.
Query make_query(const Runner& runner, const Property& property, const InputBox& box);
std::vector<float> centre_of(const InputBox& box);

/// Why products of the network may use a vendor library with this number of samples; empty if they do not.
std::string products_of_vendors(const Network& net, const Subject& subject, std::int64_t batch);

}  // namespace tessera::verification
