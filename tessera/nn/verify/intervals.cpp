// SPDX-License-Identifier: Apache-2.0
// Computation of interval bounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/nn/verify/bounds.h"

namespace tessera::verification {

namespace {

/// Returns true if every term of a row is at least 0 (`sign` is 1), or at most 0 (`sign` is -1). The sum then has the
/// same sign, regardless of rounding and flushing.
bool terms_have_sign(const Linear& m, std::size_t r, const Analysis::Bounds& x, double sign) {
  if (m.bias[r] * sign < 0) return false;
  for (std::size_t i = m.first[r]; i < m.first[r + 1]; ++i)
    for (std::uint32_t j = 0; j < m.runs[i].count; ++j) {
      const double w = m.weights[m.runs[i].at + j] * sign;
      const std::size_t column = m.runs[i].column + j;
      if (w > 0 ? x.lo[column] < 0 : w < 0 && x.hi[column] > 0) return false;
    }
  return true;
}

}  // namespace

bool Analysis::intervals(const Region& region) {
  region_ = region;
  nodes_.assign(net_.nodes.size(), {});
  why_.clear();
  nodes_[0].bounds = {{region.lo.begin(), region.lo.end()}, {region.hi.begin(), region.hi.end()}};
  for (std::size_t n = 1; n < net_.nodes.size(); ++n)
    if (!forward(n)) return false;
  return true;
}

/// Computes the bounds of node n from the bounds of its inputs. Keeps earlier bounds for the same region if they are
/// tighter.
bool Analysis::forward(std::size_t n) {
  const Node& node = net_.nodes[n];
  const Bounds& x = nodes_[static_cast<std::size_t>(node.from)].bounds;
  State& to = nodes_[n];
  const Bounds before = std::move(to.bounds);
  const auto size = static_cast<std::size_t>(node.size);
  to.bounds.lo.resize(size), to.bounds.hi.resize(size), to.error.assign(size, 0.0), to.reach.assign(size, 0.0);
  std::vector<double>&lo = to.bounds.lo, &hi = to.bounds.hi;
  bool overflows = false;
  switch (node.kind) {
    case Node::Kind::linear: overflows = !forward_linear(node, x, to); break;
    case Node::Kind::diagonal:
      for (std::size_t i = 0; i < size; ++i) {
        const double s = node.scale[i], m = node.centre[i], b = node.shift[i];
        const double far = largest_of(x.lo[i], x.hi[i]) + std::abs(m);
        to.reach[i] = far * std::abs(s) + std::abs(b);
        // The device computes a difference, the rsqrt of a sum, two products and a sum.
        to.error[i] = 12 * ulp32 * far * std::abs(s) + 2 * ulp32 * to.reach[i] +
                      smallest32 * (far * (1 + node.inverse[i]) + 4 * std::abs(s) + 4);
        const double a = (x.lo[i] - m) * s + b, c = (x.hi[i] - m) * s + b;
        const double slack = to.error[i] + 8 * host64 * to.reach[i];
        lo[i] = std::min(a, c) - slack, hi[i] = std::max(a, c) + slack;
        overflows |= !(to.reach[i] + slack < largest32 && far < largest32);
      }
      break;
    case Node::Kind::curve:
      for (std::size_t i = 0; i < size; ++i) {
        const Interval in{x.lo[i], x.hi[i]}, out = range(node.curve, in);
        to.error[i] = device_error(node.curve, in);
        lo[i] = out.lo - to.error[i] * (1 + host64), hi[i] = out.hi + to.error[i] * (1 + host64);
        // relu and sigmoid never return a number below 0, regardless of rounding and flushing.
        if (node.curve.kind == CurveKind::relu || node.curve.kind == CurveKind::sigmoid) lo[i] = std::max(lo[i], 0.0);
        // Intermediate results of gelu and silu may be as large as the argument.
        overflows |= !(largest_of(lo[i], hi[i]) < largest32 && largest_of(in.lo, in.hi) < largest32 / 4);
      }
      break;
    case Node::Kind::sum: {
      const Bounds& y = nodes_[static_cast<std::size_t>(node.other)].bounds;
      for (std::size_t i = 0; i < size; ++i) {
        to.reach[i] = largest_of(x.lo[i], x.hi[i]) + largest_of(y.lo[i], y.hi[i]);
        to.error[i] = ulp32 * to.reach[i] + 3 * smallest32;
        const double slack = to.error[i] + 4 * host64 * to.reach[i];
        lo[i] = x.lo[i] + y.lo[i] - slack, hi[i] = x.hi[i] + y.hi[i] + slack;
        if (x.lo[i] >= 0 && y.lo[i] >= 0) lo[i] = std::max(lo[i], 0.0);
        if (x.hi[i] <= 0 && y.hi[i] <= 0) hi[i] = std::min(hi[i], 0.0);
        overflows |= !(to.reach[i] + slack < largest32);
      }
      break;
    }
    case Node::Kind::largest:
      for (std::size_t i = 0; i < size; ++i) {
        lo[i] = hi[i] = -std::numeric_limits<double>::infinity();
        for (std::size_t m = node.first[i]; m < node.first[i + 1]; ++m)
          lo[i] = std::max(lo[i], x.lo[node.members[m]]), hi[i] = std::max(hi[i], x.hi[node.members[m]]);
        to.error[i] = smallest32;
        // Flushing produces 0, and never changes the sign.
        lo[i] = lo[i] >= 0 ? std::max(lo[i] - smallest32, 0.0) : lo[i] - smallest32;
        hi[i] = hi[i] <= 0 ? std::min(hi[i] + smallest32, 0.0) : hi[i] + smallest32;
      }
      break;
    case Node::Kind::softmax: forward_softmax(node, x, to); break;
    case Node::Kind::within:
      for (std::size_t i = 0; i < x.lo.size(); ++i) overflows |= !(largest_of(x.lo[i], x.hi[i]) < node.limit);
      lo = node.low, hi = node.high;
      break;
    case Node::Kind::input: break;
  }
  if (overflows) {
    why_ = fmt::format("numbers within layer {} may overflow f32", node.path);
    return false;
  }
  for (std::size_t i = 0; i < before.lo.size(); ++i)
    lo[i] = std::max(lo[i], before.lo[i]), hi[i] = std::min(hi[i], before.hi[i]);
  // Reject elements that are unbounded or NaN.
  for (std::size_t i = 0; i < size; ++i)
    if (!(lo[i] <= hi[i])) {
      why_ = fmt::format("no bounds of layer {}", node.path);
      return false;
    }
  if (node.kind == Node::Kind::curve) {
    to.lines.resize(size);
    for (std::size_t i = 0; i < size; ++i) {
      to.lines[i] = lines(node.curve, {x.lo[i], x.hi[i]});
      const Lines& l = to.lines[i];
      const double far = largest_of(x.lo[i], x.hi[i]);
      to.reach[i] = std::max(std::abs(l.below_slope) * far + std::abs(l.below),
                             std::abs(l.above_slope) * far + std::abs(l.above));
    }
  }
  return true;
}

bool Analysis::forward_linear(const Node& node, const Bounds& x, State& to) {
  const Linear& m = *node.linear;
  const std::size_t columns = x.lo.size();
  std::vector<double> centre(columns), radius(columns), far(columns);
  double all_far = 0;
  for (std::size_t i = 0; i < columns; ++i) {
    centre[i] = x.lo[i] + (x.hi[i] - x.lo[i]) / 2;
    radius[i] = std::max(x.hi[i] - centre[i], centre[i] - x.lo[i]) * (1 + host64);
    far[i] = largest_of(x.lo[i], x.hi[i]);
    all_far = std::max(all_far, far[i]);
  }
  const double rounding = gamma32(m.terms + 2), n = static_cast<double>(m.terms);
  const double host = (2 * n + 16) * host64;
  bool fits = true;
  for (std::size_t r = 0; r < static_cast<std::size_t>(m.rows); ++r) {
    double middle = 0, around = 0, reach = 0;
    for (std::size_t i = m.first[r]; i < m.first[r + 1]; ++i) {
      const Linear::Run& run = m.runs[i];
      const double* w = m.weights.data() + run.at;
      const double *c = centre.data() + run.column, *d = radius.data() + run.column, *f = far.data() + run.column;
      for (std::uint32_t j = 0; j < run.count; ++j) {
        const double size = std::abs(w[j]);
        middle += w[j] * c[j], around += size * d[j], reach += size * f[j];
      }
    }
    reach = (reach + std::abs(m.bias[r])) * (1 + host);
    to.reach[r] = reach;
    // Each product, sum and operand may be flushed to zero.
    to.error[r] = rounding * reach + (1 + rounding) * smallest32 * (2 * n + 4 + m.absolute[r] + n * all_far);
    const double slack = to.error[r] + host * reach;
    double &lo = to.bounds.lo[r], &hi = to.bounds.hi[r];
    lo = middle + m.bias[r] - around - slack, hi = middle + m.bias[r] + around + slack;
    if (lo < 0 && lo >= -4 * slack && terms_have_sign(m, r, x, 1)) lo = 0;
    if (hi > 0 && hi <= 4 * slack && terms_have_sign(m, r, x, -1)) hi = 0;
    fits &= reach + slack < largest32;
  }
  return fits;
}

// p_i = exp(x_i - top) / sum of exp(x_j - top). The argument of exp is a rounded difference. Below -88, the result is
// flushed to zero, so the relative error is at most 88 u.
struct SoftmaxErrors {
  double relative, absolute;
};
static SoftmaxErrors softmax_errors(const Node& node) {
  const double one = (exp_ulp + 1) * ulp32 + 90 * unit32;
  return {2.5 * one + gamma32(node.count + 8) + (divide_ulp + 2) * ulp32,
          smallest32 * static_cast<double>(2 * node.count + 8)};
}
double Analysis::softmax_sum(double sign) const {
  const Node& node = net_.last();
  if (node.kind != Node::Kind::softmax || node.count != node.size) return -std::numeric_limits<double>::infinity();
  const auto [relative, absolute] = softmax_errors(node);
  const double error = relative + static_cast<double>(node.count) * (absolute + 4 * host64);
  return (sign > 0 ? 1 : -1) - error;
}
void Analysis::forward_softmax(const Node& node, const Bounds& x, State& to) {
  const auto [relative, absolute] = softmax_errors(node);
  for (std::int64_t start = 0; start < node.size; ++start) {
    if (start / node.stride % node.count != 0) continue;
    const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(start + i * node.stride); };
    for (std::int64_t i = 0; i < node.count; ++i) {
      double least = 1, most = 1;
      for (std::int64_t j = 0; j < node.count; ++j) {
        if (j == i) continue;
        most += std::exp(x.hi[at(j)] - x.lo[at(i)]), least += std::exp(x.lo[at(j)] - x.hi[at(i)]);
      }
      const double host = static_cast<double>(node.count + 8) * 1e-14;
      to.bounds.lo[at(i)] = std::max(0.0, 1 / most * (1 - relative - host) - absolute);
      // In any order of adding non-negative numbers, no term is larger than the computed sum.
      to.bounds.hi[at(i)] =
          std::min(1 + (2 * exp_ulp + divide_ulp + 4) * ulp32, 1 / least * (1 + relative + host) + absolute);
    }
  }
}

std::vector<double> Analysis::lower_by_intervals(int node, const Rows& rows) const {
  const Bounds& x = of(node);
  std::vector<double> out(static_cast<std::size_t>(rows.count));
  for (std::int64_t r = 0; r < rows.count; ++r) {
    double sum = 0, magnitude = 0, terms = 0;
    bool exact = true;  // the row has a single coefficient, 1 or -1
    const double* a = rows.row(r);
    for (std::int64_t i = 0; i < rows.columns; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double bound = a[i] > 0 ? x.lo[at] : x.hi[at];
      if (a[i] == 0 || bound == 0) continue;
      sum += a[i] * bound;
      // The rounding error of a subnormal product is at most that of the smallest normal number.
      magnitude += std::max(std::abs(a[i] * bound), std::numeric_limits<double>::min());
      exact = ++terms == 1 && std::abs(a[i]) == 1;
    }
    out[static_cast<std::size_t>(r)] = exact ? sum : sum - magnitude * (terms + 4) * host64;
  }
  return out;
}

}  // namespace tessera::verification
