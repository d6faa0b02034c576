// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/goals.h"

#include <algorithm>
#include <cmath>

namespace tessera::verification {

namespace {

Rows rows_of(const std::vector<Goal>& goals, const std::vector<std::size_t>& which, std::int64_t columns) {
  Rows rows{static_cast<std::int64_t>(which.size()), columns, {}};
  rows.at.assign(which.size() * static_cast<std::size_t>(columns), 0.0);
  for (std::size_t r = 0; r < which.size(); ++r)
    for (const auto& [output, factor] : goals[which[r]].terms) rows.row(static_cast<std::int64_t>(r))[output] = factor;
  return rows;
}

/// Goals that are not yet met, with their current bounds.
struct Waiting {
  std::vector<std::size_t> goals;
  std::vector<double> bounds;
};

void note(Decision& decision, const std::vector<Goal>& goals, const Waiting& waiting) {
  for (std::size_t i = 0; i < waiting.goals.size(); ++i) {
    const double margin = goals[waiting.goals[i]].margin(waiting.bounds[i]);
    if (i == 0 || margin < decision.margin) decision.margin = margin, decision.worst = waiting.goals[i];
  }
}

}  // namespace

bool has_goals(const Property& p) {
  using Kind = Property::Kind;
  return p.kind == Kind::finite || p.kind == Kind::bounded || p.kind == Kind::inequality ||
         p.kind == Kind::probabilities || p.kind == Kind::robust;
}

std::vector<Goal> goals_of(const Property& p, std::int64_t outputs, std::int64_t kept_class) {
  std::vector<Goal> out;
  const auto between = [&](double low, double high) {
    for (std::int64_t i = 0; i < outputs; ++i) {
      if (low > -infinity) out.push_back({{{i, 1.0}}, low});
      if (high < infinity) out.push_back({{{i, -1.0}}, -high});
    }
  };
  switch (p.kind) {
    case Property::Kind::bounded: between(p.low, p.high); break;
    case Property::Kind::inequality: {
      Goal goal{.at_least = -p.high};
      for (std::int64_t i = 0; i < outputs; ++i) {
        const double c = p.coefficients[static_cast<std::size_t>(i)];
        if (std::abs(c) >= 0x1p-500)
          goal.terms.emplace_back(i, -c);
        else if (c != 0)  // products with c could underflow in f64; they are below 2^-500 times the largest float
          goal.at_least = std::nextafter(goal.at_least + 0x1p-372, infinity);
      }
      out.push_back(std::move(goal));
      break;
    }
    case Property::Kind::probabilities: {
      between(0, 1 + p.tolerance);
      // The goal is slightly stricter than required, to cover rounding when a user adds up the outputs.
      for (const double sign : {1.0, -1.0}) {
        Goal goal{.at_least = sign > 0 ? 1 - p.tolerance + 1e-12 : -1 - p.tolerance + 1e-12, .whole_sum = true};
        for (std::int64_t i = 0; i < outputs; ++i) goal.terms.emplace_back(i, sign);
        out.push_back(std::move(goal));
      }
      break;
    }
    case Property::Kind::robust:
      for (std::int64_t i = 0; i < outputs; ++i)  // of several equal maxima, the first one is the class
        if (i != kept_class) out.push_back({{{kept_class, 1.0}, {i, -1.0}}, 0, i < kept_class});
      break;
    default: break;
  }
  return out;
}

Decision decide(Analysis& analysis, const Network& net, const Region& region, const std::vector<Goal>& goals,
                bool lines) {
  Decision out;
  out.margin = goals.empty() ? 0 : infinity;
  if (!analysis.intervals(region)) {
    out.margin = -infinity, out.why = analysis.why();
    return out;
  }
  const int last = static_cast<int>(net.nodes.size()) - 1;
  Waiting waiting;
  const auto keep = [&](const std::vector<std::size_t>& which, const std::vector<double>& bounds) {
    waiting = {};
    for (std::size_t i = 0; i < which.size(); ++i) {
      if (goals[which[i]].met(bounds[i]))
        out.margin = std::min(out.margin, goals[which[i]].margin(bounds[i]));
      else
        waiting.goals.push_back(which[i]), waiting.bounds.push_back(bounds[i]);
    }
  };
  std::vector<std::size_t> all(goals.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  std::vector<double> bounds = analysis.lower_by_intervals(last, rows_of(goals, all, net.last().size));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (goals[i].whole_sum) bounds[i] = std::max(bounds[i], analysis.softmax_sum(goals[i].terms[0].second));
  keep(all, bounds);
  out.output = analysis.output();
  if (!waiting.goals.empty() && lines) {
    out.by_lines = true;
    if (!analysis.linear()) {
      out.margin = -infinity, out.why = analysis.why();
      return out;
    }
    Rows to_input;
    const std::vector<std::size_t> which = waiting.goals;
    std::vector<double> before = waiting.bounds,
                        found = analysis.lower(last, rows_of(goals, which, net.last().size), &to_input);
    for (std::size_t i = 0; i < found.size(); ++i) found[i] = std::max(found[i], before[i]);
    keep(which, found);
    out.output = analysis.output();
    for (std::size_t i = 0; i < which.size(); ++i)
      if (const auto& terms = goals[which[i]].terms; terms.size() == 1 && std::abs(terms[0].second) == 1) {
        const auto at = static_cast<std::size_t>(terms[0].first);
        if (terms[0].second > 0)
          out.output.lo[at] = std::max(out.output.lo[at], found[i]);
        else
          out.output.hi[at] = std::min(out.output.hi[at], -found[i]);
      }
    note(out, goals, waiting);
    for (std::size_t i = 0; i < which.size() && !waiting.goals.empty(); ++i)
      if (which[i] == out.worst) {
        const double* row = to_input.row(static_cast<std::int64_t>(i));
        out.direction.assign(row, row + to_input.columns);
      }
  } else {
    note(out, goals, waiting);
  }
  out.decided = waiting.goals.empty();
  return out;
}

}  // namespace tessera::verification
