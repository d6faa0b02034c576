// SPDX-License-Identifier: Apache-2.0
// Bounds of what a network gives for a region of inputs, as a device computes it in f32: by intervals, and by linear
// bounds taken back to the input (CROWN; Zhang et al., "Efficient Neural Network Robustness Certification with General
// Activation Functions", 2018). Internal.
//
// Everything is f64 with its own rounding added to the side that is safe: a sum of n products is within
// n 2^-52 sum |a||b| of what is computed, and with `reach` = sum |weight| max |x| + |bias| that is the same sum which a
// device's f32 is within gamma_n of (Higham). So both are one term.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/nn/verify/network.h"
#include "tessera/nn/verify/property.h"

namespace tessera::verification {

/// The unit round-off of the f64 in which bounds are computed.
constexpr double host64 = 0x1p-52;
inline double largest_of(double lo, double hi) { return std::max(std::abs(lo), std::abs(hi)); }

/// A box of floats, and the ball around another box that the inputs are in besides.
struct Region {
  std::vector<float> lo, hi;
};
struct Ball {
  std::vector<float> lo, hi;  ///< inputs are within `radius` of a point of this box
  double radius = 0;
  Norm norm = Norm::two;
};

/// Rows over a node's numbers.
struct Rows {
  std::int64_t count = 0, columns = 0;
  std::vector<double> at;
  double* row(std::int64_t r) { return at.data() + r * columns; }
  const double* row(std::int64_t r) const { return at.data() + r * columns; }
};

class Analysis {
 public:
  /// `stop` is asked between pieces of work; then bounds stay as good as they are.
  Analysis(const Network& net, const Ball* ball, std::function<bool()> stop = {})
      : net_(net), ball_(ball), stop_(std::move(stop)) {}

  /// Bounds of every node by intervals. False: some number may be infinite or NaN, and `why` says where.
  bool intervals(const Region& region);
  /// Tighter ones, by linear bounds of what goes into activations. After intervals, of the same region.
  bool linear();
  const std::string& why() const { return why_; }

  struct Bounds {
    std::vector<double> lo, hi;
  };
  const Bounds& of(int node) const { return nodes_[static_cast<std::size_t>(node)].bounds; }
  const Bounds& output() const { return nodes_.back().bounds; }
  /// A lower bound of each row times the node's numbers; by intervals, or by linear bounds as well (then `to_input`
  /// gets the coefficients of the input that each was found with).
  std::vector<double> lower_by_intervals(int node, const Rows& rows) const;
  std::vector<double> lower(int node, const Rows& rows, Rows* to_input = nullptr) const;
  /// Of all outputs, each times `sign`, where they are one softmax: of its exact sum 1; else -infinity.
  double softmax_sum(double sign) const;

 private:
  struct State {
    Bounds bounds;
    std::vector<double> error;  ///< of the device, by number
    std::vector<double> reach;  ///< what host sums are relative to, by number
    std::vector<Lines> lines;   ///< of curves
  };
  bool forward(std::size_t n);
  bool forward_linear(const Node& node, const Bounds& x, State& to);
  void forward_softmax(const Node& node, const Bounds& x, State& to);
  void tighten(int node, const std::vector<std::int64_t>& which);
  std::vector<std::int64_t> worth_tightening(const Node& user) const;
  bool asked_to_stop() const { return stop_ && stop_(); }
  void to_the_input(const Rows& a, std::vector<double>& constant, std::vector<double>& magnitude) const;

  const Network& net_;
  const Ball* ball_;
  std::function<bool()> stop_;
  Region region_;
  std::vector<State> nodes_;
  std::string why_;
};

}  // namespace tessera::verification
