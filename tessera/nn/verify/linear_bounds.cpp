// SPDX-License-Identifier: Apache-2.0
// Linear bounds, which are propagated backward from node to node.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/nn/verify/bounds.h"

namespace tessera::verification {

namespace {

constexpr std::int64_t rows_at_once = 64;

Rows zeros(std::int64_t count, std::int64_t columns) {
  return {count, columns, std::vector<double>(static_cast<std::size_t>(count * columns), 0.0)};
}

}  // namespace

/// For each element, computes lower bounds of the unit row and of the negated unit row, which are the element's lower
/// and upper bounds.
void Analysis::tighten(int node, const std::vector<std::int64_t>& which) {
  State& state = nodes_[static_cast<std::size_t>(node)];
  for (std::size_t begin = 0; begin < which.size() && !asked_to_stop(); begin += rows_at_once / 2) {
    const std::size_t end = std::min(which.size(), begin + rows_at_once / 2);
    Rows rows = zeros(static_cast<std::int64_t>(2 * (end - begin)), net_.nodes[static_cast<std::size_t>(node)].size);
    for (std::size_t i = begin; i < end; ++i) {
      rows.row(static_cast<std::int64_t>(2 * (i - begin)))[which[i]] = 1;
      rows.row(static_cast<std::int64_t>(2 * (i - begin) + 1))[which[i]] = -1;
    }
    const std::vector<double> found = lower(node, rows);
    for (std::size_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(which[i]);
      state.bounds.lo[at] = std::max(state.bounds.lo[at], found[2 * (i - begin)]);
      state.bounds.hi[at] = std::min(state.bounds.hi[at], -found[2 * (i - begin) + 1]);
    }
  }
}

/// Returns the elements of the input of `user` whose bounds affect its relaxation.
std::vector<std::int64_t> Analysis::worth_tightening(const Node& user) const {
  std::vector<std::int64_t> out;
  if (user.kind != Node::Kind::curve && user.kind != Node::Kind::largest && user.kind != Node::Kind::softmax)
    return out;
  const Bounds& x = of(user.from);
  for (std::size_t i = 0; i < x.lo.size(); ++i)
    if (user.kind != Node::Kind::curve || !is_linear(user.curve, {x.lo[i], x.hi[i]}))
      out.push_back(static_cast<std::int64_t>(i));
  return out;
}

bool Analysis::linear() {
  for (std::size_t n = 1; n < net_.nodes.size(); ++n) {
    const Node& node = net_.nodes[n];
    // The elements of the first layer are linear functions of the input. For a box, their interval bounds are as tight
    // as linear bounds. For a ball, they are not.
    const bool first = node.from == 0 || net_.nodes[static_cast<std::size_t>(node.from)].from == 0;
    if (!first || ball_ != nullptr) tighten(node.from, worth_tightening(node));
    if (!forward(n)) return false;
  }
  return true;
}

std::vector<double> Analysis::lower(int target, const Rows& rows, Rows* to_input) const {
  const std::int64_t m = rows.count;
  std::vector<Rows> waiting(static_cast<std::size_t>(target) + 1);
  waiting[static_cast<std::size_t>(target)] = rows;
  std::vector<double> constant(static_cast<std::size_t>(m), 0.0), magnitude = constant;
  double terms = 16;
  const auto for_node = [&](int n) -> Rows& {
    Rows& a = waiting[static_cast<std::size_t>(n)];
    if (a.count == 0) a = zeros(m, net_.nodes[static_cast<std::size_t>(n)].size);
    return a;
  };
  for (int n = target; n > 0; --n) {
    const Rows a = std::move(waiting[static_cast<std::size_t>(n)]);
    if (a.count == 0) continue;
    const Node& node = net_.nodes[static_cast<std::size_t>(n)];
    const State& state = nodes_[static_cast<std::size_t>(n)];
    const Bounds& x = of(node.from);
    Rows& back = for_node(node.from);
    const double n_terms = static_cast<double>(node.size);
    terms += n_terms;
    for (std::int64_t r = 0; r < m; ++r) {
      const double* row = a.row(r);
      double* to = back.row(r);
      double sum = 0, size = 0;
      for (std::int64_t j = 0; j < node.size; ++j) {
        const double w = row[j];
        if (w == 0) continue;
        const auto at = static_cast<std::size_t>(j);
        const double much = std::abs(w);
        switch (node.kind) {
          case Node::Kind::linear: {
            const Linear& l = *node.linear;
            for (std::size_t i = l.first[at]; i < l.first[at + 1]; ++i) {
              const Linear::Run& run = l.runs[i];
              const double* weights = l.weights.data() + run.at;
              double* column = to + run.column;
              for (std::uint32_t k = 0; k < run.count; ++k) column[k] += w * weights[k];
            }
            sum += w * l.bias[at] - much * state.error[at];
            // The new coefficients are sums of up to size + 1 rounded products of values within `reach`.
            size += much * (state.reach[at] + state.error[at]);
            break;
          }
          case Node::Kind::diagonal:
            to[j] += w * node.scale[at];
            sum += w * (node.shift[at] - node.centre[at] * node.scale[at]) - much * state.error[at];
            size += much * (state.reach[at] + state.error[at]);
            break;
          case Node::Kind::curve: {
            const Lines& l = state.lines[at];
            to[j] += w * (w > 0 ? l.below_slope : l.above_slope);
            sum += w * (w > 0 ? l.below : l.above) - much * state.error[at];
            size += much * (state.reach[at] + state.error[at]);
            break;
          }
          case Node::Kind::sum:
            to[j] += w;
            sum -= much * state.error[at];
            size += much * (state.reach[at] + state.error[at]);
            break;
          case Node::Kind::largest: {
            // For the lower bound, any member can be used. For the upper bound, use the member that exceeds all others,
            // or else the largest upper bound.
            std::uint32_t best = node.members[node.first[at]];
            for (std::size_t i = node.first[at]; i < node.first[at + 1]; ++i)
              if (x.lo[node.members[i]] > x.lo[best]) best = node.members[i];
            bool alone = true;
            for (std::size_t i = node.first[at]; i < node.first[at + 1]; ++i)
              alone &= node.members[i] == best || x.hi[node.members[i]] <= x.lo[best];
            if (w > 0 || alone)
              to[best] += w;
            else
              sum += w * state.bounds.hi[at];
            sum -= much * state.error[at];
            size += much * (largest_of(x.lo[best], x.hi[best]) + largest_of(state.bounds.lo[at], state.bounds.hi[at]));
            break;
          }
          default:  // softmax and within use their interval bounds
            sum += w * (w > 0 ? state.bounds.lo[at] : state.bounds.hi[at]);
            size += much * largest_of(state.bounds.lo[at], state.bounds.hi[at]);
            break;
        }
      }
      constant[static_cast<std::size_t>(r)] += sum;
      magnitude[static_cast<std::size_t>(r)] += size;
    }
    if (node.kind == Node::Kind::sum) {
      Rows& other = for_node(node.other);
      for (std::size_t i = 0; i < a.at.size(); ++i) other.at[i] += a.at[i];
    }
  }
  Rows& input = for_node(0);
  to_the_input(input, constant, magnitude);
  terms += 2 * static_cast<double>(input.columns);
  // A path from the target to the input has as many roundings as there are nodes. Each rounding is relative to the
  // magnitude. Sums have `terms` terms.
  const double host = (terms + 8 * static_cast<double>(net_.nodes.size())) * host64;
  for (std::size_t r = 0; r < constant.size(); ++r) {
    constant[r] -= magnitude[r] * host;
    if (std::isnan(constant[r])) constant[r] = -std::numeric_limits<double>::infinity();
  }
  if (to_input != nullptr) *to_input = std::move(input);
  return constant;
}

/// Adds, for each row, the larger of its minimum over the box and its minimum over the ball.
void Analysis::to_the_input(const Rows& a, std::vector<double>& constant, std::vector<double>& magnitude) const {
  for (std::int64_t r = 0; r < a.count; ++r) {
    const double* row = a.row(r);
    double box = 0, size = 0;
    for (std::int64_t i = 0; i < a.columns; ++i) {
      const auto at = static_cast<std::size_t>(i);
      box += row[i] * static_cast<double>(row[i] > 0 ? region_.lo[at] : region_.hi[at]);
      size += std::abs(row[i]) * largest_of(region_.lo[at], region_.hi[at]);
    }
    if (ball_ != nullptr && ball_->norm != Norm::infinity) {
      // The minimum over the ball's box, minus the radius times the dual norm of the row.
      double centre = 0, squares = 0, most = 0, ball_size = 0;
      for (std::int64_t i = 0; i < a.columns; ++i) {
        const auto at = static_cast<std::size_t>(i);
        centre += row[i] * static_cast<double>(row[i] > 0 ? ball_->lo[at] : ball_->hi[at]);
        squares += row[i] * row[i], most = std::max(most, std::abs(row[i]));
        ball_size += std::abs(row[i]) * largest_of(ball_->lo[at], ball_->hi[at]);
      }
      const double dual = ball_->norm == Norm::two ? std::sqrt(squares) : most;
      box = std::max(box, centre - ball_->radius * dual * (1 + static_cast<double>(a.columns + 8) * host64));
      size = std::max(size, ball_size + ball_->radius * dual);
    }
    constant[static_cast<std::size_t>(r)] += box;
    magnitude[static_cast<std::size_t>(r)] += size;
  }
}

}  // namespace tessera::verification
