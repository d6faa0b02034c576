// SPDX-License-Identifier: Apache-2.0
// A model for inputs of one shape, as a graph of vector functions with weights in f64. Bounds are computed on this
// graph. Internal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/verify/curves.h"
#include "tessera/nn/verify/structure.h"

namespace tessera::verification {

/// A sparse matrix. Each row consists of runs of adjacent columns. Several rows may share weights, as in a convolution.
struct Linear {
  struct Run {
    std::uint32_t column = 0, count = 0;
    std::size_t at = 0;  ///< index of the run's first weight
  };
  std::int64_t rows = 0, columns = 0;
  std::vector<std::size_t> first;  ///< index of each row's first run, followed by the number of runs
  std::vector<Run> runs;
  std::vector<double> weights;
  std::vector<double> bias;      ///< one value for each row
  std::vector<double> absolute;  ///< for each row: sum of |weight|, rounded up
  std::int64_t terms = 0;        ///< largest number of terms in a row, including the bias
};

struct Node {
  enum class Kind : std::uint8_t {
    input,
    linear,
    diagonal,  ///< scale x + shift; the device error is computed explicitly
    curve,
    sum,      ///< sum of two nodes
    largest,  ///< maximum of windows
    softmax,  ///< softmax over groups of elements
    within,   ///< norms, for which only the range of the result is known
  };
  Kind kind = Kind::input;
  int from = -1, other = -1;
  std::int64_t size = 0;
  std::string path;
  std::shared_ptr<const Linear> linear = {};
  /// For `diagonal`. The rounding error depends on `centre` and `inverse` (running mean and 1 / standard deviation).
  std::vector<double> scale = {}, shift = {}, centre = {}, inverse = {};
  Curve curve = {};
  std::vector<std::size_t> first = {};  ///< largest: start of each window in `members`
  std::vector<std::uint32_t> members = {};
  std::int64_t count = 0, stride = 0;       ///< softmax: number of elements in a group, and the distance between them
  std::vector<double> low = {}, high = {};  ///< within: bounds of the result
  double limit = 0;                         ///< within: inputs up to this magnitude do not overflow
};

struct Network {
  std::vector<Node> nodes;  ///< in topological order; the last node is the output
  Shape input, output;      ///< shapes of one sample
  /// The matrix products of a call: rows, columns and depth for one sample, and the number of such products. With more
  /// samples, a product has more rows, or more columns if `wider` is set.
  struct Product {
    std::int64_t m, n, k, count = 1;
    bool wider = false;
  };
  std::vector<Product> products;
  std::string unknown;  ///< why bounds cannot be computed; empty if they can
  const Node& last() const { return nodes.back(); }
};

/// Builds the network of these layers for an input shape. Sets `unknown` if bounds are not supported for a layer.
/// Throws ShapeError if the layers do not accept the shape.
Network network_of(const Layers& layers, const Shape& input);

}  // namespace tessera::verification
