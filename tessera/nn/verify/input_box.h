// SPDX-License-Identifier: Apache-2.0
// Boxes of inputs, for proofs.
#pragma once

#include <string>
#include <vector>

#include "tessera/array/array.h"

namespace tessera {

/// All f32 inputs of one sample whose elements (in C order) are between two bounds, inclusive.
struct InputBox {
  Shape shape = {};                        ///< The shape of one sample.
  std::vector<float> low = {}, high = {};  ///< The lower and upper bound of each element.

  /// All elements have bounds `low` and `high`. Throws ArgumentError if they are not finite or not in this order.
  static InputBox of(const Shape& shape, float low, float high);
  static InputBox of(const Array& low, const Array& high);
  /// All inputs that differ by at most `radius` from a sample in each element (a ball of the infinity norm).
  static InputBox around(const Array& sample, double radius);
  /// A single input.
  static InputBox at(const Array& sample) { return around(sample, 0); }

  void check() const;                    ///< throws ArgumentError as above; ShapeError for bounds of another size
  bool holds(const float* input) const;  ///< True if each element of `input` is within its bounds.
};
std::string to_string(const InputBox& box);  ///< "(2,) from -1 to 1"

}  // namespace tessera
