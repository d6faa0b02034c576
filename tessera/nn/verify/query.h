// SPDX-License-Identifier: Apache-2.0
// A property and a box as what is decided by bounds: goals and regions. Internal.
#pragma once

#include "tessera/nn/verify/attack.h"

namespace tessera::verification {

struct Query {
  std::vector<Goal> goals;
  Region root;
  std::optional<Ball> ball;                   ///< of robust
  std::int64_t outputs = 0, kept_class = -1;  ///< -1: of no property but robust, or an output there is NaN
  /// What bounds need besides the region.
  const Ball* analysis_ball() const { return ball && ball->norm != Norm::infinity ? &*ball : nullptr; }
};
/// The model is run for the centre of the box. ArgumentError: an inequality of another number of outputs.
Query make_query(const Runner& runner, const Property& property, const InputBox& box);
std::vector<float> centre_of(const InputBox& box);

/// Why products of the network may be computed by a vendor's library, with so many samples; empty: they are not.
std::string products_of_vendors(const Network& net, const Subject& subject, std::int64_t batch);

}  // namespace tessera::verification
