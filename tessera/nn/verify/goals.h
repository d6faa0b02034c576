// SPDX-License-Identifier: Apache-2.0
// Goals: lower bounds that imply a property. Internal.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/verify/bounds.h"

namespace tessera::verification {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// The sum of outputs times coefficients must be at least `at_least`, or greater than `at_least` if `above` is set.
struct Goal {
  std::vector<std::pair<std::int64_t, double>> terms;
  double at_least = 0;
  bool above = false;
  bool whole_sum = false;  ///< the terms are all outputs, and their coefficients are all 1 or all -1

  double margin(double bound) const { return bound - at_least; }
  bool met(double bound) const { return above ? bound > at_least : bound >= at_least; }
};
/// Returns the goals for a model with this number of outputs. There are none for `finite`, because any finite bounds
/// prove it. `kept_class` is used for robust.
std::vector<Goal> goals_of(const Property& property, std::int64_t outputs, std::int64_t kept_class);
/// Returns true if properties of this kind are decided by goals.
bool has_goals(const Property& property);

/// The result for one part of the box.
struct Decision {
  bool decided = false;
  bool by_lines = false;
  double margin = 0;                   ///< minimum over the goals; -infinity if there are no bounds
  std::size_t worst = 0;               ///< index of the goal with the smallest margin
  std::vector<double> direction = {};  ///< for each input, how much the bound of the worst goal changes with it
  Analysis::Bounds output = {};        ///< bounds of the outputs
  std::string why = {};
};
/// Tries to prove the goals with interval bounds. If they do not suffice and `lines` is true, also uses linear bounds.
Decision decide(Analysis& analysis, const Network& net, const Region& region, const std::vector<Goal>& goals,
                bool lines);

}  // namespace tessera::verification
