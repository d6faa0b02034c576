// SPDX-License-Identifier: Apache-2.0
// A property and a box, converted to goals and regions for which bounds are computed. Internal.
#pragma once

#include "tessera/nn/verify/attack.h"

namespace tessera::verification {

struct Query {
  std::vector<Goal> goals;
  Region root;
  std::optional<Ball> ball;  ///< set for robust
  /// Class of the centre; -1 if the property is not robust, or if an output at the centre is NaN.
  std::int64_t outputs = 0, kept_class = -1;
  /// Returns the ball that restricts the inputs in addition to the region, or nullptr.
  const Ball* analysis_ball() const { return ball && ball->norm != Norm::infinity ? &*ball : nullptr; }
};
/// Creates the query. For this, runs the model on the centre of the box. Throws ArgumentError if an inequality has the
/// wrong number of coefficients.
Query make_query(const Runner& runner, const Property& property, const InputBox& box);
std::vector<float> centre_of(const InputBox& box);

/// If a product of the network might run in a vendor library for a batch of this size, returns a message that says
/// which product and why that matters. Otherwise returns an empty string.
std::string products_of_vendors(const Network& net, const Subject& subject, std::int64_t batch);

}  // namespace tessera::verification
