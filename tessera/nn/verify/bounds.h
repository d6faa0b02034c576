// SPDX-License-Identifier: Apache-2.0
// Bounds of a network's outputs for a region of inputs, as a device computes them in f32: by interval arithmetic, and
// by linear bounds propagated backward to the input (CROWN; Zhang et al., "Efficient Neural Network Robustness
// Certification with General Activation Functions", 2018). Internal.
//
// Everything is computed in f64, with its own rounding error added on the safe side: a sum of n products is within n
// 2^-52 sum |a||b| of the computed value, and `reach` = sum |weight| max |x| + |bias| is the same sum, which a device's
// f32 result is within gamma_n of (Higham). So both errors are one term.
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

/// Unit round-off bound used for the f64 computations.
constexpr double host64 = 0x1p-52;
inline double largest_of(double lo, double hi) { return std::max(std::abs(lo), std::abs(hi)); }

/// A box of floats, and a ball around another box that also contains the inputs.
struct Region {
  std::vector<float> lo, hi;
};
struct Ball {
  std::vector<float> lo, hi;  ///< inputs are within `radius` of a point of this box
  double radius = 0;
  Norm norm = Norm::two;
};

/// Coefficient rows over a node's elements.
struct Rows {
  std::int64_t count = 0, columns = 0;
  std::vector<double> at;
  double* row(std::int64_t r) { return at.data() + r * columns; }
  const double* row(std::int64_t r) const { return at.data() + r * columns; }
};

class Analysis {
 public:
  /// `stop` is called periodically; if it returns true, bounds are left as tight as they are.
  Analysis(const Network& net, const Ball* ball, Callback<bool()> stop = {})
      : net_(net), ball_(ball), stop_(std::move(stop)) {}

  /// Interval bounds of every node. Returns false if a number may be infinite or NaN; why() says where.
  bool intervals(const Region& region);
  /// Tightens the bounds by linear bounds of the activations' inputs. Call after intervals() with the same region.
  bool linear();
  const std::string& why() const { return why_; }

  struct Bounds {
    std::vector<double> lo, hi;
  };
  const Bounds& of(int node) const { return nodes_[static_cast<std::size_t>(node)].bounds; }
  const Bounds& output() const { return nodes_.back().bounds; }
  /// A lower bound of each row times the node's elements; by intervals, or by linear bounds as well (then `to_input`
  /// receives the input coefficients of each bound).
  std::vector<double> lower_by_intervals(int node, const Rows& rows) const;
  std::vector<double> lower(int node, const Rows& rows, Rows* to_input = nullptr) const;
  /// If all outputs are one softmax: lower bound of their sum times `sign`, from its exact value 1; otherwise
  /// -infinity.
  double softmax_sum(double sign) const;

 private:
  struct State {
    Bounds bounds;
    std::vector<double> error;  ///< error of the device, per element
    std::vector<double> reach;  ///< magnitude that host rounding is relative to, per element
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
  Callback<bool()> stop_;
  Region region_;
  std::vector<State> nodes_;
  std::string why_;
};

}  // namespace tessera::verification
