// SPDX-License-Identifier: Apache-2.0
// Computes bounds of a network's outputs over a region of inputs. The bounds hold for the f32 results of a device. Uses
// interval arithmetic, and linear bounds that are propagated backward to the input (CROWN; Zhang et al., "Efficient
// Neural Network Robustness Certification with General Activation Functions", 2018). Internal.
//
// Bounds are computed in f64 and widened by the f64 rounding error: a sum of n products differs from the computed value
// by at most n 2^-52 sum |a||b|. A device computes the same sum in f32, with an error of at most gamma_n (Higham) times
// `reach` = sum |weight| max |x| + |bias|. Both errors are proportional to `reach`, so they are added as a single term.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/nn/verify/network.h"
#include "tessera/nn/verify/property.h"

namespace tessera::verification {

/// Unit round-off that is assumed for f64 computations.
constexpr double host64 = 0x1p-52;
inline double largest_of(double lo, double hi) { return std::max(std::abs(lo), std::abs(hi)); }

/// Region is a box of floats. Ball contains all inputs within a radius of another box.
struct Region {
  std::vector<float> lo, hi;
};
struct Ball {
  std::vector<float> lo, hi;  ///< inputs are within `radius` of a point of this box
  double radius = 0;
  Norm norm = Norm::two;
};

/// Rows of coefficients, with one column for each element of a node.
struct Rows {
  std::int64_t count = 0, columns = 0;
  std::vector<double> at;
  double* row(std::int64_t r) { return at.data() + r * columns; }
  const double* row(std::int64_t r) const { return at.data() + r * columns; }
};

class Analysis {
 public:
  /// `stop` is called periodically. If it returns true, the bounds are no longer tightened.
  Analysis(const Network& net, const Ball* ball, Callback<bool()> stop = {})
      : net_(net), ball_(ball), stop_(std::move(stop)) {}

  /// Computes interval bounds of all nodes. Returns false if a number may be infinite or NaN; why() then returns the
  /// reason.
  bool intervals(const Region& region);
  /// Tightens the bounds with linear bounds of the inputs of activations. Must be called after intervals(), which sets
  /// the region.
  bool linear();
  const std::string& why() const { return why_; }

  struct Bounds {
    std::vector<double> lo, hi;
  };
  const Bounds& of(int node) const { return nodes_[static_cast<std::size_t>(node)].bounds; }
  const Bounds& output() const { return nodes_.back().bounds; }
  /// Returns a lower bound of the product of each row and the node's elements. lower_by_intervals uses intervals only.
  /// lower uses linear bounds as well, and stores the input coefficients of each bound in `to_input`.
  std::vector<double> lower_by_intervals(int node, const Rows& rows) const;
  std::vector<double> lower(int node, const Rows& rows, Rows* to_input = nullptr) const;
  /// If the outputs are the result of one softmax, returns a lower bound of their sum times `sign`. The exact sum is 1.
  /// Otherwise returns -infinity.
  double softmax_sum(double sign) const;

 private:
  struct State {
    Bounds bounds;
    std::vector<double> error;  ///< device error, per element
    std::vector<double> reach;  ///< magnitude to which rounding errors on the host are proportional, per element
    std::vector<Lines> lines;   ///< linear bounds of curves
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
  Callback<bool()> stop_;
  Region region_;
  std::vector<State> nodes_;
  std::string why_;
};

}  // namespace tessera::verification
