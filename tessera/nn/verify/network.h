// SPDX-License-Identifier: Apache-2.0
// A model for inputs of one shape as a graph of functions of vectors, with its weights in f64: what bounds go through.
// Internal.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/verify/curves.h"
#include "tessera/nn/verify/structure.h"

namespace tessera::verification {

/// A matrix, row by row as runs of neighbouring columns; several rows may share weights (a convolution's do).
struct Linear {
  struct Run {
    std::uint32_t column = 0, count = 0;
    std::size_t at = 0;  ///< of its first weight
  };
  std::int64_t rows = 0, columns = 0;
  std::vector<std::size_t> first;  ///< of each row its first run; one more at the end
  std::vector<Run> runs;
  std::vector<double> weights;
  std::vector<double> bias;      ///< by row
  std::vector<double> absolute;  ///< by row: the sum of |weight|, rounded up
  std::int64_t terms = 0;        ///< the most that are added in a row, with the bias
};

struct Node {
  enum class Kind : std::uint8_t {
    input,
    linear,
    diagonal,  ///< scale x + shift, with a relative error of the device's own
    curve,
    sum,      ///< of two nodes
    largest,  ///< of windows
    softmax,  ///< over groups
    within,   ///< nothing is known but bounds: norms
  };
  Kind kind = Kind::input;
  int from = -1, other = -1;
  std::int64_t size = 0;
  std::string path;
  std::shared_ptr<const Linear> linear = {};
  /// Of diagonal; `centre` and `inverse`, the running mean and 1 / its deviation, for their rounding.
  std::vector<double> scale = {}, shift = {}, centre = {}, inverse = {};
  Curve curve = {};
  std::vector<std::size_t> first = {};  ///< largest: where each window begins in `members`
  std::vector<std::uint32_t> members = {};
  std::int64_t count = 0, stride = 0;       ///< softmax: elements of a group, and how far apart
  std::vector<double> low = {}, high = {};  ///< within
  double limit = 0;                         ///< within: inputs up to this do not overflow
};

struct Network {
  std::vector<Node> nodes;  ///< each after those that it is given; the last is the output
  Shape input, output;      ///< of one sample
  /// Products of a call: rows, columns and depth of one sample's, and how many there are; with more samples there are
  /// more rows, or more columns.
  struct Product {
    std::int64_t m, n, k, count = 1;
    bool wider = false;
  };
  std::vector<Product> products;
  std::string unknown;  ///< why nothing can be said, or empty
  const Node& last() const { return nodes.back(); }
};

/// Of these layers for inputs of this shape. Whatever has no bounds makes `unknown`. ShapeError: the layers do not take
/// it.
Network network_of(const Layers& layers, const Shape& input);

}  // namespace tessera::verification
