// SPDX-License-Identifier: Apache-2.0
// A model for inputs of one shape as a graph of vector functions, with its weights in f64, on which bounds are
// computed. Internal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/verify/curves.h"
#include "tessera/nn/verify/structure.h"

namespace tessera::verification {

/// A matrix whose rows are runs of adjacent columns; several rows may share weights (as in a convolution).
struct Linear {
  struct Run {
    std::uint32_t column = 0, count = 0;
    std::size_t at = 0;  ///< index of its first weight
  };
  std::int64_t rows = 0, columns = 0;
  std::vector<std::size_t> first;  ///< first run of each row; plus an end entry
  std::vector<Run> runs;
  std::vector<double> weights;
  std::vector<double> bias;      ///< by row
  std::vector<double> absolute;  ///< by row: sum of |weight|, rounded up
  std::int64_t terms = 0;        ///< largest number of terms of a row, with the bias
};

struct Node {
  enum class Kind : std::uint8_t {
    input,
    linear,
    diagonal,  ///< scale x + shift, with an explicit device error
    curve,
    sum,      ///< of two nodes
    largest,  ///< maximum of windows
    softmax,  ///< over groups
    within,   ///< only bounds are known: norms
  };
  Kind kind = Kind::input;
  int from = -1, other = -1;
  std::int64_t size = 0;
  std::string path;
  std::shared_ptr<const Linear> linear = {};
  /// For diagonal. `centre` and `inverse` (running mean and 1 / standard deviation) are used for its rounding error.
  std::vector<double> scale = {}, shift = {}, centre = {}, inverse = {};
  Curve curve = {};
  std::vector<std::size_t> first = {};  ///< largest: start of each window in `members`
  std::vector<std::uint32_t> members = {};
  std::int64_t count = 0, stride = 0;       ///< softmax: elements per group, and their distance
  std::vector<double> low = {}, high = {};  ///< within
  double limit = 0;                         ///< within: inputs up to this magnitude do not overflow
};

struct Network {
  std::vector<Node> nodes;  ///< in topological order; the last is the output
  Shape input, output;      ///< of one sample
  /// Matrix products of a call: rows, columns and depth for one sample, and their number; more samples add rows or
  /// columns.
  struct Product {
    std::int64_t m, n, k, count = 1;
    bool wider = false;
  };
  std::vector<Product> products;
  std::string unknown;  ///< why there are no bounds, or empty
  const Node& last() const { return nodes.back(); }
};

/// Builds the network of these layers for an input shape. `unknown` is set if a layer has no bounds. Throws ShapeError
/// if the layers do not accept the shape.
Network network_of(const Layers& layers, const Shape& input);

}  // namespace tessera::verification
