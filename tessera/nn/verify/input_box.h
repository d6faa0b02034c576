// SPDX-License-Identifier: Apache-2.0
// Sets of inputs that proofs are about.
#pragma once

#include <string>
#include <vector>

#include "tessera/array/array.h"

namespace tessera {

/// All f32 inputs of one sample's shape whose numbers lie between two bounds each, in C order, both within.
struct InputBox {
  Shape shape = {};                        ///< The shape of one sample.
  std::vector<float> low = {}, high = {};  ///< The least and the greatest value of each element.

  /// Each number from `low` to `high`. ArgumentError: not finite, or not in this order.
  static InputBox of(const Shape& shape, float low, float high);
  static InputBox of(const Array& low, const Array& high);
  /// All within `radius` of a sample, in each number (the ball of the largest difference).
  static InputBox around(const Array& sample, double radius);
  /// One input alone.
  static InputBox at(const Array& sample) { return around(sample, 0); }

  void check() const;                    ///< ArgumentError as above; ShapeError: bounds of another size
  bool holds(const float* input) const;  ///< True if each element of `input` is within its bounds.
};
std::string to_string(const InputBox& box);  ///< "(2,) from -1 to 1"

}  // namespace tessera
