// SPDX-License-Identifier: Apache-2.0
// What must be bounded from below for a property to hold. Internal.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/verify/bounds.h"

namespace tessera::verification {

/// Outputs times coefficients, in sum, are `at_least` this much; `above`: more.
struct Goal {
  std::vector<std::pair<std::int64_t, double>> terms;
  double at_least = 0;
  bool above = false;
  bool whole_sum = false;  ///< of all outputs, each times 1 or each times -1

  double margin(double bound) const { return bound - at_least; }
  bool met(double bound) const { return above ? bound > at_least : bound >= at_least; }
};
/// Of a model of so many outputs; none for `finite`, which bounds of any size decide. `kept_class`: of robust.
std::vector<Goal> goals_of(const Property& property, std::int64_t outputs, std::int64_t kept_class);
/// Whether the kind of property is one that goals decide.
bool has_goals(const Property& property);

/// What a part of the box comes to.
struct Decision {
  bool decided = false;
  bool by_lines = false;
  double margin = 0;                   ///< the least over the goals; -infinity without bounds
  std::size_t worst = 0;               ///< the goal
  std::vector<double> direction = {};  ///< of each input, how much the worst goal's bound falls with it
  Analysis::Bounds output = {};        ///< what the outputs are within
  std::string why = {};
};
/// By intervals, and then, if they do not decide and `lines` says so, by linear bounds.
Decision decide(Analysis& analysis, const Network& net, const Region& region, const std::vector<Goal>& goals,
                bool lines);

}  // namespace tessera::verification
