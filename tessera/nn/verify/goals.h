// SPDX-License-Identifier: Apache-2.0
// Lower bounds that imply a property. Internal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/verify/bounds.h"

namespace tessera::verification {

/// The sum of outputs times coefficients is at least `at_least`; with `above`, greater.
struct Goal {
  std::vector<std::pair<std::int64_t, double>> terms;
  double at_least = 0;
  bool above = false;
  bool whole_sum = false;  ///< of all outputs, all times 1 or all times -1

  double margin(double bound) const { return bound - at_least; }
  bool met(double bound) const { return above ? bound > at_least : bound >= at_least; }
};
/// Goals for a model with this number of outputs; none for `finite`, which any finite bounds prove. `kept_class`: for
/// robust.
std::vector<Goal> goals_of(const Property& property, std::int64_t outputs, std::int64_t kept_class);
/// Whether this kind of property is decided by goals.
bool has_goals(const Property& property);

/// Result for a part of the box.
struct Decision {
  bool decided = false;
  bool by_lines = false;
  double margin = 0;                   ///< minimum over the goals; -infinity without bounds
  std::size_t worst = 0;               ///< index of the goal
  std::vector<double> direction = {};  ///< for each input, how much the worst goal's bound changes with it
  Analysis::Bounds output = {};        ///< bounds of the outputs
  std::string why = {};
};
/// Uses interval bounds and, if they do not decide and `lines` is true, linear bounds.
Decision decide(Analysis& analysis, const Network& net, const Region& region, const std::vector<Goal>& goals,
                bool lines);

}  // namespace tessera::verification
